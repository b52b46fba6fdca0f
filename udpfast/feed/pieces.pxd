# The messages of a unit, one after the other: what a window orders. Where numbers count datagrams
# there is one, all bytes. Where messages do not say where they end, the first has all bytes, and
# the others are empty and taken for heartbeats.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from udpfast.core.check cimport invariant, likely, unlikely
from udpfast.core.layout cimport Datagram
from udpfast.wire.load cimport be16, le16
from udpfast.wire.messages cimport (
    DELIMITER_BE16, DELIMITER_BE16_WHOLE, DELIMITER_LE16, DELIMITER_LE16_WHOLE, DELIMITER_NONE,
    DELIMITER_TYPE_BE16, DELIMITER_U8_WHOLE, MessageWalk, message_skip, message_walk_begin,
    message_walk_next,
)
from udpfast.wire.unit cimport UNIT_HEARTBEAT, Unit

cdef enum:
    # Messages of a unit that says where each ends: not more than bytes of its datagram, of which
    # UNIT_DATAGRAM_MAX are taken.
    PLACES_MAX = 4160


cdef inline void pieces_begin(
    MessageWalk* walk, const Datagram* d, const Unit* unit,
) noexcept nogil:
    message_walk_begin(walk, d.data, unit)


cdef inline void piece_place(
    MessageWalk* walk, const Unit* unit, uint32_t n, bint each_message, uint32_t* offset,
    uint32_t* size,
) noexcept nogil:
    # Where the n-th message is, for n from 0 on, each once.
    if not each_message or unit.delimiter == DELIMITER_NONE:
        offset[0] = unit.offset
        size[0] = unit.size if n == 0 else 0
    elif unlikely(not message_walk_next(walk, offset, size)):
        offset[0] = unit.offset          # cannot be: the framing has walked over them
        size[0] = 0


cdef inline uint32_t piece_span(const uint8_t* begin, int delimiter) noexcept nogil:
    # Bytes of a message and what is before it, in a unit over which the framing has walked. It is a
    # few instructions in a loop of one delimiter's own; elsewhere each message pays for the branch.
    if delimiter == DELIMITER_BE16:
        return <uint32_t>be16(begin) + 2
    if delimiter == DELIMITER_LE16:
        return <uint32_t>le16(begin) + 2
    if delimiter == DELIMITER_BE16_WHOLE:
        return be16(begin)
    if delimiter == DELIMITER_LE16_WHOLE:
        return le16(begin)
    if delimiter == DELIMITER_U8_WHOLE:
        return begin[0]
    return <uint32_t>be16(begin + 1) + 3


cdef inline void pieces_place(
    uint32_t* places, const Datagram* d, const Unit* unit, bint each_message,
) noexcept nogil:
    # Where each message of a unit is, for piece_at: one walk for all who ask.
    cdef int delimiter = unit.delimiter
    cdef uint32_t skip = message_skip(delimiter)
    cdef uint32_t at = unit.offset
    cdef uint32_t n, span
    if not each_message or delimiter == DELIMITER_NONE:
        return
    for n in range(min(unit.count, <uint32_t>PLACES_MAX)):
        span = piece_span(d.data + at, delimiter)
        places[n] = (at + skip) | (span - skip) << 16
        at += span
    invariant(at <= unit.offset + unit.size)


cdef inline void piece_at(
    const uint32_t* places, const Unit* unit, uint32_t n, bint placed, uint32_t* offset,
    uint32_t* size,
) noexcept nogil:
    # Where the n-th message is; `placed`: pieces_place has said it.
    if likely(placed):
        offset[0] = places[n] & 0xFFFF
        size[0] = places[n] >> 16
    else:
        offset[0] = unit.offset
        size[0] = unit.size if n == 0 else 0


cdef inline void piece_next(
    MessageWalk* walk, const Unit* unit, uint32_t n, bint each_message, Unit* piece,
) noexcept nogil:
    # The n-th message as a unit of its own.
    piece[0] = unit[0]
    piece.number += n
    piece.count = 1
    piece_place(walk, unit, n, each_message, &piece.offset, &piece.size)
    if unlikely(piece_is_empty(unit, piece.size)):
        piece.flags |= UNIT_HEARTBEAT


cdef inline bint unit_is_piece(const Unit* unit, bint each_message) noexcept nogil:
    # Whether it is one message, just as it stands.
    return unit.count == 1 and not each_message and not piece_is_empty(unit, unit.size)


cdef inline bint piece_is_empty(const Unit* unit, uint32_t size) noexcept nogil:
    # Whether there is no message. (One that is delimited, and a last fragment, may have no bytes.)
    return size == 0 and unit.delimiter == DELIMITER_NONE and unit.fragments == 1
