# ReadRecord: one record, copied out of the ring, with names for its ids. The Reader makes one per
# record of an iteration; loops that cannot afford an object per record use batches (batch.pxd).

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.core.layout cimport RECORD_SIZE, Record

cdef class NameCache:
    cdef readonly object table   # market.names.NameTable, or None
    cdef readonly dict senders   # of a bus: names by number
    cdef list _names             # by id, as far as they were asked for
    cdef uint32_t source         # of several that are read as one: its place among them, from 1 on
    cdef object address          # the same as its address; None: of one that is read alone

    cdef object name(self, uint32_t name_id)

cdef class ReadRecord:
    cdef bytes _bytes            # header and payload: the record's own
    cdef const Record* _record   # their start (a packed struct: any alignment will do)
    cdef NameCache _names

cdef ReadRecord record_copy(const Record* header, const uint8_t* payload, NameCache names)
cdef ReadRecord record_lapped(
    uint64_t index, uint64_t position, uint64_t count, uint32_t reason, NameCache names)


cdef inline const uint8_t* record_payload(ReadRecord record) noexcept:
    # Valid as long as the record.
    return <const uint8_t*> record._record + RECORD_SIZE
