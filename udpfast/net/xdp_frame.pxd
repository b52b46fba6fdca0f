# From an Ethernet frame to a datagram that can be trusted: what the kernel would have checked.
#
# Over links without hardware between the ends (veth, virtio) a sender leaves the UDP checksum to a
# network card that is not there: the field then holds the sum of the pseudo header alone
# (CHECKSUM_PARTIAL in the kernel's words). CHECKSUMS_AUTO takes both forms; a damaged frame from a
# real wire passes it with a probability of 2 in 65,536 instead of 1.

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.check cimport likely, unlikely
from udpfast.net.link cimport (
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, LINK_DATAGRAM, LINK_FRAGMENT, LINK_MALFORMED, LINK_TRUNCATED,
    LINKTYPE_ETHERNET, PROTOCOL_UDP, LinkDatagram, LinkFrame, big16, link_find_datagram,
)

cdef extern from "<arpa/inet.h>" nogil:
    uint16_t htons(uint16_t value)

cdef enum:  # XdpOutcome: what a frame of the ring was; the value is an offset from LINE_FRAMES
    XDP_DATAGRAM = 0
    XDP_FRAGMENT                 # first part of a fragmented IP datagram: not put together
    XDP_CHECKSUM                 # wrong IPv4 header or UDP checksum
    XDP_MALFORMED                # headers that contradict each other, or end early
    XDP_FOREIGN                  # for no line: another address, port, source or protocol
    XDP_OUTCOME_COUNT

cdef enum:  # which checksums are good enough
    CHECKSUMS_OFF = 0
    CHECKSUMS_AUTO = 1           # right, or left to hardware by a sender on a virtual link
    CHECKSUMS_ON = 2             # right


cdef inline uint64_t sum_words(const uint8_t* data, size_t size, uint64_t total) noexcept nogil:
    # Adds 16-bit words in memory order (RFC 1071 2 B: byte order does not matter to the sum), four
    # bytes at a time, in a loop that the compiler makes vectors of. A datagram cannot overflow it.
    cdef uint32_t word
    cdef size_t i, words = size >> 2
    for i in range(words):
        memcpy(&word, data + 4 * i, 4)
        total += word
    if size & 3:
        word = 0
        memcpy(&word, data + 4 * words, size & 3)
        total += word
    return total


cdef inline uint64_t sum_header(const uint8_t* network) noexcept nogil:
    # Sum an IPv4 header, which seldom has options.
    cdef uint64_t first, second
    cdef uint32_t last
    if unlikely(network[0] & 15 != 5):
        return sum_words(network, (network[0] & 15) * 4, 0)
    memcpy(&first, network, 8)
    memcpy(&second, network + 8, 8)
    memcpy(&last, network + 16, 4)
    return <uint32_t>first + (first >> 32) + <uint32_t>second + (second >> 32) + last


cdef inline uint16_t fold_sum(uint64_t total) noexcept nogil:
    total = <uint32_t>total + (total >> 32)
    total = <uint32_t>total + (total >> 32)
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return <uint16_t>total


cdef inline size_t network_offset(const uint8_t* data) noexcept nogil:
    # The IP header of a frame begins behind the addresses, the VLAN tags and the ethertype.
    cdef size_t at = 14
    while big16(data + at - 2) != ETHERTYPE_IPV4 and big16(data + at - 2) != ETHERTYPE_IPV6:
        at += 4
    return at


cdef inline bint checksums_hold(
        const uint8_t* data, LinkDatagram* found, int checksums) noexcept nogil:
    cdef const uint8_t* network = data + network_offset(data)
    cdef const uint8_t* udp = data + found.offset - 8
    cdef uint16_t field, length
    cdef uint64_t addresses, pseudo
    cdef bint ipv4 = network[0] >> 4 == 4
    if ipv4 and fold_sum(sum_header(network)) != 0xFFFF:
        return 0
    memcpy(&field, udp + 6, 2)
    if field == 0:  # none was made: IPv4 allows it (RFC 768), IPv6 does not (RFC 8200 8.1)
        return ipv4
    memcpy(&length, udp + 4, 2)
    pseudo = <uint64_t>length + htons(PROTOCOL_UDP)
    if ipv4:
        memcpy(&addresses, network + 12, 8)
        pseudo += <uint32_t>addresses + (addresses >> 32)
    else:
        pseudo = sum_words(network + 8, 32, pseudo)
    if checksums == CHECKSUMS_AUTO and field == fold_sum(pseudo):
        return 1
    return fold_sum(sum_words(udp, found.size + 8, pseudo)) == 0xFFFF


cdef inline void find_fragment_port(LinkFrame* frame, LinkDatagram* found) noexcept nogil:
    # The UDP header of a first fragment, so that it is counted where it belongs; 0: not there.
    cdef size_t at = network_offset(frame.data)
    cdef const uint8_t* network = frame.data + at
    found.destination_port = 0
    at += (network[0] & 15) * 4 if network[0] >> 4 == 4 else 48
    if at + 4 <= frame.size:
        found.destination_port = big16(frame.data + at + 2)


cdef inline int xdp_find_datagram(
        const uint8_t* data, uint32_t size, int checksums, LinkDatagram* found) noexcept nogil:
    # XDP_DATAGRAM, XDP_FRAGMENT and XDP_CHECKSUM fill in addresses and destination port.
    cdef LinkFrame frame
    cdef int verdict
    frame.data = data
    frame.size = size
    frame.wire_size = size
    frame.link_type = LINKTYPE_ETHERNET
    verdict = link_find_datagram(&frame, found)
    if likely(verdict == LINK_DATAGRAM):
        if unlikely(big16(data + found.offset - 4) == 0):
            return XDP_MALFORMED
        if likely(checksums == CHECKSUMS_OFF or checksums_hold(data, found, checksums)):
            return XDP_DATAGRAM
        return XDP_CHECKSUM
    if verdict == LINK_FRAGMENT:
        find_fragment_port(&frame, found)
        return XDP_FRAGMENT
    if verdict == LINK_MALFORMED or verdict == LINK_TRUNCATED:
        return XDP_MALFORMED
    return XDP_FOREIGN
