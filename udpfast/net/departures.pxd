# Time stamps of sent datagrams, which the kernel puts on the socket's error queue.
#
# See Documentation/networking/timestamping.rst of Linux: with OPT_ID a stamp has the number of its
# datagram, counted per socket from 0 since the option was set; with OPT_TSONLY it comes without
# the datagram's bytes. The stamp is the NIC's if it makes one, otherwise the kernel's.

from libc.stdint cimport int64_t, uint32_t

cdef struct Departures:
    uint32_t number
    bint hardware
    int64_t stamp_ns             # UNIX time

# Takes the next stamp from the queue; never blocks. Returns whether there was one.
cdef bint departure_next(int fd, Departures* found) noexcept nogil
