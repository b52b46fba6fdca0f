# SIAC CTS and CQS (the consolidated tape): each message has a number. Big endian.
#
#    0 u8 version    1 u16 size of all    3 c1 feed    4 c1 'O': original, else a retransmission
#    5 u32 number of the first    9 u8 count    10 u32 time, UNIX s    14 u32 ns    18 u16 checksum
#   20 messages: u16 length (with itself), category, type    at the end a byte if the size is odd
#
# Line integrity (category C, type T) has a number but does not take it. A reset of the numbers is a
# message, too (C, L). The checksum is not verified, because UDP has its own.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from udpfast.core.check cimport unlikely
from udpfast.wire.load cimport be16, be32
from udpfast.wire.messages cimport DELIMITER_BE16_WHOLE, messages_unit
from udpfast.wire.unit cimport (
    MALFORMED_HEADER_SHORT, UNIT_HEARTBEAT, UNIT_RESET, UNIT_RETRANSMISSION, UNIT_UNSEQUENCED, Unit,
)

cdef enum:
    SIAC_CTA_SIZE = 1
    SIAC_CTA_FEED = 3
    SIAC_CTA_RETRANSMISSION = 4
    SIAC_CTA_NUMBER = 5
    SIAC_CTA_COUNT = 9
    SIAC_CTA_SECONDS = 10
    SIAC_CTA_NANOSECONDS = 14
    SIAC_CTA_MESSAGES = 20
    SIAC_CTA_MESSAGE_MIN = 4
    SIAC_CTA_CATEGORY = 2        # offset in a message: category and type as one number
    SIAC_CTA_LINE_INTEGRITY = 0x4354
    SIAC_CTA_RESET = 0x434C


cdef inline int siac_cta_units(
    const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil:
    cdef int count, made, kind
    if unlikely(size < SIAC_CTA_MESSAGES):
        return MALFORMED_HEADER_SHORT
    count = data[SIAC_CTA_COUNT]
    made = messages_unit(data, size, be16(data + SIAC_CTA_SIZE), SIAC_CTA_MESSAGES,
                         DELIMITER_BE16_WHOLE, SIAC_CTA_MESSAGE_MIN, count, units, 1)
    if unlikely(made < 0):
        return made
    units.stream = data[SIAC_CTA_FEED]
    units.number = be32(data + SIAC_CTA_NUMBER)
    units.sent_ns = (<int64_t>be32(data + SIAC_CTA_SECONDS) * 1_000_000_000
                     + be32(data + SIAC_CTA_NANOSECONDS))
    if data[SIAC_CTA_RETRANSMISSION] != 0x4F:    # 'O'
        units.flags |= UNIT_RETRANSMISSION
    if count == 0:
        return 1
    kind = be16(data + SIAC_CTA_MESSAGES + SIAC_CTA_CATEGORY)
    if unlikely(kind == SIAC_CTA_LINE_INTEGRITY):
        units.flags |= UNIT_HEARTBEAT | UNIT_UNSEQUENCED
    elif unlikely(kind == SIAC_CTA_RESET):
        units.flags |= UNIT_RESET
    return 1
