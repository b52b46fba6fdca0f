# OrderQueues: the resting orders of one instrument, from ORDERS records. Rows lie in one array and
# are found by id. Queues are built only on demand, so that an update costs one lookup per row.

from libc.stdint cimport uint32_t, uint8_t

from udpfast.market.updates cimport Order

cdef class OrderQueues:
    cdef Order* _rows
    cdef uint32_t _count
    cdef uint32_t _room
    cdef dict _places            # id -> index of its row
    cdef readonly bint stale
    cdef bint contested          # another object has the same name
    cdef object name             # (exchange, symbol)

    cdef _apply(self, const uint8_t* rows, uint32_t count, bint snapshot)
    cdef _put(self, const Order* row, bytes name)
    cdef _drop(self, bytes name)
    cdef _clear(self)
    cdef _queue(self, int side, object count)
    cdef _levels(self, int side, object count)
