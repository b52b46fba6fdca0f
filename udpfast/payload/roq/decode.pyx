"""Decode event payloads into the fixed layouts of `updates.pxd`."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memset

from udpfast.core.check cimport likely, unlikely
from udpfast.core.layout cimport *
from udpfast.core.update_kinds cimport *
from udpfast.market.found cimport *
from udpfast.market.names cimport Names, NameTable
from udpfast.market.updates cimport *
from udpfast.payload.roq.fast cimport fast_decode
from udpfast.payload.roq.flatbuffer cimport VTABLE_SLOTS, Verification, event_verify
from udpfast.payload.roq.general cimport *
from udpfast.payload.roq.schema cimport *

import enum
from typing import NamedTuple

from udpfast.core.layout import Kind, RecordFlag

__all__ = ["Decoded", "Decoder", "Outcome", "decode", "size_bound"]


class Outcome(enum.IntEnum):
    """What a decoder found instead of an update; the values are negative, as kinds never are."""

    REFUSED = OUTCOME_REFUSED
    NONE = OUTCOME_NONE
    OPAQUE = OUTCOME_OPAQUE
    UNKNOWN = OUTCOME_UNKNOWN
    ROOM = OUTCOME_ROOM
    STREAM_STATUS = OUTCOME_STREAM_STATUS


cdef struct Target:  # where one update goes
    uint8_t* into
    uint32_t room
    Names* names
    DecodeContext* context
    Table event
    Table value


cdef inline uint32_t _count(const uint8_t* vector) noexcept nogil:
    return load_u32(vector) if vector != NULL else 0


cdef inline UpdateHeader* _begin(
        Target* target, uint32_t fixed, uint32_t rows, uint32_t row_size) noexcept nogil:
    # Check the room and clear the fixed part. Return NULL if the room is too small.
    cdef UpdateHeader* header = <UpdateHeader*> target.into
    target.context.size = fixed + rows * row_size
    if unlikely(target.context.size > target.room):
        return NULL
    memset(header, 0, fixed)
    header.row_count = rows
    fill_source(header, &target.event)
    return header


cdef inline void _market(
        Target* target, UpdateHeader* header, uint32_t exchange, uint32_t symbol,
        uint32_t update_type, uint32_t sending_time) noexcept nogil:
    # Fill in what all types about one instrument have, by their slots; 0: this type has none.
    cdef const Table* value = &target.value
    header.exchange_id = fill_name(
        table_reference(value, exchange), target.names, target.context, True)
    header.symbol_id = fill_name(table_reference(value, symbol), target.names, target.context)
    target.context.exchange_id = header.exchange_id
    target.context.symbol_id = header.symbol_id
    header.sending_time_utc = <int64_t> table_u64(value, sending_time)
    if update_type:
        header.update_type = table_u8(value, update_type)


cdef inline void _times(
        Target* target, UpdateHeader* header, uint32_t stream_id, uint32_t exchange_time,
        uint32_t exchange_sequence) noexcept nogil:
    cdef const Table* value = &target.value
    header.stream_id = table_u16(value, stream_id)
    header.exchange_time_utc = <int64_t> table_u64(value, exchange_time)
    header.exchange_sequence = table_u64(value, exchange_sequence)


cdef inline void _precisions(
        Target* target, UpdateHeader* header, uint32_t price, uint32_t quantity) noexcept nogil:
    header.price_precision = table_u8(&target.value, price)
    header.quantity_precision = table_u8(&target.value, quantity)


cdef int32_t _book(Target* target) noexcept nogil:
    cdef const Table* value = &target.value
    cdef const uint8_t* bids = table_reference(value, SLOT_MARKET_BY_PRICE_UPDATE_BIDS)
    cdef const uint8_t* asks = table_reference(value, SLOT_MARKET_BY_PRICE_UPDATE_ASKS)
    cdef uint32_t bid_count = _count(bids), ask_count = _count(asks)
    cdef Book* book = <Book*> target.into
    cdef Level* levels = <Level*> (target.into + sizeof(Book))
    cdef LevelShape[VTABLE_SLOTS] shapes
    cdef int slot
    cdef UpdateHeader* header = _begin(
        target, sizeof(Book), bid_count + ask_count, sizeof(Level))
    if header == NULL:
        return OUTCOME_ROOM
    _market(target, header, SLOT_MARKET_BY_PRICE_UPDATE_EXCHANGE,
            SLOT_MARKET_BY_PRICE_UPDATE_SYMBOL, SLOT_MARKET_BY_PRICE_UPDATE_UPDATE_TYPE,
            SLOT_MARKET_BY_PRICE_UPDATE_SENDING_TIME_UTC)
    _times(target, header, SLOT_MARKET_BY_PRICE_UPDATE_STREAM_ID,
           SLOT_MARKET_BY_PRICE_UPDATE_EXCHANGE_TIME_UTC,
           SLOT_MARKET_BY_PRICE_UPDATE_EXCHANGE_SEQUENCE)
    _precisions(target, header, SLOT_MARKET_BY_PRICE_UPDATE_PRICE_PRECISION,
                SLOT_MARKET_BY_PRICE_UPDATE_QUANTITY_PRECISION)
    header.max_depth = table_u16(value, SLOT_MARKET_BY_PRICE_UPDATE_MAX_DEPTH)
    for slot in range(VTABLE_SLOTS):
        shapes[slot].vtable = NULL
    book.bid_count = bid_count
    book.ask_count = ask_count
    if bids != NULL:
        header.present |= PRESENT_ROWS
        fill_levels(levels, bids, shapes)
    if asks != NULL:
        header.present |= PRESENT_ASKS
        fill_levels(levels + bid_count, asks, shapes)
    return KIND_BOOK


cdef int32_t _orders(Target* target) noexcept nogil:
    cdef const Table* value = &target.value
    cdef const uint8_t* rows = table_reference(value, SLOT_MARKET_BY_ORDER_UPDATE_ORDERS)
    cdef Orders* orders = <Orders*> target.into
    cdef Table row
    cdef uint32_t i
    cdef UpdateHeader* header = _begin(target, sizeof(Orders), _count(rows), sizeof(Order))
    if header == NULL:
        return OUTCOME_ROOM
    _market(target, header, SLOT_MARKET_BY_ORDER_UPDATE_EXCHANGE,
            SLOT_MARKET_BY_ORDER_UPDATE_SYMBOL, SLOT_MARKET_BY_ORDER_UPDATE_UPDATE_TYPE,
            SLOT_MARKET_BY_ORDER_UPDATE_SENDING_TIME_UTC)
    _times(target, header, SLOT_MARKET_BY_ORDER_UPDATE_STREAM_ID,
           SLOT_MARKET_BY_ORDER_UPDATE_EXCHANGE_TIME_UTC,
           SLOT_MARKET_BY_ORDER_UPDATE_EXCHANGE_SEQUENCE)
    _precisions(target, header, SLOT_MARKET_BY_ORDER_UPDATE_PRICE_PRECISION,
                SLOT_MARKET_BY_ORDER_UPDATE_QUANTITY_PRECISION)
    header.max_depth = table_u16(value, SLOT_MARKET_BY_ORDER_UPDATE_MAX_DEPTH)
    orders.checksum = table_u32(value, SLOT_MARKET_BY_ORDER_UPDATE_CHECKSUM)
    header.present |= PRESENT_ROWS if rows != NULL else 0
    for i in range(header.row_count):
        row = table_at(follow(rows + 4 + 4 * i))
        fill_order(<Order*> (target.into + sizeof(Orders)) + i, &row, target.context)
    return KIND_ORDERS


cdef int32_t _top_of_book(Target* target) noexcept nogil:
    cdef UpdateHeader* header = _begin(target, sizeof(TopOfBook), 0, 0)
    if header == NULL:
        return OUTCOME_ROOM
    _market(target, header, SLOT_TOP_OF_BOOK_EXCHANGE, SLOT_TOP_OF_BOOK_SYMBOL,
            SLOT_TOP_OF_BOOK_UPDATE_TYPE, SLOT_TOP_OF_BOOK_SENDING_TIME_UTC)
    _times(target, header, SLOT_TOP_OF_BOOK_STREAM_ID, SLOT_TOP_OF_BOOK_EXCHANGE_TIME_UTC,
           SLOT_TOP_OF_BOOK_EXCHANGE_SEQUENCE)
    _precisions(target, header, SLOT_TOP_OF_BOOK_PRICE_PRECISION,
                SLOT_TOP_OF_BOOK_QUANTITY_PRECISION)
    fill_top_of_book(<TopOfBook*> target.into, &target.value)
    return KIND_TOP_OF_BOOK


cdef int32_t _trades(Target* target) noexcept nogil:
    cdef const uint8_t* rows = table_reference(&target.value, SLOT_TRADE_SUMMARY_TRADES)
    cdef Table row
    cdef uint32_t i
    cdef UpdateHeader* header = _begin(target, sizeof(Trades), _count(rows), sizeof(Trade))
    if header == NULL:
        return OUTCOME_ROOM
    _market(target, header, SLOT_TRADE_SUMMARY_EXCHANGE, SLOT_TRADE_SUMMARY_SYMBOL, 0,
            SLOT_TRADE_SUMMARY_SENDING_TIME_UTC)
    _times(target, header, SLOT_TRADE_SUMMARY_STREAM_ID, SLOT_TRADE_SUMMARY_EXCHANGE_TIME_UTC,
           SLOT_TRADE_SUMMARY_EXCHANGE_SEQUENCE)
    _precisions(target, header, SLOT_TRADE_SUMMARY_PRICE_PRECISION,
                SLOT_TRADE_SUMMARY_QUANTITY_PRECISION)
    header.present |= PRESENT_ROWS if rows != NULL else 0
    for i in range(header.row_count):
        row = table_at(follow(rows + 4 + 4 * i))
        fill_trade(<Trade*> (target.into + sizeof(Trades)) + i, &row, target.context)
    return KIND_TRADES


cdef int32_t _statistics(Target* target) noexcept nogil:
    cdef const uint8_t* rows = table_reference(
        &target.value, SLOT_STATISTICS_UPDATE_STATISTICS)
    cdef Table row
    cdef uint32_t i
    cdef UpdateHeader* header = _begin(
        target, sizeof(Statistics), _count(rows), sizeof(Statistic))
    if header == NULL:
        return OUTCOME_ROOM
    _market(target, header, SLOT_STATISTICS_UPDATE_EXCHANGE, SLOT_STATISTICS_UPDATE_SYMBOL,
            SLOT_STATISTICS_UPDATE_UPDATE_TYPE, SLOT_STATISTICS_UPDATE_SENDING_TIME_UTC)
    _times(target, header, SLOT_STATISTICS_UPDATE_STREAM_ID,
           SLOT_STATISTICS_UPDATE_EXCHANGE_TIME_UTC, SLOT_STATISTICS_UPDATE_EXCHANGE_SEQUENCE)
    header.present |= PRESENT_ROWS if rows != NULL else 0
    for i in range(header.row_count):
        row = table_at(follow(rows + 4 + 4 * i))
        fill_statistic(<Statistic*> (target.into + sizeof(Statistics)) + i, &row)
    return KIND_STATISTICS


cdef int32_t _reference_data(Target* target) noexcept nogil:
    cdef const uint8_t* rows = table_reference(
        &target.value, SLOT_REFERENCE_DATA_TICK_SIZE_STEPS)
    cdef Table row
    cdef uint32_t i
    cdef UpdateHeader* header = _begin(
        target, sizeof(ReferenceData), _count(rows), sizeof(TickSizeStep))
    if header == NULL:
        return OUTCOME_ROOM
    _market(target, header, SLOT_REFERENCE_DATA_EXCHANGE, SLOT_REFERENCE_DATA_SYMBOL, 0,
            SLOT_REFERENCE_DATA_SENDING_TIME_UTC)
    _times(target, header, SLOT_REFERENCE_DATA_STREAM_ID,
           SLOT_REFERENCE_DATA_EXCHANGE_TIME_UTC, SLOT_REFERENCE_DATA_EXCHANGE_SEQUENCE)
    fill_reference_data(<ReferenceData*> target.into, &target.value, target.context)
    header.present |= PRESENT_ROWS if rows != NULL else 0
    for i in range(header.row_count):
        row = table_at(follow(rows + 4 + 4 * i))
        fill_tick_size_step(
            <TickSizeStep*> (target.into + sizeof(ReferenceData)) + i, &row)
    return KIND_REFERENCE_DATA


cdef int32_t _market_status(Target* target) noexcept nogil:
    cdef MarketStatus* status = <MarketStatus*> target.into
    cdef UpdateHeader* header = _begin(target, sizeof(MarketStatus), 0, 0)
    if header == NULL:
        return OUTCOME_ROOM
    _market(target, header, SLOT_MARKET_STATUS_EXCHANGE, SLOT_MARKET_STATUS_SYMBOL, 0,
            SLOT_MARKET_STATUS_SENDING_TIME_UTC)
    _times(target, header, SLOT_MARKET_STATUS_STREAM_ID, SLOT_MARKET_STATUS_EXCHANGE_TIME_UTC,
           SLOT_MARKET_STATUS_EXCHANGE_SEQUENCE)
    status.trading_status = table_u8(&target.value, SLOT_MARKET_STATUS_TRADING_STATUS)
    return KIND_MARKET_STATUS


cdef int32_t _gateway_status(Target* target) noexcept nogil:
    if _begin(target, sizeof(GatewayStatus), 0, 0) == NULL:
        return OUTCOME_ROOM
    fill_gateway_status(<GatewayStatus*> target.into, &target.value, target.context)
    return KIND_GATEWAY_STATUS


cdef int32_t _gateway_settings(Target* target) noexcept nogil:
    if _begin(target, sizeof(GatewaySettings), 0, 0) == NULL:
        return OUTCOME_ROOM
    fill_gateway_settings(<GatewaySettings*> target.into, &target.value)
    return KIND_GATEWAY_SETTINGS


cdef int32_t _external_latency(Target* target) noexcept nogil:
    cdef UpdateHeader* header = _begin(target, sizeof(ExternalLatency), 0, 0)
    if header == NULL:
        return OUTCOME_ROOM
    header.stream_id = table_u16(&target.value, SLOT_EXTERNAL_LATENCY_STREAM_ID)
    fill_external_latency(<ExternalLatency*> target.into, &target.value, target.context)
    return KIND_EXTERNAL_LATENCY


cdef int32_t _custom_metrics(Target* target) noexcept nogil:
    cdef const uint8_t* rows = table_reference(
        &target.value, SLOT_CUSTOM_METRICS_UPDATE_MEASUREMENTS)
    cdef Table row
    cdef uint32_t i
    cdef UpdateHeader* header = _begin(
        target, sizeof(CustomMetrics), _count(rows), sizeof(Measurement))
    if header == NULL:
        return OUTCOME_ROOM
    _market(target, header, SLOT_CUSTOM_METRICS_UPDATE_EXCHANGE,
            SLOT_CUSTOM_METRICS_UPDATE_SYMBOL, SLOT_CUSTOM_METRICS_UPDATE_UPDATE_TYPE,
            SLOT_CUSTOM_METRICS_UPDATE_SENDING_TIME_UTC)
    fill_custom_metrics(<CustomMetrics*> target.into, &target.value, target.context)
    header.present |= PRESENT_ROWS if rows != NULL else 0
    for i in range(header.row_count):
        row = table_at(follow(rows + 4 + 4 * i))
        fill_measurement(
            <Measurement*> (target.into + sizeof(CustomMetrics)) + i, &row, target.context)
    return KIND_CUSTOM_METRICS


cdef inline void _clear(DecodeContext* context) noexcept nogil:
    context.size = 0
    context.message_type = 0
    context.exchange_id = 0
    context.symbol_id = 0
    context.flags = 0
    context.truncated = 0
    context.names_full = 0
    context.names_long = 0
    context.fields_unknown = 0


cdef int32_t decode_event(
        const uint8_t* payload, uint32_t size, uint8_t* into, uint32_t room, Names* names,
        DecodeContext* context) noexcept nogil:
    cdef int32_t kind
    _clear(context)
    kind = fast_decode(payload, size, into, room, names, context)
    return kind if likely(kind) else decode_any(payload, size, into, room, names, context)


cdef int32_t decode_any(
        const uint8_t* payload, uint32_t size, uint8_t* into, uint32_t room, Names* names,
        DecodeContext* context) noexcept nogil:
    cdef Verification verification
    cdef Target target
    cdef int message_type = event_verify(payload, size, &context.shapes, &verification)
    _clear(context)
    if unlikely(message_type <= 0):
        return OUTCOME_NONE if message_type == 0 else OUTCOME_REFUSED
    context.message_type = message_type
    context.fields_unknown = verification.fields_unknown
    if unlikely(message_type >= MESSAGE_COUNT):
        return OUTCOME_UNKNOWN
    target.into = into
    target.room = room
    target.names = names
    target.context = context
    target.event = table_at(follow(payload))
    target.value = table_at(table_reference(&target.event, SLOT_EVENT_VALUE))
    if message_type == MESSAGE_MARKET_BY_PRICE_UPDATE:
        return _book(&target)
    if message_type == MESSAGE_TOP_OF_BOOK:
        return _top_of_book(&target)
    if message_type == MESSAGE_TRADE_SUMMARY:
        return _trades(&target)
    if message_type == MESSAGE_MARKET_BY_ORDER_UPDATE:
        return _orders(&target)
    if message_type == MESSAGE_STATISTICS_UPDATE:
        return _statistics(&target)
    if message_type == MESSAGE_REFERENCE_DATA:
        return _reference_data(&target)
    if message_type == MESSAGE_MARKET_STATUS:
        return _market_status(&target)
    if message_type == MESSAGE_CUSTOM_METRICS_UPDATE:
        return _custom_metrics(&target)
    if message_type == MESSAGE_EXTERNAL_LATENCY:
        return _external_latency(&target)
    if message_type == MESSAGE_GATEWAY_STATUS:
        return _gateway_status(&target)
    if message_type == MESSAGE_GATEWAY_SETTINGS:
        return _gateway_settings(&target)
    return OUTCOME_STREAM_STATUS if message_type == MESSAGE_STREAM_STATUS else OUTCOME_OPAQUE


class Decoded(NamedTuple):
    """The outcome of decoding one payload.

    Attributes
    ----------
    kind : Kind or Outcome
        The update's kind, or why there is no update.
    payload : bytes
        The update, with the layout `UPDATE_DTYPES[kind]`; empty if there is none.
    flags : RecordFlag
        `TRUNCATED` if a text was cut, or a name got no id.
    message_type : int
        Union code of the event; 0: none.
    exchange_id, symbol_id : int
        Ids of the name table; 0: absent.
    fields_unknown, truncated, names_full, names_long : int
        Fields beyond the schema; cut texts; names for which the table had no room; names longer
        than the table allows.
    """

    kind: Kind | Outcome
    payload: bytes
    flags: RecordFlag
    message_type: int
    exchange_id: int
    symbol_id: int
    fields_unknown: int
    truncated: int
    names_full: int
    names_long: int


@cython.final
cdef class Decoder:
    """Decodes payloads one after another, as the feed's loop does, and remembers their vtables.

    Parameters
    ----------
    names : NameTable
        The table in which exchange and symbol are interned.
    support_mask : int
        `GatewayStatus.supported` is masked with it: what the feed carries.
    """

    cdef DecodeContext context
    cdef NameTable names
    cdef bytearray space

    def __cinit__(self, NameTable names not None, *, support_mask: int = SUPPORT_MARKET_DATA):
        decode_init(&self.context, support_mask)
        self.names = names
        self.space = bytearray()

    def decode(self, const uint8_t[::1] payload, *, room: int | None = None) -> Decoded:
        """Decode one event payload.

        Parameters
        ----------
        payload : bytes-like
            The message's payload as published.
        room : int, optional
            Most bytes of the update; default: as many as it needs.

        Returns
        -------
        Decoded
            Its bytes are a copy.

        Raises
        ------
        ValueError
            The payload is longer than a message can be.
        """
        cdef DecodeContext* context = &self.context
        cdef uint32_t size = <uint32_t> payload.shape[0]
        cdef uint32_t bound
        cdef uint8_t nothing = 0
        cdef const uint8_t* start = &payload[0] if size else &nothing
        cdef uint8_t* into
        cdef int32_t result
        if payload.shape[0] > MESSAGE_SIZE_MAX:
            raise ValueError(
                f"a message must have at most {MESSAGE_SIZE_MAX} bytes, has {payload.shape[0]}")
        bound = decode_size_bound(size) if room is None else <uint32_t> room
        if <uint32_t> len(self.space) < bound:
            self.space = bytearray(bound)
        into = <uint8_t*> <char*> self.space
        with nogil:
            result = decode_event(start, size, into, bound, &self.names.names, context)
        return Decoded(
            Kind(result) if result > 0 else Outcome(result),
            PyBytes_FromStringAndSize(<const char*> into, context.size) if result > 0 else b"",
            RecordFlag(context.flags), context.message_type, context.exchange_id,
            context.symbol_id, context.fields_unknown, context.truncated, context.names_full,
            context.names_long)

    def decode_into(self, const uint8_t[::1] payload, into: Buffer | NDArray[np.uint8]) -> int:
        """Decode one event payload into the caller's memory: the fast way to numpy.

        Parameters
        ----------
        payload : bytes-like
            The message's payload as published.
        into : writable bytes-like
            Takes the update from its first byte on; the bytes behind the update are undefined.
            Views of it (`view_update`, or rows of dtype `LEVEL` behind a book's first 96 bytes)
            can be made once, and stay valid.

        Returns
        -------
        int
            A `Kind`, or a negative `Outcome`: `ROOM` if `into` is too small.

        Raises
        ------
        ValueError
            The payload is longer than a message can be.
        """
        cdef Py_buffer view
        cdef uint8_t nothing = 0
        cdef uint32_t size = <uint32_t> payload.shape[0]
        cdef int32_t result
        if payload.shape[0] > MESSAGE_SIZE_MAX:
            raise ValueError(
                f"a message must have at most {MESSAGE_SIZE_MAX} bytes, has {payload.shape[0]}")
        PyObject_GetBuffer(into, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        result = decode_event(
            &payload[0] if size else &nothing, size, <uint8_t*> view.buf,
            <uint32_t> min(view.len, <Py_ssize_t> 0x7FFFFFFF), &self.names.names, &self.context)
        PyBuffer_Release(&view)
        return result


def decode(
        payload: Buffer, NameTable names not None, *, support_mask: int = SUPPORT_MARKET_DATA,
        room: int | None = None) -> Decoded:
    """Decode one event payload; the parameters are those of `Decoder`."""
    return Decoder(names, support_mask=support_mask).decode(payload, room=room)


def size_bound(payload_size: int) -> int:
    """Return a size in bytes that no update of a payload of this size exceeds."""
    return decode_size_bound(payload_size)
