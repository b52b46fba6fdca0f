# CopiedNames: the one name table of a composite's copy. Each input has a name table of its own, so
# the ids in its records are rewritten before they are appended to the copy.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.client.record cimport NameCache
from udpfast.core.layout cimport Record

cdef class CopiedNames:
    cdef readonly uint32_t number    # number of the current table; 0: no names yet
    cdef readonly uint32_t mark      # identifies that table's file in the headers of segments
    cdef bint _durable
    cdef object _files               # StoreNames
    cdef object _region              # the table's region, open only while names are added
    cdef object _table               # NameTable
    cdef object _capacity            # names that the current table has room for
    cdef dict _inputs                # by input: (its NameCache, {its id: id in the copy})

    cdef bint take(
        self, int64_t input, NameCache names, const Record* headers, const uint64_t* offsets,
        uint8_t* payloads, int64_t count) except -1
    cdef int _learn(self, NameCache names, dict known, uint32_t name_id) except -1
