# Hold: mutual exclusion of a worker thread, which uses something in turns all the time, and other
# threads that touch it now and then. The worker never waits: if another thread has it, the worker's
# turn does nothing. The others wait for the end of a turn. There is one worker, and of the others
# one runs at a time (they have the GIL); their holds may nest.

from libc.stdint cimport uint64_t

from udpfast.core.atomics cimport fence_full, load_acquire, store_relaxed, store_release

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef struct Hold:
    uint64_t working             # 1: during the worker's turn
    uint64_t asked               # number of holds of the others


cdef inline bint hold_enter(Hold* h) noexcept nogil:
    # Begin the worker's turn. False: another thread has it.
    if load_acquire(&h.asked):
        return False
    store_relaxed(&h.working, 1)
    fence_full()  # each side stores its own word before it loads the other's
    if load_acquire(&h.asked):
        store_release(&h.working, 0)
        return False
    return True


cdef inline void hold_leave(Hold* h) noexcept nogil:
    store_release(&h.working, 0)  # read by hold_take


cdef inline void hold_take(Hold* h) noexcept nogil:
    store_relaxed(&h.asked, h.asked + 1)
    fence_full()
    while load_acquire(&h.working):
        sched_yield()  # the worker may be waiting for this core


cdef inline void hold_give(Hold* h) noexcept nogil:
    store_release(&h.asked, h.asked - 1)  # read by hold_enter
