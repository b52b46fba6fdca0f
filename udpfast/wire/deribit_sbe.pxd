# Deribit multicast: one datagram, one number, which counts per channel. Little endian.
#
#    0 u16 length of the bytes behind the header    2 u16 channel    4 u32 number
#    8 SBE messages, which only their groups and texts delimit: one piece for the payload

from libc.stdint cimport uint8_t, uint32_t

from udpfast.core.check cimport unlikely
from udpfast.wire.load cimport le16, le32
from udpfast.wire.messages cimport DELIMITER_NONE
from udpfast.wire.unit cimport (
    MALFORMED_HEADER_SHORT, MALFORMED_LENGTH_BELOW, MALFORMED_LENGTH_BEYOND, Unit, unit_init,
)

cdef enum:
    DERIBIT_SBE_LENGTH = 0
    DERIBIT_SBE_CHANNEL = 2
    DERIBIT_SBE_NUMBER = 4
    DERIBIT_SBE_MESSAGES = 8


cdef inline int deribit_sbe_units(
    const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil:
    cdef uint32_t length
    if unlikely(size < DERIBIT_SBE_MESSAGES):
        return MALFORMED_HEADER_SHORT
    length = <uint32_t>le16(data + DERIBIT_SBE_LENGTH) + DERIBIT_SBE_MESSAGES
    if unlikely(length != size):
        return MALFORMED_LENGTH_BEYOND if length > size else MALFORMED_LENGTH_BELOW
    unit_init(units, DERIBIT_SBE_MESSAGES, size - DERIBIT_SBE_MESSAGES, DELIMITER_NONE,
              size > DERIBIT_SBE_MESSAGES)
    units.stream = le16(data + DERIBIT_SBE_CHANNEL)
    units.number = le32(data + DERIBIT_SBE_NUMBER)
    return 1
