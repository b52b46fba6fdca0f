# SIAC OPRA (the options tape), only the header of its blocks: each message has a number, but its
# end follows from its type. The unit is one piece for the payload. Big endian.
#
#    0 u8 version    1 u16 size of all    3 c1 feed    4 c1 ' ' original, 'V' retransmission
#    5 u8 trading session    6 u32 number of the first    10 u8 count    11 u32 time, UNIX s
#   15 u32 ns    19 u16 checksum    21 messages

from libc.stdint cimport int64_t, uint8_t, uint32_t

from udpfast.core.check cimport unlikely
from udpfast.wire.load cimport be16, be32
from udpfast.wire.messages cimport DELIMITER_NONE
from udpfast.wire.unit cimport (
    MALFORMED_COUNT_AND_BYTES, MALFORMED_HEADER_SHORT, MALFORMED_LENGTH_BELOW,
    MALFORMED_LENGTH_BEYOND, MALFORMED_VERSION, UNIT_HEARTBEAT, UNIT_RETRANSMISSION, Unit,
    unit_init,
)

cdef enum:
    SIAC_OPRA_SIZE = 1
    SIAC_OPRA_FEED = 3
    SIAC_OPRA_RETRANSMISSION = 4
    SIAC_OPRA_SESSION = 5
    SIAC_OPRA_NUMBER = 6
    SIAC_OPRA_COUNT = 10
    SIAC_OPRA_SECONDS = 11
    SIAC_OPRA_NANOSECONDS = 15
    SIAC_OPRA_MESSAGES = 21


cdef inline int siac_opra_units(
    const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil:
    cdef uint32_t length
    if unlikely(size < SIAC_OPRA_MESSAGES):
        return MALFORMED_HEADER_SHORT
    if unlikely(data[SIAC_OPRA_FEED] != 0x4F):   # 'O'
        return MALFORMED_VERSION
    length = be16(data + SIAC_OPRA_SIZE)
    if unlikely(length != size):
        return MALFORMED_LENGTH_BEYOND if length > size else MALFORMED_LENGTH_BELOW
    # A message has at least one byte, and one byte may follow the last message.
    if unlikely(size - SIAC_OPRA_MESSAGES < data[SIAC_OPRA_COUNT]):
        return MALFORMED_COUNT_AND_BYTES
    unit_init(units, SIAC_OPRA_MESSAGES, size - SIAC_OPRA_MESSAGES, DELIMITER_NONE, 0)
    units.stream = data[SIAC_OPRA_FEED]
    units.session = data[SIAC_OPRA_SESSION]
    units.number = be32(data + SIAC_OPRA_NUMBER)
    units.count = data[SIAC_OPRA_COUNT]
    units.sent_ns = (<int64_t>be32(data + SIAC_OPRA_SECONDS) * 1_000_000_000
                     + be32(data + SIAC_OPRA_NANOSECONDS))
    if data[SIAC_OPRA_RETRANSMISSION] == 0x56:   # 'V'
        units.flags = UNIT_RETRANSMISSION
    if units.count == 0:
        units.flags |= UNIT_HEARTBEAT
    return 1
