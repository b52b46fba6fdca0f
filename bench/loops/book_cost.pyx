"""A flow of single orders as ITCH tells it, through a market, its decoder alone, and a plain floor.

The floor keeps what a book of levels needs and nothing else: a table of orders by their reference,
and a table of quantities by stock, side and price. It has no queues, no sorted sides, no best
price, no doubt, and it tells nobody.
"""

import cython

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport KIND_MESSAGE, Message
from udpfast.market.change cimport *
from udpfast.market.found cimport Found
from udpfast.market.market cimport MarketSettings, market_session
from udpfast.market.names cimport NameTable
from udpfast.payload.itch.decode cimport itch_decode
from udpfast.payload.traits cimport PAYLOAD_ITCH
from udpfast.payload.venue cimport Venue, venue_init, venue_memory_size, venue_next
from udpfast.wire.load cimport be16, be32, be64

__all__ = ["OrderFlow"]

cdef enum:
    MESSAGE_MAX = 40
    ROOM = 65536 - 64
    BASE = 100_000               # of prices, with four decimals
    TICK = 100
    STEPS_MAX = 64               # of a price from its stock's middle

cdef struct Live:
    uint64_t reference
    uint32_t price
    uint32_t shares
    uint32_t stock
    uint32_t bid

cdef struct FloorOrder:
    uint64_t reference           # 0: the slot is empty
    uint32_t level
    uint32_t shares


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
    cdef uint64_t state
    cdef readonly uint64_t live, messages, stocks, resting

    def __cinit__(self, uint32_t stocks, uint64_t live, uint64_t messages, uint64_t seed=1):
        cdef uint64_t n
        self.stocks, self.live, self.messages = stocks, live, messages
        self.data = <uint8_t*>calloc(live + messages, MESSAGE_MAX)
        self.orders = <Live*>calloc(live + 16, sizeof(Live))
        if self.data == NULL or self.orders == NULL:
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
        cdef uint64_t drawn = self._draw()
        cdef uint32_t away = 1 + (drawn >> 32) % (5 if drawn & 3 else STEPS_MAX - 1)
        cdef uint8_t* m
        order.stock = 1 + <uint32_t>(self._draw() % self.stocks)
        order.bid = (drawn >> 8) & 1
        order.price = BASE + (STEPS_MAX - away if order.bid else STEPS_MAX + away) * TICK
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
        # Half of it new orders; recent ones end first.
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
        order.shares -= 100
        m = self._begin(c"E" if kind < 940 else c"X", order.stock, 31 if kind < 940 else 23)
        put(m + 11, order.reference, 8)
        put(m + 19, 100, 4)

    def decode(self) -> float:
        """Decode what is measured; return ns a message."""
        cdef Change change
        cdef uint8_t* at = self.data + self.filled
        cdef uint64_t seen = 0
        cdef int64_t began
        with nogil:
            began = clock_monotonic_ns()
            while at < self.data + self.bytes:
                itch_decode(at + 1, at[0], &change)
                seen += change.verb
                at += 1 + at[0]
            began = clock_monotonic_ns() - began
        if seen == 0:
            raise ValueError("expected changes, found none")
        return began / <double>self.messages

    def floor(self) -> float:
        """Keep quantities by price, and no more; return ns a message."""
        cdef uint64_t slots = 16, total = 0, n
        cdef FloorOrder* orders
        cdef int64_t* levels
        cdef int64_t spent
        while slots < 2 * self.live:
            slots *= 2
        orders = <FloorOrder*>calloc(slots, sizeof(FloorOrder))
        levels = <int64_t*>calloc((self.stocks + 1) * 4 * STEPS_MAX, sizeof(int64_t))
        if orders == NULL or levels == NULL:
            raise MemoryError
        with nogil:
            floor_run(self.data, self.data + self.filled, orders, slots - 1, levels)
            spent = clock_monotonic_ns()
            floor_run(self.data + self.filled, self.data + self.bytes, orders, slots - 1, levels)
            spent = clock_monotonic_ns() - spent
        for n in range((self.stocks + 1) * 4 * STEPS_MAX):
            total += levels[n]
        free(orders)
        free(levels)
        self._check(total)
        return spent / <double>self.messages

    def market(self, bint orders=True) -> float:
        """Keep books, and write updates down; return ns a message.

        Parameters
        ----------
        orders : bool
            Tell single orders, too.
        """
        cdef Venue venue
        cdef MarketSettings settings
        cdef NameTable names = NameTable(capacity=self.stocks + 16)
        cdef int64_t feed[256]
        cdef uint8_t* memory
        cdef uint8_t* into = <uint8_t*>calloc(1, ROOM)
        cdef int64_t spent
        cdef uint64_t at, total = 0
        cdef uint32_t i, n
        memset(feed, 0, sizeof(feed))
        memset(&settings, 0, sizeof(settings))
        settings.levels = settings.top = True
        settings.orders = orders
        settings.orders_max = <uint32_t>(2 * self.live + 1024)
        settings.instruments_max = <uint32_t>(self.stocks + 16)
        memory = <uint8_t*>calloc(1, venue_memory_size(PAYLOAD_ITCH, &settings) + 64)
        if memory == NULL or into == NULL:
            raise MemoryError
        venue_init(&venue, PAYLOAD_ITCH, &settings, memory, feed)
        market_session(&venue.market, 0, 0, 1, 0)
        with nogil:
            at = market_run(&venue, self.data, self.data + self.filled, 1, into, names)
            spent = clock_monotonic_ns()
            market_run(&venue, self.data + self.filled, self.data + self.bytes, at, into, names)
            spent = clock_monotonic_ns() - spent
        for i in range(venue.market.instruments.count):
            n = venue.market.instruments.items[i].orders_first
            while n:
                total += venue.market.orders.orders[n - 1].quantity
                n = venue.market.orders.orders[n - 1].next
        free(memory)
        free(into)
        self._check(total)
        return spent / <double>self.messages

    cdef _check(self, uint64_t total):
        cdef uint64_t expected = 0, n
        for n in range(self.resting):
            expected += self.orders[n].shares
        if total != expected:
            raise ValueError(f"expected {expected} shares to rest, found {total}")


cdef void put(uint8_t* at, uint64_t value, int size) noexcept nogil:
    while size:
        size -= 1
        at[size] = <uint8_t>value
        value >>= 8


cdef uint64_t market_run(
        Venue* venue, const uint8_t* at, const uint8_t* end, uint64_t number, uint8_t* into,
        NameTable names) noexcept nogil:
    cdef Message message
    cdef Found found
    cdef bint begins
    memset(&message, 0, sizeof(message))
    message.kind = KIND_MESSAGE
    while at < end:
        message.payload, message.size = at + 1, at[0]
        message.number = number
        begins = True
        while venue_next(venue, &message, begins, into, ROOM, &names.names, &found) > 0:
            begins = False
        number += 1
        at += 1 + at[0]
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
        int64_t* levels) noexcept nogil:
    cdef FloorOrder* order
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
        else:
            less = order.shares if m[0] == c"D" else be32(m + 19)
            levels[order.level] -= less
            order.shares -= less
            if order.shares == 0:
                floor_drop(orders, mask, order)
        at += 1 + at[0]
