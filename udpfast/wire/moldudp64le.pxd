# MoldUDP64 with numbers in little endian, as IntelligentCross sends it; else as moldudp64.pxd.
#
#    0 c10 session    10 u64 number of the first message    18 u16 count    20 messages: u16 length

from libc.stdint cimport uint8_t, uint32_t

from udpfast.core.check cimport unlikely
from udpfast.wire.load cimport le16, le64
from udpfast.wire.messages cimport DELIMITER_LE16, messages_check
from udpfast.wire.moldudp64 cimport moldudp64_session
from udpfast.wire.unit cimport (
    MALFORMED_HEADER_SHORT, UNIT_END_OF_SESSION, UNIT_HEARTBEAT, Unit, unit_init,
)

cdef enum:
    MOLDUDP64LE_NUMBER = 10
    MOLDUDP64LE_COUNT = 18
    MOLDUDP64LE_MESSAGES = 20
    MOLDUDP64LE_MESSAGE_MIN = 2    # a length of 0 is allowed
    MOLDUDP64LE_END = 0xFFFF


cdef inline int moldudp64le_units(
    const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil:
    cdef int count, messages
    if unlikely(size < MOLDUDP64LE_MESSAGES):
        return MALFORMED_HEADER_SHORT
    count = le16(data + MOLDUDP64LE_COUNT)
    messages = messages_check(data + MOLDUDP64LE_MESSAGES, size - MOLDUDP64LE_MESSAGES,
                              DELIMITER_LE16, MOLDUDP64LE_MESSAGE_MIN,
                              0 if count == MOLDUDP64LE_END else count)
    if unlikely(messages < 0):
        return messages
    unit_init(units, MOLDUDP64LE_MESSAGES, size - MOLDUDP64LE_MESSAGES, DELIMITER_LE16, messages)
    units.session = moldudp64_session(data)
    units.number = le64(data + MOLDUDP64LE_NUMBER)
    units.count = <uint32_t>messages
    if count == MOLDUDP64LE_END:
        units.flags = UNIT_END_OF_SESSION
    elif count == 0:
        units.flags = UNIT_HEARTBEAT
    return 1
