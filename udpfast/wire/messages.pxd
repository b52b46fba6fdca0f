# The walk over the messages of a unit, shared by all framings.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from udpfast.core.check cimport unlikely
from udpfast.wire.load cimport be16, le16
from udpfast.wire.unit cimport (
    MALFORMED_COUNT_AND_BYTES, MALFORMED_LENGTH_BELOW, MALFORMED_LENGTH_BEYOND,
    MALFORMED_MESSAGE_BEYOND, MALFORMED_MESSAGE_SHORT, UNIT_HEARTBEAT, Unit, unit_init,
)

cdef enum:  # Delimiter: how a message states where it ends
    DELIMITER_NONE = 0           # not at all: the bytes of the unit are one piece
    DELIMITER_BE16 = 1           # u16 length before the message, which does not include it
    DELIMITER_LE16 = 2
    DELIMITER_BE16_WHOLE = 3     # u16 length as the first field, which includes itself
    DELIMITER_LE16_WHOLE = 4
    DELIMITER_U8_WHOLE = 5       # u8 length as the first field, which includes itself
    DELIMITER_TYPE_BE16 = 6      # u8 type, u16 length of the bytes behind

cdef enum:
    UNTIL_END = -1               # as many messages as the bytes hold

cdef struct MessageWalk:
    const uint8_t* data          # the whole datagram
    uint32_t at                  # offset of the next message's prefix
    uint32_t end
    int delimiter


cdef inline uint32_t message_prefix(int delimiter) noexcept nogil:
    # Bytes needed to read the length.
    if delimiter == DELIMITER_U8_WHOLE:
        return 1
    return 3 if delimiter == DELIMITER_TYPE_BE16 else 2


cdef inline uint32_t message_skip(int delimiter) noexcept nogil:
    # Bytes before the message that do not belong to it: a length before it, not a length inside.
    return 2 if delimiter == DELIMITER_BE16 or delimiter == DELIMITER_LE16 else 0


cdef inline int64_t message_span(
    const uint8_t* at, uint32_t left, int delimiter, uint32_t size_min,
) noexcept nogil:
    # Return the bytes of the message and its prefix, or Malformed. A few instructions if the
    # delimiter is a constant.
    cdef uint32_t span
    if delimiter == DELIMITER_NONE:
        return left
    if unlikely(left < message_prefix(delimiter)):
        return MALFORMED_MESSAGE_BEYOND
    if delimiter == DELIMITER_BE16:
        span = <uint32_t>be16(at) + 2
    elif delimiter == DELIMITER_LE16:
        span = <uint32_t>le16(at) + 2
    elif delimiter == DELIMITER_BE16_WHOLE:
        span = be16(at)
    elif delimiter == DELIMITER_LE16_WHOLE:
        span = le16(at)
    elif delimiter == DELIMITER_U8_WHOLE:
        span = at[0]
    else:
        span = <uint32_t>be16(at + 1) + 3
    if unlikely(span < size_min):
        return MALFORMED_MESSAGE_SHORT
    if unlikely(span > left):
        return MALFORMED_MESSAGE_BEYOND
    return span


cdef inline int messages_check(
    const uint8_t* data, uint32_t size, int delimiter, uint32_t size_min, int count,
    uint32_t padding_max=0,
) noexcept nogil:
    # Return the number of messages in `size` bytes, or Malformed. `count` messages must fill them,
    # except for at most `padding_max` bytes at the end. `size_min` is the least size of a message
    # with its prefix; it must be at least the prefix, so that every step advances.
    cdef uint32_t at = 0
    cdef int found = 0
    cdef int64_t span
    while found < count if count >= 0 else at < size:
        span = message_span(data + at, size - at, delimiter, size_min)
        if unlikely(span < 0):
            return <int>span
        at += <uint32_t>span
        found += 1
    if unlikely(size - at > padding_max):
        return MALFORMED_COUNT_AND_BYTES
    return found


cdef inline int messages_unit(
    const uint8_t* data, uint32_t size, uint32_t length, uint32_t begin, int delimiter,
    uint32_t size_min, int count, Unit* unit, uint32_t padding_max=0,
) noexcept nogil:
    # Make the only unit of a datagram that states its length and number of messages. Returns 1, or
    # Malformed.
    cdef int messages
    if unlikely(length != size):
        return MALFORMED_LENGTH_BEYOND if length > size else MALFORMED_LENGTH_BELOW
    messages = messages_check(
        data + begin, size - begin, delimiter, size_min, count, padding_max)
    if unlikely(messages < 0):
        return messages
    unit_init(unit, begin, size - begin, delimiter, messages)
    unit.count = <uint32_t>count
    unit.flags = 0 if count else UNIT_HEARTBEAT
    return 1


cdef inline void message_walk_begin(
    MessageWalk* walk, const uint8_t* data, const Unit* unit,
) noexcept nogil:
    walk.data = data
    walk.at = unit.offset
    walk.end = unit.offset + unit.size
    walk.delimiter = unit.delimiter


cdef inline bint message_walk_next(
    MessageWalk* walk, uint32_t* offset, uint32_t* size,
) noexcept nogil:
    # Set the next message's place in the datagram; return False behind the last one. The caller
    # must stop after `unit.messages` if padding may follow. The bounds are checked again here,
    # which costs little.
    cdef int64_t span
    cdef uint32_t skip = message_skip(walk.delimiter)
    if walk.at >= walk.end:
        return False
    span = message_span(
        walk.data + walk.at, walk.end - walk.at, walk.delimiter, message_prefix(walk.delimiter))
    if unlikely(span < 0):
        return False
    offset[0] = walk.at + skip
    size[0] = <uint32_t>span - skip
    walk.at += <uint32_t>span
    return True
