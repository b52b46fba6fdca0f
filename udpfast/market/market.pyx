"""The books of one feed, for any venue: what changes do to them. The rules are in `market.pxd`."""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memset

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport likely, unlikely
from udpfast.core.counter cimport (
    FEED_OBJECTS_STRANDED, FEED_OBJECTS_WAITING, FEED_ORDERS_UNKNOWN)
from udpfast.core.layout cimport CHANNEL_INCREMENTAL, OBJECT_LIVE, Message, Session
from udpfast.market.change cimport *
from udpfast.market.definition cimport instrument_define, instrument_of
from udpfast.market.instrument cimport (
    FACES, FACE_LEVELS, FACE_ORDERS, Face, Instrument, instruments_init, instruments_memory_size)
from udpfast.market.levels cimport apply_book, apply_place, face_empty, face_forget
from udpfast.market.marked cimport (
    face_of, has_face, index_of, instrument_mark, order_of, scope_of, stream_of, face_is_sure)
from udpfast.market.names cimport Names
from udpfast.market.orders cimport RestingOrder, orders_init, orders_memory_size
from udpfast.market.resting cimport follow_order, order_price_known
from udpfast.market.side cimport Side, SideLevel, side_put, side_free
from udpfast.market.snapshot cimport begin_snapshot, changed_instrument, end_told, take_row
from udpfast.market.trust cimport (
    apply_change, count_waiting, follows_orders, instrument_begin_empty, face_check_places,
    instrument_follow_chain, face_hold, keep_change, levels_are_live, face_become_live,
    face_become_stale, levels_become_stale)

__all__ = []

cdef enum:  # the schema's TradingStatus
    STATUS_OPEN = 5
    STATUS_HALT = 7

cdef enum:
    LEVELS_MIN = 1 << 16         # of the slab


cdef inline uint64_t orders_max_of(const Traits* traits, const MarketSettings* s) noexcept nogil:
    return s.orders_max if traits.orders else 16


cdef inline uint64_t levels_max_of(const Traits* traits, const MarketSettings* s) noexcept nogil:
    # Enough for the blocks of all sides, and two levels for each order if levels are sums of
    # orders.
    cdef uint64_t sides = 128 if traits.levels == LEVELS_BY_PLACE else 32
    return max(<uint64_t>LEVELS_MIN, sides * s.instruments_max) + 2 * orders_max_of(traits, s)


cdef inline uint64_t held_max_of(const Traits* traits, const MarketSettings* s) noexcept nogil:
    # Return 0 if nothing is to be held, because no snapshot ever comes.
    return s.held_max if s.held_max else (HELD_MAX if traits.heals else 0)


cdef inline bint is_stranded(const Traits* traits, const MarketSettings* s) noexcept nogil:
    # Return True if a waiting book would need a snapshot, and nothing brings any. Quotes are
    # complete by themselves. A book without a known beginning and without a chain is never sound,
    # whatever the settings say.
    if traits.levels == LEVELS_OF_QUOTES or not (
            traits.heals or traits.empty_at_start or traits.chain != CHAIN_NONE):
        return False
    return s.held_max == 0 and not (traits.heals and (s.loops or not traits.loops))


cdef size_t market_memory_size(const Traits* traits, const MarketSettings* s) noexcept nogil:
    return (
        instruments_memory_size(s.instruments_max)
        + orders_memory_size(orders_max_of(traits, s))
        + levels_max_of(traits, s) * sizeof(SideLevel)
        + <size_t>MARKET_STREAMS * sizeof(MarketStream)
        + <size_t>held_max_of(traits, s) * sizeof(HeldChange)
        + <size_t>TOUCHED_MAX * (sizeof(Touched) + sizeof(TouchedOrder))
        + <size_t>CHANGES_MAX * sizeof(Row)
        + 2 * 4 * (<size_t>s.instruments_max + 2)
        + <size_t>STAGES * (STAGE_PARTS_MAX // 8 + sizeof(void*))
        + 16 * 64)


cdef uint8_t* carve(uint8_t** memory, size_t size) noexcept nogil:
    cdef uint8_t* begin = memory[0]
    memset(begin, 0, size)
    memory[0] += (size + 63) & ~<size_t>63
    return begin


cdef void market_init(
        Market* market, const Traits* traits, const MarketSettings* settings, uint8_t* memory,
        int64_t* feed) noexcept nogil:
    cdef uint64_t instruments = settings.instruments_max
    cdef uint64_t orders = orders_max_of(traits, settings)
    cdef int decimals
    memset(market, 0, sizeof(Market))
    market.traits = traits
    market.price_units[0] = 1
    for decimals in range(DECIMALS_MAX):
        market.price_units[decimals + 1] = 10 * market.price_units[decimals]
    market.settings = settings[0]
    market.settings.awaits_definitions = traits.snapshots_from or (
        traits.loops and settings.awaits_definitions)
    market.feed = feed
    market.streams = <MarketStream*>carve(&memory, MARKET_STREAMS * sizeof(MarketStream))
    market.heals = held_max_of(traits, settings) != 0
    market.waiting = FEED_OBJECTS_STRANDED if is_stranded(traits, settings) else (
        FEED_OBJECTS_WAITING)
    if market.heals:
        market.held_mask = held_max_of(traits, settings) - 1
        market.held = <HeldChange*>carve(
            &memory, <size_t>(market.held_mask + 1) * sizeof(HeldChange))
    market.touched = <Touched*>carve(&memory, TOUCHED_MAX * sizeof(Touched))
    market.order_rows = <TouchedOrder*>carve(&memory, TOUCHED_MAX * sizeof(TouchedOrder))
    market.rows = <Row*>carve(&memory, CHANGES_MAX * sizeof(Row))
    market.dirty = <uint32_t*>carve(&memory, 4 * instruments)
    market.pending = <uint32_t*>carve(&memory, 4 * instruments)
    market.stage_bits = <uint64_t*>carve(&memory, STAGES * STAGE_PARTS_MAX // 8)
    market.stage_owner = <Instrument**>carve(&memory, STAGES * sizeof(void*))
    instruments_init(
        &market.instruments, carve(&memory, instruments_memory_size(instruments)), instruments)
    orders_init(&market.orders, carve(&memory, orders_memory_size(orders)), orders)
    market.expected = market.instruments.items
    market.expected_order = market.orders.orders
    market.slab.count = <uint32_t>levels_max_of(traits, settings)
    market.slab.levels = <SideLevel*>carve(
        &memory, <size_t>market.slab.count * sizeof(SideLevel))


cdef void market_clear(Market* market, uint16_t stream) noexcept nogil:
    # All books of a stream are known to be empty.
    cdef MarketStream* s = market.streams + stream
    cdef Instrument* i = market.instruments.items
    cdef uint32_t at
    s.whole = True
    s.needs = 0
    s.lost = s.number - 1 if s.number else 0
    for at in range(market.instruments.count):
        i = market.instruments.items + at
        if i.stream == stream and not i.homeless:
            i.linked = market.traits.chain == CHAIN_DENSE
            i.chain = i.chain_taken = 0
            instrument_begin_empty(market, i)


cdef inline void add_row(
        Market* market, const Instrument* i, const Change* c, int64_t price, uint64_t id,
        uint8_t side, uint8_t verb) noexcept nogil:
    cdef Row* row
    if market.rows_count == CHANGES_MAX:
        return
    row = market.rows + market.rows_count
    row.price = price
    row.quantity = c.quantity
    row.id = id
    row.time_ns = c.time_ns
    row.instrument = index_of(market, i)
    row.verb = verb
    row.side = side
    market.rows_count += 1


cdef void note_status(Market* market, Instrument* i, const Change* c) noexcept nogil:
    # Note a part of a status, or a whole one, whose second part then leaves the first as it is.
    cdef uint32_t since = stream_of(market, i).gaps + 1
    cdef uint8_t part = c.place - 1 if c.place else 0
    i.status[part] = <uint8_t>c.quantity
    i.status_since[part] = since
    if c.place == 0:
        i.status[1] = STATUS_OPEN
        i.status_since[1] = since


cdef void tell_status(Market* market, Instrument* i, const Change* c) noexcept nogil:
    # Combine both parts of a status. It is 0, unknown, if one part did not come since the last gap.
    # One halt is enough; trading takes both.
    cdef uint32_t since = stream_of(market, i).gaps + 1
    cdef Change told = c[0]
    cdef uint8_t first = i.status[0] if i.status_since[0] == since else 0
    cdef uint8_t second = i.status[1] if i.status_since[1] == since else 0
    if first == STATUS_HALT or second == STATUS_HALT:
        told.quantity = STATUS_HALT
    else:
        told.quantity = first if second == STATUS_OPEN else 0
    add_row(market, i, &told, told.price, told.order, told.side, VERB_STATUS)


cdef void define(Market* market, Instrument* i, const Change* c) noexcept nogil:
    # A status that came before the name is told again under it: readers look there. One of before
    # a gap may have changed in it.
    cdef uint32_t symbol_id = i.symbol_id
    instrument_define(market, i, c)
    if i.symbol_id != symbol_id and not i.homeless and (
            stream_of(market, i).gaps + 1 in (i.status_since[0], i.status_since[1])):
        tell_status(market, i, c)


cdef void instrument_quote(Market* market, Instrument* i, const Change* c) noexcept nogil:
    # Replace a side by its only level.
    cdef Side* side = &i.sides[c.side & 1]
    cdef SideLevel* level
    side_free(&market.slab, side)
    if c.quantity:
        level = side_put(&market.slab, side, c.price)
        if level != NULL:
            level.quantity = c.quantity
    i.quoted[c.side & 1] = stream_of(market, i).gaps + 1
    instrument_mark(market, i)
    if i.quoted[0] == i.quoted[1]:
        i.top_said = False
        face_become_live(market, i, &i.face[FACE_LEVELS])
    else:
        market.withheld = True


cdef void execute_row(Market* market, Instrument* i, const Change* c) noexcept nogil:
    # Note the trade of an order before the order is reduced.
    cdef RestingOrder* order
    if c.flags & CHANGE_SILENT:
        return
    if not i.measured:
        market.untold = True
        return
    order = order_of(market, c.order, scope_of(market, i))
    # The taker was on the other side.
    if order != NULL and (c.price != PRICE_NONE or order_price_known(market, i, order)):
        add_row(market, i, c, order.price if c.price == PRICE_NONE else c.price, c.order_before,
                1 - (order.side & 1), VERB_TRADE)
    elif c.price != PRICE_NONE:
        add_row(market, i, c, c.price, c.order_before, SIDE_NONE, VERB_TRADE)
    else:
        # Only the order had the price, and the order is unknown, or may have another price by now.
        market.untold = True


cdef void apply_gated(Market* market, Instrument* i, const Change* c) noexcept nogil:
    # Apply or hold a change of a book. Its chain was followed already.
    cdef Face* face = face_of(market, i, c)
    cdef bint chained = face != &i.face[FACE_ORDERS] and market.traits.chain != CHAIN_NONE
    if unlikely(face.status == OBJECT_LIVE and not chained and not face_is_sure(market, i, face)):
        face_become_stale(market, i, face)
    if unlikely(face.status != OBJECT_LIVE):
        market.withheld = True
    if unlikely(face.status != OBJECT_LIVE and not chained):
        if market.traits.absolute:
            apply_book(market, i, c)     # readers get it, and the book stays in doubt
        else:
            face_hold(market, i, face, c)
            # The rows of a snapshot that is not complete yet are older than the change.
            if VERB_ADD <= c.verb <= VERB_DELETE and follows_orders(market) and (
                    face.stage == 0 and face.staged == 0):
                follow_order(market, i, c)
        return
    if chained and not i.passing:
        market.withheld = True
        return
    if likely(face.status == OBJECT_LIVE):
        if unlikely(not apply_change(market, i, c)):
            if chained:
                levels_become_stale(market, i)
            else:
                face_become_stale(market, i, face)
    elif market.traits.levels == LEVELS_BY_PLACE:
        if not apply_place(market, i, c):
            face_forget(market, i, <int>(face - i.face))
        face_check_places(market, i, face)


cdef void note_nameless(Market* market, const Change* c) noexcept nogil:
    # Note a change of an unknown order that names no instrument.
    cdef bint whole = market.streams[market.stream].whole
    market.withheld = True
    if c.verb == VERB_EXECUTE:
        market.untold = True
    if market.heals and not whole:
        keep_change(market, market.stream, c)
        return
    counter_add(&market.feed[FEED_ORDERS_UNKNOWN], 1)
    market.refused = market.refused or whole


cdef inline Instrument* market_find(Market* market, const Change* c) noexcept nogil:
    # Return the instrument of a change, which may name only its order; NULL if there is none.
    cdef Instrument* i
    if c.instrument or market.traits.names == NAMES_DEFINED:
        i = instrument_of(market, c, market.stream)
        market.untold = market.untold or i == NULL   # NULL: the table is full
        return i
    i = changed_instrument(market, c)
    if i == NULL:
        note_nameless(market, c)
    return i


cdef inline void instrument_tell(Market* market, Instrument* i, const Change* c) noexcept nogil:
    # Note a trade or a status; they are updates of their own.
    if c.verb == VERB_TRADE and not i.measured and market.traits.levels != LEVELS_BY_PLACE:
        market.untold = True     # the decimals of its price are unknown yet
        return
    if c.verb == VERB_STATUS:
        note_status(market, i, c)
        tell_status(market, i, c)
    else:
        add_row(market, i, c, c.price, c.order, c.side, c.verb)


cdef inline void instrument_apply(Market* market, Instrument* i, const Change* c) noexcept nogil:
    # Apply a change that concerns the instrument's book, or tells something beside it.
    if c.verb == VERB_TRADE or c.verb == VERB_STATUS:
        instrument_tell(market, i, c)
    if market.traits.chain != CHAIN_NONE:
        if c.chain or (c.verb == VERB_CHAIN and c.order):
            instrument_follow_chain(market, i, c)
        # A change may belong to the chain of the levels without changing them.
        if not levels_are_live(market, i) and (c.chain or face_of(market, i, c) != (
                &i.face[FACE_ORDERS])):
            face_hold(market, i, &i.face[FACE_LEVELS], c)
    if c.verb == VERB_QUOTE:
        instrument_quote(market, i, c)
    elif VERB_SET <= c.verb <= VERB_DELETE:
        if c.verb == VERB_EXECUTE:
            execute_row(market, i, c)
        i.open = c.verb == VERB_SET and (c.flags & CHANGE_MORE) != 0
        market.untold = market.untold or i.symbol_id == 0  # a book without a name is not published
        apply_gated(market, i, c)


cdef void apply_beside(Market* market, MarketStream* s, const Change* c) noexcept nogil:
    # Apply a change that concerns no instrument, or the current snapshot.
    if c.verb == VERB_EVENT_END or c.verb == VERB_EVENT_BEGIN:
        s.open = c.verb == VERB_EVENT_BEGIN
        market.flush = c.verb == VERB_EVENT_END and (
            market.dirty_count != 0 or market.pending_count != 0)
    elif c.verb == VERB_CLEAR_STREAM:
        market_clear(market, market.stream)
    elif c.verb == VERB_OPTION:
        market.option = c[0]
    else:
        end_told(market, c)


cdef void market_apply(Market* market, const Change* c) noexcept nogil:
    cdef Instrument* i
    cdef MarketStream* s = market.streams + market.stream
    if unlikely(c.verb > VERB_BEGIN_SNAPSHOT):
        apply_beside(market, s, c)
        return
    i = market_find(market, c)
    if c.verb == VERB_DEFINE:
        if i != NULL:
            define(market, i, c)
        memset(&market.option, 0, sizeof(Change))
        return
    if i == NULL:
        return
    if c.time_ns:
        # A snapshot may be older than what is applied behind it, or than a book that needs none.
        if c.time_ns > i.time_ns or not (c.verb == VERB_BEGIN_SNAPSHOT or c.flags & CHANGE_ROW):
            i.time_ns = c.time_ns
        if s.gaps and s.gap_time_ns == 0 and market.message.stream == market.stream:
            s.gap_time_ns = c.time_ns
    if c.verb == VERB_BEGIN_SNAPSHOT:
        begin_snapshot(market, i, c)
    elif c.flags & CHANGE_ROW:
        if market.taking == i:
            take_row(market, c)
    elif unlikely(i.stream != market.stream):
        # Two streams bring the instrument, so that neither has all of its book.
        levels_become_stale(market, i)
        market.untold = True
    elif c.verb == VERB_CLEAR:
        instrument_begin_empty(market, i)
        if c.chain:
            i.linked = i.passing = True
            i.chain = c.chain
        if c.flags & CHANGE_MORE:
            levels_become_stale(market, i)
    else:
        instrument_apply(market, i, c)


cdef void forget_instrument(Market* market, Instrument* i) noexcept nogil:
    # Reset an instrument whose session is over.
    cdef int which
    if not i.homeless:
        count_waiting(market, -(i.face[FACE_LEVELS].status != OBJECT_LIVE))
    for which in range(FACES):
        if has_face(market, which):
            face_empty(market, i, which)
        memset(&i.face[which], 0, sizeof(Face))
    for which in range(4):
        side_free(&market.slab, &i.shown[which])
    i.homeless = True
    i.defined_as = 0
    i.linked = i.passing = i.top_said = False
    i.chain = i.chain_taken = 0
    i.quoted[0] = i.quoted[1] = i.status_since[0] = i.status_since[1] = 0
    i.open = False
    if market.traits.renumbers:
        i.named = i.defined = i.unstored = False
        i.symbol_id = 0


cdef void market_session(
        Market* market, uint16_t stream, uint16_t ordinal, const Session* session) noexcept nogil:
    # Reset the stream and its instruments.
    cdef MarketStream* s
    cdef uint32_t at
    cdef Instrument* i
    if stream >= MARKET_STREAMS:
        return
    s = market.streams + stream
    for at in range(market.instruments.count):
        i = market.instruments.items + at
        if i.stream == stream:
            forget_instrument(market, i)
    memset(s, 0, sizeof(MarketStream))
    s.venue = session.stream
    s.session = ordinal
    s.seen = s.broken = True
    s.number = s.lost = session.first_number - 1 if session.first_number else 0
    s.whole = (
        session.first_number <= 1 and session.unseen == 0 and market.traits.empty_at_start)
    s.needs = 0 if s.whole else s.lost + 1


cdef void market_gap(Market* market, uint16_t stream, uint64_t last) noexcept nogil:
    cdef MarketStream* s
    if stream >= MARKET_STREAMS:
        return
    s = market.streams + stream
    s.gaps += 1
    s.number = max(s.number, last)
    s.lost = max(s.lost, last)
    s.needs = max(s.needs, s.lost + 1)
    s.whole = s.open = False
    s.broken = True
    s.gap_time_ns = 0


cdef bint market_disputed(Market* market, Message* message) noexcept nogil:
    cdef uint16_t home
    if message.stream >= MARKET_STREAMS:
        return False
    message.stream_key = market.streams[message.stream].venue
    home = home_of(market, message)
    if home == STREAM_NOWHERE:
        return False
    if home != message.stream or message.channel:
        # A snapshot: what came since is lost with it.
        message.number = market.streams[home].number
        message.stream = home
        message.session = market.streams[home].session
        message.session_id = market.streams[home].session_id
        message.channel = CHANNEL_INCREMENTAL
    market.streams[home].disputed = market.streams[home].gaps + 1
    return True


cdef void market_begin(Market* market, const Message* message, Names* names) noexcept nogil:
    cdef MarketStream* s
    market.message = message
    market.names = names
    market.refused = market.untold = market.withheld = market.flush = False
    market.taking = NULL
    memset(&market.emission, 0, sizeof(Emission))
    if message.number and message.stream < MARKET_STREAMS:
        s = market.streams + message.stream
        s.number = message.number
        s.session = message.session
        s.session_id = message.session_id
        s.seen = True
    market.stream = home_of(market, message)


cdef uint16_t home_of(const Market* market, const Message* message) noexcept nogil:
    # Return the stream of the changes that a message belongs to: snapshots may come on another one.
    cdef uint16_t stream
    if message.stream >= MARKET_STREAMS:
        return STREAM_NOWHERE
    if message.channel and market.traits.loops:
        for stream in range(MARKET_STREAMS):
            if market.streams[stream].seen and market.streams[stream].venue == message.stream_key:
                return stream
        return STREAM_NOWHERE
    if market.traits.snapshots_from and (
            market.streams[message.stream].venue >= market.traits.snapshots_from):
        for stream in range(MARKET_STREAMS):
            if market.streams[stream].seen and market.streams[stream].venue == (
                    market.streams[message.stream].venue - market.traits.snapshots_from):
                return stream
        # None of its changes were heard, so nobody can tell what is lost.
        return STREAM_NOWHERE
    return message.stream
