# Turns a venue's messages into updates: the venue's decoder returns changes, and the market applies
# them to its books.
#
#     venue_next(&venue, &message, step == 0, into, room, &names, &found)

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

from udpfast.core.layout cimport Message
from udpfast.market.ahead cimport Ahead
from udpfast.market.change cimport Change
from udpfast.market.market cimport Market, MarketSettings
from udpfast.market.names cimport Names
from udpfast.market.found cimport Found
from udpfast.payload.b3.loop cimport B3Loop
from udpfast.payload.eobi.loop cimport EobiLoop, EobiNumbers
from udpfast.payload.nyse.loop cimport NyseLoop

cdef enum:
    LOOPS = 64                   # further streams share them: a loop that begins replaces another

cdef struct VenueLoop:           # the state of a loop of snapshots
    uint16_t stream
    B3Loop b3
    EobiLoop eobi
    NyseLoop nyse

cdef struct Venue:
    int payload                  # Payload
    Market market
    Change* changes              # of the current message
    uint32_t changes_count  # how many there are
    uint32_t applied  # how many of them the market has taken
    bint telling                 # publish_next has more to return
    VenueLoop loops[LOOPS]       # indexed by the stream that carries the loop, modulo LOOPS
    EobiNumbers* numbers         # one per stream of changes, LOOPS in all; NULL unless EOBI
    bint looks_ahead             # venue_expect has a use
    Ahead ahead


cdef bint venue_is(int payload) noexcept nogil
cdef size_t venue_memory_size(int payload, const MarketSettings* settings) noexcept nogil
cdef void venue_init(
    Venue* venue, int payload, const MarketSettings* settings, uint8_t* memory,
    int64_t* feed) noexcept nogil
# Decode a message into at most CHANGES_MAX changes. Return how many there are, or OUTCOME_* (below
# 0).
cdef int32_t venue_decode(int payload, const Message* message, Change* changes) noexcept nogil
cdef void venue_expect(Venue* venue, const uint8_t* data, uint32_t size) noexcept nogil
cdef void venue_control(Venue* venue, const Message* message) noexcept nogil
cdef bint venue_disputed(Venue* venue, Message* message) noexcept nogil
# Make the next update in `into`. Return its kind, 0 if there is no further one, or OUTCOME_*.
cdef int32_t venue_next(
    Venue* venue, const Message* message, bint begins, uint8_t* into, uint32_t room, Names* names,
    Found* found) noexcept nogil
