# Cboe multicast PITCH: each message has a number, which counts per unit. Little endian.
#
#    0 u16 length of all    2 u8 count    3 u8 unit    4 u32 number of the first
#    8 messages: u8 length (with itself), u8 type
#
# Count 0: a heartbeat, the number is the next one. Number 0: unsequenced; 1 follows the highest.

from libc.stdint cimport uint8_t, uint32_t

from udpfast.core.check cimport unlikely
from udpfast.wire.load cimport le16, le32
from udpfast.wire.messages cimport DELIMITER_U8_WHOLE, messages_unit
from udpfast.wire.unit cimport MALFORMED_HEADER_SHORT, UNIT_UNSEQUENCED, Unit

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
    cdef int count, made
    if unlikely(size < CBOE_PITCH_MESSAGES):
        return MALFORMED_HEADER_SHORT
    count = data[CBOE_PITCH_COUNT]
    made = messages_unit(data, size, le16(data + CBOE_PITCH_LENGTH), CBOE_PITCH_MESSAGES,
                         DELIMITER_U8_WHOLE, CBOE_PITCH_MESSAGE_MIN, count, units)
    if unlikely(made < 0):
        return made
    units.stream = data[CBOE_PITCH_UNIT]
    units.number = le32(data + CBOE_PITCH_NUMBER)
    if units.number == 0:
        units.flags |= UNIT_UNSEQUENCED
    return 1
