# Eurex Enhanced Order Book Interface: one datagram, one number. Little endian.
#
#    0 u16 length = 32    2 u16 template 13002 ..    8 u32 number    12 i32 market segment
#   16 u8 partition    17 u8 completion    18 u8 reset    24 u64 time, UNIX ns
#   32 messages: u16 length (with itself), u16 template, u32 number of the message
#
# The stream is partition and segment. `detail`: template, completion << 16, reset << 24, number
# << 32, by which a loop of snapshots tells what of it is lost.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from udpfast.core.check cimport unlikely
from udpfast.wire.load cimport le16, le32, le64
from udpfast.wire.messages cimport DELIMITER_LE16_WHOLE, UNTIL_END, messages_check
from udpfast.wire.unit cimport (
    MALFORMED_HEADER_SHORT, MALFORMED_RANGE, MALFORMED_VERSION, UNIT_RESET, Unit, unit_init,
)

cdef enum:
    EUREX_EOBI_LENGTH = 0
    EUREX_EOBI_TEMPLATE = 2
    EUREX_EOBI_NUMBER = 8
    EUREX_EOBI_SEGMENT = 12
    EUREX_EOBI_PARTITION = 16
    EUREX_EOBI_COMPLETION = 17
    EUREX_EOBI_RESET = 18
    EUREX_EOBI_TIME = 24
    EUREX_EOBI_MESSAGES = 32
    EUREX_EOBI_MESSAGE_MIN = 8
    EUREX_EOBI_TEMPLATE_MIN = 13002    # template of the header, which depends on the version
    EUREX_EOBI_TEMPLATE_MAX = 13009
    EUREX_EOBI_SEGMENT_MAX = 0xFFFFFF  # segments in use have five decimal digits


cdef inline int eurex_eobi_units(
    const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil:
    cdef int messages
    cdef uint32_t template, segment
    if unlikely(size < EUREX_EOBI_MESSAGES):
        return MALFORMED_HEADER_SHORT
    template = le16(data + EUREX_EOBI_TEMPLATE)
    if unlikely(le16(data + EUREX_EOBI_LENGTH) != EUREX_EOBI_MESSAGES
                or template < EUREX_EOBI_TEMPLATE_MIN or template > EUREX_EOBI_TEMPLATE_MAX):
        return MALFORMED_VERSION
    segment = le32(data + EUREX_EOBI_SEGMENT)
    if unlikely(segment > EUREX_EOBI_SEGMENT_MAX):
        return MALFORMED_RANGE
    messages = messages_check(data + EUREX_EOBI_MESSAGES, size - EUREX_EOBI_MESSAGES,
                              DELIMITER_LE16_WHOLE, EUREX_EOBI_MESSAGE_MIN, UNTIL_END)
    if unlikely(messages < 0):
        return messages
    unit_init(units, EUREX_EOBI_MESSAGES, size - EUREX_EOBI_MESSAGES, DELIMITER_LE16_WHOLE,
              messages)
    units.stream = (<uint32_t>data[EUREX_EOBI_PARTITION] << 24) | segment
    units.number = le32(data + EUREX_EOBI_NUMBER)
    units.sent_ns = <int64_t>le64(data + EUREX_EOBI_TIME)
    units.detail = (template | (<uint32_t>data[EUREX_EOBI_COMPLETION] << 16)
                    | (<uint32_t>data[EUREX_EOBI_RESET] << 24) | (units.number << 32))
    units.flags = UNIT_RESET if data[EUREX_EOBI_RESET] == 1 else 0
    return 1
