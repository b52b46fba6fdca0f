# Copies verified tables into the layouts of updates.pxd: one function per struct, used by decode.
#
# The fixed part was zeroed before, so that an absent field whose default is zero needs no store.

from libc.math cimport NAN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

from udpfast.core.check cimport likely, unlikely
from udpfast.core.layout cimport RECORD_TRUNCATED
from udpfast.market.names cimport NAME_SIZE_MAX, Names, names_intern
from udpfast.market.updates cimport *
from udpfast.payload.roq.decode cimport DecodeContext
from udpfast.payload.roq.flatbuffer cimport (
    Table,
    follow,
    load_f64,
    load_u16,
    load_u32,
    table_at,
    table_f64,
    table_offset,
    table_reference,
    table_u8,
    table_u16,
    table_u32,
    table_u64,
    vtable_slot,
)
from udpfast.payload.roq.schema cimport *


cdef inline void fill_source(UpdateHeader* header, const Table* event) noexcept nogil:
    cdef const uint8_t* at = table_reference(event, SLOT_EVENT_SOURCE_INFO)
    cdef Table source
    if at == NULL:
        return
    source = table_at(at)
    header.present |= PRESENT_SOURCE_INFO
    header.source_seqno = table_u64(&source, SLOT_SOURCE_INFO_SEQNO)
    header.source_send_time_utc = table_u64(&source, SLOT_SOURCE_INFO_SEND_TIME_UTC)
    header.source_create_time_utc = table_u64(&source, SLOT_SOURCE_INFO_CREATE_TIME_UTC)
    header.source_send_time = table_u64(&source, SLOT_SOURCE_INFO_SEND_TIME)
    header.source_create_time = table_u64(&source, SLOT_SOURCE_INFO_CREATE_TIME)


cdef inline uint32_t fill_name(
        const uint8_t* text, Names* names, DecodeContext* context,
        bint exchange=False) noexcept nogil:
    # Return the id of a name, 0 if it is absent. `text` is a verified string, or NULL. For a name
    # that gets no id the record is flagged as truncated.
    cdef uint32_t size, name_id
    if text == NULL:
        return 0
    size = load_u32(text)
    name_id = names_intern(names, text + 4, size, exchange)
    if unlikely(name_id == 0):
        context.flags |= RECORD_TRUNCATED
        if size > NAME_SIZE_MAX:
            context.names_long += 1
        else:
            context.names_full += 1
    return name_id


cdef inline uint32_t fill_text_at(
        char* into, uint32_t width, const uint8_t* text, uint32_t bit,
        DecodeContext* context) noexcept nogil:
    # Copy a string into its fixed width. Return `bit` if it is present, else 0.
    cdef uint32_t size
    if text == NULL:
        memset(into, 0, width)
        return 0
    size = load_u32(text)
    text += 4
    if unlikely(size > width):
        size = width
        while size and text[size] & 0xC0 == 0x80:  # do not cut inside a UTF-8 character
            size -= 1
        context.truncated += 1
        context.flags |= RECORD_TRUNCATED
    memcpy(into, text, size)
    memset(into + size, 0, width - size)
    return bit


cdef inline uint32_t fill_text(
        char* into, uint32_t width, const Table* value, uint32_t slot, uint32_t bit,
        DecodeContext* context) noexcept nogil:
    return fill_text_at(into, width, table_reference(value, slot), bit, context)


# --- rows ---------------------------------------------------------------------------------------

cdef struct LevelShape:
    const uint8_t* vtable
    uint16_t price
    uint16_t quantity
    uint16_t implied
    uint16_t level
    uint16_t orders
    uint16_t action


cdef inline void level_shape(LevelShape* shape, const uint8_t* at) noexcept nogil:
    cdef Table table = table_at(at)
    shape.vtable = table.vtable
    shape.price = table_offset(&table, SLOT_MBP_UPDATE_PRICE)
    shape.quantity = table_offset(&table, SLOT_MBP_UPDATE_QUANTITY)
    shape.implied = table_offset(&table, SLOT_MBP_UPDATE_IMPLIED_QUANTITY)
    shape.level = table_offset(&table, SLOT_MBP_UPDATE_PRICE_LEVEL)
    shape.orders = table_offset(&table, SLOT_MBP_UPDATE_NUMBER_OF_ORDERS)
    shape.action = table_offset(&table, SLOT_MBP_UPDATE_UPDATE_ACTION)


cdef inline void fill_levels(
        Level* into, const uint8_t* vector, LevelShape* shapes) noexcept nogil:
    # The levels of one message share a few vtables, so their offsets are looked up only once.
    cdef uint32_t count = load_u32(vector), _
    cdef LevelShape* shape = shapes
    cdef const uint8_t* at
    cdef const uint8_t* vtable
    for _ in range(count):
        vector += 4
        at = follow(vector)
        vtable = at - <int32_t> load_u32(at)
        if vtable != shape.vtable:
            shape = shapes + vtable_slot(<uint64_t> vtable)
            if vtable != shape.vtable:
                level_shape(shape, at)
        into.price = load_f64(at + shape.price) if likely(shape.price) else NAN
        into.quantity = load_f64(at + shape.quantity) if shape.quantity else 0
        into.implied_quantity = load_f64(at + shape.implied) if shape.implied else 0
        into.price_level = load_u32(at + shape.level) if shape.level else 0
        into.number_of_orders = load_u16(at + shape.orders) if shape.orders else 0
        into.update_action = at[shape.action] if shape.action else 0
        into.reserved = 0
        into += 1


cdef inline void fill_order(
        Order* into, const Table* table, DecodeContext* context) noexcept nogil:
    into.price = table_f64(table, SLOT_MBO_UPDATE_PRICE, NAN)
    into.quantity = table_f64(table, SLOT_MBO_UPDATE_QUANTITY, 0)
    into.priority = table_u64(table, SLOT_MBO_UPDATE_PRIORITY)
    into.side = table_u8(table, SLOT_MBO_UPDATE_SIDE)
    into.action = table_u8(table, SLOT_MBO_UPDATE_ACTION)
    into.reason = table_u8(table, SLOT_MBO_UPDATE_REASON)
    into.present = <uint8_t> fill_text(
        into.order_id, SIZE_ORDER_ID, table, SLOT_MBO_UPDATE_ORDER_ID, 1, context)


cdef inline void fill_trade(
        Trade* into, const Table* table, DecodeContext* context) noexcept nogil:
    into.price = table_f64(table, SLOT_TRADE_PRICE, NAN)
    into.quantity = table_f64(table, SLOT_TRADE_QUANTITY, 0)
    into.side = table_u8(table, SLOT_TRADE_SIDE)
    into.present = <uint8_t> (
        fill_text(into.trade_id, SIZE_TRADE_ID, table, SLOT_TRADE_TRADE_ID, 1, context)
        | fill_text(into.taker_order_id, SIZE_ORDER_ID, table, SLOT_TRADE_TAKER_ORDER_ID, 2,
                    context)
        | fill_text(into.maker_order_id, SIZE_ORDER_ID, table, SLOT_TRADE_MAKER_ORDER_ID, 4,
                    context))
    memset(into.reserved, 0, sizeof(into.reserved))


cdef inline void fill_statistic(Statistic* into, const Table* table) noexcept nogil:
    into.value = table_f64(table, SLOT_STATISTICS_VALUE, NAN)
    into.begin_time_utc = <int64_t> table_u64(table, SLOT_STATISTICS_BEGIN_TIME_UTC)
    into.end_time_utc = <int64_t> table_u64(table, SLOT_STATISTICS_END_TIME_UTC)
    into.type = table_u8(table, SLOT_STATISTICS_TYPE)
    memset(into.reserved, 0, sizeof(into.reserved))


cdef inline void fill_measurement(
        Measurement* into, const Table* table, DecodeContext* context) noexcept nogil:
    into.value = table_f64(table, SLOT_MEASUREMENT_VALUE, NAN)
    into.present = <uint8_t> fill_text(
        into.name, SIZE_MEASUREMENT, table, SLOT_MEASUREMENT_NAME, 1, context)
    memset(into.reserved, 0, sizeof(into.reserved))


cdef inline void fill_tick_size_step(TickSizeStep* into, const Table* table) noexcept nogil:
    into.min_price = table_f64(table, SLOT_TICK_SIZE_STEP_MIN_PRICE, NAN)
    into.tick_size = table_f64(table, SLOT_TICK_SIZE_STEP_TICK_SIZE, NAN)


# --- fixed parts --------------------------------------------------------------------------------

cdef inline void fill_top_of_book(TopOfBook* into, const Table* value) noexcept nogil:
    cdef const uint8_t* at = table_reference(value, SLOT_TOP_OF_BOOK_LAYER)
    cdef Table layer
    if at == NULL:
        into.bid_price = NAN
        into.ask_price = NAN
        return
    layer = table_at(at)
    into.header.present |= PRESENT_LAYER
    into.bid_price = table_f64(&layer, SLOT_LAYER_BID_PRICE, NAN)
    into.bid_quantity = table_f64(&layer, SLOT_LAYER_BID_QUANTITY, 0)
    into.ask_price = table_f64(&layer, SLOT_LAYER_ASK_PRICE, NAN)
    into.ask_quantity = table_f64(&layer, SLOT_LAYER_ASK_QUANTITY, 0)


cdef inline void fill_reference_data(
        ReferenceData* into, const Table* value, DecodeContext* context) noexcept nogil:
    into.tick_size = table_f64(value, SLOT_REFERENCE_DATA_TICK_SIZE, NAN)
    into.multiplier = table_f64(value, SLOT_REFERENCE_DATA_MULTIPLIER, NAN)
    into.min_trade_vol = table_f64(value, SLOT_REFERENCE_DATA_MIN_TRADE_VOL, NAN)
    into.max_trade_vol = table_f64(value, SLOT_REFERENCE_DATA_MAX_TRADE_VOL, NAN)
    into.trade_vol_step_size = table_f64(value, SLOT_REFERENCE_DATA_TRADE_VOL_STEP_SIZE, NAN)
    into.strike_price = table_f64(value, SLOT_REFERENCE_DATA_STRIKE_PRICE, NAN)
    into.min_notional = table_f64(value, SLOT_REFERENCE_DATA_MIN_NOTIONAL, NAN)
    into.expiry_datetime = <int64_t> table_u64(value, SLOT_REFERENCE_DATA_EXPIRY_DATETIME)
    into.expiry_datetime_utc = <int64_t> table_u64(
        value, SLOT_REFERENCE_DATA_EXPIRY_DATETIME_UTC)
    into.issue_date = <int32_t> table_u32(value, SLOT_REFERENCE_DATA_ISSUE_DATE)
    into.settlement_date = <int32_t> table_u32(value, SLOT_REFERENCE_DATA_SETTLEMENT_DATE)
    into.external_security_id = <int32_t> table_u32(
        value, SLOT_REFERENCE_DATA_EXTERNAL_SECURITY_ID)
    into.security_type = table_u8(value, SLOT_REFERENCE_DATA_SECURITY_TYPE)
    into.option_type = table_u8(value, SLOT_REFERENCE_DATA_OPTION_TYPE)
    into.discard = table_u8(value, SLOT_REFERENCE_DATA_DISCARD)
    into.header.present |= (
        fill_text(into.description, SIZE_DESCRIPTION, value,
                  SLOT_REFERENCE_DATA_DESCRIPTION, PRESENT_TEXT, context)
        | fill_text(into.quote_currency, SIZE_CURRENCY, value,
                    SLOT_REFERENCE_DATA_QUOTE_CURRENCY, PRESENT_TEXT << 1, context)
        | fill_text(into.base_currency, SIZE_CURRENCY, value,
                    SLOT_REFERENCE_DATA_BASE_CURRENCY, PRESENT_TEXT << 2, context)
        | fill_text(into.commission_currency, SIZE_CURRENCY, value,
                    SLOT_REFERENCE_DATA_COMMISSION_CURRENCY, PRESENT_TEXT << 3, context)
        | fill_text(into.strike_currency, SIZE_CURRENCY, value,
                    SLOT_REFERENCE_DATA_STRIKE_CURRENCY, PRESENT_TEXT << 4, context)
        | fill_text(into.underlying, SIZE_SYMBOL, value,
                    SLOT_REFERENCE_DATA_UNDERLYING, PRESENT_TEXT << 5, context)
        | fill_text(into.time_zone, SIZE_TIME_ZONE, value,
                    SLOT_REFERENCE_DATA_TIME_ZONE, PRESENT_TEXT << 6, context)
        | fill_text(into.margin_currency, SIZE_CURRENCY, value,
                    SLOT_REFERENCE_DATA_MARGIN_CURRENCY, PRESENT_TEXT << 7, context)
        | fill_text(into.settlement_currency, SIZE_CURRENCY, value,
                    SLOT_REFERENCE_DATA_SETTLEMENT_CURRENCY, PRESENT_TEXT << 8, context)
        | fill_text(into.cfi_code, SIZE_CFI_CODE, value,
                    SLOT_REFERENCE_DATA_CFI_CODE, PRESENT_TEXT << 9, context))


cdef inline void fill_gateway_status(
        GatewayStatus* into, const Table* value, DecodeContext* context) noexcept nogil:
    # Publish what this feed carries out of what the origin supports (docs/protocol.md, 4).
    into.supported_by_origin = table_u64(value, SLOT_GATEWAY_STATUS_SUPPORTED)
    into.supported = into.supported_by_origin & context.support_mask
    into.available = table_u64(value, SLOT_GATEWAY_STATUS_AVAILABLE)
    into.unavailable = table_u64(value, SLOT_GATEWAY_STATUS_UNAVAILABLE)
    into.header.present |= fill_text(
        into.account, SIZE_ACCOUNT, value, SLOT_GATEWAY_STATUS_ACCOUNT, PRESENT_TEXT, context)


cdef inline void fill_gateway_settings(
        GatewaySettings* into, const Table* value) noexcept nogil:
    into.supports = table_u64(value, SLOT_GATEWAY_SETTINGS_SUPPORTS)
    into.oms_cancel_all_orders = table_u64(value, SLOT_GATEWAY_SETTINGS_OMS_CANCEL_ALL_ORDERS)
    into.mbp_tick_size_multiplier = table_f64(
        value, SLOT_GATEWAY_SETTINGS_MBP_TICK_SIZE_MULTIPLIER, NAN)
    into.mbp_min_trade_vol_multiplier = table_f64(
        value, SLOT_GATEWAY_SETTINGS_MBP_MIN_TRADE_VOL_MULTIPLIER, NAN)
    into.mbp_max_depth = table_u32(value, SLOT_GATEWAY_SETTINGS_MBP_MAX_DEPTH)
    into.ts_max_history = table_u16(value, SLOT_GATEWAY_SETTINGS_TS_MAX_HISTORY)
    into.mbp_allow_price_inversion = table_u8(
        value, SLOT_GATEWAY_SETTINGS_MBP_ALLOW_PRICE_INVERSION)
    into.mbp_allow_remove_non_existing = table_u8(
        value, SLOT_GATEWAY_SETTINGS_MBP_ALLOW_REMOVE_NON_EXISTING)
    into.oms_download_has_state = table_u8(value, SLOT_GATEWAY_SETTINGS_OMS_DOWNLOAD_HAS_STATE)
    into.oms_download_has_routing_id = table_u8(
        value, SLOT_GATEWAY_SETTINGS_OMS_DOWNLOAD_HAS_ROUTING_ID)
    into.mbp_checksum = table_u8(value, SLOT_GATEWAY_SETTINGS_MBP_CHECKSUM)
    into.oms_request_id_type = table_u8(value, SLOT_GATEWAY_SETTINGS_OMS_REQUEST_ID_TYPE)
    into.ts_interval = table_u8(value, SLOT_GATEWAY_SETTINGS_TS_INTERVAL)


cdef inline void fill_external_latency(
        ExternalLatency* into, const Table* value, DecodeContext* context) noexcept nogil:
    into.latency = <int64_t> table_u64(value, SLOT_EXTERNAL_LATENCY_LATENCY)
    into.header.present |= fill_text(
        into.account, SIZE_ACCOUNT, value, SLOT_EXTERNAL_LATENCY_ACCOUNT, PRESENT_TEXT, context)


cdef inline void fill_custom_metrics(
        CustomMetrics* into, const Table* value, DecodeContext* context) noexcept nogil:
    into.header.present |= (
        fill_text(into.user, SIZE_USER, value,
                  SLOT_CUSTOM_METRICS_UPDATE_USER, PRESENT_TEXT, context)
        | fill_text(into.label, SIZE_LABEL, value,
                    SLOT_CUSTOM_METRICS_UPDATE_LABEL, PRESENT_TEXT << 1, context)
        | fill_text(into.account, SIZE_ACCOUNT, value,
                    SLOT_CUSTOM_METRICS_UPDATE_ACCOUNT, PRESENT_TEXT << 2, context))
