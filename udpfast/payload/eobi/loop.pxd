# T7 EOBI: decodes the loops of snapshots. A cycle of a product begins with its summary, which names
# the last message of changes that the cycle includes. Then come, for each instrument, a summary
# with its number of orders, and those orders, which name neither their instrument nor their part.
# So a cycle is whole only while the datagrams of its line are consecutive, and a snapshot only if
# it brings exactly that many orders. All of it comes from one line.
#
# The summary names a message, but records count datagrams of changes, so EobiNumbers keeps which
# messages each datagram had.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.core.layout cimport Message
from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_OPAQUE, OUTCOME_REFUSED
from udpfast.payload.eobi.decode cimport eobi_change, eobi_details
from udpfast.payload.eobi.layout cimport *
from udpfast.wire.load cimport le16, le32, le64

cdef enum:
    # Cycles that begin on other lines before the current one is given up: by then its line is
    # silent.
    EOBI_LOOP_PATIENCE = 64
    EOBI_SPANS = 1024            # datagrams of changes that are remembered; a power of two

cdef struct EobiSpan:            # the messages of one datagram of changes
    uint64_t number
    uint32_t first
    uint32_t last

cdef struct EobiNumbers:         # the spans of one stream of changes
    EobiSpan spans[EOBI_SPANS]
    uint64_t count               # how many spans were ever stored
    # When its first datagram was sent: an earlier cycle belongs to another session.
    int64_t since_ns
    uint16_t stream
    uint16_t session
    uint8_t reserved[44]

cdef struct EobiLoop:
    # The last datagram of changes that the current cycle includes; 0: there is no cycle.
    uint64_t number
    uint64_t instrument
    uint32_t next                # the number of its line's next datagram
    uint32_t left                # orders that the current snapshot still lacks
    uint32_t part                # the last part that came, from 1
    uint32_t passed
    uint8_t line
    bint begun                   # a snapshot has begun


cdef inline void eobi_note(EobiNumbers* numbers, const Message* message) noexcept nogil:
    # Store the messages of a datagram of changes. Heartbeats have no number of their own.
    cdef const uint8_t* data = message.payload
    cdef EobiSpan span
    cdef uint32_t at = 0, length
    cdef bint counted = False
    if numbers.stream != message.stream or numbers.session != message.session or (
            numbers.count == 0):
        numbers.stream, numbers.session = message.stream, message.session
        numbers.count = 0
        numbers.since_ns = message.sent_ns
    span.number = message.number
    while message.size - at >= EOBI_FIELDS:
        length = le16(data + at)
        if length < EOBI_FIELDS or length > message.size - at:
            return
        if le16(data + at + EOBI_TEMPLATE) != EOBI_HEARTBEAT:
            span.last = le32(data + at + EOBI_MESSAGE)
            if not counted:
                span.first = span.last
            counted = True
        at += length
    if counted:
        numbers.spans[numbers.count & (EOBI_SPANS - 1)] = span
        numbers.count += 1


cdef inline uint64_t eobi_number(
        const EobiNumbers* numbers, uint16_t stream, uint32_t last) noexcept nogil:
    # Return the number of the datagram whose last message this is, or 0 if none is known.
    cdef uint64_t at = numbers.count
    cdef uint64_t oldest = at - min(at, <uint64_t>EOBI_SPANS)
    cdef const EobiSpan* span
    if numbers.stream != stream:
        return 0
    while at > oldest:
        at -= 1
        span = numbers.spans + (at & (EOBI_SPANS - 1))
        if span.last == last:
            return span.number
        if span.first == last + 1:
            return span.number - 1       # which may itself be lost
        if span.last < last:
            return 0
    return 0


cdef inline void eobi_loop_begin(EobiLoop* loop, Change* change) noexcept nogil:
    loop.part += 1
    eobi_change(change, VERB_BEGIN_SNAPSHOT, <const uint8_t*>&loop.instrument, 0)
    change.order = loop.number
    change.orders = loop.part
    change.flags = CHANGE_PART


cdef inline Change* eobi_loop_part(EobiLoop* loop, Change* change) noexcept nogil:
    # Append the end of a part of a snapshot.
    eobi_change(change, VERB_END_SNAPSHOT, <const uint8_t*>&loop.instrument, 0)
    change.flags = CHANGE_MORE if loop.left else 0
    loop.begun = loop.left != 0
    return change + 1


cdef inline bint eobi_loop_order(
        EobiLoop* loop, const uint8_t* data, uint32_t length, Change* change) noexcept nogil:
    # Return False if the order's side or layout is unknown.
    eobi_change(change, VERB_ADD, <const uint8_t*>&loop.instrument, 0)
    if not eobi_details(change, data, length, EOBI_FIELDS):
        return False
    change.flags |= CHANGE_ROW
    loop.left -= 1
    return True


cdef inline bint eobi_loop_product(
        EobiLoop* loop, const Message* message, const EobiNumbers* numbers, uint16_t stream,
        const uint8_t* data) noexcept nogil:
    # Begin a cycle. Return False if the cycle of another line is being read.
    if loop.number and loop.line != message.line and loop.passed < EOBI_LOOP_PATIENCE:
        loop.passed += 1
        return False
    loop.line = message.line
    loop.passed = 0
    loop.begun = False
    loop.number = 0
    if message.sent_ns >= numbers.since_ns:
        loop.number = eobi_number(numbers, stream, le32(data + EOBI_PROCESSED))
    return True


cdef inline int32_t eobi_loop_decode(
        const Message* message, const EobiNumbers* numbers, uint16_t stream, EobiLoop* loop,
        Change* changes, uint32_t room) noexcept nogil:
    # `stream` is that of the changes. The upper half of `message.detail` is the datagram's number
    # in its loop.
    cdef const uint8_t* data = message.payload
    cdef uint32_t at = 0, length, template
    cdef uint32_t number = <uint32_t>(message.detail >> 32)
    cdef bint own = loop.line == message.line
    cdef Change* change = changes
    cdef Change* part = NULL     # where the current part of a snapshot begins
    if own and number != loop.next:
        loop.number = 0
        loop.begun = False
    while at < message.size:
        length = le16(data + at) if message.size - at >= EOBI_FIELDS else 0
        template = le16(data + at + EOBI_TEMPLATE) if length else 0
        if length < EOBI_FIELDS or length > message.size - at or change + 4 > changes + room or (
                template == EOBI_PRODUCT and length < EOBI_PROCESSED + 4) or (
                template == EOBI_SUMMARY and length < EOBI_ORDERS + 2):
            loop.number = 0
            return OUTCOME_REFUSED
        if template == EOBI_PRODUCT:
            own = eobi_loop_product(loop, message, numbers, stream, data + at)
            part = NULL
        elif own and loop.number and template == EOBI_SUMMARY:
            loop.instrument = le64(data + at + EOBI_SUMMARY_ID)
            loop.left = le16(data + at + EOBI_ORDERS)
            loop.part = 0
            loop.begun = loop.left != EOBI_ORDERS_NULL
            part = change
            if loop.begun:
                eobi_loop_begin(loop, change)
                change += 1
                if loop.left == 0:
                    change = eobi_loop_part(loop, change)
        elif own and loop.begun and template == EOBI_SNAPSHOT_ORDER:
            if part == NULL:
                part = change
                eobi_loop_begin(loop, change)
                change += 1
            if not eobi_loop_order(loop, data + at, length, change):
                loop.begun = False
                change = part
            else:
                if change.price != PRICE_NONE:
                    # An order at market counts, but is in no book.
                    change += 1
                if loop.left == 0:
                    change = eobi_loop_part(loop, change)
        at += length
    if own and loop.begun and part != NULL:
        change = eobi_loop_part(loop, change)
    if own:
        loop.next = number + 1
    return <int32_t>(change - changes) if change != changes else OUTCOME_OPAQUE
