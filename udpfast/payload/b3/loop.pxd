# B3 UMDF: loops of snapshots and of definitions. A snapshot is a header, which says how many orders
# it has, then messages with orders, which say neither which snapshot nor which part they are. It is
# whole only if its line's datagrams followed each other by their own numbers, and the counts are
# exactly those of the header. All of it comes from one line: what another brings meanwhile is not
# looked at.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.core.layout cimport Message
from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_OPAQUE, OUTCOME_REFUSED
from udpfast.payload.b3.decode cimport b3_change, b3_define
from udpfast.payload.b3.layout cimport *
from udpfast.wire.load cimport le16, le32, le64

cdef enum:
    # Headers of other lines that are passed by, until the snapshot at hand is given up: the line
    # that it comes from is silent.
    B3_LOOP_PATIENCE = 64

cdef struct B3Loop:
    uint64_t instrument
    uint64_t number              # that the snapshot at hand is as of
    uint64_t next                # of its line's next datagram
    uint32_t left[2]             # bids and offers that it still lacks
    uint32_t part                # of it, that came last
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
    # Ends what was told of a snapshot.
    b3_change(change, VERB_END_SNAPSHOT, loop.instrument)
    change.flags = CHANGE_MORE if more else 0
    return change + 1


cdef inline Change* b3_loop_header(
        B3Loop* loop, const uint8_t* block, uint64_t session, Change* change) noexcept nogil:
    # A snapshot of a numbering that is not the current one is of no use.
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
    # NULL: they are not those of the snapshot at hand.
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
            change += 1          # at market: it counts, and is in no book
        at += entry
    loop.begun = loop.left[SIDE_BID] != 0 or loop.left[SIDE_ASK] != 0
    return b3_loop_part(loop, loop.begun, change)


cdef inline int32_t b3_loop_decode(
        const Message* message, uint64_t session, B3Loop* loop, Change* changes,
        uint32_t room) noexcept nogil:
    # `session`: the version of the numbering of the changes, 0: none was heard. `detail` is the
    # datagram's number in its loop.
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
