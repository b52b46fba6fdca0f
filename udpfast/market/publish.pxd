# Publish: turns what changed in a market into updates. First come TRADES, MARKET_STATUS and
# REFERENCE_DATA in the order of the changes, then, for each changed instrument, STALE or RECOVERED,
# BOOK, ORDERS and TOP_OF_BOOK.
#
# Each Face knows what readers were told last. If readers cannot use changes of a book, it is
# published whole (RECORD_SNAPSHOT). During an event, updates have PRESENT_MORE, and tops wait.

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memset

from udpfast.core.check cimport likely, unlikely
from udpfast.core.layout cimport KIND_RECOVERED, KIND_STALE, OBJECT_LIVE
from udpfast.market.change cimport LEVELS_OF_ORDERS, LEVELS_OF_QUOTES
from udpfast.market.found cimport Found
from udpfast.market.instrument cimport (
    FACE_IMPLIED, FACE_LEVELS, FACE_ORDERS, Face, Instrument, SAID_LIVE, SAID_NOTHING, SAID_STALE)
from udpfast.market.market cimport Emission, Market
from udpfast.market.publish_book cimport levels_write, is_few, few_write, orders_write, top_write
from udpfast.market.publish_header cimport face_sure, state_write
from udpfast.market.publish_rows cimport row_write

cdef enum:
    PUBLISH_ROOM = 65536 - 64    # the largest update

cdef enum:  # the steps of publishing one instrument
    STEP_RENAMED = 0
    STEP_LEVELS_SAY = 3
    STEP_LEVELS = 4
    STEP_IMPLIED_SAY = 5
    STEP_IMPLIED = 6
    STEP_ORDERS_SAY = 7
    STEP_ORDERS = 8
    STEP_TOP = 9
    STEPS = 10


cdef inline bint face_wanted(const Market* market, const Instrument* i, int which) noexcept nogil:
    # Return True if readers get this face.
    if i.symbol_id == 0 or i.exchange_id == 0:
        return False
    if which == FACE_ORDERS:
        return market.traits.orders and market.settings.orders
    if which == FACE_IMPLIED:
        return market.traits.depth_implied and market.settings.levels and i.face[which].begun
    return market.settings.levels or market.settings.top


cdef inline int32_t instrument_say(
        Market* market, Instrument* i, int which, uint8_t* into, Found* told) noexcept nogil:
    # Write STALE or RECOVERED if readers do not know it yet. Return 0 if there is nothing to tell.
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
        market.withheld = True
        face.said = SAID_STALE if said else SAID_NOTHING
        # An absolute book takes changes while it is in doubt, and the gap told readers of the
        # doubt.
        if said != SAID_LIVE or market.traits.absolute:
            return 0
        return state_write(market, i, which, KIND_STALE, False, into, told)
    if not face_sure(market, i, which) or (
            market.settings.awaits_definitions and not i.defined):
        market.withheld = True
        return 0                 # still unknown, of which the gap told readers
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
    # Return True if there is nothing to publish but changes: nothing is in doubt, readers know
    # that, and the book consists of levels and orders only.
    return market.traits.levels == LEVELS_OF_ORDERS and i.symbol_before == 0 and (
        not market.traits.depth_implied) and is_told(market, i, FACE_LEVELS) and (
        not market.settings.orders or is_told(market, i, FACE_ORDERS))


cdef inline bint in_doubt_told(const Market* market, const Instrument* i) noexcept nogil:
    # Return True if changes of a book in doubt are published: each of them is right by itself.
    return market.traits.absolute and i.symbol_id != 0 and (
        i.face[FACE_LEVELS].status != OBJECT_LIVE)


cdef inline int32_t instrument_say_renamed(
        Market* market, Instrument* i, int which, uint8_t* into, Found* told) noexcept nogil:
    # Write a STALE that ends the object of the old name.
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
    # Do the current step, and go on to the next one. Return the kind of its update, or 0.
    cdef Emission* e = &market.emission
    cdef uint32_t step = e.step
    cdef int32_t kind = 0
    e.step += 1
    if likely(e.plain and step == STEP_LEVELS and is_few(market, i)):
        e.step = STEP_ORDERS if market.settings.orders else STEP_TOP
        if e.step == STEP_TOP and not (market.settings.top and (
                i.best_changed or not i.top_said)):
            e.step = STEPS       # the steps up to here would write nothing
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
            return 0             # the next level ends the open event
        if not market.streams[i.stream].open:
            kind = top_write(market, i, into, told)
        elif not i.pending:
            i.pending = True
            market.pending[market.pending_count] = <uint32_t>(i - market.instruments.items)
            market.pending_count += 1
    return kind


cdef inline void publish_pending(Market* market) noexcept nogil:
    # Mark the instruments whose event has ended, so that their tops are published.
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
    # Write the next update. Return its kind, or 0 if there is none, so that more changes may
    # follow. `told.last` is set if it is known to be the last one.
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
