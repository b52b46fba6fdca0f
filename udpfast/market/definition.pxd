# How instruments become known: their names, depths and decimals, and their state at the first
# change.

from libc.stdint cimport uint16_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport likely, unlikely
from udpfast.core.counter cimport (
    FEED_BOOKS_UNDEFINED, FEED_NAMES_LONG, FEED_OBJECTS, FEED_OBJECTS_FULL)
from udpfast.core.keyed cimport keyed_word
from udpfast.core.layout cimport OBJECT_WAITING
from udpfast.market.change cimport *
from udpfast.market.instrument cimport (
    FACES, UNSTORED_LONG, UNSTORED_ROOM, Instrument, instrument_add, instrument_find,
    instrument_name, instrument_named)
from udpfast.market.levels cimport face_forget
from udpfast.market.marked cimport has_face, index_of, instrument_mark
from udpfast.market.market cimport STREAM_NOWHERE, Market, MarketStream, Row
from udpfast.market.names cimport NAME_SIZE_MAX, names_intern
from udpfast.market.trust cimport (
    count_waiting, instrument_begin_empty, levels_become_stale)

cdef inline void name_instrument(
        Market* market, Instrument* i, const uint8_t* text, uint32_t size) noexcept nogil:
    # Two instruments of one name would be one book to readers. While the first one has books, the
    # second keeps the name that it has.
    cdef uint32_t id
    cdef Instrument* other
    while size and (text[size - 1] == c" " or text[size - 1] == 0):
        size -= 1
    id = names_intern(market.names, text, size)
    i.unstored = UNSTORED_ROOM if id == 0 else 0
    if unlikely(size > <uint32_t>NAME_SIZE_MAX):
        i.unstored = UNSTORED_LONG
        counter_add(&market.feed[FEED_NAMES_LONG], 1)
    if id == i.symbol_id:
        return
    other = instrument_named(&market.instruments, id) if id else NULL
    if unlikely(other != NULL):
        if not other.homeless:
            if not i.defined:
                counter_add(&market.feed[FEED_BOOKS_UNDEFINED], 1)
            return
        # No change of the other one has come, or its session is over.
        other.symbol_id = 0
        other.symbol_before = 0
    i.symbol_before = i.symbol_id
    instrument_name(&market.instruments, i, id)
    if i.symbol_before:
        instrument_mark(market, i)


cdef inline void number_instrument(Market* market, Instrument* i) noexcept nogil:
    # Until a name comes, use the id in decimal.
    cdef uint8_t text[20]
    cdef int at = 20
    cdef uint64_t rest = i.id
    while True:
        at -= 1
        text[at] = <uint8_t>(c"0" + rest % 10)
        rest //= 10
        if rest == 0:
            break
    name_instrument(market, i, text + at, 20 - at)


cdef inline uint32_t text_size(const char* text) noexcept nogil:
    cdef uint32_t size = 0
    while text[size]:
        size += 1
    return size


cdef inline void begin_instrument(Market* market, Instrument* i, uint16_t stream) noexcept nogil:
    # Set the state that an instrument has when its first change comes.
    cdef MarketStream* s = market.streams + stream
    cdef int which
    i.stream = stream
    i.homeless = False
    for which in range(FACES):
        i.face[which].status = OBJECT_WAITING
        i.face[which].sure = s.gaps
        i.face[which].held_since = s.lost
        if has_face(market, which):
            face_forget(market, i, which)
    count_waiting(market, 1)
    # In a whole stream, the first number of a chain is 1.
    if s.whole:
        i.linked = market.traits.chain == CHAIN_DENSE
        instrument_begin_empty(market, i)


cdef inline Instrument* instrument_of(
        Market* market, const Change* c, uint16_t stream) noexcept nogil:
    # Return the instrument of a change, or NULL if the table is full.
    cdef Instrument* i = market.expected
    if unlikely(i.id != c.instrument or market.instruments.count == 0):
        i = instrument_find(&market.instruments, c.instrument)
    if likely(i != NULL and i.named and i.symbol_id and not i.homeless):
        return i
    return meet_instrument(market, i, c, stream)


cdef inline Instrument* meet_instrument(
        Market* market, Instrument* i, const Change* c, uint16_t stream) noexcept nogil:
    # Handle an instrument that is new, has no name yet, or had no change yet.
    cdef const char* exchange
    cdef uint8_t text[64]
    cdef uint32_t size
    cdef uint64_t id = c.instrument
    cdef bint is_told = c.verb == VERB_DEFINE and c.name != 0  # instrument_define names it
    if unlikely(i == NULL):
        i = instrument_add(&market.instruments, c.instrument)
        if i == NULL:
            counter_add(&market.feed[FEED_OBJECTS_FULL], 1)
            return NULL
        counter_add(&market.feed[FEED_OBJECTS], 1)
        exchange = market.traits.exchange
        size = text_size(exchange)
        i.exchange_id = names_intern(market.names, <const uint8_t*>exchange, size, True)
        if market.traits.depth_implied:
            memcpy(text, exchange, size)
            memcpy(text + size, b" implied", 8)
            i.implied_id = names_intern(market.names, text, size + 8, True)
        i.depth[0] = market.traits.depth
        i.depth[1] = market.traits.depth_implied
        i.decimals = market.traits.decimals
        i.measured = not market.traits.defined_first
        if market.settings.places[0] and not i.measured and (
                market.traits.levels == LEVELS_BY_PLACE):
            i.depth = market.settings.places
            i.measured = True
        if not i.measured and c.verb != VERB_DEFINE:
            counter_add(&market.feed[FEED_BOOKS_UNDEFINED], 1)
        i.sides[1].ask = i.sides[3].ask = i.shown[1].ask = i.shown[3].ask = 1
        if market.traits.names == NAMES_IN_ID:
            i.named = i.defined = True
            name_instrument(market, i, <const uint8_t*>&id, 8)
        i.homeless = True
        i.stream = STREAM_NOWHERE
    if unlikely(not i.named and c.name and not is_told):
        i.named = i.defined = True
        name_instrument(market, i, market.message.payload + c.name - 1, 8)
    if unlikely(i.symbol_id == 0 and market.traits.names == NAMES_DEFINED and not is_told):
        # It has no name yet, or another instrument took it.
        number_instrument(market, i)
    if unlikely(i.homeless):
        if stream == STREAM_NOWHERE:
            return i if c.verb == VERB_DEFINE else NULL
        begin_instrument(market, i, stream)
    return i


cdef inline void replace_all(Market* market, Instrument* i) noexcept nogil:
    # Publish all of the instrument's faces anew.
    cdef int which
    for which in range(FACES):
        i.face[which].replaced = True
    i.top_said = False
    instrument_mark(market, i)


cdef inline void instrument_define_depth(
        Market* market, Instrument* i, uint8_t own, uint8_t implied) noexcept nogil:
    # Set the depths of a book. Its levels stay right if no side was ever deeper than the smaller of
    # the old and the new depth. Otherwise levels fell out that are unknown now.
    cdef bint outgrown = i.deepest[0] > min(i.depth[0], own) and i.depth[0] != own
    if i.deepest[1] > min(i.depth[1], implied) and i.depth[1] != implied:
        outgrown = True
    i.depth[0] = own
    i.depth[1] = implied
    if outgrown and not i.homeless:
        levels_become_stale(market, i)


cdef inline void instrument_tell(Market* market, Instrument* i, const Change* c) noexcept nogil:
    # Publish a definition if it is new: loops repeat all of them.
    cdef uint64_t said = <uint64_t>0x9E3779B97F4A7C15 ^ i.symbol_id
    cdef uint8_t kind = 0 if c.side == SIDE_NONE else c.side
    cdef const Change* option = &market.option
    cdef int64_t n
    cdef Row* row
    said = keyed_word(&market.instruments.key, said ^ c.order)
    said = keyed_word(&market.instruments.key, said ^ c.order_before)
    said = keyed_word(&market.instruments.key, said ^ <uint64_t>c.time_ns ^ kind)
    said = keyed_word(&market.instruments.key, said ^ <uint64_t>option.price ^ option.place)
    for n in range(option.quantity):
        said = keyed_word(
            &market.instruments.key, said ^ market.message.payload[option.name - 1 + n])
    said |= 1
    if said == i.defined_as or i.symbol_id == 0 or market.rows_count == CHANGES_MAX:
        return
    i.defined_as = said
    row = market.rows + market.rows_count
    row.price = <int64_t>c.order
    row.quantity = <int64_t>c.order_before
    row.id = i.id
    row.time_ns = c.time_ns
    row.instrument = index_of(market, i)
    row.verb = VERB_DEFINE
    row.side = kind
    row.strike = option.price if option.verb else PRICE_NONE
    row.option_type = option.place
    row.underlying = option.name
    row.underlying_size = <uint8_t>option.quantity
    market.rows_count += 1


cdef inline void instrument_define(Market* market, Instrument* i, const Change* c) noexcept nogil:
    cdef bint by_place = market.traits.levels == LEVELS_BY_PLACE
    cdef bint measures = c.place != 0 if by_place else 0 <= c.price <= DECIMALS_MAX
    if c.name:
        name_instrument(
            market, i, market.message.payload + c.name - 1, <uint32_t>c.quantity)
        if unlikely(i.symbol_id == 0 and market.traits.names == NAMES_DEFINED):
            # Another instrument has its name.
            number_instrument(market, i)
    if measures and by_place:
        instrument_define_depth(market, i, c.place, <uint8_t>c.orders)
    elif measures and c.price != i.decimals:
        i.decimals = <uint8_t>c.price
        replace_all(market, i)
    if measures and not i.measured:
        i.measured = True
        instrument_mark(market, i)
    i.named = True
    if not i.defined:
        i.defined = True
        instrument_mark(market, i)
    instrument_tell(market, i, c)
