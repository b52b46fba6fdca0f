# Cboe Streaming Market: each message has a number. Big endian.
#
#    0 u8 version = 1    1 u16 length of all    3 u64 sending time, UNIX ms    11 u8 count
#   12 u32 number of the first    16 messages: u16 length (with itself)

from libc.stdint cimport int64_t, uint8_t, uint32_t

from udpfast.core.check cimport unlikely
from udpfast.wire.load cimport be16, be32, be64
from udpfast.wire.messages cimport DELIMITER_BE16_WHOLE, messages_check
from udpfast.wire.unit cimport (
    MALFORMED_HEADER_SHORT, MALFORMED_LENGTH_BELOW, MALFORMED_LENGTH_BEYOND, MALFORMED_VERSION,
    UNIT_HEARTBEAT, Unit, unit_init,
)

cdef enum:
    CBOE_CSM_VERSION = 0
    CBOE_CSM_LENGTH = 1
    CBOE_CSM_SENT = 3
    CBOE_CSM_COUNT = 11
    CBOE_CSM_NUMBER = 12
    CBOE_CSM_MESSAGES = 16
    CBOE_CSM_MESSAGE_MIN = 4


cdef inline int cboe_csm_units(
    const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil:
    cdef int count, messages
    cdef uint32_t length
    if unlikely(size < CBOE_CSM_MESSAGES):
        return MALFORMED_HEADER_SHORT
    if unlikely(data[CBOE_CSM_VERSION] != 1):
        return MALFORMED_VERSION
    length = be16(data + CBOE_CSM_LENGTH)
    if unlikely(length != size):
        return MALFORMED_LENGTH_BEYOND if length > size else MALFORMED_LENGTH_BELOW
    count = data[CBOE_CSM_COUNT]
    messages = messages_check(data + CBOE_CSM_MESSAGES, size - CBOE_CSM_MESSAGES,
                              DELIMITER_BE16_WHOLE, CBOE_CSM_MESSAGE_MIN, count)
    if unlikely(messages < 0):
        return messages
    unit_init(units, CBOE_CSM_MESSAGES, size - CBOE_CSM_MESSAGES, DELIMITER_BE16_WHOLE, messages)
    units.number = be32(data + CBOE_CSM_NUMBER)
    units.count = <uint32_t>count
    # As unsigned: what is no time at all must not overflow.
    units.sent_ns = <int64_t>(be64(data + CBOE_CSM_SENT) * 1_000_000)
    units.flags = 0 if count else UNIT_HEARTBEAT
    return 1
