# CME MDP 3.0: turns the messages of one datagram into changes. CME_BOOK brings levels by place with
# the orders behind them, CME_ORDERS brings orders alone, CME_TRADES trades. Every other entry with
# a RptSeq only continues its instrument's chain. Snapshots name the last datagram that they
# include. Each template exists in up to three versions (layout.pxd).

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset

from udpfast.core.check cimport unlikely
from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_REFUSED
from udpfast.payload.cme.layout cimport *
from udpfast.wire.load cimport le16, le32, le64

cdef struct CmeGroup:
    const uint8_t* entries
    uint32_t block
    uint32_t count

cdef struct CmeMessage:
    const uint8_t* data          # the datagram's first message
    const uint8_t* root  # the message's root block
    const uint8_t* at            # the first byte that was not read yet
    const uint8_t* end  # the end of the message
    uint32_t block
    int template
    int64_t unit                 # factor that gives prices nine decimals
    uint32_t longer              # by how many bytes quantities are longer than 32 bits
    int64_t time_ns
    Change* changes              # where the next change goes
    Change* stop  # the end of their room


cdef inline bint cme_group(
        CmeMessage* m, uint32_t header, uint32_t least, CmeGroup* group) noexcept nogil:
    # Step over the message's next group, whose header has 3 or 8 bytes. Return False if the group
    # does not fit the message, or its entries are shorter than `least`.
    if m.end - m.at < header:
        return False
    group.block = le16(m.at)
    group.count = m.at[header - 1]
    group.entries = m.at + header
    if <uint64_t>group.block * group.count > <uint64_t>(m.end - m.at - header):
        return False
    m.at += header + group.block * group.count
    return group.count == 0 or group.block >= least


cdef inline Change* cme_change(
        CmeMessage* m, int verb, uint32_t id, uint32_t chain) noexcept nogil:
    cdef Change* change = m.changes
    memset(change, 0, sizeof(Change))
    change.verb = <uint8_t>verb
    change.instrument = id
    change.chain = chain
    change.time_ns = m.time_ns
    change.price = PRICE_NONE
    change.side = SIDE_NONE
    m.changes += 1
    return change


cdef inline uint8_t cme_side(uint8_t kind) noexcept nogil:
    if kind == c"0":
        return SIDE_BID
    if kind == c"1":
        return SIDE_ASK
    if kind == c"E":
        return SIDE_BID_IMPLIED
    return SIDE_ASK_IMPLIED if kind == c"F" else SIDE_NONE


cdef inline int64_t cme_price(const CmeMessage* m, const uint8_t* at) noexcept nogil:
    return <int64_t>(le64(at) * <uint64_t>m.unit)


cdef inline uint32_t cme_count(const uint8_t* at) noexcept nogil:
    return 0 if le32(at) == CME_NULL_32 else le32(at)


cdef inline int64_t cme_quantity(const CmeMessage* m, const uint8_t* at) noexcept nogil:
    # Return the quantity of a level or trade; 0 if the message has null.
    cdef uint64_t quantity
    if not m.longer:
        return cme_count(at)
    quantity = le64(at)
    return 0 if quantity >> 63 else <int64_t>quantity


cdef inline int cme_level_verb(uint8_t action) noexcept nogil:
    if action == 0:
        return VERB_PLACE_NEW
    if action == 1:
        return VERB_PLACE_SET
    if action == 2:
        return VERB_PLACE_DELETE
    if action == 3:
        return VERB_PLACE_THRU
    return VERB_PLACE_FROM if action == 4 else VERB_PLACE_OVERLAY


cdef inline int cme_order_verb(uint8_t action) noexcept nogil:
    if action == 0:
        return VERB_ADD
    return VERB_CHANGE if action == 1 else VERB_DELETE


cdef inline bint cme_book(CmeMessage* m) noexcept nogil:
    cdef CmeGroup levels, orders
    cdef const uint8_t* at
    cdef const uint8_t* price
    cdef Change* change
    cdef uint8_t kind
    cdef uint32_t n
    if not cme_group(m, 3, 27 + m.longer, &levels):
        return False
    if m.changes + levels.count + 255 > m.stop:
        return False
    for n in range(levels.count):
        price = levels.entries + n * levels.block
        at = price + m.longer
        kind = at[CME_ENTRY_TYPE]
        change = cme_change(m, VERB_CHAIN, le32(at + CME_ENTRY_ID), le32(at + CME_ENTRY_CHAIN))
        change.side = cme_side(kind)
        if kind == c"J":
            change.verb = VERB_CLEAR
        elif change.side != SIDE_NONE:
            if at[CME_ENTRY_ACTION] > CME_ACTION_LAST:
                return False
            change.verb = <uint8_t>cme_level_verb(at[CME_ENTRY_ACTION])
            change.price = cme_price(m, price)
            change.quantity = cme_quantity(m, price + CME_ENTRY_SIZE)
            change.orders = cme_count(at + CME_ENTRY_ORDERS)
            change.place = at[CME_ENTRY_LEVEL]
    if m.at == m.end:
        return True              # before version 7 there are no orders here
    if not cme_group(m, 8, 22, &orders):
        return False
    for n in range(orders.count):
        at = orders.entries + n * orders.block
        if at[CME_REFER_ENTRY] == 0 or at[CME_REFER_ENTRY] > levels.count or (
                at[CME_REFER_ACTION] > CME_ORDER_ACTION_LAST):
            return False
        price = levels.entries + (at[CME_REFER_ENTRY] - 1) * levels.block
        change = cme_change(m, cme_order_verb(at[CME_REFER_ACTION]),
                            le32(price + m.longer + CME_ENTRY_ID), 0)
        change.flags = CHANGE_PRIORITY
        change.order = le64(at)
        change.order_before = le64(at + 8)
        change.side = cme_side(price[m.longer + CME_ENTRY_TYPE])
        change.price = cme_price(m, price)
        change.quantity = cme_count(at + CME_REFER_QUANTITY)
    return True


cdef inline bint cme_orders(CmeMessage* m, bint snapshot) noexcept nogil:
    # Append orders that come without levels. A snapshot has the orders of one instrument.
    cdef CmeGroup orders
    cdef const uint8_t* at
    cdef Change* change
    cdef uint32_t n
    if not cme_group(m, 3, 29 if snapshot else 34, &orders):
        return False
    if m.changes + orders.count + 2 > m.stop:
        return False
    if snapshot:
        if m.block < 20:
            return False
        change = cme_change(m, VERB_BEGIN_SNAPSHOT, le32(m.root + CME_SNAPSHOT_ID),
                            le32(m.root + CME_CHUNKS))
        change.order = le32(m.root + CME_LAST)
        change.orders = le32(m.root + CME_CHUNK)
        change.flags = CHANGE_PART | CHANGE_ORDERS
    for n in range(orders.count):
        at = orders.entries + n * orders.block
        if not snapshot and at[CME_ORDER_ACTION] > CME_ORDER_ACTION_LAST:
            return False
        change = cme_change(
            m, VERB_ADD if snapshot else cme_order_verb(at[CME_ORDER_ACTION]),
            le32(m.root + CME_SNAPSHOT_ID) if snapshot else le32(at + CME_ORDER_ID), 0)
        change.flags = CHANGE_PRIORITY | (CHANGE_ROW if snapshot else 0)
        change.order = le64(at)
        change.order_before = le64(at + 8)
        change.price = cme_price(m, at + CME_ORDER_PRICE)
        change.quantity = cme_count(at + CME_ORDER_QUANTITY)
        change.side = cme_side(at[CME_ORDER_TYPE_53 if snapshot else CME_ORDER_TYPE])
    if snapshot:
        cme_change(m, VERB_END_SNAPSHOT, 0, 0)
    return True


cdef inline bint cme_snapshot(CmeMessage* m) noexcept nogil:
    cdef CmeGroup levels
    cdef const uint8_t* at
    cdef Change* change
    cdef uint32_t n, id
    cdef uint32_t kind = CME_LEVEL_TYPE_LONG if m.longer else CME_LEVEL_TYPE
    cdef uint32_t place = CME_LEVEL_PLACE_LONG if m.longer else CME_LEVEL_PLACE
    cdef uint32_t orders = CME_LEVEL_ORDERS_LONG if m.longer else CME_LEVEL_ORDERS
    if m.block < 24 or not cme_group(m, 3, kind + 1, &levels) or (
            m.changes + levels.count + 2 > m.stop):
        return False
    m.time_ns = <int64_t>le64(m.root + CME_SNAPSHOT_TIME)
    id = le32(m.root + CME_SNAPSHOT_ID)
    change = cme_change(m, VERB_BEGIN_SNAPSHOT, id, le32(m.root + CME_SNAPSHOT_CHAIN))
    change.order = le32(m.root + CME_LAST)
    for n in range(levels.count):
        at = levels.entries + n * levels.block
        if cme_side(at[kind]) == SIDE_NONE:
            continue
        change = cme_change(m, VERB_PLACE_SET, id, 0)
        change.flags = CHANGE_ROW
        change.side = cme_side(at[kind])
        change.price = cme_price(m, at)
        change.quantity = cme_quantity(m, at + CME_LEVEL_SIZE)
        change.orders = cme_count(at + orders)
        change.place = at[place]
    cme_change(m, VERB_END_SNAPSHOT, 0, 0)
    return True


cdef inline bint cme_trades(CmeMessage* m) noexcept nogil:
    cdef CmeGroup trades
    cdef const uint8_t* at
    cdef Change* change
    cdef uint32_t n
    cdef uint32_t aggressor = CME_TRADE_AGGRESSOR_LONG if m.longer else CME_TRADE_AGGRESSOR
    cdef uint32_t number = CME_TRADE_ID_LONG if m.longer else CME_TRADE_ID
    if not cme_group(m, 3, aggressor + 2, &trades) or m.changes + trades.count > m.stop:
        return False
    for n in range(trades.count):
        at = trades.entries + n * trades.block
        change = cme_change(m, VERB_CHAIN, le32(at + m.longer + CME_ENTRY_ID),
                            le32(at + m.longer + CME_ENTRY_CHAIN))
        if at[aggressor + 1] != 0:
            continue             # a correction or a bust
        change.verb = VERB_TRADE
        change.price = cme_price(m, at)
        change.quantity = cme_quantity(m, at + CME_ENTRY_SIZE)
        if at[aggressor] == 1 or at[aggressor] == 2:
            change.side = at[aggressor] - 1
        if trades.block >= number + 4 and le32(at + number) != <uint32_t>CME_NULL_ID:
            change.order = le32(at + number)
    return True


cdef inline bint cme_links(CmeMessage* m, uint32_t id, uint32_t chain) noexcept nogil:
    # Append entries that change no book but continue their instrument's chain.
    cdef CmeGroup group
    cdef uint32_t n
    if not cme_group(m, 3, chain + 4, &group) or m.changes + group.count > m.stop:
        return False
    for n in range(group.count):
        cme_change(m, VERB_CHAIN, le32(group.entries + n * group.block + id),
                   le32(group.entries + n * group.block + chain))
    return True


cdef inline uint8_t cme_security(int template) noexcept nogil:
    # Return the schema's SecurityType.
    if template == CME_FUTURE or template == CME_FUTURE_5:
        return SECURITY_FUTURES
    if template == CME_OPTION or template == CME_OPTION_8:
        return SECURITY_OPTION
    return SECURITY_SPOT if template == CME_FX else 0


cdef inline void cme_option(CmeMessage* m) noexcept nogil:
    # Append an option's properties. Its underlying is in the group behind two others.
    cdef CmeGroup attributes, lots, underlyings
    cdef Change* change = cme_change(m, VERB_OPTION, 0, 0)
    change.place = OPTION_CALL if m.root[CME_CALL_OR_PUT] else OPTION_PUT
    if le64(m.root + CME_STRIKE) != <uint64_t>CME_NULL_64:
        change.price = cme_price(m, m.root + CME_STRIKE)
    if cme_group(m, 3, 0, &attributes) and cme_group(m, 3, 0, &lots) and (
            cme_group(m, 3, 24, &underlyings) and underlyings.count):
        change.name = <uint32_t>(underlyings.entries + 4 - m.data) + 1
        change.quantity = CME_SYMBOL_SIZE


cdef inline bint cme_definition(CmeMessage* m) noexcept nogil:
    cdef CmeGroup events, feeds
    cdef bint option = (m.template == CME_OPTION or m.template == CME_OPTION_8) and (
        m.block >= CME_OPTION_TICK + 8)
    cdef Change* change
    cdef const uint8_t* at
    cdef uint32_t n
    if m.block < 59 or not cme_group(m, 3, 0, &events) or not cme_group(m, 3, 4, &feeds):
        return False
    if m.root[CME_ACTION] == c"D" or m.changes + 2 > m.stop:
        return True
    if option:
        cme_option(m)
    change = cme_change(m, VERB_DEFINE, le32(m.root + CME_DEFINED_ID), 0)
    change.time_ns = 0
    change.name = <uint32_t>(m.root + CME_SYMBOL - m.data) + 1
    change.quantity = CME_SYMBOL_SIZE
    change.side = cme_security(m.template)
    if option or (m.template == CME_FUTURE and m.block >= CME_TICK + 8):
        at = m.root + (CME_OPTION_TICK if option else CME_TICK)
        if le64(at) != <uint64_t>CME_NULL_64:
            change.order = <uint64_t>cme_price(m, at)
    for n in range(events.count):
        at = events.entries + n * events.block
        if events.block >= 9 and at[0] == CME_LAST_TRADED:
            change.time_ns = <int64_t>le64(at + 1)
    for n in range(feeds.count):
        at = feeds.entries + n * feeds.block
        if memcmp(at, b"GBX", 3) == 0:
            change.place = at[3]
        elif memcmp(at, b"GBI", 3) == 0:
            change.orders = at[3]
    return True


cdef inline int cme_state(uint8_t state) noexcept nogil:
    # Return the schema's TradingStatus.
    if state == 17:
        return 5
    if state == 2:
        return 7
    if state == 4 or state == 26:
        return 12 if state == 4 else 13
    return 2 if state == 21 or state == 24 or state == 25 else 0


cdef inline bint cme_count_only(CmeMessage* m) noexcept nogil:
    # Append entries that only continue chains. Return False if the template has none, or if the
    # message does not fit its template.
    cdef int template = m.template
    if template == CME_VOLUME or template == CME_VOLUME_LONG:
        return cme_links(m, CME_VOLUME_ID + m.longer, CME_VOLUME_CHAIN + m.longer)
    if template == CME_STATISTICS or template == CME_STATISTICS_7:
        return cme_links(m, CME_STATISTICS_ID, CME_STATISTICS_CHAIN)
    if template == CME_STATISTICS_LONG:
        return cme_links(m, CME_ENTRY_ID + m.longer, CME_ENTRY_CHAIN + m.longer)
    if template == CME_DAILY or template == CME_DAILY_7:
        return cme_links(m, CME_ENTRY_ID, CME_ENTRY_CHAIN)
    return (template == CME_LIMITS or template == CME_LIMITS_7) and (
        cme_links(m, CME_LIMITS_ID, CME_LIMITS_CHAIN))


cdef inline bint cme_told(CmeMessage* m) noexcept nogil:
    # Append what is said of instruments apart from their books. Return False for an unknown
    # template: it might change any book.
    cdef int template = m.template
    cdef Change* change
    if template == CME_RESET:
        cme_change(m, VERB_CLEAR_STREAM, 0, 0)
    elif template == CME_STATUS:
        if m.block > CME_STATUS_STATE and le32(m.root + CME_STATUS_ID) != CME_NULL_32:
            change = cme_change(m, VERB_STATUS, le32(m.root + CME_STATUS_ID), 0)
            change.quantity = cme_state(m.root[CME_STATUS_STATE])
    elif template != CME_HEARTBEAT and template != CME_LOGIN and template != CME_LOGOUT and (
            template != CME_QUOTE_REQUEST and template != CME_SNAPSHOT_TCP):
        return CME_TOP_ORDERS <= template <= CME_COLLATERAL
    return True


cdef inline bint cme_message(CmeMessage* m) noexcept nogil:
    # Return False if the message does not fit its template, or the template is unknown.
    cdef int template = m.template
    if m.changes + 4 > m.stop:
        return False
    if template == CME_BOOK or template == CME_BOOK_7 or template == CME_BOOK_LONG:
        return cme_book(m)
    if template == CME_ORDERS or template == CME_ORDERS_8:
        return cme_orders(m, False)
    if template == CME_TRADES or template == CME_TRADES_7 or template == CME_TRADES_LONG:
        return cme_trades(m)
    if template == CME_SNAPSHOT or template == CME_SNAPSHOT_7 or template == CME_SNAPSHOT_LONG:
        return cme_snapshot(m)
    if template == CME_SNAPSHOT_ORDERS or template == CME_SNAPSHOT_ORDERS_8:
        return cme_orders(m, True)
    if CME_FUTURE <= template <= CME_REPO or template == CME_FX or (
            template == CME_FUTURE_5 or template == CME_SPREAD_5 or template == CME_OPTION_8):
        return cme_definition(m)
    return cme_count_only(m) or cme_told(m)


cdef inline int32_t cme_decode(
        const uint8_t* data, uint32_t size, Change* changes, uint32_t room) noexcept nogil:
    cdef CmeMessage m
    cdef uint32_t at = 0, length
    cdef bint timed, ends
    m.data = data
    m.changes = changes
    m.stop = changes + room
    while size - at >= CME_ROOT:
        length = le16(data + at)
        m.root = data + at + CME_ROOT
        m.end = data + at + length
        m.block = le16(data + at + CME_BLOCK)
        m.template = le16(data + at + CME_TEMPLATE)
        if unlikely(length > size - at or length < CME_ROOT + m.block):
            return OUTCOME_REFUSED
        m.at = m.root + m.block
        m.unit = 100 if m.template < CME_BOOK else 1
        m.longer = CME_LONGER if m.template >= CME_BOOK_LONG else 0
        timed = (
            CME_BOOK_7 <= m.template <= CME_VOLUME
            or m.template == CME_TRADES_7 or m.template == CME_ORDERS_8
            or CME_BOOK <= m.template <= CME_STATISTICS
            or CME_BOOK_LONG <= m.template <= CME_STATISTICS_LONG)
        if unlikely(timed and m.block <= CME_INDICATOR):
            return OUTCOME_REFUSED
        ends = timed and m.root[CME_INDICATOR] & CME_EVENT_END
        m.time_ns = <int64_t>le64(m.root) if timed else 0
        if timed and not ends and m.changes < m.stop:
            cme_change(&m, VERB_EVENT_BEGIN, 0, 0)
        if unlikely(not cme_message(&m)):
            return OUTCOME_REFUSED
        if ends and m.changes < m.stop:
            cme_change(&m, VERB_EVENT_END, 0, 0)
        at += length
    return <int32_t>(m.changes - changes)
