# ReadRecord: one record, copied out of the ring, with the names for its ids. An iteration makes one
# per record; loops that cannot afford an object per record use batches (batch.pxd).

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.core.layout cimport RECORD_SIZE, Record

cdef class Reading:
    # What one Reader reads: Books know from it whose records they have, and it knows those Books.
    cdef str address
    cdef object books            # WeakSet of Books

cdef class NameCache:
    cdef readonly object table   # market.names.NameTable, or None
    cdef readonly dict senders   # names of a bus's senders, by number
    cdef list _names             # names decoded so far, by id
    cdef uint32_t source         # if several sources are read as one: its place, from 1; else 0
    cdef object address          # if several sources are read as one: its address; else None
    cdef Reading reading         # of the Reader that hands out the records; None: of none so far

    cdef object name(self, uint32_t name_id)
    cdef list words(self)

cdef class ReadRecord:
    cdef bytes _bytes            # header and payload, owned by this record
    cdef const Record* _record   # points to _bytes (a packed struct: needs no alignment)
    cdef NameCache _names

cdef ReadRecord record_copy(const Record* header, const uint8_t* payload, NameCache names)
cdef ReadRecord record_lapped(
    uint64_t index, uint64_t position, uint64_t count, uint32_t reason, NameCache names)


cdef inline const uint8_t* record_payload(ReadRecord record) noexcept:
    # Valid as long as the record.
    return <const uint8_t*> record._record + RECORD_SIZE
