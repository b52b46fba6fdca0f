# Roq: one datagram, one number, one message or a fragment. The byte order is a setting.
#
#    0 u8 control    1 u8 fragment    2 u8 last fragment    3 u8 object type    4 u16 object id
#    6 u16 session    8 u32 number    12 u32 last number    16 the payload
#
# Control byte: in the current revision bits 0 to 3 are the encoding and bit 4 marks a snapshot; in
# the legacy revision all bits are the encoding. The settings decide which encodings pass, not the
# framing. A single fragment without a payload is a heartbeat; it takes a number as messages do.
# `object`: type << 16 | id. `detail`: control byte << 32 | last number of the object.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.core.check cimport unlikely
from udpfast.core.layout cimport DATAGRAM_SIZE_MAX, FRAME_SIZE, Frame, Message
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
    # The order of the tests is part of the contract: the first that fails decides.
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
    roq_origin(data, big_endian, &units.object, &units.detail)
    units.session = be16(data + ROQ_SESSION) if big_endian else le16(data + ROQ_SESSION)
    units.number = be32(data + ROQ_NUMBER) if big_endian else le32(data + ROQ_NUMBER)
    if legacy:
        units.encoding = control
    else:
        units.encoding = control & ROQ_ENCODING_BITS
        units.flags = UNIT_SNAPSHOT if control & ROQ_SNAPSHOT_BIT else 0
    if size == FRAME_SIZE and last == 0:
        units.flags |= UNIT_HEARTBEAT
    return 1


cdef inline void roq_origin(
    const uint8_t* data, bint big_endian, uint32_t* object, uint64_t* detail,
) noexcept nogil:
    # Requires a datagram that was checked.
    cdef uint32_t key = <uint32_t>data[ROQ_OBJECT_TYPE] << 16
    cdef uint64_t control = <uint64_t>data[ROQ_CONTROL] << 32
    if unlikely(big_endian):
        object[0] = key | be16(data + ROQ_OBJECT_ID)
        detail[0] = control | be32(data + ROQ_LAST_NUMBER)
    else:
        object[0] = key | le16(data + ROQ_OBJECT_ID)
        detail[0] = control | le32(data + ROQ_LAST_NUMBER)


cdef inline uint8_t roq_control(const Message* message) noexcept nogil:
    return <uint8_t>(message.detail >> 32)


cdef inline void roq_frame(Frame* frame, const Message* message) noexcept nogil:
    # The header of the message's first fragment, in the host's byte order.
    frame.control = roq_control(message)
    frame.fragment = 0
    frame.fragment_max = <uint8_t>(message.fragments - 1)
    frame.object_type = <uint8_t>(message.object >> 16)
    frame.object_id = <uint16_t>message.object
    frame.session_id = <uint16_t>message.session_id
    frame.seqno = <uint32_t>message.number
    frame.last_seqno = <uint32_t>message.detail
