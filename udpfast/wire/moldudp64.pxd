# MoldUDP64 (Nasdaq and many others): each message has a number. Big endian.
#
#    0 c10 session    10 u64 number of the first message    18 u16 count    20 messages: u16 length
#
# Count 0: a heartbeat; count 0xFFFF: the end of the session. Both have the next number.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from udpfast.core.check cimport unlikely
from udpfast.wire.load cimport be16, be64, le16, le64
from udpfast.wire.messages cimport DELIMITER_BE16, DELIMITER_LE16, messages_check
from udpfast.wire.unit cimport (
    MALFORMED_HEADER_SHORT, UNIT_END_OF_SESSION, UNIT_HEARTBEAT, Unit, unit_init,
)

cdef enum:
    MOLDUDP64_NUMBER = 10
    MOLDUDP64_COUNT = 18
    MOLDUDP64_MESSAGES = 20
    MOLDUDP64_MESSAGE_MIN = 2    # a length of 0 is allowed
    MOLDUDP64_END = 0xFFFF


cdef inline int moldudp64_units(
    const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil:
    return moldudp64_read(data, size, units, False)


# `little` (a constant in each caller): numbers, counts and lengths are in little endian.
cdef inline int moldudp64_read(
    const uint8_t* data, uint32_t size, Unit* units, bint little,
) noexcept nogil:
    cdef int delimiter = DELIMITER_LE16 if little else DELIMITER_BE16
    cdef int count, messages
    if unlikely(size < MOLDUDP64_MESSAGES):
        return MALFORMED_HEADER_SHORT
    count = le16(data + MOLDUDP64_COUNT) if little else be16(data + MOLDUDP64_COUNT)
    messages = messages_check(data + MOLDUDP64_MESSAGES, size - MOLDUDP64_MESSAGES, delimiter,
                              MOLDUDP64_MESSAGE_MIN, 0 if count == MOLDUDP64_END else count)
    if unlikely(messages < 0):
        return messages
    unit_init(units, MOLDUDP64_MESSAGES, size - MOLDUDP64_MESSAGES, delimiter, messages)
    units.session = moldudp64_session(data)
    units.number = le64(data + MOLDUDP64_NUMBER) if little else be64(data + MOLDUDP64_NUMBER)
    units.count = <uint32_t>messages
    if count == MOLDUDP64_END:
        units.flags = UNIT_END_OF_SESSION
    elif count == 0:
        units.flags = UNIT_HEARTBEAT
    return 1


cdef inline uint64_t moldudp64_session(const uint8_t* data) noexcept nogil:
    # Return ten characters as one number. Blanks, digits, capitals and signs (0x20 to 0x5F) take 6
    # bits each, so that different sessions have different numbers below 2^60. With other bytes
    # among them, the number is a hash with the four bits above set.
    cdef uint64_t first = le64(data)
    cdef uint64_t last = le16(data + 8)
    cdef uint64_t low = first - <uint64_t>0x2020202020202020
    cdef uint64_t high = last - 0x2020
    if unlikely((low & <uint64_t>0xC0C0C0C0C0C0C0C0) or (high & <uint64_t>0xFFFFFFFFFFFFC0C0)):
        low = (first ^ (last << 48) ^ last) * <uint64_t>0x9E3779B97F4A7C15
        return <uint64_t>0xF000000000000000 | ((low ^ (low >> 29)) >> 4)
    low = (low & <uint64_t>0x003F003F003F003F) | ((low & <uint64_t>0x3F003F003F003F00) >> 2)
    low = (low & <uint64_t>0x00000FFF00000FFF) | ((low & <uint64_t>0x0FFF00000FFF0000) >> 4)
    low = (low & 0x00FFFFFF) | ((low >> 32) << 24)
    high = (high & 0x3F) | ((high & 0x3F00) >> 2)
    return low | (high << 48)
