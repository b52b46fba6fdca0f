# Roq: one datagram, one number, one message or a fragment of one. Either byte order, by setting.
#
#    0 u8 control    1 u8 fragment    2 u8 last fragment    3 u8 object type    4 u16 object id
#    6 u16 session    8 u32 number    12 u32 last number    16 the payload
#
# Control of the current revision: bits 0 to 3 the encoding, bit 4 a snapshot; of the legacy one all
# bits are the encoding. Which encodings may pass is a matter of settings, not of the framing.
# Without a payload and in one piece it is a heartbeat, which takes its number as messages do.
# `object`: type << 16 | id. `detail`: the last number of the object, above it (<< 32) the control.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.check cimport unlikely
from udpfast.core.layout cimport DATAGRAM_SIZE_MAX, FRAME_SIZE, Frame
from udpfast.wire.load cimport be16, be32, le16, le32
from udpfast.wire.messages cimport DELIMITER_NONE
from udpfast.wire.unit cimport (
    MALFORMED_FRAGMENT_BEYOND, MALFORMED_FRAGMENT_SHORT, MALFORMED_HEADER_SHORT,
    MALFORMED_TOO_LONG, UNIT_HEARTBEAT, UNIT_SNAPSHOT, Unit, unit_init,
)

cdef enum:
    ROQ_CONTROL = 0
    ROQ_FRAGMENT = 1
    ROQ_FRAGMENT_MAX = 2
    ROQ_OBJECT_TYPE = 3
    ROQ_OBJECT_ID = 4
    ROQ_SESSION = 6
    ROQ_NUMBER = 8
    ROQ_LAST_NUMBER = 12
    ROQ_ENCODING_BITS = 0x0F
    ROQ_SNAPSHOT_BIT = 0x10


cdef inline int roq_units(
    const uint8_t* data, uint32_t size, Unit* units, bint legacy, bint big_endian,
) noexcept nogil:
    # The order of the tests is part of the contract: the first that fails names the reason.
    cdef uint32_t fragment, last
    cdef uint8_t control
    if unlikely(size < FRAME_SIZE):
        return MALFORMED_HEADER_SHORT
    if unlikely(size > DATAGRAM_SIZE_MAX):
        return MALFORMED_TOO_LONG
    fragment = data[ROQ_FRAGMENT]
    last = data[ROQ_FRAGMENT_MAX]
    if fragment != last:
        if unlikely(fragment > last):
            return MALFORMED_FRAGMENT_BEYOND
        if unlikely(size != DATAGRAM_SIZE_MAX):
            return MALFORMED_FRAGMENT_SHORT
    unit_init(units, FRAME_SIZE, size - FRAME_SIZE, DELIMITER_NONE, size > FRAME_SIZE)
    control = data[ROQ_CONTROL]
    units.fragment = <uint16_t>fragment
    units.fragments = <uint16_t>(last + 1)
    if big_endian:
        units.object = (<uint32_t>data[ROQ_OBJECT_TYPE] << 16) | be16(data + ROQ_OBJECT_ID)
        units.session = be16(data + ROQ_SESSION)
        units.number = be32(data + ROQ_NUMBER)
        units.detail = be32(data + ROQ_LAST_NUMBER)
    else:
        units.object = (<uint32_t>data[ROQ_OBJECT_TYPE] << 16) | le16(data + ROQ_OBJECT_ID)
        units.session = le16(data + ROQ_SESSION)
        units.number = le32(data + ROQ_NUMBER)
        units.detail = le32(data + ROQ_LAST_NUMBER)
    units.detail |= <uint64_t>control << 32
    if legacy:
        units.encoding = control
    else:
        units.encoding = control & ROQ_ENCODING_BITS
        units.flags = UNIT_SNAPSHOT if control & ROQ_SNAPSHOT_BIT else 0
    if size == FRAME_SIZE and last == 0:
        units.flags |= UNIT_HEARTBEAT
    return 1


cdef inline void roq_header(Frame* frame, const uint8_t* data, bint big_endian) noexcept nogil:
    # The 16 bytes of a sound datagram, in the host's order.
    memcpy(frame, data, FRAME_SIZE)
    if unlikely(big_endian):
        frame.object_id = be16(data + ROQ_OBJECT_ID)
        frame.session_id = be16(data + ROQ_SESSION)
        frame.seqno = be32(data + ROQ_NUMBER)
        frame.last_seqno = be32(data + ROQ_LAST_NUMBER)


cdef inline void roq_frame(
    Frame* frame, uint32_t object, uint64_t detail, uint8_t fragment_max, uint64_t session,
    int64_t number,
) noexcept nogil:
    # The same of what waited: that of its first fragment.
    frame.control = <uint8_t>(detail >> 32)
    frame.fragment = 0
    frame.fragment_max = fragment_max
    frame.object_type = <uint8_t>(object >> 16)
    frame.object_id = <uint16_t>object
    frame.session_id = <uint16_t>session
    frame.seqno = <uint32_t>number
    frame.last_seqno = <uint32_t>detail
