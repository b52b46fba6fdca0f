# The fast path for the three types that make up most of a feed: books, tops of book and trades. One
# walk both verifies and writes them.
#
#     kind = fast_decode(payload, size, into, room, names, context)
#     if kind == 0: not for this path, nothing was done; use event_verify and decode's general path
#
# The walk accepts only what event_verify accepts, and writes what decode's general path writes,
# byte for byte. Everything unusual (damage, a vtable without a plan, too little room) is left to
# that path, so that only one place judges. Names are interned only when all else is sound.
#
# What the three types have in common has the same slot in their plans (plan_field): that of
# MarketByPriceUpdate.

from libc.math cimport NAN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.core.check cimport likely, unlikely
from udpfast.core.update_kinds cimport KIND_BOOK, KIND_TOP_OF_BOOK, KIND_TRADES
from udpfast.market.names cimport Names
from udpfast.market.updates cimport *
from udpfast.payload.roq.decode cimport DecodeContext
from udpfast.payload.roq.flatbuffer cimport load_f64, load_u32, load_u64
from udpfast.payload.roq.general cimport fill_name, fill_text_at
from udpfast.payload.roq.schema cimport *
from udpfast.payload.roq.vtable_plan cimport (
    Beginning, PlannedTable, Places, Plan, PlanSet, Plans, UsualLevel, head_find, head_walk,
    place_learn, places_forget, plan_f64, plan_f64_or_0, plan_find, plan_offset, plan_u8, plan_u16,
    plan_u32, plan_u64, usual_last,
)

cdef extern from *:
    """
    typedef uint64_t udpfast_pair __attribute__((vector_size(16), aligned(1), may_alias));
    static inline void udpfast_copy_pair(
        void* to, const uint8_t* first, const uint8_t* second, const uint64_t* mask)
    {
        uint64_t low, high;
        memcpy(&low, first, 8);
        memcpy(&high, second, 8);
        *(udpfast_pair*) to = (udpfast_pair) {low, high} & *(const udpfast_pair*) mask;
    }
    """
    void copy_pair "udpfast_copy_pair" (
        void* to, const uint8_t* first, const uint8_t* second,
        const uint64_t* mask) noexcept nogil

cdef struct Walk:  # the message being walked
    const uint8_t* data
    uint64_t size
    uint64_t tables_left
    uint64_t fields_unknown

cdef struct FastRows:  # a vector of tables
    uint64_t at                  # offset of its first reference
    uint32_t count
    uint32_t present


# --- checked steps: each is False, or leaves its result sound -------------------------------------

cdef inline bint fast_table(
        Walk* walk, PlanSet* plans, uint32_t index, uint64_t at,
        PlannedTable* table) noexcept nogil:
    table.plan = plan_find(plans, index, walk.data, walk.size, at)
    if unlikely(table.plan == NULL):
        return False
    table.at = walk.data + at
    walk.fields_unknown += table.plan.fields_unknown
    return True


cdef inline uint64_t fast_target(
        const Walk* walk, const PlannedTable* table, uint32_t offset) noexcept nogil:
    # Return where a reference in a checked table leads, which may be anywhere.
    return <uint64_t> (table.at - walk.data) + offset + load_u32(table.at + offset)


cdef inline bint fast_text(
        const Walk* walk, const PlannedTable* table, uint32_t slot,
        const uint8_t** text) noexcept nogil:
    # Check a string: its length, its bytes, and the zero behind them. *text is NULL if it is
    # absent.
    cdef uint32_t offset = plan_offset(table.plan, slot)
    cdef uint64_t at, end
    text[0] = NULL
    if offset == 0:
        return True
    at = fast_target(walk, table, offset)
    if unlikely(at + 5 > walk.size):
        return False
    end = at + 4 + load_u32(walk.data + at)
    text[0] = walk.data + at
    return likely(end < walk.size and walk.data[end] == 0)


cdef inline bint fast_rows(
        Walk* walk, const PlannedTable* table, uint32_t slot, FastRows* rows) noexcept nogil:
    # Check a vector of tables, but not the tables themselves; they count against tables_left.
    cdef uint32_t offset = plan_offset(table.plan, slot)
    rows.at = 0
    rows.count = 0
    rows.present = offset != 0
    if offset == 0:
        return True
    rows.at = fast_target(walk, table, offset) + 4
    if unlikely(rows.at > walk.size):
        return False
    rows.count = load_u32(walk.data + rows.at - 4)
    if unlikely(rows.at + 4 * <uint64_t> rows.count > walk.size or rows.count > walk.tables_left):
        return False
    walk.tables_left -= rows.count
    return True


# --- books ----------------------------------------------------------------------------------------

cdef inline bint fast_level(
        Walk* walk, const Plan* plan, uint64_t at, Level* into) noexcept nogil:
    # Write any level by its plan.
    cdef const uint8_t* table = walk.data + at
    if unlikely(plan == NULL or at + plan.extent > walk.size):
        return False
    walk.fields_unknown += plan.fields_unknown
    into.price = plan_f64(plan, table, SLOT_MBP_UPDATE_PRICE, NAN)
    into.quantity = plan_f64_or_0(plan, table, SLOT_MBP_UPDATE_QUANTITY)
    into.implied_quantity = plan_f64_or_0(plan, table, SLOT_MBP_UPDATE_IMPLIED_QUANTITY)
    into.price_level = plan_u32(plan, table, SLOT_MBP_UPDATE_PRICE_LEVEL)
    into.number_of_orders = <uint16_t> plan_u16(plan, table, SLOT_MBP_UPDATE_NUMBER_OF_ORDERS)
    into.update_action = <uint8_t> plan_u8(plan, table, SLOT_MBP_UPDATE_UPDATE_ACTION)
    into.reserved = 0
    return True


cdef inline bint fast_level_other(
        Walk* walk, Plans* plans, Places* places, uint64_t table, Level* into) noexcept nogil:
    # Write a level that is not a usual one, or lies at the very end.
    cdef const Plan* plan
    cdef uint64_t vtable
    if unlikely(table > walk.size - 8):
        return False
    vtable = table - <uint64_t> <int64_t> <int32_t> load_u32(walk.data + table)
    if likely(vtable == places.vtable[0]):
        plan = places.plan[0]
    elif likely(vtable == places.vtable[1]):
        plan = places.plan[1]
    else:
        plan = place_learn(places, plans, walk.data, walk.size, vtable)
    return fast_level(walk, plan, table, into)


cdef inline bint fast_levels(
        Walk* walk, Plans* plans, Places* places, uint64_t at, uint32_t count,
        Level* into) noexcept nogil:
    # No branch here depends on which levels are removals or how they are padded, because no
    # processor could predict that.
    cdef const uint8_t* data = walk.data
    cdef const UsualLevel* usual
    cdef uint64_t end = at + 4 * <uint64_t> count, size = walk.size, table, vtable, word
    cdef uint64_t last = usual_last(plans.usual, size)
    while at < end:
        table = at + load_u32(data + at)
        at += 4
        if likely(table <= last):
            vtable = table - <uint64_t> <int64_t> <int32_t> load_u32(data + table)
            if unlikely(vtable > size - 8):  # also if it lies before the buffer
                return False
            word = load_u64(data + vtable)
            usual = &plans.usual[word >> 1 & 1]
            if likely(word | usual.fill == usual.key):
                copy_pair(into, data + table + usual.price, data + table + usual.quantity,
                          usual.mask)
                memset(<uint8_t*> into + 16, 0, 16)
                into += 1
                continue
        if unlikely(not fast_level_other(walk, plans, places, table, into)):
            return False
        last = usual_last(plans.usual, size)
        into += 1
    return True


cdef inline int32_t fast_book(
        Walk* walk, const PlannedTable* value, uint8_t* into, uint32_t room,
        DecodeContext* context) noexcept nogil:
    cdef Book* book = <Book*> into
    cdef Level* levels = <Level*> (into + sizeof(Book))
    cdef FastRows[2] sides
    cdef Places places
    cdef uint64_t needed
    cdef int side
    if unlikely(
            not fast_rows(walk, value, SLOT_MARKET_BY_PRICE_UPDATE_BIDS, &sides[0])
            or not fast_rows(walk, value, SLOT_MARKET_BY_PRICE_UPDATE_ASKS, &sides[1])):
        return 0
    needed = sizeof(Book) + (<uint64_t> sides[0].count + sides[1].count) * sizeof(Level)
    if unlikely(needed > room):
        return 0
    places_forget(&places)
    for side in range(2):
        if unlikely(not fast_levels(
                walk, &context.plans, &places, sides[side].at, sides[side].count, levels)):
            return 0
        levels += sides[side].count
    book.header.present = (PRESENT_ROWS if sides[0].present else 0) | (
        PRESENT_ASKS if sides[1].present else 0)
    book.header.row_count = sides[0].count + sides[1].count
    book.bid_count = sides[0].count
    book.ask_count = sides[1].count
    context.size = <uint32_t> needed
    return KIND_BOOK


# --- tops of book, trades -------------------------------------------------------------------------

cdef inline int32_t fast_top_of_book(
        Walk* walk, const PlannedTable* value, uint8_t* into, uint32_t room,
        DecodeContext* context) noexcept nogil:
    cdef TopOfBook* top = <TopOfBook*> into
    cdef uint32_t offset = plan_offset(value.plan, SLOT_MARKET_BY_PRICE_UPDATE_BIDS)
    cdef PlannedTable layer
    # A message without a layer says nothing and is rare.
    if unlikely(
            room < sizeof(TopOfBook) or offset == 0 or walk.tables_left == 0
            or not fast_table(walk, &context.plans.layer, TABLE_LAYER,
                              fast_target(walk, value, offset), &layer)):
        return 0
    top.header.present = PRESENT_LAYER
    top.header.row_count = 0
    top.bid_price = plan_f64(layer.plan, layer.at, SLOT_LAYER_BID_PRICE, NAN)
    top.bid_quantity = plan_f64_or_0(layer.plan, layer.at, SLOT_LAYER_BID_QUANTITY)
    top.ask_price = plan_f64(layer.plan, layer.at, SLOT_LAYER_ASK_PRICE, NAN)
    top.ask_quantity = plan_f64_or_0(layer.plan, layer.at, SLOT_LAYER_ASK_QUANTITY)
    context.size = sizeof(TopOfBook)
    return KIND_TOP_OF_BOOK


cdef inline bint fast_trade(
        Walk* walk, PlanSet* plans, uint64_t at, Trade* into,
        DecodeContext* context) noexcept nogil:
    cdef PlannedTable row
    cdef const uint8_t* trade_id
    cdef const uint8_t* taker
    cdef const uint8_t* maker
    if unlikely(not fast_table(walk, plans, TABLE_TRADE, at + load_u32(walk.data + at), &row)
                or not fast_text(walk, &row, SLOT_TRADE_TRADE_ID, &trade_id)
                or not fast_text(walk, &row, SLOT_TRADE_TAKER_ORDER_ID, &taker)
                or not fast_text(walk, &row, SLOT_TRADE_MAKER_ORDER_ID, &maker)):
        return False
    into.price = plan_f64(row.plan, row.at, SLOT_TRADE_PRICE, NAN)
    into.quantity = plan_f64_or_0(row.plan, row.at, SLOT_TRADE_QUANTITY)
    into.side = <uint8_t> plan_u8(row.plan, row.at, SLOT_TRADE_SIDE)
    into.present = <uint8_t> (
        fill_text_at(into.trade_id, SIZE_TRADE_ID, trade_id, 1, context)
        | fill_text_at(into.taker_order_id, SIZE_ORDER_ID, taker, 2, context)
        | fill_text_at(into.maker_order_id, SIZE_ORDER_ID, maker, 4, context))
    memset(into.reserved, 0, sizeof(into.reserved))
    return True


cdef inline int32_t fast_trades(
        Walk* walk, const PlannedTable* value, uint8_t* into, uint32_t room,
        DecodeContext* context) noexcept nogil:
    cdef UpdateHeader* header = <UpdateHeader*> into
    cdef FastRows rows
    cdef uint64_t needed
    cdef uint32_t i
    if unlikely(not fast_rows(walk, value, SLOT_MARKET_BY_PRICE_UPDATE_BIDS, &rows)):
        return 0
    needed = sizeof(Trades) + <uint64_t> rows.count * sizeof(Trade)
    if unlikely(needed > room):
        return 0
    for i in range(rows.count):
        if unlikely(not fast_trade(walk, &context.plans.trade, rows.at + 4 * <uint64_t> i,
                                   <Trade*> (into + sizeof(Trades)) + i, context)):
            return 0
    header.present = PRESENT_ROWS if rows.present else 0
    header.row_count = rows.count
    context.size = <uint32_t> needed
    return KIND_TRADES


# --- the whole ------------------------------------------------------------------------------------

cdef inline void fast_source(UpdateHeader* header, const PlannedTable* source) noexcept nogil:
    cdef const Plan* plan = source.plan
    cdef const uint8_t* at = source.at
    if unlikely(plan == NULL):
        memset(header, 0, 40)
        return
    header.present |= PRESENT_SOURCE_INFO
    if likely(plan.straight == 5):  # the fields have the same order as here
        memcpy(header, at + plan_offset(plan, SLOT_SOURCE_INFO_SEQNO), 40)
        return
    header.source_seqno = plan_u64(plan, at, SLOT_SOURCE_INFO_SEQNO)
    header.source_send_time_utc = plan_u64(plan, at, SLOT_SOURCE_INFO_SEND_TIME_UTC)
    header.source_create_time_utc = plan_u64(plan, at, SLOT_SOURCE_INFO_CREATE_TIME_UTC)
    header.source_send_time = plan_u64(plan, at, SLOT_SOURCE_INFO_SEND_TIME)
    header.source_create_time = plan_u64(plan, at, SLOT_SOURCE_INFO_CREATE_TIME)


cdef inline void fast_header(UpdateHeader* header, const PlannedTable* value) noexcept nogil:
    # Fill in what the types have in common. A field that a type does not have is absent in its
    # plans.
    cdef const Plan* plan = value.plan
    cdef const uint8_t* at = value.at
    header.exchange_time_utc = <int64_t> plan_u64(
        plan, at, SLOT_MARKET_BY_PRICE_UPDATE_EXCHANGE_TIME_UTC)
    header.exchange_sequence = plan_u64(plan, at, SLOT_MARKET_BY_PRICE_UPDATE_EXCHANGE_SEQUENCE)
    header.sending_time_utc = <int64_t> plan_u64(
        plan, at, SLOT_MARKET_BY_PRICE_UPDATE_SENDING_TIME_UTC)
    header.stream_id = <uint16_t> plan_u16(plan, at, SLOT_MARKET_BY_PRICE_UPDATE_STREAM_ID)
    header.max_depth = <uint16_t> plan_u16(plan, at, SLOT_MARKET_BY_PRICE_UPDATE_MAX_DEPTH)
    header.update_type = <uint8_t> plan_u8(plan, at, SLOT_MARKET_BY_PRICE_UPDATE_UPDATE_TYPE)
    header.price_precision = <uint8_t> plan_u8(
        plan, at, SLOT_MARKET_BY_PRICE_UPDATE_PRICE_PRECISION)
    header.quantity_precision = <uint8_t> plan_u8(
        plan, at, SLOT_MARKET_BY_PRICE_UPDATE_QUANTITY_PRECISION)
    header.reserved = 0


cdef inline int32_t fast_decode(
        const uint8_t* payload, uint32_t size, uint8_t* into, uint32_t room, Names* names,
        DecodeContext* context) noexcept nogil:
    cdef UpdateHeader* header = <UpdateHeader*> into
    cdef Walk walk
    cdef Beginning found
    cdef const uint8_t* exchange
    cdef const uint8_t* symbol
    cdef int32_t kind
    if unlikely(size < 32):  # three tables need more
        return 0
    if not likely(head_find(&context.plans, payload, size, &found)):
        if not head_walk(&context.plans, payload, size, &found):
            return 0
    walk.data = payload
    walk.size = size
    walk.tables_left = (size >> 3) - 3
    walk.fields_unknown = found.fields_unknown
    if unlikely(
            not fast_text(&walk, &found.value, SLOT_MARKET_BY_PRICE_UPDATE_EXCHANGE, &exchange)
            or not fast_text(&walk, &found.value, SLOT_MARKET_BY_PRICE_UPDATE_SYMBOL, &symbol)):
        return 0
    if found.code == MESSAGE_MARKET_BY_PRICE_UPDATE:
        kind = fast_book(&walk, &found.value, into, room, context)
    elif found.code == MESSAGE_TOP_OF_BOOK:
        kind = fast_top_of_book(&walk, &found.value, into, room, context)
    else:
        kind = fast_trades(&walk, &found.value, into, room, context)
    if unlikely(kind == 0):
        return 0
    fast_source(header, &found.source)
    fast_header(header, &found.value)
    header.exchange_id = fill_name(exchange, names, context, True)
    header.symbol_id = fill_name(symbol, names, context)
    context.exchange_id = header.exchange_id
    context.symbol_id = header.symbol_id
    context.message_type = found.code
    context.fields_unknown = walk.fields_unknown
    return kind
