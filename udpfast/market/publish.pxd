# What changed in a market, as the updates that readers know: TRADES, MARKET_STATUS and
# REFERENCE_DATA in their order, then of each instrument that changed STALE or RECOVERED, BOOK,
# ORDERS and TOP_OF_BOOK.
#
# What readers were told last is in each Face. A book that is no change of what they have is told
# whole (RECORD_SNAPSHOT). While an event goes on, updates have PRESENT_MORE, and tops wait.

from libc.math cimport NAN
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.core.check cimport likely, unlikely
from udpfast.core.layout cimport (
    KIND_RECOVERED, KIND_STALE, OBJECT_LIVE, OBJECT_STALE, ObjectState, RECORD_DOUBT,
    RECORD_SNAPSHOT, RECORD_TRUNCATED, RECORD_UNGATED, WAIT_SNAPSHOT, WAIT_SNAPSHOT_ABSENT)
from udpfast.core.update_kinds cimport (
    KIND_BOOK, KIND_MARKET_STATUS, KIND_ORDERS, KIND_REFERENCE_DATA, KIND_TOP_OF_BOOK, KIND_TRADES)
from udpfast.market.change cimport (
    DEFINED_DECIMALS, LEVELS_BY_PLACE, LEVELS_NONE, LEVELS_OF_ORDERS, LEVELS_OF_QUOTES, NAMES_IN_ID,
    PRICE_NONE,
    SIDE_ASK, SIDE_BID, SIDE_BID_IMPLIED, SIDE_NONE, VERB_DEFINE, VERB_STATUS, change_undouble)
from udpfast.market.found cimport Found
from udpfast.market.instrument cimport (
    FACE_IMPLIED, FACE_LEVELS, FACE_ORDERS, Face, Instrument, SAID_LIVE, SAID_NOTHING, SAID_STALE)
from udpfast.market.market cimport (
    STREAM_NOWHERE, Emission, Market, MarketStream, Row, Touched, TouchedOrder)
from udpfast.market.orders cimport RestingOrder
from udpfast.market.side cimport Side, SideLevel, side_find, side_levels, side_reserve
from udpfast.market.update_header cimport (
    OBJECT_IMPLIED, OBJECT_ORDERS, OBJECT_REFERENCE, OBJECT_STATUS, OBJECT_TRADES)
from udpfast.market.updates cimport (
    Book, Level, MarketStatus, Order, Orders, PRESENT_ASKS, PRESENT_LAYER, PRESENT_MORE,
    PRESENT_ROWS, PRESENT_ROW_TEXT, ReferenceData, TopOfBook, Trade, Trades, UpdateHeader)

cdef extern from *:
    int count_trailing_zeros "__builtin_ctzll" (unsigned long long value) noexcept nogil

cdef enum:
    EIGHT_DIGITS = 100_000_000   # what a number has to be below to have no more
    PUBLISH_ROOM = 65536 - 64    # bytes of an update at most

cdef enum:  # steps of one instrument
    STEP_RENAMED = 0
    STEP_LEVELS_SAY = 3
    STEP_LEVELS = 4
    STEP_IMPLIED_SAY = 5
    STEP_IMPLIED = 6
    STEP_ORDERS_SAY = 7
    STEP_ORDERS = 8
    STEP_TOP = 9
    STEPS = 10

cdef enum:  # values of the schema
    UPDATE_SNAPSHOT = 1
    UPDATE_INCREMENTAL = 2
    ACTION_NEW = 1

cdef inline double price_of(
        const Market* market, const Instrument* i, int64_t price) noexcept nogil:
    # The double that is nearest to the decimal price.
    if market.traits.doubles:
        return change_undouble(price)
    if -(<int64_t>1 << 53) <= price <= <int64_t>1 << 53:
        return <double>price / market.price_units[i.decimals]
    return <double>(<long double>price / market.price_units[i.decimals])


cdef inline double quantity_of(const Market* market, int64_t quantity) noexcept nogil:
    return change_undouble(quantity) if market.traits.doubles else <double>quantity


cdef inline uint64_t eight_digits(uint32_t number) noexcept nogil:
    # The digits of a number below 10^8, the first in the lowest byte: it is divided by 10,000, both
    # parts at once by 100, and all four by 10. The products are exact for numbers that small.
    cdef uint64_t first = number // 10_000
    cdef uint64_t parts = first | (number - first * 10_000) << 32
    first = (parts * 10_486 >> 20) & <uint64_t>0x0000007F0000007F
    parts = first | (parts - first * 100) << 16
    first = (parts * 103 >> 10) & <uint64_t>0x000F000F000F000F
    return first | (parts - first * 10) << 8


cdef inline uint32_t first_text(char* text, uint32_t number) noexcept nogil:
    # In decimal, with zeros behind up to eight characters: how many it has.
    cdef uint64_t digits = eight_digits(number)
    cdef uint32_t zeros = count_trailing_zeros(digits | <uint64_t>1 << 56) & ~7  # of the last, none
    digits = digits + <uint64_t>0x3030303030303030 >> zeros
    memcpy(text, &digits, 8)
    return 8 - (zeros >> 3)


cdef inline void more_text(char* text, uint32_t number) noexcept nogil:
    # All of eight digits.
    cdef uint64_t digits = eight_digits(number) + <uint64_t>0x3030303030303030
    memcpy(text, &digits, 8)


cdef inline void number_text(char* text, uint64_t number) noexcept nogil:
    # In decimal, into at least 20 bytes: eight digits at a time, as orders have long numbers.
    cdef uint64_t above = number // EIGHT_DIGITS
    if above == 0:
        first_text(text, <uint32_t>number)
        return
    if above < EIGHT_DIGITS:
        text += first_text(text, <uint32_t>above)
    else:
        text += first_text(text, <uint32_t>(above // EIGHT_DIGITS))
        more_text(text, <uint32_t>(above % EIGHT_DIGITS))
        text += 8
    more_text(text, <uint32_t>(number % EIGHT_DIGITS))


cdef inline bint face_sure(const Market* market, const Instrument* i, int which) noexcept nogil:
    cdef const Face* face = &i.face[which]
    if market.traits.levels == LEVELS_OF_ORDERS:
        face = &i.face[FACE_LEVELS]
    if not i.measured and (which != FACE_ORDERS or market.traits.levels != LEVELS_BY_PLACE):
        return False             # what falls out of a side is not told, or what prices mean
    return face.status == OBJECT_LIVE and face.sure == market.streams[i.stream].gaps


cdef inline UpdateHeader* header_clear(
        const Market* market, const Instrument* i, uint8_t* into, uint32_t size) noexcept nogil:
    # In two parts: the compiler writes each out. `rep stos`, its way for all of it, takes longer
    # to begin than they take.
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
    told.names_full = (told.exchange_id == 0) + i.unstored
    if face == FACE_IMPLIED:
        told.object |= OBJECT_IMPLIED
    elif face == FACE_ORDERS:
        told.object |= OBJECT_ORDERS
    told.flags = RECORD_UNGATED
    if i.stream == STREAM_NOWHERE:
        return                   # it was defined, and nothing of it came yet
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


cdef inline double defined_number(const Market* market, int64_t mantissa) noexcept nogil:
    # NaN: it is not said.
    return <double>mantissa / market.price_units[DEFINED_DECIMALS] if mantissa else NAN


cdef inline void text_write(
        char* into, uint32_t room, const uint8_t* text, uint32_t size) noexcept nogil:
    # A text of a message, without what fills its field up behind it.
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
        told.flags = RECORD_UNGATED   # whatever its book is
        if i.symbol_id:
            told.flags |= RECORD_SNAPSHOT
        else:
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
    if not i.symbol_id:
        told.flags |= RECORD_TRUNCATED
    return KIND_TRADES


cdef inline bint face_wanted(const Market* market, const Instrument* i, int which) noexcept nogil:
    # Whether readers get it at all.
    if i.symbol_id == 0 or i.exchange_id == 0:
        return False
    if which == FACE_ORDERS:
        return market.traits.orders and market.settings.orders
    if which == FACE_IMPLIED:
        return market.traits.depth_implied and market.settings.levels and i.face[which].begun
    return market.settings.levels or market.settings.top


cdef inline int32_t instrument_say(
        Market* market, Instrument* i, int which, uint8_t* into, Found* told) noexcept nogil:
    # STALE or RECOVERED, where readers are to know; 0: nothing.
    cdef Face* face = &i.face[which]
    cdef uint8_t said = face.said
    cdef uint32_t gaps = market.streams[i.stream].gaps
    cdef uint8_t status = i.face[FACE_LEVELS].status if (
        market.traits.levels == LEVELS_OF_ORDERS) else face.status
    if which == FACE_IMPLIED and (i.sides[2].count or i.sides[3].count):
        face.begun = True
    if not face_wanted(market, i, which) or market.traits.levels == LEVELS_OF_QUOTES:
        return 0
    if status != OBJECT_LIVE:
        face.said = SAID_STALE if said else SAID_NOTHING
        # Changes of an absolute book are taken in doubt, too: the gap said enough.
        if said != SAID_LIVE or market.traits.absolute:
            return 0
        return state_write(market, i, which, KIND_STALE, False, into, told)
    if not face_sure(market, i, which) or (
            market.settings.awaits_definitions and not i.defined):
        return 0                 # nobody knows yet; a gap said so
    face.said = SAID_LIVE
    if said == SAID_LIVE and face.told == gaps:
        return 0
    if said == SAID_LIVE and not face.replaced:
        face.told = gaps
        return state_write(market, i, which, KIND_RECOVERED, True, into, told)
    face.replaced = True
    face.told = gaps
    if said == SAID_NOTHING:
        return 0
    return state_write(market, i, which, KIND_RECOVERED, False, into, told)


cdef inline bint is_told(const Market* market, const Instrument* i, int which) noexcept nogil:
    return i.face[which].said == SAID_LIVE and face_sure(market, i, which) and (
        i.face[which].told == market.streams[i.stream].gaps)


cdef inline bint is_plain(const Market* market, const Instrument* i) noexcept nogil:
    # Whether nothing is to be said but what changed: nothing is in doubt, readers know that, and
    # the orders are all that it has beside the levels.
    return market.traits.levels == LEVELS_OF_ORDERS and i.symbol_before == 0 and (
        not market.traits.depth_implied) and is_told(market, i, FACE_LEVELS) and (
        not market.settings.orders or is_told(market, i, FACE_ORDERS))


cdef inline bint in_doubt_told(const Market* market, const Instrument* i) noexcept nogil:
    # Whether its changes are told while nobody knows the rest: each is right by itself.
    return market.traits.absolute and i.symbol_id != 0 and (
        i.face[FACE_LEVELS].status != OBJECT_LIVE)


cdef inline const SideLevel* level_at(
        Market* market, const Side* side, uint32_t rank) noexcept nogil:
    # 0 is the best.
    cdef SideLevel* levels = side_levels(&market.slab, side)
    return levels + (rank if market.traits.levels == LEVELS_BY_PLACE else side.count - 1 - rank)


cdef inline void level_write(
        Market* market, const Instrument* i, const SideLevel* level, uint32_t place,
        Level* row) noexcept nogil:
    row.price = price_of(market, i, level.price)
    row.quantity = quantity_of(market, level.quantity)
    row.number_of_orders = <uint16_t>min(level.orders, <uint32_t>65535)
    row.price_level = place


cdef inline uint32_t depth_shown(const Market* market, const Side* side) noexcept nogil:
    if market.settings.depth:
        return min(side.count, market.settings.depth)
    return side.count


cdef inline bint by_comparison(const Market* market) noexcept nogil:
    # Whether what changed is found by comparing with what readers have.
    return market.traits.levels == LEVELS_BY_PLACE or market.settings.depth != 0


cdef inline bint rows_full(const uint8_t* into, const Level* row, uint32_t room) noexcept nogil:
    return <uint64_t>(<const uint8_t*>(row + 1) - into) > room


cdef inline Level* compare_side(
        Market* market, Instrument* i, int at, Level* row) noexcept nogil:
    # Rows of one side that differ from what readers have of it.
    cdef Side* side = &i.sides[at]
    cdef Side* shown = &i.shown[at]
    cdef const SideLevel* old = side_levels(&market.slab, shown)
    cdef const SideLevel* level
    cdef uint32_t count = depth_shown(market, side), a, b
    for a in range(shown.count):
        for b in range(count):
            if level_at(market, side, b).price == old[a].price:
                break
        else:
            memset(row, 0, sizeof(Level))
            row.price = price_of(market, i, old[a].price)
            row += 1
    for b in range(count):
        level = level_at(market, side, b)
        for a in range(shown.count):
            if old[a].price == level.price:
                if old[a].quantity != level.quantity or old[a].orders != level.orders:
                    memset(row, 0, sizeof(Level))
                    level_write(market, i, level, b + 1, row)
                    row += 1
                break
        else:
            memset(row, 0, sizeof(Level))
            level_write(market, i, level, b + 1, row)
            row += 1
    return row


cdef inline void remember_side(Market* market, Instrument* i, int at) noexcept nogil:
    cdef Side* side = &i.sides[at]
    cdef Side* shown = &i.shown[at]
    cdef uint32_t count = depth_shown(market, side), b
    shown.count = 0
    if not side_reserve(&market.slab, shown, count):
        return                   # the next update is compared with nothing: it says too much
    for b in range(count):
        side_levels(&market.slab, shown)[b] = level_at(market, side, b)[0]
    shown.count = count


cdef inline Level* touched_side(
        Market* market, Instrument* i, uint32_t at, Level* row) noexcept nogil:
    # Rows of one side for all prices that changes named.
    cdef Touched* touched
    cdef const SideLevel* now
    cdef SideLevel level
    cdef uint32_t index = <uint32_t>(i - market.instruments.items), n, m
    for n in range(market.touched_count):
        touched = market.touched + n
        if touched.instrument != index or touched.side != at:
            continue
        for m in range(n + 1, market.touched_count):
            if market.touched[m].price == touched.price and (
                    market.touched[m].side == at and market.touched[m].instrument == index):
                break
        else:
            level.price = touched.price
            level.quantity = touched.quantity
            level.orders = <uint32_t>touched.orders
            if unlikely(i.face[at & SIDE_BID_IMPLIED].replaced):     # it may be gone since
                now = side_find(&market.slab, &i.sides[at], touched.price)
                level.quantity = now.quantity if now != NULL else 0
                level.orders = now.orders if now != NULL else 0
            memset(row, 0, sizeof(Level))
            level_write(market, i, &level, 0, row)
            row += 1
    return row


cdef inline int32_t levels_write(
        Market* market, Instrument* i, int face, uint8_t* into, uint32_t room,
        Found* told) noexcept nogil:
    # BOOK; `emission.at` levels of a whole one were told before. 0: nothing changed.
    cdef Emission* e = &market.emission
    cdef Book* book = <Book*>into
    cdef Level* row = <Level*>(into + sizeof(Book))
    cdef Level* asks
    cdef UpdateHeader* header = header_begin(market, i, face, into, sizeof(Book), told)
    cdef bint whole = i.face[face].replaced and i.face[face].status == OBJECT_LIVE
    cdef bint first = e.at == 0
    cdef uint32_t bids, count = 0
    if unlikely(whole and not market.traits.absolute):
        bids = depth_shown(market, &i.sides[face])
        count = bids + depth_shown(market, &i.sides[face + 1])
        while e.at < bids and not rows_full(into, row, room):
            memset(row, 0, sizeof(Level))
            level_write(market, i, level_at(market, &i.sides[face], e.at), e.at + 1, row)
            row += 1
            e.at += 1
        asks = row
        while bids <= e.at < count and not rows_full(into, row, room):
            memset(row, 0, sizeof(Level))
            level_write(
                market, i, level_at(market, &i.sides[face + 1], e.at - bids), e.at - bids + 1, row)
            row += 1
            e.at += 1
    elif by_comparison(market):
        asks = compare_side(market, i, face, row)
        row = compare_side(market, i, face + 1, asks)
    else:
        asks = touched_side(market, i, face, row)
        row = touched_side(market, i, face + 1, asks)
    book.bid_count = <uint32_t>(asks - <Level*>(into + sizeof(Book)))
    book.ask_count = <uint32_t>(row - asks)
    header.row_count = book.bid_count + book.ask_count
    told.size += header.row_count * sizeof(Level)
    header.max_depth = <uint16_t>market.settings.depth
    header.update_type = UPDATE_INCREMENTAL
    header.present = (PRESENT_ROWS if book.bid_count else 0) | (
        PRESENT_ASKS if book.ask_count else 0)
    if whole and first:
        header.update_type = UPDATE_SNAPSHOT
        header.present = PRESENT_ROWS | PRESENT_ASKS
        told.flags |= RECORD_SNAPSHOT
    if market.traits.absolute and header.row_count == 0:
        return 0                 # a book begins with its first level: that is all of it
    if e.at < count:
        header.present |= PRESENT_MORE
    else:
        e.at = 0
        i.face[face].replaced = False
        if by_comparison(market):
            remember_side(market, i, face)
            remember_side(market, i, face + 1)
    if market.streams[i.stream].open or i.open:
        header.present |= PRESENT_MORE
    return KIND_BOOK if whole or header.row_count else 0


cdef inline bint is_few(const Market* market, const Instrument* i) noexcept nogil:
    # Whether what changed is a level or two of a plain instrument, and nothing of another one.
    cdef const Touched* touched = market.touched
    if market.touched_count == 0 or market.touched_count > 2 or market.dirty_count != 1 or (
            market.settings.depth or i.face[FACE_LEVELS].replaced):
        return False
    return touched[market.touched_count - 1].side <= SIDE_ASK and (
        touched.side <= touched[market.touched_count - 1].side)


cdef inline int32_t few_write(
        Market* market, Instrument* i, uint8_t* into, Found* told) noexcept nogil:
    # BOOK where is_few: what levels_write makes of it, without a search. `told` is zeros.
    cdef const Touched* touched = market.touched
    cdef const Touched* end = touched + market.touched_count
    cdef UpdateHeader* header = header_clear(market, i, into, sizeof(Book))
    cdef Book* book = <Book*>into
    cdef Level* row = <Level*>(into + sizeof(Book))
    if end - touched == 2 and touched.price == touched[1].price and touched.side == touched[1].side:
        touched += 1             # what it became in the end
    header.row_count = <uint32_t>(end - touched)
    while touched < end:
        memset(row, 0, sizeof(Level))
        row.price = price_of(market, i, touched.price)
        row.quantity = quantity_of(market, touched.quantity)
        row.number_of_orders = <uint16_t>min(touched.orders, <uint64_t>65535)
        book.ask_count += touched.side
        row += 1
        touched += 1
    book.bid_count = header.row_count - book.ask_count
    header.update_type = UPDATE_INCREMENTAL
    header.present = (PRESENT_ROWS if book.bid_count else 0) | (
        PRESENT_ASKS if book.ask_count else 0)
    if market.streams[i.stream].open or i.open:
        header.present |= PRESENT_MORE
    header.exchange_id = told.exchange_id = i.exchange_id
    header.symbol_id = told.symbol_id = told.object = i.symbol_id
    told.flags = RECORD_UNGATED
    told.stream = i.stream + 1
    told.session = market.streams[i.stream].session
    told.size = sizeof(Book) + header.row_count * sizeof(Level)
    return KIND_BOOK


cdef inline void order_write(
        Market* market, const Instrument* i, uint64_t id, uint64_t priority, int64_t price,
        int64_t quantity, uint8_t side, uint8_t action, Order* row) noexcept nogil:
    memset(row, 0, sizeof(Order))
    row.price = price_of(market, i, price)
    row.quantity = quantity_of(market, quantity)
    row.priority = priority
    number_text(row.order_id, id)
    row.present = PRESENT_ROW_TEXT
    row.side = <uint8_t>(side + 1)
    row.action = action


cdef inline int32_t orders_write(
        Market* market, Instrument* i, uint8_t* into, uint32_t room, Found* told) noexcept nogil:
    # ORDERS; `emission.at`: where it goes on, + 1. 0: nothing changed.
    cdef Emission* e = &market.emission
    cdef Face* face = &i.face[FACE_ORDERS]
    cdef uint32_t index = <uint32_t>(i - market.instruments.items)
    cdef uint32_t count = 0, most = (room - sizeof(Orders)) // sizeof(Order)
    cdef bint whole = face.replaced, first = e.at == 0
    cdef Order* rows = <Order*>(into + sizeof(Orders))
    cdef UpdateHeader* header = header_begin(market, i, FACE_ORDERS, into, sizeof(Orders), told)
    cdef const RestingOrder* order
    cdef const TouchedOrder* touched
    cdef uint32_t at
    if whole:
        at = i.orders_first if first else e.at
        while at and count < most:
            order = market.orders.orders + at - 1
            if order.side <= SIDE_ASK:
                order_write(market, i, order.id, order.priority, order.price, order.quantity,
                            order.side, ACTION_NEW, rows + count)
                count += 1
            at = order.next
    else:
        at = e.at
        while at < market.order_rows_count and count < most:
            touched = market.order_rows + at
            at += 1
            if touched.instrument == index:
                order_write(market, i, touched.id, touched.priority, touched.price,
                            touched.quantity, touched.side, touched.action, rows + count)
                count += 1
        if at == market.order_rows_count:
            at = 0
    header.row_count = count
    header.present = PRESENT_ROWS
    header.update_type = UPDATE_INCREMENTAL
    told.size += count * sizeof(Order)
    if whole and first:
        header.update_type = UPDATE_SNAPSHOT
        told.flags |= RECORD_SNAPSHOT
    e.at = at
    if at or market.streams[i.stream].open:
        header.present |= PRESENT_MORE
    if at == 0:
        face.replaced = False
    return KIND_ORDERS if count or (whole and first) else 0


cdef inline double best_price(
        Market* market, const Instrument* i, int64_t price, int64_t quantity) noexcept nogil:
    return NAN if quantity == 0 else price_of(market, i, price)


cdef inline int32_t top_write(
        Market* market, Instrument* i, uint8_t* into, Found* told) noexcept nogil:
    # TOP_OF_BOOK; 0: it is the same.
    cdef int64_t top[4]
    cdef const SideLevel* best
    cdef TopOfBook* update = <TopOfBook*>into
    cdef UpdateHeader* header
    cdef int side
    memset(top, 0, sizeof(top))
    for side in range(2):
        if i.top_said and not i.best_changed >> side & 1:
            top[2 * side] = i.top[2 * side]
            top[2 * side + 1] = i.top[2 * side + 1]
        elif i.sides[side].count:
            best = level_at(market, &i.sides[side], 0)
            top[2 * side] = best.price
            top[2 * side + 1] = best.quantity
    i.best_changed = 0
    if i.top_said and top[0] == i.top[0] and top[1] == i.top[1] and (
            top[2] == i.top[2] and top[3] == i.top[3]):
        return 0
    memcpy(i.top, top, sizeof(top))
    i.top_said = True
    header = header_begin(market, i, FACE_LEVELS, into, sizeof(TopOfBook), told)
    header.present = PRESENT_LAYER
    header.update_type = UPDATE_SNAPSHOT
    update.bid_price = best_price(market, i, top[0], top[1])
    update.bid_quantity = quantity_of(market, top[1])
    update.ask_price = best_price(market, i, top[2], top[3])
    update.ask_quantity = quantity_of(market, top[3])
    told.flags |= RECORD_SNAPSHOT
    return KIND_TOP_OF_BOOK


cdef inline int32_t instrument_say_renamed(
        Market* market, Instrument* i, int which, uint8_t* into, Found* told) noexcept nogil:
    # Nothing more comes by the name before.
    cdef Instrument old
    cdef int32_t kind = 0
    if i.symbol_before and i.face[which].said == SAID_LIVE:
        old = i[0]
        old.symbol_id = i.symbol_before
        kind = state_write(market, &old, which, KIND_STALE, False, into, told)
    if i.symbol_before:
        i.face[which].said = SAID_NOTHING
        i.face[which].replaced = True
    return kind


cdef inline int32_t publish_step(
        Market* market, Instrument* i, uint8_t* into, uint32_t room, Found* told) noexcept nogil:
    # The update of the step at hand, or 0; and on to the next step.
    cdef Emission* e = &market.emission
    cdef uint32_t step = e.step
    cdef int32_t kind = 0
    e.step += 1
    if likely(e.plain and step == STEP_LEVELS and is_few(market, i)):
        e.step = STEP_ORDERS if market.settings.orders else STEP_TOP
        if e.step == STEP_TOP and not (market.settings.top and (
                i.best_changed or not i.top_said)):
            e.step = STEPS       # that would tell nothing
        if market.settings.levels:
            kind = few_write(market, i, into, told)
    elif step < STEP_LEVELS_SAY:
        kind = instrument_say_renamed(market, i, <int>step, into, told)
        if step == STEP_LEVELS_SAY - 1:
            i.top_said = i.top_said and i.symbol_before == 0
            i.symbol_before = 0
    elif step == STEP_LEVELS_SAY:
        kind = instrument_say(market, i, FACE_LEVELS, into, told)
    elif step == STEP_IMPLIED_SAY:
        kind = instrument_say(market, i, FACE_IMPLIED, into, told)
    elif step == STEP_ORDERS_SAY:
        kind = instrument_say(market, i, FACE_ORDERS, into, told)
    elif step == STEP_LEVELS or step == STEP_IMPLIED:
        if market.settings.levels and (in_doubt_told(market, i) or is_told(
                market, i, FACE_LEVELS if step == STEP_LEVELS else FACE_IMPLIED)):
            kind = levels_write(
                market, i, FACE_LEVELS if step == STEP_LEVELS else FACE_IMPLIED, into, room, told)
            if e.at:
                e.step = step
        if e.plain and e.step > STEP_LEVELS:
            e.step = STEP_ORDERS
    elif step == STEP_ORDERS:
        if (market.order_rows_count or i.face[FACE_ORDERS].replaced) and (
                is_told(market, i, FACE_ORDERS)):
            kind = orders_write(market, i, into, room, told)
            if e.at:
                e.step = step
    elif market.traits.levels == LEVELS_OF_QUOTES:
        if i.quoted[0] == i.quoted[1] == market.streams[i.stream].gaps + 1 and i.symbol_id:
            kind = top_write(market, i, into, told)
    elif market.settings.top and is_told(market, i, FACE_LEVELS):
        if i.open or (i.top_said and not i.best_changed):
            return 0             # the next level brings the end of an open event
        if not market.streams[i.stream].open:
            kind = top_write(market, i, into, told)
        elif not i.pending:
            i.pending = True
            market.pending[market.pending_count] = <uint32_t>(i - market.instruments.items)
            market.pending_count += 1
    return kind


cdef inline void publish_pending(Market* market) noexcept nogil:
    # Tops that waited for the end of their event.
    cdef uint32_t n, kept = 0
    cdef Instrument* i
    for n in range(market.pending_count):
        i = market.instruments.items + market.pending[n]
        if market.streams[i.stream].open:
            market.pending[kept] = market.pending[n]
            kept += 1
            continue
        i.pending = False
        if not i.dirty:
            i.dirty = True
            market.dirty[market.dirty_count] = market.pending[n]
            market.dirty_count += 1
    market.pending_count = kept


cdef inline void end_updates(Market* market) noexcept nogil:
    market.rows_count = market.dirty_count = 0
    market.touched_count = market.order_rows_count = 0
    market.flush = False
    memset(&market.emission, 0, sizeof(Emission))


cdef inline int32_t publish_next(
        Market* market, uint8_t* into, uint32_t room, Found* told) noexcept nogil:
    # The next update, with `told.last` where it is known to be the last; 0: all is told. Then more
    # changes may follow.
    cdef Emission* e = &market.emission
    cdef int32_t kind
    cdef Instrument* i
    if e.row < market.rows_count:
        e.row += 1
        return row_write(market, market.rows + e.row - 1, into, told)
    if unlikely(market.pending_count and e.dirty == 0 and e.step == 0):
        publish_pending(market)
    while e.dirty < market.dirty_count:
        i = market.instruments.items + market.dirty[e.dirty]
        if e.step == STEP_RENAMED:
            e.plain = is_plain(market, i)
            if likely(e.plain):
                e.step = STEP_LEVELS
        while e.step < STEPS:
            kind = publish_step(market, i, into, room, told)
            if kind:
                if e.step == STEPS and e.dirty + 1 == market.dirty_count:
                    i.dirty = False
                    end_updates(market)
                    told.last = True
                return kind
        e.step = 0
        i.dirty = False
        e.dirty += 1
    end_updates(market)
    return 0
