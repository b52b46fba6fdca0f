# Latest: only the newest record of each object, for a strategy that is slower than the feed.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.client.books cimport Books
from udpfast.client.filter cimport FILTER_KINDS
from udpfast.client.reader cimport Reader
from udpfast.core.keyed cimport Key
from udpfast.core.layout cimport Record

cdef struct LatestObject:
    uint64_t tag                 # (exchange_id << 32) | symbol_id
    uint32_t kind                # above 16 bits: the source's place among several
    uint32_t number              # (object_type << 16) | object_id
    int64_t record               # index of its newest record in the run in memory, if it has one
    int64_t poll                 # the poll that `place` belongs to
    int64_t place                # index of its record in `_found`

cdef class Latest:
    cdef readonly Reader reader
    cdef readonly Books books
    cdef readonly uint64_t superseded
    cdef uint8_t _kept[FILTER_KINDS]
    cdef LatestObject* _objects
    cdef uint32_t _count         # of objects
    cdef uint32_t* _slots        # index of an object + 1, 0: empty; at most half full
    cdef uint32_t _slots_mask
    cdef Key _key                # of the slots
    cdef bint _renumbered        # a session began: the next poll starts with no objects
    cdef int64_t* _object_of     # by record of a run: index of its object; -1: not conflated
    cdef int64_t _poll           # number of the current poll
    cdef list _found             # records of the current poll; None: a newer one superseded it
    cdef list _pending           # records that the iteration has yet to return, the next one last
    cdef object _failure         # error that the next poll raises; None: no error

    cdef _take_run(self)
    cdef int64_t _note(
        self, const Record* header, const uint8_t* payload, uint32_t source,
        int64_t i) except -2
    cdef int _grow(self) except -1
