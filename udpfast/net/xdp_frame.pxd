# Find and check the datagram in an Ethernet frame, as the kernel would have done.
#
# On virtual links (veth, virtio) a sender leaves the UDP checksum to a network card that does not
# exist: the field then holds the sum of the pseudo header only (CHECKSUM_PARTIAL in the kernel).
# CHECKSUMS_AUTO accepts both forms; a damaged frame from a real wire then passes with a probability
# of 2 in 65,536 instead of 1.

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.check cimport likely, unlikely
from udpfast.net.link cimport (
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, LINK_DATAGRAM, LINK_FRAGMENT, LINK_MALFORMED, LINK_TRUNCATED,
    LINKTYPE_ETHERNET, PROTOCOL_UDP, LinkDatagram, LinkFrame, big16, link_find_datagram,
)

cdef extern from "<arpa/inet.h>" nogil:
    uint16_t htons(uint16_t value)

cdef enum:  # XdpOutcome: what became of a frame; the value is an offset from LINE_FRAMES
    XDP_DATAGRAM = 0
    XDP_FRAGMENT                 # the first fragment of an IP datagram: not reassembled
    XDP_CHECKSUM                 # the checksum of the IPv4 header or of UDP is wrong
    XDP_MALFORMED                # headers contradict each other, or end early
    XDP_FOREIGN                  # of no line: another address, port, source or protocol
    XDP_OUTCOME_COUNT

cdef enum:  # which checksums are accepted
    CHECKSUMS_OFF = 0            # any: they are not checked
    CHECKSUMS_AUTO = 1           # right ones, and those that a virtual link left to hardware
    CHECKSUMS_ON = 2             # right ones only


cdef inline uint64_t sum_words(const uint8_t* data, size_t size, uint64_t total) noexcept nogil:
    # Add 16-bit words in memory order (RFC 1071 2 B: byte order does not matter to the sum), four
    # bytes at a time, in a loop that the compiler vectorises. A datagram cannot overflow `total`.
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
    # Sum an IPv4 header; most have no options.
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
    # Offset of the IP header, which begins behind addresses, VLAN tags and ethertype.
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
    if field == 0:  # no checksum: allowed in IPv4 (RFC 768), but not in IPv6 (RFC 8200 8.1)
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
    # Read the port of a first fragment, so that its line counts it; 0: the UDP header is missing.
    cdef size_t at = network_offset(frame.data)
    cdef const uint8_t* network = frame.data + at
    found.destination_port = 0
    at += (network[0] & 15) * 4 if network[0] >> 4 == 4 else 48
    if at + 4 <= frame.size:
        found.destination_port = big16(frame.data + at + 2)


cdef inline int xdp_find_datagram(
        const uint8_t* data, uint32_t size, int checksums, LinkDatagram* found) noexcept nogil:
    # Returns XdpOutcome. `found` has addresses and destination port if it is less than MALFORMED.
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
