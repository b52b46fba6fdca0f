# BOOK, ORDERS and TOP_OF_BOOK: updates of one instrument's book.

from libc.math cimport NAN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.core.check cimport unlikely
from udpfast.core.layout cimport OBJECT_LIVE, RECORD_SNAPSHOT, RECORD_UNGATED
from udpfast.core.update_kinds cimport KIND_BOOK, KIND_ORDERS, KIND_TOP_OF_BOOK
from udpfast.market.change cimport LEVELS_BY_PLACE, SIDE_ASK, SIDE_BID_IMPLIED
from udpfast.market.decimal_text cimport number_text
from udpfast.market.found cimport Found
from udpfast.market.instrument cimport FACE_LEVELS, FACE_ORDERS, Face, Instrument
from udpfast.market.marked cimport ACTION_NEW, REASON_NONE
from udpfast.market.market cimport Emission, Market, Touched, TouchedOrder
from udpfast.market.orders cimport RestingOrder
from udpfast.market.publish_header cimport (
    price_of, quantity_of, header_clear, header_begin, UPDATE_SNAPSHOT, UPDATE_INCREMENTAL)
from udpfast.market.side cimport Side, SideLevel, side_find, side_levels, side_reserve
from udpfast.market.updates cimport (
    Book, Level, Order, Orders, PRESENT_ASKS, PRESENT_LAYER, PRESENT_MORE, PRESENT_ROWS,
    PRESENT_ROW_TEXT, TopOfBook, UpdateHeader)


cdef inline const SideLevel* level_at(
        Market* market, const Side* side, uint32_t rank) noexcept nogil:
    # `rank` 0 is the best level.
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
    # Return True if changes are found by comparing the book with what readers have.
    return market.traits.levels == LEVELS_BY_PLACE or market.settings.depth != 0


cdef inline bint rows_full(const uint8_t* into, const Level* row, uint32_t room) noexcept nogil:
    return <uint64_t>(<const uint8_t*>(row + 1) - into) > room


cdef inline Level* compare_side(
        Market* market, Instrument* i, int at, Level* row) noexcept nogil:
    # Write a row for each level of a side that differs from what readers have. Return the end of
    # the rows.
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
        # Without a copy to compare with, the next update has more rows than it needs.
        return
    for b in range(count):
        side_levels(&market.slab, shown)[b] = level_at(market, side, b)[0]
    shown.count = count


cdef inline Level* touched_side(
        Market* market, Instrument* i, uint32_t at, Level* row) noexcept nogil:
    # Write a row for each price of a side that changes named, as it is now. Return the end of the
    # rows.
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
            # The level may have been removed since.
            if unlikely(i.face[at & SIDE_BID_IMPLIED].replaced):
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
    # Write a BOOK; `emission.at` is how many levels of a whole book were written before. Return 0
    # if nothing changed.
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
        # An absolute book is whole with its first level.
        return 0
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
    # Return True if only one or two levels of one plain instrument changed.
    cdef const Touched* touched = market.touched
    if market.touched_count == 0 or market.touched_count > 2 or market.dirty_count != 1 or (
            market.settings.depth or i.face[FACE_LEVELS].replaced):
        return False
    return touched[market.touched_count - 1].side <= SIDE_ASK and (
        touched.side <= touched[market.touched_count - 1].side)


cdef inline int32_t few_write(
        Market* market, Instrument* i, uint8_t* into, Found* told) noexcept nogil:
    # Write the BOOK that levels_write would, without a search, if is_few. `told` must be zeros.
    cdef const Touched* touched = market.touched
    cdef const Touched* end = touched + market.touched_count
    cdef UpdateHeader* header = header_clear(market, i, into, sizeof(Book))
    cdef Book* book = <Book*>into
    cdef Level* row = <Level*>(into + sizeof(Book))
    if end - touched == 2 and touched.price == touched[1].price and touched.side == touched[1].side:
        touched += 1             # only the last change of a level counts
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
        int64_t quantity, uint8_t side, uint8_t action, uint8_t reason,
        Order* row) noexcept nogil:
    memset(row, 0, sizeof(Order))
    row.price = price_of(market, i, price)
    row.quantity = quantity_of(market, quantity)
    row.priority = priority
    number_text(row.order_id, id)
    row.present = PRESENT_ROW_TEXT
    row.side = <uint8_t>(side + 1)
    row.action = action
    row.reason = reason


cdef inline int32_t orders_write(
        Market* market, Instrument* i, uint8_t* into, uint32_t room, Found* told) noexcept nogil:
    # Write ORDERS; `emission.at` is where to continue, + 1. Return 0 if nothing changed.
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
                            order.side, ACTION_NEW, REASON_NONE, rows + count)
                count += 1
            at = order.next
    else:
        at = e.at
        while at < market.order_rows_count and count < most:
            touched = market.order_rows + at
            at += 1
            if touched.instrument == index:
                order_write(market, i, touched.id, touched.priority, touched.price,
                            touched.quantity, touched.side, touched.action, touched.reason,
                            rows + count)
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
    # Write a TOP_OF_BOOK. Return 0 if it did not change.
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
