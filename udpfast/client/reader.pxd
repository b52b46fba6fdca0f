# Reader: a cursor in a ring, a way to wait, names for ids. One reader, one thread.

from libc.stdint cimport int64_t, uint64_t

from udpfast.client.batch cimport BatchMemory
from udpfast.client.record cimport NameCache
from udpfast.core.idle cimport Idle
from udpfast.shm.cursor cimport RingCursor
from udpfast.shm.readers cimport ReaderEntry, ReaderRegistration

cdef class Reader:
    cdef RingCursor _cursor
    cdef BatchMemory _memory
    cdef NameCache _names
    cdef object _names_region
    cdef ReaderRegistration _registration  # for tools: they see our name and our lag
    cdef ReaderEntry* _entry     # of the registration; NULL once it is closed
    cdef Idle _idle
    cdef int64_t _batch          # records that one poll may take
    cdef int64_t _next           # of the run in memory: the first record not handed out yet
    cdef int64_t _count          # records of the run in memory
    cdef int64_t _looked_ns      # when _fill last looked whether the ring is still there
    cdef int64_t _names_looked_ns  # when _fill last looked for names in vain
    cdef uint64_t _read          # records handed out
    cdef uint64_t _missed        # before the record at _next, not said yet
    cdef bint _waiting           # a thread is in _wait, without the GIL
    cdef bint _closing           # close() was called meanwhile
    cdef readonly str address
    cdef readonly object directory

    cdef int64_t _fill(self, int64_t limit, int64_t deadline_ns) except -2
    cdef int64_t _wait(self, int64_t limit, int64_t until_ns) noexcept nogil
    cdef _look_for_names(self)
    cdef _report(self)
    cdef bint _closed(self)
    cdef _check_open(self)
    cdef _detach(self)
