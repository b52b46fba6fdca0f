# Filter: decides which records a reader hands out. It works on the run that a source returned,
# before any Python object is made.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.client.record cimport NameCache
from udpfast.core.layout cimport Record

cdef enum:
    FILTER_KINDS = 64            # every kind is less than this
    NAME_UNKNOWN = 0             # not looked up yet
    NAME_WANTED = 1
    NAME_UNWANTED = 2

cdef class NameFilter:
    cdef frozenset _wanted       # str; None: any name passes
    cdef bytearray _states       # by id: NAME_UNKNOWN, ...
    cdef uint8_t* _known         # points to the bytes of _states
    cdef uint32_t _known_size

    cdef bint passes(self, uint32_t name_id, NameCache names) except -1
    cdef forget(self)

cdef class Filter:
    cdef uint8_t _kinds[FILTER_KINDS]
    cdef NameFilter _exchanges
    cdef NameFilter _symbols
    cdef NameCache _names        # the names that the states of both filters refer to

    # Move those of records [first, end) that pass to [first, first + kept); return kept.
    cdef int64_t select(
        self, Record* headers, uint64_t* offsets, const uint8_t* payloads, int64_t first,
        int64_t end, NameCache names) except -1
    cdef bint _passes(self, const Record* header, const uint8_t* payload) except -1
