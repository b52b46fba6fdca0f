# The units of a datagram of any framing but Roq's, and the verdict on one that has none.

from libc.stdint cimport int64_t, uint32_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport invariant, unlikely
from udpfast.core.counter cimport (
    LINE_UNITS_MORE, VERDICT_COUNT_AND_BYTES, VERDICT_FRAGMENT_BEYOND_MAX, VERDICT_LENGTH_BELOW,
    VERDICT_LENGTH_BEYOND, VERDICT_MESSAGE_BEYOND, VERDICT_MESSAGE_SHORT, VERDICT_OUT_OF_RANGE,
    VERDICT_SENDER_REFUSED, VERDICT_SHORT_FRAGMENT, VERDICT_TOO_LONG, VERDICT_TOO_SHORT,
    VERDICT_UNITS_MANY, VERDICT_WRONG_KIND, VERDICT_WRONG_VERSION,
)
from udpfast.core.layout cimport (
    CHANNEL_INCREMENTAL, CHANNEL_SNAPSHOT, DATAGRAM_SENDER_REFUSED, DATAGRAM_TRUNCATED, Datagram,
)
from udpfast.feed.pipeline_state cimport UNIT_DATAGRAM_MAX, Pipeline
from udpfast.wire.framing cimport framing_units
from udpfast.wire.messages cimport DELIMITER_NONE
from udpfast.wire.unit cimport (
    MALFORMED_COUNT_AND_BYTES, MALFORMED_FRAGMENT_BEYOND, MALFORMED_FRAGMENT_SHORT,
    MALFORMED_HEADER_SHORT, MALFORMED_KIND, MALFORMED_LENGTH_BELOW, MALFORMED_LENGTH_BEYOND,
    MALFORMED_MESSAGE_BEYOND, MALFORMED_MESSAGE_SHORT, MALFORMED_RANGE, MALFORMED_TOO_LONG,
    MALFORMED_UNITS_MANY, MALFORMED_VERSION, UNITS_MAX, UNIT_RETRANSMISSION, UNIT_SNAPSHOT,
    UNIT_UNSEQUENCED,
)


cdef inline int pipeline_units(Pipeline* p, const Datagram* d) noexcept nogil:
    # How many units a datagram holds, in p.units. A datagram without one gets its verdict here.
    cdef int64_t* counters = p.counters.line[d.channel][d.line]
    cdef int i, count
    p.received_ns = d.received_ns
    p.datagram += 1
    if unlikely(d.flags & DATAGRAM_SENDER_REFUSED):
        counter_add(&counters[VERDICT_SENDER_REFUSED], 1)
        return 0
    if unlikely(d.size > UNIT_DATAGRAM_MAX or d.flags & DATAGRAM_TRUNCATED):
        counter_add(&counters[VERDICT_TOO_LONG], 1)
        return 0
    count = framing_units(p.framing, d.data, d.size, p.units, UNITS_MAX)
    if unlikely(count < 0):
        counter_add(&counters[verdict_of_malformed(count)], 1)
        return 0
    if count > 1:
        counter_add(&counters[LINE_UNITS_MORE], count - 1)
    if d.address and p.address_shift >= 0:
        # Nothing in its bytes tells it from what the line's other addresses bring.
        for i in range(count):
            p.units[i].stream |= <uint32_t>d.address << p.address_shift
    if unlikely(d.channel == CHANNEL_SNAPSHOT):
        # Loops begin to number anew each turn, and each datagram says of what it is: no order is
        # lost, and no turn is a session.
        for i in range(count):
            p.units[i].flags |= UNIT_UNSEQUENCED
            if p.units[i].flags & UNIT_SNAPSHOT:
                # Its header alone, in front of all its messages, says what they are part of.
                p.units[i].delimiter = DELIMITER_NONE
                p.units[i].count = 1
    elif unlikely(d.line == p.carrier[CHANNEL_INCREMENTAL].served
                  and d.channel == CHANNEL_INCREMENTAL):
        # It was asked for: it fills holes, and proves nothing of what its publisher does now.
        for i in range(count):
            p.units[i].flags |= UNIT_RETRANSMISSION
    return count


cdef inline int verdict_of_malformed(int malformed) noexcept nogil:
    # Each reason has a verdict of its own.
    if malformed == MALFORMED_HEADER_SHORT:
        return VERDICT_TOO_SHORT
    elif malformed == MALFORMED_TOO_LONG:
        return VERDICT_TOO_LONG
    elif malformed == MALFORMED_VERSION:
        return VERDICT_WRONG_VERSION
    elif malformed == MALFORMED_KIND:
        return VERDICT_WRONG_KIND
    elif malformed == MALFORMED_LENGTH_BEYOND:
        return VERDICT_LENGTH_BEYOND
    elif malformed == MALFORMED_LENGTH_BELOW:
        return VERDICT_LENGTH_BELOW
    elif malformed == MALFORMED_COUNT_AND_BYTES:
        return VERDICT_COUNT_AND_BYTES
    elif malformed == MALFORMED_MESSAGE_SHORT:
        return VERDICT_MESSAGE_SHORT
    elif malformed == MALFORMED_MESSAGE_BEYOND:
        return VERDICT_MESSAGE_BEYOND
    elif malformed == MALFORMED_RANGE:
        return VERDICT_OUT_OF_RANGE
    elif malformed == MALFORMED_UNITS_MANY:
        return VERDICT_UNITS_MANY
    elif malformed == MALFORMED_FRAGMENT_BEYOND:
        return VERDICT_FRAGMENT_BEYOND_MAX
    invariant(malformed == MALFORMED_FRAGMENT_SHORT)
    return VERDICT_SHORT_FRAGMENT
