# MoldUDP64 with numbers in little endian, as IntelligentCross sends it; otherwise as moldudp64.pxd.

from libc.stdint cimport uint8_t, uint32_t

from udpfast.wire.moldudp64 cimport moldudp64_read
from udpfast.wire.unit cimport Unit


cdef inline int moldudp64le_units(
    const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil:
    return moldudp64_read(data, size, units, True)
