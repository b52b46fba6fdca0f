# MergedSource: several sources as one stream, in the order in which records were published.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.client.source cimport PolledSource, Source
from udpfast.core.layout cimport Record

cdef class Member:
    cdef Source source
    cdef str address
    cdef uint32_t place              # in the list of addresses, from 1
    cdef int64_t next                # index in memory of its first record not handed on yet
    cdef int64_t count               # records in memory
    cdef uint64_t missed             # records missed before `next` and not reported yet
    cdef uint64_t read               # records handed on
    cdef bint ended
    cdef bint dry                    # its source had nothing when it was last looked at
    cdef const Record* ahead(self) noexcept
    cdef int look(self, int64_t limit) except -1

cdef class MergedSource(PolledSource):
    cdef list members
    cdef Member current              # the member whose records the last wait returned
    cdef Member failing              # the member whose source failed
    cdef int64_t code                # the -errno of its failure
    cdef int64_t room                # bytes of payloads_array
    cdef uint64_t turn               # polls so far
    cdef _begin_again(self)
    cdef int64_t _run(self, Member member, int64_t limit) except -1
    cdef int64_t _hand_on(self, Member member, int64_t count) except -1
    cdef _enlarge(self, uint64_t size)
    cdef _use_names(self)
