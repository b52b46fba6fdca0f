# Reader: a source of records, a way to wait, and how far they are handed out. One reader, one
# thread.

from libc.stdint cimport int64_t, uint64_t

from udpfast.client.batch cimport BatchMemory
from udpfast.client.source cimport Source
from udpfast.core.idle cimport Idle

cdef class Reader:
    cdef Source _source
    cdef BatchMemory _memory     # the source's arrays
    cdef Idle _idle
    cdef int64_t _batch          # records that one poll may take
    cdef int64_t _next           # of the run in memory: the first record not handed out yet
    cdef int64_t _count          # records of the run in memory
    cdef int64_t _looked_ns      # when _fill last looked whether the source is still there
    cdef uint64_t _read          # records handed out
    cdef uint64_t _missed        # before the record at _next, not said yet
    cdef bint _waiting           # a thread is in the source's wait, without the GIL
    cdef readonly str address

    cdef int64_t _fill(self, int64_t limit, int64_t deadline_ns) except -2
    cdef bint _closed(self)
    cdef _check_open(self)
