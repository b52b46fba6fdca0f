# Finds the ids of exchange and symbol in a record, for all who need them.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from udpfast.core.layout cimport (
    KIND_BUS, KIND_RECOVERED, KIND_STALE, KIND_UPDATES, ObjectState, RECORD_SIZE, Record)
from udpfast.market.update_header cimport UpdateHeader

cdef packed struct NameIds:      # as in updates and ObjectState, at any alignment
    uint32_t exchange_id         # name table; 0: no name
    uint32_t symbol_id


cdef inline NameIds* record_name_ids(const Record* header, const uint8_t* payload) noexcept nogil:
    # Return NULL if records of this kind name nothing (such as an app's messages), or if it is too
    # short.
    cdef int64_t size = header.length - RECORD_SIZE
    if KIND_UPDATES <= header.kind < KIND_BUS:
        if size >= <int64_t>sizeof(UpdateHeader):
            return <NameIds*>&(<UpdateHeader*>payload).exchange_id
    elif header.kind == KIND_STALE or header.kind == KIND_RECOVERED:
        if size >= <int64_t>sizeof(ObjectState):
            return <NameIds*>&(<ObjectState*>payload).exchange_id
    return NULL
