# MIAX MACH: several units in a datagram, each with one number and one message. Little endian.
#
#    0 u64 number    8 u16 length of the unit    10 u8 kind    11 u8 session    12 the message
#
# Heartbeats, starts and ends of a session have the number used last. Here a unit that takes no
# number has the next one, so theirs is one higher than on the wire.

from libc.stdint cimport uint8_t, uint32_t

from udpfast.core.check cimport unlikely
from udpfast.wire.load cimport le16, le64
from udpfast.wire.messages cimport DELIMITER_NONE
from udpfast.wire.unit cimport (
    MALFORMED_HEADER_SHORT, MALFORMED_KIND, MALFORMED_LENGTH_BELOW, MALFORMED_LENGTH_BEYOND,
    MALFORMED_UNITS_MANY, UNIT_END_OF_SESSION, UNIT_HEARTBEAT, UNIT_START_OF_SESSION, Unit,
    unit_init,
)

cdef enum:
    MIAX_MACH_NUMBER = 0
    MIAX_MACH_LENGTH = 8
    MIAX_MACH_KIND = 10
    MIAX_MACH_SESSION = 11
    MIAX_MACH_MESSAGE = 12

cdef enum:  # kinds
    MIAX_MACH_HEARTBEAT = 0
    MIAX_MACH_START = 1
    MIAX_MACH_END = 2
    MIAX_MACH_DATA = 3


cdef inline int miax_mach_units(
    const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil:
    cdef uint32_t at = 0, length
    cdef int found = 0, kind
    cdef Unit* unit
    while at < size or found == 0:
        if unlikely(size - at < MIAX_MACH_MESSAGE):
            return MALFORMED_HEADER_SHORT
        length = le16(data + at + MIAX_MACH_LENGTH)
        if unlikely(length > size - at):
            return MALFORMED_LENGTH_BEYOND
        if unlikely(length < MIAX_MACH_MESSAGE):
            return MALFORMED_LENGTH_BELOW
        if unlikely(found == room):
            return MALFORMED_UNITS_MANY
        kind = data[at + MIAX_MACH_KIND]
        unit = &units[found]
        unit_init(unit, at + MIAX_MACH_MESSAGE, length - MIAX_MACH_MESSAGE, DELIMITER_NONE,
                  kind == MIAX_MACH_DATA and length > MIAX_MACH_MESSAGE)
        unit.session = data[at + MIAX_MACH_SESSION]
        unit.number = le64(data + at + MIAX_MACH_NUMBER)
        if kind != MIAX_MACH_DATA:
            if unlikely(kind > MIAX_MACH_DATA):
                return MALFORMED_KIND
            unit.number += 1
            unit.count = 0
            unit.flags = (UNIT_HEARTBEAT if kind == MIAX_MACH_HEARTBEAT
                          else UNIT_START_OF_SESSION if kind == MIAX_MACH_START
                          else UNIT_END_OF_SESSION)
        at += length
        found += 1
    return found
