# A venue's messages to updates: its decoder says changes, the market keeps books.
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
    LOOPS = 64                   # more share them: one that begins ends what was there

cdef struct VenueLoop:           # what a loop of snapshots is telling
    uint16_t stream
    B3Loop b3
    EobiLoop eobi
    NyseLoop nyse

cdef struct Venue:
    int payload                  # Payload
    Market market
    Change* changes              # of the message at hand
    uint32_t changes_count
    uint32_t applied
    bint telling                 # updates are being told
    VenueLoop loops[LOOPS]       # by the stream that brings it
    EobiNumbers* numbers         # by the stream of changes, LOOPS of them; NULL: not EOBI
    bint looks_ahead             # venue_expect is worth its time
    Ahead ahead


cdef bint venue_is(int payload) noexcept nogil
cdef size_t venue_memory_size(int payload, const MarketSettings* settings) noexcept nogil
cdef void venue_init(
    Venue* venue, int payload, const MarketSettings* settings, uint8_t* memory,
    int64_t* feed) noexcept nogil
# How many changes a message says, of CHANGES_MAX at most; below 0: OUTCOME_*.
cdef int32_t venue_decode(int payload, const Message* message, Change* changes) noexcept nogil
cdef void venue_expect(Venue* venue, const uint8_t* data, uint32_t size) noexcept nogil
cdef void venue_control(Venue* venue, const Message* message) noexcept nogil
# The next update: its kind; 0: no more; below 0: OUTCOME_*.
cdef int32_t venue_next(
    Venue* venue, const Message* message, bint begins, uint8_t* into, uint32_t room, Names* names,
    Found* found) noexcept nogil
