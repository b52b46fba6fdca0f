"""Encode updates as event payloads: books, tops of book and trades fast, other kinds slowly."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING
from libc.math cimport NAN
from libc.string cimport memcpy, memset

from udpfast.core.layout cimport MESSAGE_SIZE_MAX
from udpfast.core.update_kinds cimport KIND_BOOK, KIND_TOP_OF_BOOK, KIND_TRADES
from udpfast.market.names cimport NameTable
from udpfast.payload.roq.flatbuffer cimport Table, follow, table_at, table_offset, table_reference

from typing import NamedTuple

import numpy as np

from udpfast.errors import FormatError, RangeError
from udpfast.market.updates import LEVEL, TRADE, view_update
from udpfast.payload.roq.event import encode_event, update_to_dict
from udpfast.payload.roq.flatbuffer import verify

__all__ = [
    "SourceInfo",
    "encode_book",
    "encode_top_of_book",
    "encode_trades",
    "encode_update",
    "stamp",
]


class SourceInfo(NamedTuple):
    """Where and when the origin made an event. Times are in ns.

    Attributes
    ----------
    seqno : int
        Number in the origin's stream, 64 bits.
    send_time_utc, create_time_utc : int
        UNIX ns.
    send_time, create_time : int
        By the origin's monotonic clock. `stamp` sets both send times of an encoded payload.
    """

    seqno: int = 0
    send_time_utc: int = 0
    create_time_utc: int = 0
    send_time: int = 0
    create_time: int = 0


_U8, _U16, _I64, _U64 = (1 << 8) - 1, (1 << 16) - 1, (1 << 63) - 1, (1 << 64) - 1

_NO_STAMPS = SourceInfo()  # present, so that `stamp` can set them

# --- in C ---------------------------------------------------------------------------------------

cdef inline uint32_t _begin(
        TableOut* table, Text exchange, uint16_t exchange_slot, Text symbol,
        uint16_t symbol_slot) noexcept nogil:
    # The names are fields 0 and 1.
    table.count = 0
    table_add_reference(table, exchange_slot, exchange.start != NULL)
    return table_add_reference(table, symbol_slot, symbol.start != NULL)


cdef inline void _names(
        Writer* writer, const TableOut* table, Text exchange, Text symbol) noexcept nogil:
    write_text(writer, &table.field[0], exchange.start, exchange.size)
    write_text(writer, &table.field[1], symbol.start, symbol.size)


cdef uint32_t encode_book_update(
        uint8_t* into, const Book* book, const Level* rows, Text exchange,
        Text symbol) noexcept nogil:
    cdef const UpdateHeader* header = &book.header
    cdef Writer writer
    cdef TableOut table
    cdef uint32_t bids, asks, bid_references, ask_references
    cdef uint16_t[64] vtables
    memset(vtables, 0, sizeof(vtables))
    writer.start = into
    write_head(&writer, MESSAGE_MARKET_BY_PRICE_UPDATE, header)
    _begin(&table, exchange, SLOT_MARKET_BY_PRICE_UPDATE_EXCHANGE,
           symbol, SLOT_MARKET_BY_PRICE_UPDATE_SYMBOL)
    bids = table_add_reference(
        &table, SLOT_MARKET_BY_PRICE_UPDATE_BIDS, header.present & PRESENT_ROWS != 0)
    asks = table_add_reference(
        &table, SLOT_MARKET_BY_PRICE_UPDATE_ASKS, header.present & PRESENT_ASKS != 0)
    table_add(&table, SLOT_MARKET_BY_PRICE_UPDATE_STREAM_ID, 2, header.stream_id)
    table_add(&table, SLOT_MARKET_BY_PRICE_UPDATE_UPDATE_TYPE, 1, header.update_type)
    table_add(&table, SLOT_MARKET_BY_PRICE_UPDATE_EXCHANGE_TIME_UTC, 8,
              <uint64_t> header.exchange_time_utc)
    table_add(&table, SLOT_MARKET_BY_PRICE_UPDATE_EXCHANGE_SEQUENCE, 8, header.exchange_sequence)
    table_add(&table, SLOT_MARKET_BY_PRICE_UPDATE_PRICE_PRECISION, 1, header.price_precision)
    table_add(&table, SLOT_MARKET_BY_PRICE_UPDATE_QUANTITY_PRECISION, 1,
              header.quantity_precision)
    table_add(&table, SLOT_MARKET_BY_PRICE_UPDATE_MAX_DEPTH, 2, header.max_depth)
    table_add(&table, SLOT_MARKET_BY_PRICE_UPDATE_SENDING_TIME_UTC, 8,
              <uint64_t> header.sending_time_utc)
    write_value(&writer, &table)
    _names(&writer, &table, exchange, symbol)
    bid_references = write_vector(&writer, &table.field[bids], book.bid_count)
    ask_references = write_vector(&writer, &table.field[asks], book.ask_count)
    write_levels(&writer, bid_references, rows, book.bid_count, vtables)
    write_levels(&writer, ask_references, rows + book.bid_count, book.ask_count, vtables)
    write_align(&writer, 8, 0)
    return writer.at


cdef uint32_t encode_top_of_book_update(
        uint8_t* into, const TopOfBook* top, Text exchange, Text symbol) noexcept nogil:
    cdef const UpdateHeader* header = &top.header
    cdef Writer writer
    cdef TableOut table, layer
    cdef uint32_t layer_field
    writer.start = into
    write_head(&writer, MESSAGE_TOP_OF_BOOK, header)
    _begin(&table, exchange, SLOT_TOP_OF_BOOK_EXCHANGE, symbol, SLOT_TOP_OF_BOOK_SYMBOL)
    layer_field = table_add_reference(
        &table, SLOT_TOP_OF_BOOK_LAYER, header.present & PRESENT_LAYER != 0)
    table_add(&table, SLOT_TOP_OF_BOOK_STREAM_ID, 2, header.stream_id)
    table_add(&table, SLOT_TOP_OF_BOOK_UPDATE_TYPE, 1, header.update_type)
    table_add(&table, SLOT_TOP_OF_BOOK_EXCHANGE_TIME_UTC, 8,
              <uint64_t> header.exchange_time_utc)
    table_add(&table, SLOT_TOP_OF_BOOK_EXCHANGE_SEQUENCE, 8, header.exchange_sequence)
    table_add(&table, SLOT_TOP_OF_BOOK_SENDING_TIME_UTC, 8, <uint64_t> header.sending_time_utc)
    table_add(&table, SLOT_TOP_OF_BOOK_PRICE_PRECISION, 1, header.price_precision)
    table_add(&table, SLOT_TOP_OF_BOOK_QUANTITY_PRECISION, 1, header.quantity_precision)
    write_value(&writer, &table)
    if header.present & PRESENT_LAYER:
        layer.count = 0
        table_add_double(&layer, SLOT_LAYER_BID_PRICE, top.bid_price)
        table_add(&layer, SLOT_LAYER_BID_QUANTITY, 8, bits_of(top.bid_quantity))
        table_add_double(&layer, SLOT_LAYER_ASK_PRICE, top.ask_price)
        table_add(&layer, SLOT_LAYER_ASK_QUANTITY, 8, bits_of(top.ask_quantity))
        store(into + table.field[layer_field].at,
              write_table(&writer, &layer) - table.field[layer_field].at, 4)
    _names(&writer, &table, exchange, symbol)
    write_align(&writer, 8, 0)
    return writer.at


cdef inline uint32_t _width(const char* text, uint32_t width) noexcept nogil:
    # Return the length of a text in its fixed width.
    while width and text[width - 1] == 0:
        width -= 1
    return width


cdef inline void _write_trade(Writer* writer, uint32_t reference, const Trade* row) noexcept nogil:
    cdef TableOut table
    table.count = 0
    table_add_reference(&table, SLOT_TRADE_TRADE_ID, row.present & 1)
    table_add_reference(&table, SLOT_TRADE_TAKER_ORDER_ID, row.present & 2)
    table_add_reference(&table, SLOT_TRADE_MAKER_ORDER_ID, row.present & 4)
    table_add_double(&table, SLOT_TRADE_PRICE, row.price)
    table_add(&table, SLOT_TRADE_QUANTITY, 8, bits_of(row.quantity))
    table_add(&table, SLOT_TRADE_SIDE, 1, row.side)
    store(writer.start + reference, write_table(writer, &table) - reference, 4)
    write_text(writer, &table.field[0], <const uint8_t*> row.trade_id,
               _width(row.trade_id, SIZE_TRADE_ID))
    write_text(writer, &table.field[1], <const uint8_t*> row.taker_order_id,
               _width(row.taker_order_id, SIZE_ORDER_ID))
    write_text(writer, &table.field[2], <const uint8_t*> row.maker_order_id,
               _width(row.maker_order_id, SIZE_ORDER_ID))


cdef uint32_t encode_trades_update(
        uint8_t* into, const Trades* trades, const Trade* rows, Text exchange,
        Text symbol) noexcept nogil:
    cdef const UpdateHeader* header = &trades.header
    cdef Writer writer
    cdef TableOut table
    cdef uint32_t field, references, i
    writer.start = into
    write_head(&writer, MESSAGE_TRADE_SUMMARY, header)
    _begin(&table, exchange, SLOT_TRADE_SUMMARY_EXCHANGE, symbol, SLOT_TRADE_SUMMARY_SYMBOL)
    field = table_add_reference(
        &table, SLOT_TRADE_SUMMARY_TRADES, header.present & PRESENT_ROWS != 0)
    table_add(&table, SLOT_TRADE_SUMMARY_STREAM_ID, 2, header.stream_id)
    table_add(&table, SLOT_TRADE_SUMMARY_EXCHANGE_TIME_UTC, 8,
              <uint64_t> header.exchange_time_utc)
    table_add(&table, SLOT_TRADE_SUMMARY_EXCHANGE_SEQUENCE, 8, header.exchange_sequence)
    table_add(&table, SLOT_TRADE_SUMMARY_SENDING_TIME_UTC, 8, <uint64_t> header.sending_time_utc)
    table_add(&table, SLOT_TRADE_SUMMARY_PRICE_PRECISION, 1, header.price_precision)
    table_add(&table, SLOT_TRADE_SUMMARY_QUANTITY_PRECISION, 1, header.quantity_precision)
    write_value(&writer, &table)
    _names(&writer, &table, exchange, symbol)
    references = write_vector(&writer, &table.field[field], header.row_count)
    for i in range(header.row_count):
        _write_trade(&writer, references + 4 * i, rows + i)
    write_align(&writer, 8, 0)
    return writer.at


# --- for Python ---------------------------------------------------------------------------------

cdef Text _text(bytes text):
    # Borrowed from `text`, which the caller keeps alive.
    cdef Text result
    result.start = NULL
    result.size = 0
    if text is not None:
        result.start = <const uint8_t*> PyBytes_AS_STRING(text)
        result.size = <uint32_t> len(text)
    return result


cdef bytes _encoded(object name):
    return name.encode() if isinstance(name, str) else name


cdef object _encode(int kind, const uint8_t* update, bytes exchange, bytes symbol):
    # `update` was laid out by this module, or checked by view_update.
    cdef const UpdateHeader* header = <const UpdateHeader*> update
    cdef Text exchange_text = _text(exchange), symbol_text = _text(symbol)
    cdef uint64_t bound = (VALUE_ENCODED_MAX + exchange_text.size + symbol_text.size
                           + LEVEL_VTABLES_MAX
                           + <uint64_t> header.row_count * (
                               LEVEL_ENCODED_MAX if kind == KIND_BOOK else TRADE_ENCODED_MAX))
    cdef bytearray payload = bytearray(bound)
    cdef uint8_t* into = <uint8_t*> <char*> payload
    cdef uint32_t size
    if kind == KIND_BOOK:
        size = encode_book_update(
            into, <const Book*> update, <const Level*> (update + sizeof(Book)),
            exchange_text, symbol_text)
    elif kind == KIND_TRADES:
        size = encode_trades_update(
            into, <const Trades*> update, <const Trade*> (update + sizeof(Trades)),
            exchange_text, symbol_text)
    else:
        size = encode_top_of_book_update(
            into, <const TopOfBook*> update, exchange_text, symbol_text)
    if size > MESSAGE_SIZE_MAX:
        raise ValueError(f"a message must have at most {MESSAGE_SIZE_MAX} bytes, has {size}")
    PyByteArray_Resize(payload, size)
    return payload


cdef object _fits(str name, object value, object low, object high):
    # Refuse a number that does not fit its field, rather than cut it.
    if not low <= value <= high:
        raise RangeError(f"{name} must be {low} to {high}, was {value}")
    return value


cdef int _header(
        UpdateHeader* header, object source, object stream_id, object exchange_time_utc,
        object exchange_sequence, object sending_time_utc, object price_precision,
        object quantity_precision) except -1:
    if source is not None:
        source = SourceInfo._make(source)
        for name, value in zip(SourceInfo._fields, source):
            _fits(name, value, 0, _U64)
        header.present = PRESENT_SOURCE_INFO
        header.source_seqno = source[0]
        header.source_send_time_utc = source[1]
        header.source_create_time_utc = source[2]
        header.source_send_time = source[3]
        header.source_create_time = source[4]
    header.stream_id = _fits("stream_id", stream_id, 0, _U16)
    header.exchange_time_utc = _fits("exchange_time_utc", exchange_time_utc, -1 - _I64, _I64)
    header.exchange_sequence = _fits("exchange_sequence", exchange_sequence, 0, _U64)
    header.sending_time_utc = _fits("sending_time_utc", sending_time_utc, -1 - _I64, _I64)
    header.price_precision = _fits("price_precision", price_precision, 0, _U8)
    header.quantity_precision = _fits("quantity_precision", quantity_precision, 0, _U8)
    return 0


cdef int _levels(Level* into, object rows) except -1:
    # Copy rows of dtype LEVEL, or pairs of price and quantity, into zeroed memory.
    cdef Py_buffer view
    cdef Py_ssize_t i
    if not isinstance(rows, np.ndarray):
        for i in range(len(rows)):
            row = rows[i]
            into[i].price = row[0]
            into[i].quantity = row[1]
        return 0
    pairs = rows.dtype.names is None
    array = np.ascontiguousarray(rows, np.float64 if pairs else None)
    if array.ndim != 1 + pairs or (array.shape[1] != 2 if pairs else array.dtype != LEVEL):
        raise ValueError(
            f"levels must have the shape (n, 2) or dtype LEVEL, had {rows.shape} of {rows.dtype}")
    PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
    if pairs:
        for i in range(len(array)):
            into[i].price = (<const double*> view.buf)[2 * i]
            into[i].quantity = (<const double*> view.buf)[2 * i + 1]
    else:
        memcpy(into, view.buf, view.len)
    PyBuffer_Release(&view)
    return 0


cdef uint8_t _trade_text(char* into, Py_ssize_t width, object text, int bit) except? 255:
    cdef bytes encoded = _encoded(text)
    if encoded is None:
        return 0
    if len(encoded) > width:
        raise ValueError(f"a trade's id must have at most {width} bytes, was {text!r}")
    memcpy(into, <const char*> encoded, len(encoded))
    return bit


cdef int _trades(Trade* into, object rows) except -1:
    # Copy rows of dtype TRADE, or tuples, into zeroed memory.
    cdef Py_buffer view
    cdef Trade* trade
    if isinstance(rows, np.ndarray):
        if rows.dtype != TRADE or rows.ndim != 1:
            raise ValueError(
                f"an array of trades must have dtype TRADE and one dimension, had {rows.shape} "
                f"of {rows.dtype}")
        PyObject_GetBuffer(np.ascontiguousarray(rows), &view, PyBUF_SIMPLE)
        memcpy(into, view.buf, view.len)
        PyBuffer_Release(&view)
        return 0
    for i, row in enumerate(rows):
        trade = into + <Py_ssize_t> i
        fields = (*row, None, None, None)
        trade.side = _fits("side", fields[0], 0, _U8)
        trade.price = fields[1]
        trade.quantity = fields[2]
        trade.present = (
            _trade_text(trade.trade_id, SIZE_TRADE_ID, fields[3], 1)
            | _trade_text(trade.taker_order_id, SIZE_ORDER_ID, fields[4], 2)
            | _trade_text(trade.maker_order_id, SIZE_ORDER_ID, fields[5], 4))
    return 0


def encode_book(
        exchange: str | bytes | None, symbol: str | bytes | None, *,
        bids: NDArray[Any] | Sequence[Sequence[float]] | None = None,
        asks: NDArray[Any] | Sequence[Sequence[float]] | None = None, update_type: int = 2,
        stream_id: int = 0, exchange_time_utc: int = 0, exchange_sequence: int = 0,
        sending_time_utc: int = 0, price_precision: int = 0, quantity_precision: int = 0,
        max_depth: int = 0, source: SourceInfo | None = _NO_STAMPS) -> bytearray:
    """Encode a MarketByPriceUpdate.

    Parameters
    ----------
    exchange, symbol : str or bytes or None
    bids, asks : array-like or None
        shape (n, 2): price, quantity; or an array of dtype `LEVEL`. Quantity 0 removes the
        level. None: no change on that side.
    update_type : int
        1 snapshot, 2 incremental, 3 stale.
    exchange_time_utc, sending_time_utc : int
        UNIX ns.
    price_precision, quantity_precision : int
        Decimal digits + 1; 0 = unknown.
    max_depth : int
        Levels per side; 0 = unlimited.
    source : SourceInfo or None
        Stamps of the origin.

    Raises
    ------
    RangeError
        A number does not fit its field.
    ValueError
        The levels have another shape, or are more than a message can carry.

    Returns
    -------
    bytearray
        The payload. Its send times can be set later: see `stamp`.
    """
    cdef Py_ssize_t bid_count = 0 if bids is None else len(bids)
    cdef Py_ssize_t ask_count = 0 if asks is None else len(asks)
    cdef bytearray update = bytearray(sizeof(Book) + (bid_count + ask_count) * sizeof(Level))
    cdef Book* book = <Book*> <char*> update
    cdef Level* rows = <Level*> (<char*> update + sizeof(Book))
    _header(&book.header, source, stream_id, exchange_time_utc, exchange_sequence,
            sending_time_utc, price_precision, quantity_precision)
    book.header.update_type = _fits("update_type", update_type, 0, _U8)
    book.header.max_depth = _fits("max_depth", max_depth, 0, _U16)
    book.header.row_count = <uint32_t> (bid_count + ask_count)
    book.bid_count = <uint32_t> bid_count
    book.ask_count = <uint32_t> ask_count
    if bids is not None:
        book.header.present |= PRESENT_ROWS
        _levels(rows, bids)
    if asks is not None:
        book.header.present |= PRESENT_ASKS
        _levels(rows + bid_count, asks)
    return _encode(KIND_BOOK, <const uint8_t*> book, _encoded(exchange), _encoded(symbol))


def encode_top_of_book(
        exchange: str | bytes | None, symbol: str | bytes | None, bid_price: float = NAN,
        bid_quantity: float = 0.0, ask_price: float = NAN, ask_quantity: float = 0.0, *,
        update_type: int = 2, stream_id: int = 0, exchange_time_utc: int = 0,
        exchange_sequence: int = 0, sending_time_utc: int = 0, price_precision: int = 0,
        quantity_precision: int = 0, source: SourceInfo | None = _NO_STAMPS) -> bytearray:
    """Encode a TopOfBook; an empty side has the price NaN. All else is as in `encode_book`."""
    cdef TopOfBook top
    memset(&top, 0, sizeof(TopOfBook))
    _header(&top.header, source, stream_id, exchange_time_utc, exchange_sequence,
            sending_time_utc, price_precision, quantity_precision)
    top.header.update_type = _fits("update_type", update_type, 0, _U8)
    top.header.present |= PRESENT_LAYER
    top.bid_price = bid_price
    top.bid_quantity = bid_quantity
    top.ask_price = ask_price
    top.ask_quantity = ask_quantity
    return _encode(KIND_TOP_OF_BOOK, <const uint8_t*> &top, _encoded(exchange), _encoded(symbol))


def encode_trades(
        exchange: str | bytes | None, symbol: str | bytes | None,
        trades: NDArray[Any] | Sequence[Sequence[Any]], *, stream_id: int = 0,
        exchange_time_utc: int = 0, exchange_sequence: int = 0, sending_time_utc: int = 0,
        price_precision: int = 0, quantity_precision: int = 0,
        source: SourceInfo | None = _NO_STAMPS) -> bytearray:
    """Encode a TradeSummary.

    Parameters
    ----------
    trades : sequence of tuple, or numpy.ndarray of dtype `TRADE`
        (side, price, quantity) and up to three ids, str or bytes or None: trade, taker's order,
        maker's order. The side is the taker's: 1 buy, 2 sell.

    The rest is as in `encode_book`.
    """
    cdef Py_ssize_t count = len(trades)
    cdef bytearray update = bytearray(sizeof(Trades) + count * sizeof(Trade))
    cdef Trades* summary = <Trades*> <char*> update
    _header(&summary.header, source, stream_id, exchange_time_utc, exchange_sequence,
            sending_time_utc, price_precision, quantity_precision)
    summary.header.present |= PRESENT_ROWS
    summary.header.row_count = <uint32_t> count
    _trades(<Trade*> (<char*> update + sizeof(Trades)), trades)
    return _encode(KIND_TRADES, <const uint8_t*> summary, _encoded(exchange), _encoded(symbol))


def encode_update(kind: int, payload: Buffer, NameTable names) -> bytes | bytearray:
    """Encode the payload of a decoded record again: the inverse of `decode`, for every kind.

    Books, tops of book and trades take a few hundred ns; other kinds use the official runtime.

    Parameters
    ----------
    kind : Kind
        `BOOK` .. `CUSTOM_METRICS`.
    payload : bytes-like
        The record's payload.
    names : NameTable
        The table that its ids refer to.

    Raises
    ------
    FormatError
        The payload is shorter than its counts say, or the kind carries no update.
    """
    cdef Py_buffer view
    update = view_update(kind, payload)
    if kind not in (KIND_BOOK, KIND_TOP_OF_BOOK, KIND_TRADES):
        return encode_event(update_to_dict(kind, payload, names))
    if kind == KIND_BOOK and (
            int(update.header["bid_count"]) + int(update.header["ask_count"]) != len(update.rows)):
        raise FormatError("bid_count + ask_count must be row_count, "
                          f"was {update.header['bid_count']} + {update.header['ask_count']}, "
                          f"{len(update.rows)}")
    exchange = names.bytes(int(update.header["exchange_id"]))
    symbol = names.bytes(int(update.header["symbol_id"]))
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        return _encode(kind, <const uint8_t*> view.buf, exchange, symbol)
    finally:
        PyBuffer_Release(&view)


def stamp(uint8_t[::1] payload, send_time_utc: int, send_time: int) -> bool:
    """Set both send times of an encoded payload in place, at the moment of sending.

    Parameters
    ----------
    payload : writable bytes-like
        Made by this module, or by any encoder that writes both fields.
    send_time_utc, send_time : int
        In ns: UNIX time, and this host's monotonic clock.

    Returns
    -------
    bool
        False if the payload lacks the fields; it is unchanged then.

    Raises
    ------
    FormatError
        The payload is not a valid event.
    """
    cdef Table event, source
    cdef const uint8_t* at
    cdef uint16_t utc, monotonic
    verify(payload)
    event = table_at(follow(&payload[0]))
    at = table_reference(&event, SLOT_EVENT_SOURCE_INFO)
    if at == NULL:
        return False
    source = table_at(at)
    utc = table_offset(&source, SLOT_SOURCE_INFO_SEND_TIME_UTC)
    monotonic = table_offset(&source, SLOT_SOURCE_INFO_SEND_TIME)
    if utc == 0 or monotonic == 0:
        return False
    store(<uint8_t*> at + utc, send_time_utc, 8)
    store(<uint8_t*> at + monotonic, send_time, 8)
    return True
