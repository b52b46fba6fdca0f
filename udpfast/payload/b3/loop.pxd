# B3 UMDF: decodes the loops of snapshots and definitions. A snapshot is a header with its numbers
# of orders, followed by messages with the orders. These name neither their snapshot nor their part.
# So a snapshot is whole only if the datagrams of its line were consecutive and brought exactly as
# many orders as the header says. All of it comes from one line; what other lines bring meanwhile is
# ignored.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.core.layout cimport Message
from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_OPAQUE, OUTCOME_REFUSED
from udpfast.payload.b3.decode cimport b3_change, b3_define
from udpfast.payload.b3.layout cimport *
from udpfast.wire.load cimport le16, le32, le64

cdef enum:
    # Headers on other lines that are ignored before the current snapshot is given up: by then its
    # line is silent.
    B3_LOOP_PATIENCE = 64

cdef struct B3Loop:
    uint64_t instrument
    uint64_t number              # the last number of changes that the snapshot includes
    uint64_t next                # the number of its line's next datagram
    uint32_t left[2]             # bids and offers that have not come yet
    uint32_t part                # the last part that came, from 1
    uint32_t passed
    uint8_t line
    bint begun


cdef inline void b3_loop_begin(B3Loop* loop, Change* change) noexcept nogil:
    loop.part += 1
    b3_change(change, VERB_BEGIN_SNAPSHOT, loop.instrument)
    change.order = loop.number
    change.orders = loop.part
    change.flags = CHANGE_PART


cdef inline Change* b3_loop_part(B3Loop* loop, bint more, Change* change) noexcept nogil:
    # Append the end of a part of a snapshot, and say whether more parts follow.
    b3_change(change, VERB_END_SNAPSHOT, loop.instrument)
    change.flags = CHANGE_MORE if more else 0
    return change + 1


cdef inline Change* b3_loop_header(
        B3Loop* loop, const uint8_t* block, uint64_t session, Change* change) noexcept nogil:
    # Begin a snapshot. One that belongs to another numbering than the current one is ignored.
    loop.instrument = le64(block + B3_ID)
    loop.number = le32(block + B3_LAST)
    loop.left[SIDE_BID] = le32(block + B3_BIDS)
    loop.left[SIDE_ASK] = le32(block + B3_OFFERS)
    loop.begun = le16(block + B3_LAST_VERSION) == session
    if not loop.begun:
        return change
    loop.part = 0
    b3_loop_begin(loop, change)
    loop.begun = loop.left[SIDE_BID] != 0 or loop.left[SIDE_ASK] != 0
    return b3_loop_part(loop, loop.begun, change + 1)


cdef inline Change* b3_loop_orders(
        B3Loop* loop, const uint8_t* block, uint32_t size, const uint8_t* end,
        Change* change) noexcept nogil:
    # Append orders of the current snapshot. Return NULL if they do not belong to it.
    cdef const uint8_t* at = block + size
    cdef uint32_t _, entry, count
    cdef int side
    if size < 8 or le64(block + B3_ID) != loop.instrument or end - at < 3:
        return NULL
    entry, count = le16(at), at[2]
    at += 3
    if entry < B3_ROW or <uint64_t>entry * count > <uint64_t>(end - at):
        return NULL
    b3_loop_begin(loop, change)
    change += 1
    for _ in range(count):
        side = SIDE_BID if at[B3_ROW_SIDE] == c"0" else SIDE_ASK
        if (side == SIDE_ASK and at[B3_ROW_SIDE] != c"1") or loop.left[side] == 0:
            return NULL
        loop.left[side] -= 1
        b3_change(change, VERB_ADD, loop.instrument)
        change.side = <uint8_t>side
        change.flags = CHANGE_ROW | CHANGE_PRIORITY
        change.price = <int64_t>le64(at)
        change.quantity = <int64_t>le64(at + B3_ROW_QUANTITY)
        change.order = change.order_before = le64(at + B3_ROW_ID)
        if change.price != PRICE_NONE:
            # An order at market counts, but is in no book.
            change += 1
        at += entry
    loop.begun = loop.left[SIDE_BID] != 0 or loop.left[SIDE_ASK] != 0
    return b3_loop_part(loop, loop.begun, change)


cdef inline int32_t b3_loop_decode(
        const Message* message, uint64_t session, B3Loop* loop, Change* changes,
        uint32_t room) noexcept nogil:
    # `session` is the version of the numbering of the changes, or 0 before the first one.
    # `message.detail` is the datagram's number in its loop.
    cdef const uint8_t* data = message.payload
    cdef const uint8_t* block
    cdef uint32_t at = 0, length, size, template
    cdef bint own = loop.begun and loop.line == message.line
    cdef Change* change = changes
    cdef Change* told
    if own and message.detail != loop.next:
        loop.begun = False
    while at < message.size:
        if message.size - at < B3_BLOCK:
            return OUTCOME_REFUSED
        length = le16(data + at)
        size = le16(data + at + B3_BLOCK_SIZE)
        template = le16(data + at + B3_TEMPLATE)
        block = data + at + B3_BLOCK
        if length > message.size - at or length < B3_BLOCK + size or (
                change + 260 > changes + room):
            return OUTCOME_REFUSED
        at += length
        if template == B3_DEFINITION:
            if size < B3_DEFINED_SIZE:
                return OUTCOME_REFUSED
            change += b3_define(block, <uint32_t>(block - data), change)
        elif template == B3_SNAPSHOT:
            if loop.begun and loop.line != message.line and loop.passed < B3_LOOP_PATIENCE:
                loop.passed += 1
                continue
            loop.line = message.line
            loop.passed = 0
            loop.begun = False
            if size >= B3_LAST_VERSION + 2:
                change = b3_loop_header(loop, block, session, change)
        elif template == B3_SNAPSHOT_ORDERS and loop.begun and loop.line == message.line:
            told = b3_loop_orders(loop, block, size, data + at, change)
            if told == NULL:
                loop.begun = False
            else:
                change = told
    if loop.line == message.line:
        loop.next = message.detail + 1
    return <int32_t>(change - changes) if change != changes else OUTCOME_OPAQUE
