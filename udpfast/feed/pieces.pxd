# The messages of a unit, one after the other: what a window orders. Where numbers count datagrams
# there is one, all bytes. Where messages do not say where they end, the first has all bytes, and
# the others are empty and taken for heartbeats.

from libc.stdint cimport uint32_t

from udpfast.core.check cimport unlikely
from udpfast.core.layout cimport Datagram
from udpfast.wire.messages cimport (
    DELIMITER_NONE, MessageWalk, message_walk_begin, message_walk_next,
)
from udpfast.wire.unit cimport UNIT_HEARTBEAT, Unit


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
