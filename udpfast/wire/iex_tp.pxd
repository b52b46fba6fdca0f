# IEX Transport Protocol 1 (TOPS, DEEP, DEEP+): each message has a number. Little endian.
#
#    0 u8 version = 1    2 u16 protocol       4 u32 channel    8 u32 session
#   12 u16 bytes of messages    14 u16 count   16 i64 stream offset   24 i64 number of the first
#   32 i64 sending time, UNIX ns   40 messages: u16 length
#
# Count 0: a heartbeat, the number is the next one. The stream is protocol and channel; `detail` is
# the stream offset: bytes of messages sent before in this session. Number 1 at offset 0 starts a
# session: with a later sending time the sender began anew, even under the same session id.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from udpfast.core.check cimport unlikely
from udpfast.wire.load cimport le16, le32, le64
from udpfast.wire.messages cimport DELIMITER_LE16, messages_check
from udpfast.wire.unit cimport (
    MALFORMED_HEADER_SHORT, MALFORMED_LENGTH_BELOW, MALFORMED_LENGTH_BEYOND, MALFORMED_RANGE,
    MALFORMED_VERSION, UNIT_HEARTBEAT, UNIT_START_OF_SESSION, Unit, unit_init,
)

cdef enum:
    IEX_TP_VERSION = 0
    IEX_TP_PROTOCOL = 2
    IEX_TP_CHANNEL = 4
    IEX_TP_SESSION = 8
    IEX_TP_LENGTH = 12
    IEX_TP_COUNT = 14
    IEX_TP_OFFSET = 16
    IEX_TP_NUMBER = 24
    IEX_TP_SENT = 32
    IEX_TP_MESSAGES = 40
    IEX_TP_MESSAGE_MIN = 2
    IEX_TP_CHANNEL_MAX = 0xFFFF  # IEX itself always uses channel 1


cdef inline int iex_tp_units(
    const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil:
    cdef int count, messages
    cdef uint32_t length, channel
    if unlikely(size < IEX_TP_MESSAGES):
        return MALFORMED_HEADER_SHORT
    if unlikely(data[IEX_TP_VERSION] != 1):
        return MALFORMED_VERSION
    length = le16(data + IEX_TP_LENGTH)
    if unlikely(length != size - IEX_TP_MESSAGES):
        return (MALFORMED_LENGTH_BEYOND if length > size - IEX_TP_MESSAGES
                else MALFORMED_LENGTH_BELOW)
    channel = le32(data + IEX_TP_CHANNEL)
    if unlikely(channel > IEX_TP_CHANNEL_MAX):
        return MALFORMED_RANGE
    count = le16(data + IEX_TP_COUNT)
    messages = messages_check(data + IEX_TP_MESSAGES, length, DELIMITER_LE16, IEX_TP_MESSAGE_MIN,
                              count)
    if unlikely(messages < 0):
        return messages
    unit_init(units, IEX_TP_MESSAGES, length, DELIMITER_LE16, messages)
    units.stream = (<uint32_t>le16(data + IEX_TP_PROTOCOL) << 16) | channel
    units.session = le32(data + IEX_TP_SESSION)
    units.number = le64(data + IEX_TP_NUMBER)
    units.count = <uint32_t>count
    units.sent_ns = <int64_t>le64(data + IEX_TP_SENT)
    units.detail = le64(data + IEX_TP_OFFSET)
    units.flags = 0 if count else UNIT_HEARTBEAT
    if unlikely(count and units.number == 1 and units.detail == 0):
        units.flags = UNIT_START_OF_SESSION
    return 1
