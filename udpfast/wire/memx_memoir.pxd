# MEMX MEMOIR: each message has a number. Big endian.
#
#    0 u8 kind    1 u8 header length = 18    2 u64 session    10 u64 number of the first
#   18 u16 count (data only)    20 messages: u16 length, SBE
#
# Heartbeats and the end of a session have the next number.

from libc.stdint cimport uint8_t, uint32_t

from udpfast.core.check cimport unlikely
from udpfast.wire.load cimport be16, be64
from udpfast.wire.messages cimport DELIMITER_BE16, messages_check
from udpfast.wire.unit cimport (
    MALFORMED_COUNT_AND_BYTES, MALFORMED_HEADER_SHORT, MALFORMED_KIND, MALFORMED_VERSION,
    UNIT_END_OF_SESSION, UNIT_HEARTBEAT, Unit, unit_init,
)

cdef enum:
    MEMX_MEMOIR_KIND = 0
    MEMX_MEMOIR_LENGTH = 1
    MEMX_MEMOIR_SESSION = 2
    MEMX_MEMOIR_NUMBER = 10
    MEMX_MEMOIR_COUNT = 18       # also the length of the header that all kinds share
    MEMX_MEMOIR_MESSAGES = 20
    MEMX_MEMOIR_MESSAGE_MIN = 8  # a length and the SBE header

cdef enum:  # kinds
    MEMX_MEMOIR_HEARTBEAT = 0
    MEMX_MEMOIR_END = 1
    MEMX_MEMOIR_DATA = 2


cdef inline int memx_memoir_units(
    const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil:
    cdef int kind, messages = 0
    cdef uint32_t begin = MEMX_MEMOIR_COUNT
    if unlikely(size < MEMX_MEMOIR_COUNT):
        return MALFORMED_HEADER_SHORT
    if unlikely(data[MEMX_MEMOIR_LENGTH] != MEMX_MEMOIR_COUNT):
        return MALFORMED_VERSION
    kind = data[MEMX_MEMOIR_KIND]
    if kind == MEMX_MEMOIR_DATA:
        begin = MEMX_MEMOIR_MESSAGES
        if unlikely(size < MEMX_MEMOIR_MESSAGES):
            return MALFORMED_HEADER_SHORT
        messages = messages_check(data + begin, size - begin, DELIMITER_BE16,
                                  MEMX_MEMOIR_MESSAGE_MIN, be16(data + MEMX_MEMOIR_COUNT))
        if unlikely(messages < 0):
            return messages
    elif unlikely(kind > MEMX_MEMOIR_DATA):
        return MALFORMED_KIND
    elif unlikely(size != begin):
        return MALFORMED_COUNT_AND_BYTES
    unit_init(units, begin, size - begin, DELIMITER_BE16, messages)
    units.session = be64(data + MEMX_MEMOIR_SESSION)
    units.number = be64(data + MEMX_MEMOIR_NUMBER)
    units.count = <uint32_t>messages
    if kind == MEMX_MEMOIR_END:
        units.flags = UNIT_END_OF_SESSION
    elif messages == 0:
        units.flags = UNIT_HEARTBEAT
    return 1
