# CopiedNames: the one table of names that the records of a composite's copy go by. Inputs have
# tables of their own: ids are rewritten as records pass, before they are appended.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.client.record cimport NameCache
from udpfast.core.layout cimport Record

cdef class CopiedNames:
    cdef readonly uint32_t number    # of the table that records go by; 0: there were no names yet
    cdef readonly uint32_t mark
    cdef bint _durable
    cdef object _files               # StoreNames
    cdef object _region              # of the table, while names are added
    cdef object _table               # NameTable
    cdef object _capacity
    cdef dict _inputs                # by input: (NameCache, {its id: the copy's})

    cdef bint take(
        self, int64_t input, NameCache names, const Record* headers, const uint64_t* offsets,
        uint8_t* payloads, int64_t count) except -1
    cdef int _learn(self, NameCache names, dict known, uint32_t name_id) except -1
