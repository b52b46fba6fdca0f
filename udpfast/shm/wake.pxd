# Wake: how a writer that knows no readers wakes those that sleep in an event loop.
#
#   reader   watches the file (inotify); before it sleeps: asleep = 1, then check once more
#   writer   once per turn: usually asleep == 0, and that is all. Otherwise asleep = 0, and one
#            write() into the file, which wakes everybody who watches it
#
# It has a file of its own, because readers write into it. The writer trusts nothing in it: a lying
# reader costs one system call per WAKE_PAUSE_NS. No descriptor is passed between processes, the
# writer knows no reader, and a dead reader leaves nothing behind.
#
# If a reader sets the word just after the writer looked, the writer finds it in its next turn,
# microseconds later, and so needs no fence. A reader that began to watch before it set the word
# gets the next write(), whichever reader caused it.

from libc.stdint cimport int64_t, uint8_t, uint64_t
from posix.unistd cimport pwrite

from udpfast.core.atomics cimport fence_full, load_relaxed, store_relaxed
from udpfast.core.check cimport likely
from udpfast.shm.region cimport Region

cdef enum:
    WAKE_PAUSE_NS = 50_000       # a sleeper takes longer than that to wake up at all

# 0 RegionHeader | 128 asleep | 192 rung

cdef struct WakeHeader:
    uint8_t region[128]
    uint64_t asleep          # set by readers, cleared by the writer
    uint8_t pad_asleep[56]
    uint64_t rung            # target of write(), which notifies the file's watchers

cdef struct Waker:
    WakeHeader* header       # NULL: there are no readers to wake
    int fd
    uint64_t woken           # the ring's position at the last wake-up
    int64_t woken_ns


cdef inline void waker_turn(Waker* waker, uint64_t position, int64_t now_ns) noexcept nogil:
    # Called once per turn of the writer's loop; position: of the next record. Likely: nobody
    # sleeps.
    if likely(waker.header == NULL or load_relaxed(&waker.header.asleep) == 0):
        return
    if position != waker.woken and now_ns - waker.woken_ns >= WAKE_PAUSE_NS:
        waker_wake(waker, position, now_ns)


cdef inline void waker_wake(Waker* waker, uint64_t position, int64_t now_ns) noexcept nogil:
    waker.woken = position
    waker.woken_ns = now_ns
    # Cleared before the write: a reader that sets it from here on has not been woken yet.
    store_relaxed(&waker.header.asleep, 0)
    # Orders the 0 before the write that wakes. A reader that is woken, checks and sleeps again
    # (arm) must find the 0 and set the word anew; a 0 that arrived later would erase its word.
    fence_full()
    # If it fails, sleepers still check by themselves some time later.
    pwrite(waker.fd, &position, sizeof(position), 192)


cdef class WakeRegion:
    cdef readonly Region region
    cdef Waker waker

cdef class Sleeper:
    cdef readonly Region region
    cdef WakeHeader* _header
    cdef int _fd
