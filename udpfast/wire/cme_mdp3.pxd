# CME MDP 3.0: one datagram, one unit, one number; SBE messages follow. Little endian.
#
#    0 u32 number    4 u64 sending time, UNIX ns    12 messages: u16 size (with itself), SBE
#
# A heartbeat is a message (template 12) and takes a number. A channel reset (template 4) voids the
# books of the channel. The multicast group identifies the channel; the header does not name it.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from udpfast.core.check cimport unlikely
from udpfast.wire.load cimport le16, le32, le64
from udpfast.wire.messages cimport DELIMITER_LE16_WHOLE, UNTIL_END, messages_check
from udpfast.wire.unit cimport MALFORMED_HEADER_SHORT, UNIT_RESET, Unit, unit_init

cdef enum:
    CME_MDP3_NUMBER = 0
    CME_MDP3_SENT = 4
    CME_MDP3_MESSAGES = 12
    CME_MDP3_TEMPLATE = 4        # offset in a message
    CME_MDP3_MESSAGE_MIN = 10    # its size and the SBE header
    CME_MDP3_CHANNEL_RESET = 4


cdef inline int cme_mdp3_units(
    const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil:
    cdef int messages
    if unlikely(size < CME_MDP3_MESSAGES):
        return MALFORMED_HEADER_SHORT
    messages = messages_check(data + CME_MDP3_MESSAGES, size - CME_MDP3_MESSAGES,
                              DELIMITER_LE16_WHOLE, CME_MDP3_MESSAGE_MIN, UNTIL_END)
    if unlikely(messages < 0):
        return messages
    unit_init(units, CME_MDP3_MESSAGES, size - CME_MDP3_MESSAGES, DELIMITER_LE16_WHOLE, messages)
    units.number = le32(data + CME_MDP3_NUMBER)
    units.sent_ns = <int64_t>le64(data + CME_MDP3_SENT)
    if messages and unlikely(
            le16(data + CME_MDP3_MESSAGES + CME_MDP3_TEMPLATE) == CME_MDP3_CHANNEL_RESET):
        units.flags = UNIT_RESET
    return 1
