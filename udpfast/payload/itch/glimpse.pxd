# Books as a GLIMPSE server tells them, as the agent that asked for them hands them to the feed: of
# each stock its orders, oldest first, in parts that fit a datagram, and at the end that these were
# all. What else such a server tells (directory, trading states) comes as it is.
#
#   part   0 u8 1 | 1 u16 locate | 3 u64 number | 11 u16 part, from 1 | 13 u16 parts | 15 c8 stock
#          23 orders of 17: u64 reference, c1 side, u32 shares, u32 price
#   end    0 u8 2 | 1 u64 number
#
# The number is the last one that the books contain. Big endian, as ITCH.

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memset

from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_REFUSED
from udpfast.payload.itch.decode cimport itch_decode
from udpfast.wire.load cimport be16, be32, be64

cdef enum:
    GLIMPSE_PART = 1
    GLIMPSE_END = 2
    GLIMPSE_NUMBER = 3
    GLIMPSE_STOCK = 15
    GLIMPSE_ORDERS = 23
    GLIMPSE_ORDER_SIZE = 17
    GLIMPSE_END_SIZE = 9


cdef inline int32_t glimpse_decode(
        const uint8_t* data, uint32_t size, Change* change, uint32_t room) noexcept nogil:
    cdef uint32_t count, n
    if size == 0 or data[0] > GLIMPSE_END:
        return itch_decode(data, size, change)
    if data[0] == GLIMPSE_END and size == GLIMPSE_END_SIZE:
        memset(change, 0, sizeof(Change))
        change.verb = VERB_END_ROUND
        change.order = be64(data + 1)
        return 1
    count = (size - GLIMPSE_ORDERS) // GLIMPSE_ORDER_SIZE
    if data[0] != GLIMPSE_PART or size < GLIMPSE_ORDERS or count + 2 > room or (
            GLIMPSE_ORDERS + count * GLIMPSE_ORDER_SIZE != size):
        return OUTCOME_REFUSED
    memset(change, 0, (count + 2) * sizeof(Change))
    change.verb = VERB_BEGIN_SNAPSHOT
    change.flags = CHANGE_PART
    change.instrument = be16(data + 1)
    change.order = be64(data + GLIMPSE_NUMBER)
    change.orders = be16(data + 11)
    change.chain = be16(data + 13)
    change.name = GLIMPSE_STOCK + 1
    data += GLIMPSE_ORDERS
    for n in range(1, count + 1):
        change[n].verb = VERB_ADD
        change[n].flags = CHANGE_ROW
        change[n].instrument = change.instrument
        change[n].order = be64(data)
        change[n].side = SIDE_BID if data[8] == c"B" else SIDE_ASK
        change[n].quantity = be32(data + 9)
        change[n].price = be32(data + 13)
        data += GLIMPSE_ORDER_SIZE
    change[count + 1].verb = VERB_END_SNAPSHOT
    change[count + 1].instrument = change.instrument
    return <int32_t>(count + 2)
