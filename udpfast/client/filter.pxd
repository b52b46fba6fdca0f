# Filter: which records a reader's strategy gets to see. Evaluated on the run that a source brought,
# before any Python object is made of it.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.client.record cimport NameCache
from udpfast.core.layout cimport Record

cdef enum:
    FILTER_KINDS = 64            # kinds are below it
    NAME_UNKNOWN = 0             # not asked for yet
    NAME_WANTED = 1
    NAME_UNWANTED = 2

cdef class NameFilter:
    cdef frozenset _wanted       # str; None: any
    cdef bytearray _states       # by id: NAME_UNKNOWN, ...
    cdef uint8_t* _known         # their start
    cdef uint32_t _known_size

    cdef bint passes(self, uint32_t name_id, NameCache names) except -1
    cdef forget(self)

cdef class Filter:
    cdef uint8_t _kinds[FILTER_KINDS]
    cdef NameFilter _exchanges
    cdef NameFilter _symbols
    cdef NameCache _names        # that the states of both are of

    # Keep those of records [first, end) that pass, at [first, first + kept); return kept.
    cdef int64_t select(
        self, Record* headers, uint64_t* offsets, const uint8_t* payloads, int64_t first,
        int64_t end, NameCache names) except -1
    cdef bint _passes(self, const Record* header, const uint8_t* payload) except -1
