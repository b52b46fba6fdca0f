# Cboe multicast PITCH: each message has a number, of its unit. Little endian.
#
#    0 u16 length of all    2 u8 count    3 u8 unit    4 u32 number of the first
#    8 messages: u8 length (with itself), u8 type
#
# Count 0: a heartbeat, the number is the next one. Number 0: unsequenced.

from libc.stdint cimport uint8_t, uint32_t

from udpfast.core.check cimport unlikely
from udpfast.wire.load cimport le16, le32
from udpfast.wire.messages cimport DELIMITER_U8_WHOLE, messages_check
from udpfast.wire.unit cimport (
    MALFORMED_HEADER_SHORT, MALFORMED_LENGTH_BELOW, MALFORMED_LENGTH_BEYOND, UNIT_HEARTBEAT,
    UNIT_UNSEQUENCED, Unit, unit_init,
)

cdef enum:
    CBOE_PITCH_LENGTH = 0
    CBOE_PITCH_COUNT = 2
    CBOE_PITCH_UNIT = 3
    CBOE_PITCH_NUMBER = 4
    CBOE_PITCH_MESSAGES = 8
    CBOE_PITCH_MESSAGE_MIN = 2


cdef inline int cboe_pitch_units(
    const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil:
    cdef int count, messages
    cdef uint32_t length
    if unlikely(size < CBOE_PITCH_MESSAGES):
        return MALFORMED_HEADER_SHORT
    length = le16(data + CBOE_PITCH_LENGTH)
    if unlikely(length != size):
        return MALFORMED_LENGTH_BEYOND if length > size else MALFORMED_LENGTH_BELOW
    count = data[CBOE_PITCH_COUNT]
    messages = messages_check(data + CBOE_PITCH_MESSAGES, size - CBOE_PITCH_MESSAGES,
                              DELIMITER_U8_WHOLE, CBOE_PITCH_MESSAGE_MIN, count)
    if unlikely(messages < 0):
        return messages
    unit_init(units, CBOE_PITCH_MESSAGES, size - CBOE_PITCH_MESSAGES, DELIMITER_U8_WHOLE, messages)
    units.stream = data[CBOE_PITCH_UNIT]
    units.number = le32(data + CBOE_PITCH_NUMBER)
    units.count = <uint32_t>count
    units.flags = 0 if count else UNIT_HEARTBEAT
    if units.number == 0:
        units.flags |= UNIT_UNSEQUENCED
    return 1
