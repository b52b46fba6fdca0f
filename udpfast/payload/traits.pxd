# The traits of each venue, a row each: what its books consist of, how a loss shows, and what
# repairs it.

from udpfast.market.change cimport Traits

cdef enum:  # Payload, in the order of config.lines.PAYLOADS
    PAYLOAD_NONE = 0             # messages are published as they came
    PAYLOAD_ROQ = 1
    PAYLOAD_IEX_TOPS = 2
    PAYLOAD_IEX_DEEP = 3
    PAYLOAD_ITCH = 4
    PAYLOAD_PITCH = 5
    PAYLOAD_CME = 6
    PAYLOAD_DERIBIT = 7
    PAYLOAD_CSM = 8
    PAYLOAD_ICE = 9
    PAYLOAD_MIAX = 10
    PAYLOAD_IEX_DEEP_PLUS = 11
    PAYLOAD_NYSE_INTEGRATED = 12
    PAYLOAD_NYSE_IMBALANCES = 13
    PAYLOAD_MEMX = 14
    PAYLOAD_COINBASE = 15
    PAYLOAD_EOBI = 16
    PAYLOAD_B3 = 17

cdef const Traits* venue_traits(int payload) noexcept nogil
