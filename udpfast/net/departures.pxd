# Stamps of what left: the kernel puts each on the socket's error queue, the NIC's if it makes one.
#
# See Documentation/networking/timestamping.rst of Linux: with OPT_ID a stamp comes with the number
# of the datagram that it is of, counted per socket from 0 since the option was set; with
# OPT_TSONLY it comes without the datagram's bytes.

from libc.stdint cimport int64_t, uint32_t

cdef struct Departures:
    uint32_t number
    bint hardware
    int64_t stamp_ns             # UNIX time

# Takes the next stamp from the queue; never blocks. Returns whether there was one.
cdef bint departure_next(int fd, Departures* found) noexcept nogil
