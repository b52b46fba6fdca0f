"""All of one book at once: a snapshot of its orders that is taken, and a clear that empties it."""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport KIND_MESSAGE, Message, Session
from udpfast.core.memory cimport Memory
from udpfast.market.change cimport *
from udpfast.market.found cimport Found
from udpfast.market.market cimport (
    Market, MarketSettings, market_apply, market_begin, market_gap, market_session)
from udpfast.market.names cimport NameTable
from udpfast.market.publish cimport publish_next
from udpfast.payload.traits cimport PAYLOAD_ITCH
from udpfast.payload.venue cimport Venue, venue_init, venue_memory_size

__all__ = ["whole_book"]

cdef enum:
    ROOM = 65536 - 64
    PRICES = 200
    LOST = 10                    # the last number that was lost


cdef uint32_t tell(Market* market, uint8_t* into) noexcept nogil:
    # All updates of what changed; return how many.
    cdef Found found
    cdef uint32_t told = 0
    memset(&found, 0, sizeof(found))
    while publish_next(market, into, ROOM, &found) > 0:
        memset(&found, 0, sizeof(found))
        told += 1
    return told


cdef void take(Market* market, Change* change, uint32_t count) noexcept nogil:
    # A snapshot of so many orders.
    cdef uint32_t n
    change.verb = VERB_BEGIN_SNAPSHOT
    change.order = LOST + 1
    market_apply(market, change)
    change.verb = VERB_ADD
    change.flags = CHANGE_ROW
    for n in range(count):
        change.order = 1000 + n
        change.side = SIDE_ASK if n & 1 else SIDE_BID
        change.price = 10_000 + n % PRICES * (1 if n & 1 else -1)
        market_apply(market, change)
    change.verb = VERB_END_SNAPSHOT
    change.flags = 0
    market_apply(market, change)


def whole_book(orders: int) -> tuple[float, float]:
    """Take a snapshot of a book of so many orders, then clear it, with levels and orders told.

    Parameters
    ----------
    orders : int
        At 200 prices, half of them on each side; from 1.

    Returns
    -------
    tuple[float, float]
        Microseconds of the snapshot and of the clear, from its changes to all updates.

    Raises
    ------
    ValueError
        The book does not have as many orders as it should.
    """
    cdef Venue venue
    cdef Market* market = &venue.market
    cdef MarketSettings settings
    cdef Session session
    cdef Message message
    cdef NameTable names = NameTable(capacity=16)
    cdef int64_t feed[256]
    cdef Memory memory
    cdef uint8_t* into = <uint8_t*>calloc(1, ROOM)
    cdef Change change
    cdef uint32_t count = orders
    cdef uint32_t taken, left
    cdef int64_t began, between, cleared
    memset(feed, 0, sizeof(feed))
    memset(&settings, 0, sizeof(settings))
    settings.levels = settings.top = settings.orders = True
    settings.orders_max = 2 * count
    settings.instruments_max = 16
    settings.held_max = 1024
    memory = Memory(venue_memory_size(PAYLOAD_ITCH, &settings))
    if into == NULL:
        raise MemoryError
    venue_init(&venue, PAYLOAD_ITCH, &settings, memory.pointer, feed)
    memset(&session, 0, sizeof(session))
    session.first_number = 1
    memset(&message, 0, sizeof(message))
    message.kind = KIND_MESSAGE
    message.payload, message.size = b"AMBER   ", 8
    memset(&change, 0, sizeof(change))
    change.verb = VERB_ADD
    change.instrument = 1
    change.order = 1
    change.name = 1
    change.price = 100
    change.quantity = 1
    with nogil:
        market_session(market, 0, 1, &session)
        message.number = 1
        market_begin(market, &message, &names.names)
        market_apply(market, &change)
        tell(market, into)
        market_gap(market, 0, LOST)
        message.number = LOST + 1
        market_begin(market, &message, &names.names)
        change.order = 2
        market_apply(market, &change)    # in doubt from here on
        tell(market, into)

        began = clock_monotonic_ns()
        market_begin(market, &message, &names.names)
        take(market, &change, count)
        tell(market, into)
        between = clock_monotonic_ns()
        taken = market.orders.count

        message.number += 1
        market_begin(market, &message, &names.names)
        change.verb = VERB_CLEAR
        market_apply(market, &change)
        tell(market, into)
        cleared = clock_monotonic_ns()
        left = market.orders.count
    free(into)
    if (taken, left) != (count, 0):
        raise ValueError(f"expected {count} orders, then none; found {taken}, then {left}")
    return (between - began) / 1e3, (cleared - between) / 1e3
