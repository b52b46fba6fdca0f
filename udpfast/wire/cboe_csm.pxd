# Cboe Streaming Market: each message has a number. Big endian.
#
#    0 u8 version = 1    1 u16 length of all    3 u64 sending time, UNIX ms    11 u8 count
#   12 u32 number of the first    16 messages: u16 length (with itself)

from libc.stdint cimport int64_t, uint8_t, uint32_t

from udpfast.core.check cimport unlikely
from udpfast.wire.load cimport be16, be32, be64
from udpfast.wire.messages cimport DELIMITER_BE16_WHOLE, messages_unit
from udpfast.wire.unit cimport MALFORMED_HEADER_SHORT, MALFORMED_VERSION, Unit

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
    cdef int count, made
    if unlikely(size < CBOE_CSM_MESSAGES):
        return MALFORMED_HEADER_SHORT
    if unlikely(data[CBOE_CSM_VERSION] != 1):
        return MALFORMED_VERSION
    count = data[CBOE_CSM_COUNT]
    made = messages_unit(data, size, be16(data + CBOE_CSM_LENGTH), CBOE_CSM_MESSAGES,
                         DELIMITER_BE16_WHOLE, CBOE_CSM_MESSAGE_MIN, count, units)
    if unlikely(made < 0):
        return made
    units.number = be32(data + CBOE_CSM_NUMBER)
    # Unsigned, so that an absurd time cannot overflow.
    units.sent_ns = <int64_t>(be64(data + CBOE_CSM_SENT) * 1_000_000)
    return 1
