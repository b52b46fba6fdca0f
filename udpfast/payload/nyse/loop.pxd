# NYSE: decodes refreshes, which come on their own line. A refresh has all orders of one symbol, in
# one datagram or several. Each datagram's header says its part, the number of parts, and the last
# numbers that the refresh includes; only the messages behind it name the symbol. All of a refresh
# comes from one line, because two that were requested at the same time may be cut at different
# orders.

from libc.stdint cimport int32_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memset

from udpfast.core.layout cimport Message
from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_OPAQUE, OUTCOME_REFUSED
from udpfast.payload.nyse.decode cimport nyse_decode
from udpfast.payload.nyse.layout cimport *
from udpfast.wire.load cimport le16, le32, le64

cdef enum:
    # Refreshes that begin on other lines before the current one is given up: by then its line is
    # silent.
    NYSE_LOOP_PATIENCE = 64

cdef struct NyseLoop:            # the current refresh
    uint32_t number              # the last number that it includes
    uint32_t chain               # the same in the symbol's own chain
    uint32_t instrument
    uint16_t parts
    uint16_t next                # the part that comes next; 0: there is no refresh
    uint16_t passed
    uint8_t line


cdef inline uint32_t nyse_named(const uint8_t* data, uint32_t kind) noexcept nogil:
    # Return the symbol that a message of a refresh names, or 0 if it names none.
    if nyse_size(kind) > le16(data):
        return 0
    if kind == NYSE_MAPPING:
        return le32(data + NYSE_MAPPED)
    if kind == NYSE_ADD_REFRESH or kind == NYSE_STATUS or kind == NYSE_IMBALANCE:
        return le32(data + NYSE_TIMED_INDEX)
    return 0


cdef inline bint nyse_loop_takes(
        NyseLoop* loop, const Message* message, uint32_t instrument) noexcept nogil:
    # Return True if the datagram is the next part of a refresh of this symbol, or begins one.
    cdef const uint8_t* header = message.payload
    cdef uint16_t part = le16(header + NYSE_REFRESH_PART)
    cdef uint16_t parts = le16(header + NYSE_REFRESH_PARTS)
    if instrument == 0 or part == 0 or part > parts:
        return False
    if part == 1:
        if loop.next and loop.line != message.line and loop.passed < NYSE_LOOP_PATIENCE:
            loop.passed += 1
            return False
        loop.passed = 0
        loop.line = message.line
        loop.instrument = instrument
        loop.parts = parts
        loop.number = le32(header + NYSE_REFRESH_LAST)
        loop.chain = le32(header + NYSE_REFRESH_CHAIN)
    elif loop.line != message.line:
        return False
    elif part != loop.next or parts != loop.parts or instrument != loop.instrument or (
            loop.number != le32(header + NYSE_REFRESH_LAST)) or (
            loop.chain != le32(header + NYSE_REFRESH_CHAIN)):
        loop.next = 0
        return False
    loop.next = part + 1 if part < parts else 0
    return True


cdef inline void nyse_loop_part(
        const NyseLoop* loop, uint8_t verb, uint32_t part, Change* change) noexcept nogil:
    memset(change, 0, sizeof(Change))
    change.verb = verb
    change.instrument = loop.instrument
    change.order = loop.number
    change.order_before = loop.chain
    change.orders = part
    change.flags = CHANGE_PART
    change.side = SIDE_NONE
    change.price = PRICE_NONE


cdef inline bint nyse_loop_order(const uint8_t* data, Change* change) noexcept nogil:
    # Return False if the order's side is neither bid nor offer.
    memset(change, 0, sizeof(Change))
    change.verb = VERB_ADD
    change.flags = CHANGE_ROW
    change.instrument = le32(data + NYSE_TIMED_INDEX)
    change.order = le64(data + NYSE_REFRESHED_ORDER)
    change.price = le32(data + NYSE_REFRESHED_PRICE)
    change.quantity = le32(data + NYSE_REFRESHED_SIZE)
    change.side = change_side(data[NYSE_REFRESHED_SIDE], c"B", c"S")
    return change.side != SIDE_NONE


cdef inline int32_t nyse_loop_decode(
        const Message* message, NyseLoop* loop, Change* changes, uint32_t room) noexcept nogil:
    # Decode all messages of a datagram.
    cdef const uint8_t* data = message.payload
    cdef uint32_t at = 0, size, kind, named, instrument = 0, part = 0
    cdef bint refresh = message.size >= NYSE_REFRESH_MIN and (
        le16(data + NYSE_TYPE) == NYSE_REFRESH and le16(data) >= NYSE_REFRESH_MIN)
    cdef Change* change = changes
    cdef Change* rows
    while at < message.size:
        if message.size - at < 4 or le16(data + at) < 4 or le16(data + at) > message.size - at:
            return OUTCOME_REFUSED
        size, kind = le16(data + at), le16(data + at + NYSE_TYPE)
        named = nyse_named(data + at, kind)
        if refresh and named and instrument and named != instrument:
            return OUTCOME_REFUSED   # a refresh with two symbols is unknown
        instrument = named or instrument
        if kind == NYSE_MAPPING and change + 3 < changes + room:
            if nyse_decode(data + at, size, True, change) == 1:
                change.name += at
                change += 1
        at += size
    if refresh and nyse_loop_takes(loop, message, instrument):
        part = le16(data + NYSE_REFRESH_PART)
        nyse_loop_part(loop, VERB_BEGIN_SNAPSHOT, part, change)
        rows = change + 1
        at = 0
        while at < message.size:
            size, kind = le16(data + at), le16(data + at + NYSE_TYPE)
            if kind == NYSE_ADD_REFRESH:
                if size < NYSE_REFRESHED_MIN or rows + 1 >= changes + room or (
                        not nyse_loop_order(data + at, rows)):
                    loop.next = 0
                    return OUTCOME_REFUSED
                rows += 1
            at += size
        nyse_loop_part(loop, VERB_END_SNAPSHOT, part, rows)
        rows.flags = CHANGE_MORE if loop.next else 0
        change = rows + 1
    return <int32_t>(change - changes) if change != changes else OUTCOME_OPAQUE
