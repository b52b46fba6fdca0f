# Answers of a venue's snapshot server, as the agent that asked for them hands them to the feed, the
# same for all venues. For each instrument come its orders, in the order of their queues, in parts
# that fit a datagram; SERVED_END follows the last instrument.
#
#    0 u32 kind | 4 u32 stream, the publisher's number | 8 u64 number
#   16 u64 instrument | 24 c8 name | 32 u32 part, from 1 | 36 u32 parts
#   40 orders of 32: 0 u64 id, 8 i64 price, 16 i64 quantity, 24 u32 side, 28 u32 zero
#
# `number` is the last one that the books include, counted as in records. SERVED_END has only the
# first 16 bytes. The byte order is native, because these bytes stay on the host.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_REFUSED

cdef enum:
    SERVED_PART = 1
    SERVED_END = 2
    SERVED_NAME = 24

cdef struct ServedHead:
    uint32_t kind
    uint32_t stream
    uint64_t number
    uint64_t instrument
    uint8_t name[8]
    uint32_t part
    uint32_t parts

cdef struct ServedOrder:
    uint64_t id
    int64_t price
    int64_t quantity
    uint32_t side
    uint32_t reserved


cdef inline uint32_t served_stream(const uint8_t* data, uint32_t size) noexcept nogil:
    # Return the stream, or the number of no stream if the answer is too short.
    cdef ServedHead head
    if size < sizeof(ServedHead):
        return 0xFFFFFFFF
    memcpy(&head, data, sizeof(ServedHead))
    return head.stream


cdef inline int32_t served_decode(
        const uint8_t* data, uint32_t size, Change* change, uint32_t room) noexcept nogil:
    cdef ServedHead head
    cdef ServedOrder order
    cdef uint32_t count, n
    if size < sizeof(ServedHead):
        return OUTCOME_REFUSED
    memcpy(&head, data, sizeof(ServedHead))
    if head.kind == SERVED_END:
        memset(change, 0, sizeof(Change))
        change.verb = VERB_END_ROUND
        change.order = head.number
        return 1
    count = (size - <uint32_t>sizeof(ServedHead)) // <uint32_t>sizeof(ServedOrder)
    if head.kind != SERVED_PART or count + 2 > room:
        return OUTCOME_REFUSED
    memset(change, 0, (count + 2) * sizeof(Change))
    change.verb = VERB_BEGIN_SNAPSHOT
    change.flags = CHANGE_PART
    change.instrument = head.instrument
    change.order = head.number
    change.orders = head.part
    change.chain = head.parts
    change.name = SERVED_NAME + 1
    data += sizeof(ServedHead)
    for n in range(1, count + 1):
        memcpy(&order, data, sizeof(ServedOrder))
        change[n].verb = VERB_ADD
        change[n].flags = CHANGE_ROW
        change[n].instrument = head.instrument
        change[n].order = order.id
        change[n].side = SIDE_ASK if order.side else SIDE_BID
        change[n].quantity = order.quantity
        change[n].price = order.price
        data += sizeof(ServedOrder)
    change[count + 1].verb = VERB_END_SNAPSHOT
    change[count + 1].instrument = head.instrument
    return <int32_t>(count + 2)
