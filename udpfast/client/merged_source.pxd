# MergedSource: several sources as one stream, in the order of their records' publication.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.client.source cimport PolledSource, Source
from udpfast.core.layout cimport Record

cdef class Member:
    cdef Source source
    cdef str address
    cdef uint32_t place              # in the list, from 1 on
    cdef int64_t next                # of its records in memory, the first not handed on
    cdef int64_t count
    cdef uint64_t missed             # before that one, not said yet
    cdef uint64_t read               # records handed on
    cdef bint ended
    cdef const Record* ahead(self) noexcept
    cdef int look(self, int64_t limit) except -1

cdef class MergedSource(PolledSource):
    cdef list members
    cdef Member current              # whose records the last wait brought
    cdef Member failing
    cdef int64_t code                # why that one failed
    cdef int64_t room
    cdef int64_t _run(self, Member member, int64_t limit) except -1
    cdef int64_t _hand_on(self, Member member, int64_t count) except -1
    cdef _enlarge(self, uint64_t size)
    cdef _use_names(self)
