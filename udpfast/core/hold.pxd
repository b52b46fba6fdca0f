# Hold: a thread works on something all the time, in turns; another one touches it once in a while.
# The worker never waits: where the other is at it, its turn does nothing. The other waits for the
# end of a turn. One worker, and any number of others of whom one runs at a time (they have the
# GIL); theirs may nest.

from libc.stdint cimport uint64_t

from udpfast.core.atomics cimport fence_full, load_acquire, store_relaxed, store_release

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef struct Hold:
    uint64_t working             # 1: the worker's turn
    uint64_t asked               # by how many of the others


cdef inline bint hold_enter(Hold* h) noexcept nogil:
    # The worker's turn begins; False: not now.
    if load_acquire(&h.asked):
        return False
    store_relaxed(&h.working, 1)
    fence_full()  # each side says what it wants before it looks at the other
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
        sched_yield()  # the worker may be waiting for this very core


cdef inline void hold_give(Hold* h) noexcept nogil:
    store_release(&h.asked, h.asked - 1)  # read by hold_enter
