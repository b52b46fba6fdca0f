# NYSE XDP, Pillar too: each message has a number. Little endian.
#
#    0 u16 size of all    2 u8 delivery flag    3 u8 count    4 u32 number of the first
#    8 u32 sending time, UNIX s    12 u32 ns    16 messages: u16 size (with itself), u16 type
#
# `detail` is the delivery flag. A refresh has the number of its place in the stream, not its own.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from udpfast.core.check cimport unlikely
from udpfast.wire.load cimport le16, le32
from udpfast.wire.messages cimport DELIMITER_LE16_WHOLE, messages_unit
from udpfast.wire.unit cimport (
    MALFORMED_HEADER_SHORT, MALFORMED_KIND, UNIT_RESET, UNIT_RETRANSMISSION, UNIT_SNAPSHOT, Unit,
)

cdef enum:
    NYSE_XDP_SIZE = 0
    NYSE_XDP_DELIVERY = 2
    NYSE_XDP_COUNT = 3
    NYSE_XDP_NUMBER = 4
    NYSE_XDP_SECONDS = 8
    NYSE_XDP_NANOSECONDS = 12
    NYSE_XDP_MESSAGES = 16
    NYSE_XDP_MESSAGE_MIN = 4

cdef enum:  # delivery flags
    NYSE_XDP_HEARTBEAT = 1
    NYSE_XDP_FAILOVER = 10
    NYSE_XDP_SEQUENCE_RESET = 12
    NYSE_XDP_RETRANSMISSION = 13     # and 15: one of one, one of several
    NYSE_XDP_REFRESH = 17            # to 20: the only one, the first, one of several, the last
    NYSE_XDP_UNAVAILABLE = 21


cdef inline int nyse_xdp_units(
    const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil:
    cdef int count, made, delivery
    if unlikely(size < NYSE_XDP_MESSAGES):
        return MALFORMED_HEADER_SHORT
    delivery = data[NYSE_XDP_DELIVERY]
    if unlikely(delivery < NYSE_XDP_FAILOVER or delivery > NYSE_XDP_UNAVAILABLE):
        if delivery != NYSE_XDP_HEARTBEAT:
            return MALFORMED_KIND
    count = data[NYSE_XDP_COUNT]
    made = messages_unit(data, size, le16(data + NYSE_XDP_SIZE), NYSE_XDP_MESSAGES,
                         DELIMITER_LE16_WHOLE, NYSE_XDP_MESSAGE_MIN, count, units)
    if unlikely(made < 0):
        return made
    units.number = le32(data + NYSE_XDP_NUMBER)
    units.sent_ns = (<int64_t>le32(data + NYSE_XDP_SECONDS) * 1_000_000_000
                     + le32(data + NYSE_XDP_NANOSECONDS))
    units.detail = <uint32_t>delivery
    if count == 0:
        return 1
    if delivery == NYSE_XDP_SEQUENCE_RESET:
        units.flags = UNIT_RESET
    elif delivery >= NYSE_XDP_REFRESH:
        units.flags = UNIT_SNAPSHOT if delivery < NYSE_XDP_UNAVAILABLE else UNIT_RETRANSMISSION
    elif delivery >= NYSE_XDP_RETRANSMISSION:
        units.flags = UNIT_RETRANSMISSION
    return 1
