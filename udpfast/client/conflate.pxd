# Latest: of each object the newest record only, for a strategy that is slower than the feed.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.client.books cimport Books
from udpfast.client.filter cimport FILTER_KINDS
from udpfast.client.reader cimport Reader
from udpfast.core.keyed cimport Key
from udpfast.core.layout cimport Record

cdef struct LatestObject:
    uint64_t tag                 # (exchange_id << 32) | symbol_id
    uint32_t kind                # and, above 16 bits, the source's place among several
    uint32_t number              # (object_type << 16) | object_id
    int64_t record               # its newest of the run in memory, if it is in that at all
    int64_t poll                 # that `place` speaks of
    int64_t place                # of its record among those that this poll returns

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
    cdef bint _renumbered        # a session began: the next poll begins with no objects
    cdef int64_t* _object_of     # by record of a run; -1: not conflated
    cdef int64_t _poll
    cdef list _found             # by the current poll; None where something newer came
    cdef list _pending           # of the iteration, last one first
    cdef object _failure         # that ended the poll before; None: none did

    cdef _take_run(self)
    cdef int64_t _note(
        self, const Record* header, const uint8_t* payload, uint32_t source,
        int64_t i) except -2
    cdef int _grow(self) except -1
