# Wake: how a reader that sleeps in an event loop is woken by a writer that knows no readers.
#
#   reader   watches the file (inotify); before it sleeps: asleep = 1, then one more look
#   writer   once per turn: asleep == 0, as a rule, and that is all. Otherwise asleep = 0, and one
#            write() into the file, which wakes everybody who watches it
#
# The file is its own, because readers write into it. The writer believes nothing that is in it: a
# reader that lies costs one system call per WAKE_PAUSE_NS. No descriptor is handed from process to
# process, the writer knows no reader, and a dead one leaves nothing behind.
#
# A word that is set just when the writer looks is found by its next turn, microseconds later: so
# the writer needs no fence. A reader that watches since before it set the word gets the write()
# that follows, whoever's word it was.

from libc.stdint cimport int64_t, uint8_t, uint64_t
from posix.unistd cimport pwrite

from udpfast.core.atomics cimport fence_full, load_relaxed, store_relaxed
from udpfast.core.check cimport likely
from udpfast.shm.region cimport Region

cdef enum:
    WAKE_PAUSE_NS = 50_000       # a sleeper needs longer to be awake at all

# 0 RegionHeader | 128 asleep | 192 rung

cdef struct WakeHeader:
    uint8_t region[128]
    uint64_t asleep          # set by readers, cleared by the writer
    uint8_t pad_asleep[56]
    uint64_t rung            # written by write(): what watchers of the file are told of

cdef struct Waker:
    WakeHeader* header       # NULL: there is nobody to wake
    int fd
    uint64_t woken           # the ring's position when sleepers were woken last
    int64_t woken_ns


cdef inline void waker_turn(Waker* waker, uint64_t position, int64_t now_ns) noexcept nogil:
    # Once per turn of the writer's loop; position: of the next record. Likely: nobody sleeps.
    if likely(waker.header == NULL or load_relaxed(&waker.header.asleep) == 0):
        return
    if position != waker.woken and now_ns - waker.woken_ns >= WAKE_PAUSE_NS:
        waker_wake(waker, position, now_ns)


cdef inline void waker_wake(Waker* waker, uint64_t position, int64_t now_ns) noexcept nogil:
    waker.woken = position
    waker.woken_ns = now_ns
    # Before the write: a word set from here on belongs to who has not looked yet.
    store_relaxed(&waker.header.asleep, 0)
    # Orders the 0 before the write that wakes: who is woken by it, looks, and sleeps again (arm)
    # finds the 0 and sets the word anew. Seen later, the 0 would wipe out what that reader set.
    fence_full()
    # Should it fail, sleepers look by themselves, some time later.
    pwrite(waker.fd, &position, sizeof(position), 192)


cdef class WakeRegion:
    cdef readonly Region region
    cdef Waker waker

cdef class Sleeper:
    cdef readonly Region region
    cdef WakeHeader* _header
    cdef int _fd
