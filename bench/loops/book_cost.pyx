"""A flow of single orders as ITCH tells it, through a market, its decoder alone, and a plain floor.

The floor keeps what a book of levels needs and nothing else: a table of orders by their reference,
and a table of quantities by stock, side and price. It has no queues, no sorted sides, no best
price, no doubt, and it tells nobody.
"""

import cython
import numpy as np

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport KIND_MESSAGE, Message, Session
from udpfast.core.memory cimport Memory
from udpfast.market.ahead cimport AHEAD, ahead_hand_over
from udpfast.market.change cimport *
from udpfast.market.found cimport Found
from udpfast.market.market cimport (
    Market, MarketSettings, market_apply, market_begin, market_session)
from udpfast.market.names cimport NameTable
from udpfast.payload.itch.decode cimport itch_decode
from udpfast.payload.traits cimport PAYLOAD_ITCH
from udpfast.payload.venue cimport Venue, venue_expect, venue_init, venue_memory_size, venue_next
from udpfast.wire.load cimport be16, be32, be64

__all__ = ["OrderFlow"]

cdef enum:
    MESSAGE_MAX = 40
    PADDED = 36                  # the longest message of the flow
    ROOM = 65536 - 64
    BASE = 100_000               # of prices, with four decimals
    TICK = 100
    STEPS_MAX = 64               # of a price from where its stock began
    MIDDLE_MAX = 20              # of a stock's middle from there
    PIECE = 1000                 # messages that are timed together

cdef struct Live:
    uint64_t reference
    uint32_t price
    uint32_t shares
    uint32_t stock
    uint32_t bid

cdef struct Pieces:              # what each PIECE messages took
    int64_t* spent
    int64_t began
    uint64_t done, count

cdef struct FloorOrder:
    uint64_t reference           # 0: the slot is empty
    uint32_t level
    uint32_t shares

ctypedef uint64_t (*Run)(
    Venue*, const uint8_t*, const uint8_t*, uint64_t, uint8_t*, NameTable, Pieces*) noexcept nogil


@cython.final
cdef class OrderFlow:
    """Messages in memory, of so many stocks, with about so many orders alive.

    Parameters
    ----------
    stocks, live, messages : int
        The first `live` messages fill the books; `messages` follow, which are measured.
    seed : int
    """

    cdef uint8_t* data           # u8 size, then the message
    cdef uint64_t bytes, filled
    cdef Live* orders
    cdef int8_t* middles         # of each stock: steps from where it began
    cdef uint64_t state
    cdef readonly uint64_t live, messages, stocks, resting

    def __cinit__(self, uint32_t stocks, uint64_t live, uint64_t messages, uint64_t seed=1):
        cdef uint64_t n
        self.stocks, self.live, self.messages = stocks, live, messages
        self.data = <uint8_t*>calloc(live + messages, MESSAGE_MAX)
        self.orders = <Live*>calloc(live + 16, sizeof(Live))
        self.middles = <int8_t*>calloc(stocks + 1, 1)
        if self.data == NULL or self.orders == NULL or self.middles == NULL:
            raise MemoryError
        self.state = seed * 2654435761 + 88172645463325252
        for n in range(live):
            self._add(n + 1)
        self.filled = self.bytes
        for n in range(messages):
            self._step(live + n + 1)

    def __dealloc__(self):
        free(self.data)
        free(self.orders)
        free(self.middles)

    cdef uint64_t _draw(self) noexcept nogil:
        self.state ^= self.state << 13
        self.state ^= self.state >> 7
        self.state ^= self.state << 17
        return self.state

    cdef uint8_t* _begin(self, uint8_t kind, uint32_t stock, uint8_t size) noexcept nogil:
        cdef uint8_t* at = self.data + self.bytes
        at[0] = size
        at[1] = kind
        at[2], at[3] = <uint8_t>(stock >> 8), <uint8_t>stock
        self.bytes += 1 + size
        return at + 1

    cdef void _add(self, uint64_t reference) noexcept nogil:
        cdef Live* order = self.orders + self.resting
        cdef uint64_t drawn = self._draw(), which = self._draw()
        cdef uint32_t away = 1 + <uint32_t>((drawn >> 32) % (5 if drawn & 3 else 40))
        cdef int8_t* middle
        cdef uint8_t* m
        order.stock = 1 + <uint32_t>(which % (self.stocks // 16 + 1 if drawn & 48 else self.stocks))
        order.bid = (drawn >> 8) & 1
        middle = self.middles + order.stock
        if drawn & 0xFC000 == 0:
            middle[0] = min(max(middle[0] + (1 if drawn & 128 else -1), -MIDDLE_MAX), MIDDLE_MAX)
        order.price = BASE + (STEPS_MAX + middle[0] + (
            -<int32_t>away if order.bid else <int32_t>away)) * TICK
        order.shares = 100 * (1 + <uint32_t>((drawn >> 16) % 10))
        order.reference = reference
        self.resting += 1
        m = self._begin(c"A", order.stock, 36)
        put(m + 11, reference, 8)
        m[19] = c"B" if order.bid else c"S"
        put(m + 20, order.shares, 4)
        memcpy(m + 24, b"STOCK   ", 8)
        put(m + 27, order.stock + 0x30303030, 4)
        put(m + 32, order.price, 4)

    cdef void _step(self, uint64_t reference) noexcept nogil:
        # Half of it new orders; most that end are recent ones.
        cdef uint64_t drawn = self._draw(), kind = drawn % 1000
        cdef uint64_t near = min(self.resting, <uint64_t>4096)
        cdef Live* order
        cdef uint8_t* m
        if self.resting < 16 or (kind < 470 and self.resting < self.live):
            self._add(reference)
            return
        order = self.orders + self.resting - 1 - (
            (drawn >> 32) % (near if drawn & 0x7000 else self.resting))
        if kind < 880 or order.shares <= 100:
            m = self._begin(c"D", order.stock, 19)
            put(m + 11, order.reference, 8)
            self.resting -= 1
            order[0] = self.orders[self.resting]
            return
        if kind >= 970:
            m = self._begin(c"U", order.stock, 35)
            put(m + 11, order.reference, 8)
            put(m + 19, reference, 8)
            order.reference = reference
            order.price += -TICK if drawn & 256 else TICK
            order.price = min(max(order.price, <uint32_t>BASE), BASE + (2 * STEPS_MAX - 1) * TICK)
            put(m + 27, order.shares, 4)
            put(m + 31, order.price, 4)
            return
        order.shares -= 100
        m = self._begin(c"E" if kind < 940 else c"X", order.stock, 31 if kind < 940 else 23)
        put(m + 11, order.reference, 8)
        put(m + 19, 100, 4)

    def opening(self, uint32_t messages) -> NDArray[np.uint8]:
        """Return the first `live` messages in datagrams of so many each; as `burst`."""
        return self._pack(self.live // messages, messages, 1, False)

    def burst(self, uint64_t count, uint32_t messages, uint64_t number) -> NDArray[np.uint8]:
        """Let the flow go on, and return it as MoldUDP64; what the methods below measure is gone.

        Parameters
        ----------
        count, messages : int
            Datagrams, and messages of each.
        number : int
            Of the first message.

        Returns
        -------
        numpy.ndarray
            Shape (count, 20 + 38 * messages), uint8: each message is padded to 36 bytes.
        """
        return self._pack(count, messages, number, True)

    cdef _pack(self, uint64_t count, uint32_t messages, uint64_t number, bint goes_on):
        rows = np.zeros((count, 20 + (2 + PADDED) * messages), np.uint8)
        cdef uint8_t[:, ::1] view = rows
        cdef const uint8_t* from_ = self.data
        cdef uint8_t* at
        cdef uint64_t n
        cdef uint32_t m
        for n in range(count):
            at = &view[n, 0]
            memcpy(at, b"0000000001", 10)
            put(at + 10, number, 8)
            put(at + 18, messages, 2)
            at += 20
            for m in range(messages):
                if goes_on:
                    self.bytes = 0
                    self._step(number + m)
                    from_ = self.data
                put(at, PADDED, 2)
                memcpy(at + 2, from_ + 1, from_[0])
                from_ += 1 + from_[0]
                at += 2 + PADDED
            number += messages
        return rows

    def pieces(self, bint opening=False) -> list[NDArray[np.uint8]]:
        """Return what is measured, or what comes before, as a file has it: a u16 size, a message.

        Returns
        -------
        list of numpy.ndarray
            Uint8, of 1,000 messages each but for the last.
        """
        cdef const uint8_t* at = self.data if opening else self.data + self.filled
        cdef const uint8_t* end = self.data + (self.filled if opening else self.bytes)
        cdef uint8_t[::1] view
        cdef uint64_t size, n
        found = []
        while at < end:
            row = np.zeros(PIECE * (1 + MESSAGE_MAX), np.uint8)
            view = row
            size = n = 0
            while n < PIECE and at < end:
                put(&view[size], at[0], 2)
                memcpy(&view[size + 2], at + 1, at[0])
                size += 2 + at[0]
                at += 1 + at[0]
                n += 1
            found.append(row[:size].copy())
        return found

    def decode(self) -> float:
        """Decode what is measured; return ns a message."""
        cdef Change change
        cdef uint8_t* at = self.data + self.filled
        cdef uint64_t seen = 0
        cdef Pieces pieces
        pieces_begin(&pieces, self.messages)
        with nogil:
            while at < self.data + self.bytes:
                itch_decode(at + 1, at[0], &change)
                seen += change.verb
                at += 1 + at[0]
                pieces_count(&pieces)
        if seen == 0:
            raise ValueError("expected changes, found none")
        return pieces_end(&pieces)

    def floor(self) -> float:
        """Keep quantities by price, and no more; return ns a message."""
        cdef uint64_t slots = 16, total = 0, n
        cdef FloorOrder* orders
        cdef int64_t* levels
        cdef Pieces pieces
        while slots < 2 * self.live:
            slots *= 2
        orders = <FloorOrder*>calloc(slots, sizeof(FloorOrder))
        levels = <int64_t*>calloc((self.stocks + 1) * 4 * STEPS_MAX, sizeof(int64_t))
        if orders == NULL or levels == NULL:
            raise MemoryError
        with nogil:
            pieces_begin(&pieces, self.live)
            floor_run(
                self.data, self.data + self.filled, orders, slots - 1, levels, &pieces)
        pieces_end(&pieces)
        with nogil:
            pieces_begin(&pieces, self.messages)
            floor_run(self.data + self.filled, self.data + self.bytes, orders, slots - 1, levels,
                      &pieces)
        for n in range((self.stocks + 1) * 4 * STEPS_MAX):
            total += levels[n]
        free(orders)
        free(levels)
        self._check(total)
        return pieces_end(&pieces)

    def market(self, bint levels=True, bint orders=True) -> float:
        """Keep books, and write updates down; return ns a message.

        Parameters
        ----------
        levels, orders : bool
            What is told: levels and best prices; single orders. All of it is kept in any case.
        """
        cdef Venue venue
        cdef MarketSettings settings
        cdef Session session
        cdef Run run
        cdef NameTable names = NameTable(capacity=self.stocks + 16)
        cdef int64_t feed[256]
        cdef Memory memory
        cdef uint8_t* into = <uint8_t*>calloc(1, ROOM)
        cdef Pieces pieces
        cdef uint64_t at, total = 0
        cdef uint32_t i, n
        memset(feed, 0, sizeof(feed))
        memset(&settings, 0, sizeof(settings))
        settings.levels = settings.top = levels
        run = market_run if levels or orders else keep_run
        settings.orders = orders
        settings.orders_max = <uint32_t>(2 * self.live + 1024)
        settings.instruments_max = <uint32_t>(self.stocks + 16)
        memory = Memory(venue_memory_size(PAYLOAD_ITCH, &settings))
        if into == NULL:
            raise MemoryError
        venue_init(&venue, PAYLOAD_ITCH, &settings, memory.pointer, feed)
        memset(&session, 0, sizeof(session))
        session.first_number = 1
        market_session(&venue.market, 0, 1, &session)
        with nogil:
            pieces_begin(&pieces, self.live)
            at = run(&venue, self.data, self.data + self.filled, 1, into, names, &pieces)
        pieces_end(&pieces)
        with nogil:
            pieces_begin(&pieces, self.messages)
            run(&venue, self.data + self.filled, self.data + self.bytes, at, into, names, &pieces)
        for i in range(venue.market.instruments.count):
            n = venue.market.instruments.items[i].orders_first
            while n:
                total += venue.market.orders.orders[n - 1].quantity
                n = venue.market.orders.orders[n - 1].next
        free(into)
        self._check(total)
        return pieces_end(&pieces)

    cdef _check(self, uint64_t total):
        cdef uint64_t expected = 0, n
        for n in range(self.resting):
            expected += self.orders[n].shares
        if total != expected:
            raise ValueError(f"expected {expected} shares to rest, found {total}")


cdef void pieces_begin(Pieces* pieces, uint64_t messages) noexcept nogil:
    pieces.done = pieces.count = 0
    pieces.spent = <int64_t*>calloc(messages // PIECE + 1, sizeof(int64_t))
    pieces.began = clock_monotonic_ns()


cdef inline void pieces_count(Pieces* pieces) noexcept nogil:
    cdef int64_t now
    pieces.count += 1
    if pieces.count == PIECE:
        now = clock_monotonic_ns()
        pieces.spent[pieces.done] = now - pieces.began
        pieces.done += 1
        pieces.count = 0
        pieces.began = now


cdef pieces_end(Pieces* pieces):
    # ns a message in the median piece: what a host took away in between is in few of them.
    spent = sorted(pieces.spent[n] for n in range(pieces.done))
    free(pieces.spent)
    return spent[len(spent) // 2] / <double>PIECE if spent else 0.0


cdef void put(uint8_t* at, uint64_t value, int size) noexcept nogil:
    while size:
        size -= 1
        at[size] = <uint8_t>value
        value >>= 8


cdef void expect(
        Venue* venue, const uint8_t** next, const uint8_t* end, int messages) noexcept nogil:
    cdef const uint8_t* at
    while messages:
        at = next[0]
        if at < end:
            next[0] += 1 + at[0]
        venue_expect(venue, at + 1, at[0] if at < end else 0)
        messages -= 1


cdef uint64_t market_run(
        Venue* venue, const uint8_t* at, const uint8_t* end, uint64_t number, uint8_t* into,
        NameTable names, Pieces* pieces) noexcept nogil:
    cdef Message message
    cdef Found found
    cdef bint begins
    cdef const uint8_t* next = at
    memset(&message, 0, sizeof(message))
    message.kind = KIND_MESSAGE
    expect(venue, &next, end, AHEAD)
    while at < end:
        expect(venue, &next, end, 1)
        message.payload, message.size = at + 1, at[0]
        message.number = number
        begins = True
        while venue_next(venue, &message, begins, into, ROOM, &names.names, &found) > 0 and (
                not found.last):
            begins = False
        number += 1
        at += 1 + at[0]
        pieces_count(pieces)
    return number


cdef uint64_t keep_run(
        Venue* venue, const uint8_t* at, const uint8_t* end, uint64_t number, uint8_t* into,
        NameTable names, Pieces* pieces) noexcept nogil:
    # Books alone: nobody is told of a change.
    cdef Market* market = &venue.market
    cdef Message message
    cdef const uint8_t* next = at
    cdef int n
    memset(&message, 0, sizeof(message))
    message.kind = KIND_MESSAGE
    expect(venue, &next, end, AHEAD)
    while at < end:
        expect(venue, &next, end, 1)
        message.payload, message.size = at + 1, at[0]
        message.number = number
        market_begin(market, &message, &names.names)
        ahead_hand_over(market, &venue.ahead)
        if itch_decode(message.payload, message.size, venue.changes) > 0:
            market_apply(market, venue.changes)
        for n in range(<int>market.dirty_count):
            market.instruments.items[market.dirty[n]].dirty = False
        market.dirty_count = market.rows_count = market.touched_count = 0
        number += 1
        at += 1 + at[0]
        pieces_count(pieces)
    return number


cdef inline FloorOrder* floor_find(
        FloorOrder* orders, uint64_t mask, uint64_t reference) noexcept nogil:
    cdef uint64_t slot = (reference * <uint64_t>0x9E3779B97F4A7C15) >> 20 & mask
    while orders[slot].reference and orders[slot].reference != reference:
        slot = (slot + 1) & mask
    return orders + slot


cdef void floor_drop(FloorOrder* orders, uint64_t mask, FloorOrder* order) noexcept nogil:
    # Those behind it move up, so that no search ends too early.
    cdef uint64_t hole = order - orders, slot = hole, home
    while True:
        slot = (slot + 1) & mask
        if orders[slot].reference == 0:
            break
        home = (orders[slot].reference * <uint64_t>0x9E3779B97F4A7C15) >> 20 & mask
        if ((slot - home) & mask) >= ((slot - hole) & mask):
            orders[hole] = orders[slot]
            hole = slot
    orders[hole].reference = 0


cdef void floor_run(
        const uint8_t* at, const uint8_t* end, FloorOrder* orders, uint64_t mask,
        int64_t* levels, Pieces* pieces) noexcept nogil:
    cdef FloorOrder* order
    cdef FloorOrder new
    cdef const uint8_t* m
    cdef uint32_t less
    while at < end:
        m = at + 1
        order = floor_find(orders, mask, be64(m + 11))
        if m[0] == c"A":
            order.reference = be64(m + 11)
            order.shares = be32(m + 20)
            order.level = be16(m + 1) * 4 * STEPS_MAX + (2 * STEPS_MAX if m[19] == c"B" else 0) + (
                (be32(m + 32) - BASE) // TICK)
            levels[order.level] += order.shares
        elif m[0] == c"U":
            levels[order.level] -= order.shares
            new.level = order.level // (2 * STEPS_MAX) * (2 * STEPS_MAX) + (
                (be32(m + 31) - BASE) // TICK)
            new.shares = be32(m + 27)
            new.reference = be64(m + 19)
            floor_drop(orders, mask, order)
            floor_find(orders, mask, new.reference)[0] = new
            levels[new.level] += new.shares
        else:
            less = order.shares if m[0] == c"D" else be32(m + 19)
            levels[order.level] -= less
            order.shares -= less
            if order.shares == 0:
                floor_drop(orders, mask, order)
        at += 1 + at[0]
        pieces_count(pieces)
