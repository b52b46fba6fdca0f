# Coinbase Derivatives market data: one datagram, one number. Little endian.
#
#    0 i64 sending time, UNIX ns    8 i64 number    16 u16 channel    18 u8 flags    19 u8 count
#   20 i32 instrument of a snapshot    24 messages: u16 length (with itself)
#
# Flags: 1 incremental, 2 snapshot, 4 retransmission. A snapshot's number is that of the last
# incremental datagram that it includes; it does not order the snapshots themselves.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from udpfast.core.check cimport unlikely
from udpfast.wire.load cimport le16, le32, le64
from udpfast.wire.messages cimport DELIMITER_LE16_WHOLE, messages_check
from udpfast.wire.unit cimport (
    MALFORMED_HEADER_SHORT, MALFORMED_KIND, UNIT_RETRANSMISSION, UNIT_SNAPSHOT, UNIT_UNSEQUENCED,
    Unit, unit_init,
)

cdef enum:
    COINBASE_DERIVATIVES_SENT = 0
    COINBASE_DERIVATIVES_NUMBER = 8
    COINBASE_DERIVATIVES_CHANNEL = 16
    COINBASE_DERIVATIVES_FLAGS = 18
    COINBASE_DERIVATIVES_COUNT = 19
    COINBASE_DERIVATIVES_INSTRUMENT = 20
    COINBASE_DERIVATIVES_MESSAGES = 24
    COINBASE_DERIVATIVES_MESSAGE_MIN = 8

cdef enum:  # flags
    COINBASE_DERIVATIVES_SNAPSHOT = 2
    COINBASE_DERIVATIVES_RETRANSMISSION = 4
    COINBASE_DERIVATIVES_FLAGS_MAX = 7


cdef inline int coinbase_derivatives_units(
    const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil:
    cdef int flags, messages
    if unlikely(size < COINBASE_DERIVATIVES_MESSAGES):
        return MALFORMED_HEADER_SHORT
    flags = data[COINBASE_DERIVATIVES_FLAGS]
    if unlikely(flags == 0 or flags > COINBASE_DERIVATIVES_FLAGS_MAX):
        return MALFORMED_KIND
    messages = messages_check(
        data + COINBASE_DERIVATIVES_MESSAGES, size - COINBASE_DERIVATIVES_MESSAGES,
        DELIMITER_LE16_WHOLE, COINBASE_DERIVATIVES_MESSAGE_MIN, data[COINBASE_DERIVATIVES_COUNT])
    if unlikely(messages < 0):
        return messages
    unit_init(units, COINBASE_DERIVATIVES_MESSAGES, size - COINBASE_DERIVATIVES_MESSAGES,
              DELIMITER_LE16_WHOLE, messages)
    units.stream = le16(data + COINBASE_DERIVATIVES_CHANNEL)
    units.object = le32(data + COINBASE_DERIVATIVES_INSTRUMENT)
    units.number = le64(data + COINBASE_DERIVATIVES_NUMBER)
    units.sent_ns = <int64_t>le64(data + COINBASE_DERIVATIVES_SENT)
    if flags & COINBASE_DERIVATIVES_SNAPSHOT:
        units.flags = UNIT_SNAPSHOT | UNIT_UNSEQUENCED
    if flags & COINBASE_DERIVATIVES_RETRANSMISSION:
        units.flags |= UNIT_RETRANSMISSION
    return 1
