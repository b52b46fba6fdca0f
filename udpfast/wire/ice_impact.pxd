# ICE iMpact: each message has a number. Big endian.
#
#    0 u16 session    2 u32 number of the first    6 u16 count    8 i64 sending time, UNIX ms
#   16 messages: u8 type, u16 length of the body
#
# Count 0: a heartbeat, the number is the next one.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from udpfast.core.check cimport unlikely
from udpfast.wire.load cimport be16, be32, be64
from udpfast.wire.messages cimport DELIMITER_TYPE_BE16, messages_check
from udpfast.wire.unit cimport MALFORMED_HEADER_SHORT, UNIT_HEARTBEAT, Unit, unit_init

cdef enum:
    ICE_IMPACT_SESSION = 0
    ICE_IMPACT_NUMBER = 2
    ICE_IMPACT_COUNT = 6
    ICE_IMPACT_SENT = 8
    ICE_IMPACT_MESSAGES = 16
    ICE_IMPACT_MESSAGE_MIN = 3


cdef inline int ice_impact_units(
    const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil:
    cdef int count, messages
    if unlikely(size < ICE_IMPACT_MESSAGES):
        return MALFORMED_HEADER_SHORT
    count = be16(data + ICE_IMPACT_COUNT)
    messages = messages_check(data + ICE_IMPACT_MESSAGES, size - ICE_IMPACT_MESSAGES,
                              DELIMITER_TYPE_BE16, ICE_IMPACT_MESSAGE_MIN, count)
    if unlikely(messages < 0):
        return messages
    unit_init(units, ICE_IMPACT_MESSAGES, size - ICE_IMPACT_MESSAGES, DELIMITER_TYPE_BE16,
              messages)
    units.session = be16(data + ICE_IMPACT_SESSION)
    units.number = be32(data + ICE_IMPACT_NUMBER)
    units.count = <uint32_t>count
    # Unsigned, so that an absurd time cannot overflow.
    units.sent_ns = <int64_t>(be64(data + ICE_IMPACT_SENT) * 1_000_000)
    units.flags = 0 if count else UNIT_HEARTBEAT
    return 1
