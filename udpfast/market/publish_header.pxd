# The common beginning of an instrument's updates, and STALE and RECOVERED.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from udpfast.core.layout cimport (
    KIND_RECOVERED, KIND_STALE, OBJECT_LIVE, OBJECT_STALE, ObjectState, RECORD_DOUBT,
    RECORD_UNGATED, WAIT_SNAPSHOT, WAIT_SNAPSHOT_ABSENT)
from udpfast.market.change cimport LEVELS_BY_PLACE, LEVELS_NONE, LEVELS_OF_ORDERS, change_undouble
from udpfast.market.found cimport Found
from udpfast.market.instrument cimport (
    FACE_IMPLIED, FACE_LEVELS, FACE_ORDERS, UNSTORED_ROOM, Face, Instrument)
from udpfast.market.market cimport STREAM_NOWHERE, Market
from udpfast.market.update_header cimport OBJECT_IMPLIED, OBJECT_ORDERS
from udpfast.market.updates cimport UpdateHeader

cdef enum:  # values of the schema
    UPDATE_SNAPSHOT = 1
    UPDATE_INCREMENTAL = 2


cdef inline double price_of(
        const Market* market, const Instrument* i, int64_t price) noexcept nogil:
    # Return the double nearest to the decimal price.
    if market.traits.doubles:
        return change_undouble(price)
    if -(<int64_t>1 << 53) <= price <= <int64_t>1 << 53:
        return <double>price / market.price_units[i.decimals]
    return <double>(<long double>price / market.price_units[i.decimals])


cdef inline double quantity_of(const Market* market, int64_t quantity) noexcept nogil:
    return change_undouble(quantity) if market.traits.doubles else <double>quantity


cdef inline bint face_sure(const Market* market, const Instrument* i, int which) noexcept nogil:
    cdef const Face* face = &i.face[which]
    if market.traits.levels == LEVELS_OF_ORDERS:
        face = &i.face[FACE_LEVELS]
    if not i.measured and (which != FACE_ORDERS or market.traits.levels != LEVELS_BY_PLACE):
        return False  # prices mean nothing yet, or it is unknown which levels fall out of a side
    return face.status == OBJECT_LIVE and face.sure == market.streams[i.stream].gaps


cdef inline UpdateHeader* header_clear(
        const Market* market, const Instrument* i, uint8_t* into, uint32_t size) noexcept nogil:
    # Clear in two parts, for which the compiler writes out the stores. For the whole it would use
    # `rep stos`, which takes longer to start than these stores take.
    cdef UpdateHeader* header = <UpdateHeader*>into
    memset(into, 0, 64)
    memset(into + 64, 0, size - 64)
    header.exchange_time_utc = i.time_ns
    header.exchange_sequence = market.message.number
    header.sending_time_utc = market.message.sent_ns
    if not market.traits.doubles:
        header.price_precision = <uint8_t>(i.decimals + 1)
        header.quantity_precision = 1
    return header


cdef inline UpdateHeader* header_begin(
        Market* market, const Instrument* i, int face, uint8_t* into, uint32_t size,
        Found* told) noexcept nogil:
    cdef UpdateHeader* header = header_clear(market, i, into, size)
    tell_whose(market, i, face, told)
    header.exchange_id = told.exchange_id
    header.symbol_id = told.symbol_id
    told.size = size
    return header


cdef inline void tell_whose(
        const Market* market, const Instrument* i, int face, Found* told) noexcept nogil:
    memset(told, 0, sizeof(Found))
    told.exchange_id = i.implied_id if face == FACE_IMPLIED else i.exchange_id
    told.symbol_id = i.symbol_id
    told.object = i.symbol_id
    told.names_full = (told.exchange_id == 0) + (i.unstored == UNSTORED_ROOM)
    if face == FACE_IMPLIED:
        told.object |= OBJECT_IMPLIED
    elif face == FACE_ORDERS:
        told.object |= OBJECT_ORDERS
    told.flags = RECORD_UNGATED
    if i.stream == STREAM_NOWHERE:
        return                   # it was defined, but had no change yet
    if market.traits.levels != LEVELS_NONE and not face_sure(market, i, face):
        told.flags |= RECORD_DOUBT
    told.stream = i.stream + 1
    told.session = market.streams[i.stream].session


cdef inline int32_t state_write(
        Market* market, const Instrument* i, int face, int kind, bint continues, uint8_t* into,
        Found* told) noexcept nogil:
    cdef ObjectState* state = <ObjectState*>into
    tell_whose(market, i, face, told)
    memset(into, 0, sizeof(ObjectState))
    state.object = told.object
    state.status = OBJECT_LIVE if kind == KIND_RECOVERED else OBJECT_STALE
    if kind == KIND_STALE:
        state.waits = WAIT_SNAPSHOT if market.heals else WAIT_SNAPSHOT_ABSENT
    state.continues = continues
    state.applied = market.message.number
    state.exchange_id = told.exchange_id
    state.symbol_id = told.symbol_id
    told.size = sizeof(ObjectState)
    return kind
