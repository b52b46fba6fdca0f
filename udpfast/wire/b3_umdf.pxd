# B3 Binary UMDF: one datagram, one number. Little endian.
#
#    0 u8 channel    2 u16 version of the numbering    4 u32 number    8 u64 sending time, UNIX ns
#   16 messages: u16 length (with itself), u16 encoding 0xEB50, SBE
#
# The version is the session: it changes when numbers begin anew. Number 0: unsequenced. `detail`
# has the number as well, also in recovery loops.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from udpfast.core.check cimport unlikely
from udpfast.wire.load cimport le16, le32, le64
from udpfast.wire.messages cimport DELIMITER_LE16_WHOLE, UNTIL_END, messages_check
from udpfast.wire.unit cimport (
    MALFORMED_HEADER_SHORT, MALFORMED_VERSION, UNIT_UNSEQUENCED, Unit, unit_init,
)

cdef enum:
    B3_UMDF_CHANNEL = 0
    B3_UMDF_VERSION = 2
    B3_UMDF_NUMBER = 4
    B3_UMDF_SENT = 8
    B3_UMDF_MESSAGES = 16
    B3_UMDF_ENCODING = 2         # offset in a message
    B3_UMDF_SBE = 0xEB50         # SBE 1.0, little endian (Simple Open Framing Header)
    B3_UMDF_MESSAGE_MIN = 12


cdef inline int b3_umdf_units(
    const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil:
    cdef int messages
    cdef uint32_t at = B3_UMDF_MESSAGES
    if unlikely(size < B3_UMDF_MESSAGES):
        return MALFORMED_HEADER_SHORT
    messages = messages_check(data + B3_UMDF_MESSAGES, size - B3_UMDF_MESSAGES,
                              DELIMITER_LE16_WHOLE, B3_UMDF_MESSAGE_MIN, UNTIL_END)
    if unlikely(messages < 0):
        return messages
    while at < size:
        if unlikely(le16(data + at + B3_UMDF_ENCODING) != B3_UMDF_SBE):
            return MALFORMED_VERSION
        at += le16(data + at)
    unit_init(units, B3_UMDF_MESSAGES, size - B3_UMDF_MESSAGES, DELIMITER_LE16_WHOLE, messages)
    units.stream = data[B3_UMDF_CHANNEL]
    units.session = le16(data + B3_UMDF_VERSION)
    units.number = le32(data + B3_UMDF_NUMBER)
    units.detail = le32(data + B3_UMDF_NUMBER)
    units.sent_ns = <int64_t>le64(data + B3_UMDF_SENT)
    units.flags = 0 if units.number else UNIT_UNSEQUENCED
    return 1
