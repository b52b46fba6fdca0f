# TRADES, MARKET_STATUS and REFERENCE_DATA: updates of changes that concern no book.

from libc.math cimport NAN
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from udpfast.core.layout cimport RECORD_SNAPSHOT, RECORD_TRUNCATED, RECORD_UNGATED
from udpfast.core.update_kinds cimport KIND_MARKET_STATUS, KIND_REFERENCE_DATA, KIND_TRADES
from udpfast.market.change cimport (
    DEFINED_DECIMALS, NAMES_IN_ID, PRICE_NONE, SIDE_NONE, VERB_DEFINE, VERB_STATUS)
from udpfast.market.decimal_text cimport number_text
from udpfast.market.found cimport Found
from udpfast.market.instrument cimport FACE_LEVELS, Instrument
from udpfast.market.market cimport Market, Row
from udpfast.market.publish_header cimport price_of, quantity_of, header_begin, UPDATE_SNAPSHOT
from udpfast.market.update_header cimport OBJECT_REFERENCE, OBJECT_STATUS, OBJECT_TRADES
from udpfast.market.updates cimport (
    MarketStatus, PRESENT_ROWS, PRESENT_ROW_TEXT, ReferenceData, Trade, Trades, UpdateHeader)


cdef inline double defined_number(const Market* market, int64_t mantissa) noexcept nogil:
    # Return NaN if the number was not said.
    return <double>mantissa / market.price_units[DEFINED_DECIMALS] if mantissa else NAN


cdef inline void text_write(
        char* into, uint32_t room, const uint8_t* text, uint32_t size) noexcept nogil:
    # Copy a text of a message without its padding, cut to the room and ended by a zero.
    size = min(size, room - 1)
    while size and (text[size - 1] == c" " or text[size - 1] == 0):
        size -= 1
    if size:
        memcpy(into, text, size)


cdef inline int32_t definition_write(
        Market* market, Instrument* i, const Row* row, uint8_t* into, Found* told) noexcept nogil:
    cdef ReferenceData* data = <ReferenceData*>into
    cdef UpdateHeader* header = header_begin(
        market, i, FACE_LEVELS, into, sizeof(ReferenceData), told)
    header.update_type = UPDATE_SNAPSHOT
    header.exchange_time_utc = 0
    data.tick_size = defined_number(market, row.price)
    data.multiplier = defined_number(market, row.quantity)
    data.min_trade_vol = data.max_trade_vol = data.trade_vol_step_size = NAN
    data.min_notional = NAN
    data.strike_price = NAN if row.strike == PRICE_NONE else (
        <double>row.strike / market.price_units[DEFINED_DECIMALS])
    data.option_type = row.option_type
    text_write(
        data.underlying, sizeof(data.underlying), market.message.payload + row.underlying - 1,
        row.underlying_size)
    data.expiry_datetime = data.expiry_datetime_utc = row.time_ns // 1_000_000_000
    data.security_type = row.side
    if market.traits.names != NAMES_IN_ID:
        number_text(data.description, row.id)
        if row.id <= INT32_MAX:
            data.external_security_id = <int32_t>row.id
    told.object |= <uint32_t>OBJECT_REFERENCE
    told.flags = RECORD_UNGATED | RECORD_SNAPSHOT
    # Its stream is the one that brought it. Behind a gap among the changes a loop repeats it, but
    # readers are told only if it changed: in their stream nothing would end the doubt.
    told.stream = told.session = 0
    return KIND_REFERENCE_DATA


cdef inline int32_t row_write(
        Market* market, const Row* row, uint8_t* into, Found* told) noexcept nogil:
    cdef Instrument* i = market.instruments.items + row.instrument
    cdef UpdateHeader* header
    cdef Trade* trade = <Trade*>(into + sizeof(Trades))
    if row.verb == VERB_STATUS:
        header = header_begin(market, i, FACE_LEVELS, into, sizeof(MarketStatus), told)
        header.update_type = UPDATE_SNAPSHOT
        (<MarketStatus*>into).trading_status = <uint8_t>row.quantity
        told.object |= <uint32_t>OBJECT_STATUS
        told.flags = RECORD_UNGATED   # it does not depend on the book
        told.stream = i.stream + 1    # a definition that has it told again may come in another
        told.session = market.streams[i.stream].session
        if i.symbol_id:
            told.flags |= RECORD_SNAPSHOT
        elif i.unstored:
            told.flags |= RECORD_TRUNCATED
        return KIND_MARKET_STATUS
    if row.verb == VERB_DEFINE:
        return definition_write(market, i, row, into, told)
    header = header_begin(market, i, FACE_LEVELS, into, sizeof(Trades) + sizeof(Trade), told)
    header.present = PRESENT_ROWS
    header.row_count = 1
    header.exchange_time_utc = row.time_ns
    trade.price = price_of(market, i, row.price)
    trade.quantity = quantity_of(market, row.quantity)
    if row.side != SIDE_NONE:
        trade.side = <uint8_t>(row.side + 1)
    if row.id:
        trade.present = PRESENT_ROW_TEXT
        number_text(trade.trade_id, row.id)
    told.object |= OBJECT_TRADES
    if i.unstored:                   # its name was not said yet: nothing was cut
        told.flags |= RECORD_TRUNCATED
    return KIND_TRADES
