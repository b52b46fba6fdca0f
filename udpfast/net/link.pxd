# Find the UDP datagram in a frame of the link layer, in place.
#
# Never reads outside the frame, whatever its bytes are: every length is compared with the bytes
# left before it is used. Link types: https://www.tcpdump.org/linktypes.html

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

cdef enum:  # LinkVerdict: what a frame is
    LINK_DATAGRAM = 0            # a whole UDP datagram
    LINK_FRAGMENT                # an IP fragment: not reassembled
    LINK_NOT_UDP                 # another protocol above IP
    LINK_NOT_IP                  # ARP and the like
    LINK_TRUNCATED               # the capture kept too few bytes of the frame
    LINK_MALFORMED               # headers that contradict each other
    LINK_UNKNOWN                 # a link type that is not supported
    LINK_VERDICT_COUNT

cdef enum:
    LINKTYPE_NULL = 0
    LINKTYPE_ETHERNET = 1
    LINKTYPE_RAW_BSD = 12
    LINKTYPE_RAW_OPENBSD = 14
    LINKTYPE_RAW = 101
    LINKTYPE_LOOP = 108
    LINKTYPE_LINUX_SLL = 113
    LINKTYPE_IPV4 = 228
    LINKTYPE_IPV6 = 229
    LINKTYPE_LINUX_SLL2 = 276
    ETHERTYPE_IPV4 = 0x0800
    ETHERTYPE_IPV6 = 0x86DD
    ETHERTYPE_VLAN = 0x8100
    ETHERTYPE_VLAN_OUTER = 0x88A8
    ETHERTYPE_VLAN_OLD = 0x9100
    PROTOCOL_UDP = 17

cdef struct LinkFrame:
    const uint8_t* data
    size_t size                  # bytes at data
    size_t wire_size             # bytes on the wire; more than `size` if the capture kept fewer
    uint32_t link_type

cdef struct LinkDatagram:
    uint8_t source[16]           # IPv6, or IPv4 mapped (::ffff:a.b.c.d)
    uint8_t destination[16]
    uint16_t source_port
    uint16_t destination_port
    uint32_t offset              # of the payload, in the frame
    uint32_t size                # of the payload


cdef inline uint16_t big16(const uint8_t* data) noexcept nogil:
    return <uint16_t>(<uint32_t>data[0] << 8 | data[1])


cdef inline void map_ipv4(uint8_t* address, const uint8_t* bytes_) noexcept nogil:
    memset(address, 0, 10)
    memset(address + 10, 0xFF, 2)
    memcpy(address + 12, bytes_, 4)


cdef inline int cut_or_malformed(LinkFrame* frame, size_t needed) noexcept nogil:
    # The frame has too few bytes: because the capture cut it, or because it was too short itself?
    return LINK_TRUNCATED if frame.wire_size >= needed else LINK_MALFORMED


cdef inline int find_in_udp(
        LinkFrame* frame, size_t at, size_t left, LinkDatagram* found) noexcept nogil:
    cdef size_t size
    if left < 8:
        return LINK_MALFORMED
    if frame.size < at + 8:
        return cut_or_malformed(frame, at + 8)
    size = big16(frame.data + at + 4)
    if size == 0:  # longer than 16 bits can state (RFC 2675), or left to the network card
        size = left
    if size < 8 or size > left:
        return LINK_MALFORMED
    if frame.size < at + size:
        return cut_or_malformed(frame, at + size)
    found.source_port = big16(frame.data + at)
    found.destination_port = big16(frame.data + at + 2)
    found.offset = <uint32_t>(at + 8)
    found.size = <uint32_t>(size - 8)
    return LINK_DATAGRAM


cdef inline int find_in_ipv4(LinkFrame* frame, size_t at, LinkDatagram* found) noexcept nogil:
    cdef const uint8_t* header = frame.data + at
    cdef size_t header_size, total
    if frame.size < at + 20:
        return cut_or_malformed(frame, at + 20)
    header_size = (header[0] & 15) * 4
    total = big16(header + 2)
    if total == 0:  # left to the network card (segmentation offload): use the frame's size
        total = frame.wire_size - at if frame.wire_size > at else 0
    if header[0] >> 4 != 4 or header_size < 20 or total < header_size:
        return LINK_MALFORMED
    map_ipv4(found.source, header + 12)
    map_ipv4(found.destination, header + 16)
    if big16(header + 6) & 0x3FFF:
        return LINK_FRAGMENT
    if header[9] != PROTOCOL_UDP:
        return LINK_NOT_UDP
    return find_in_udp(frame, at + header_size, total - header_size, found)


cdef inline int find_in_ipv6(LinkFrame* frame, size_t at, LinkDatagram* found) noexcept nogil:
    cdef const uint8_t* header = frame.data + at
    cdef size_t left, extension
    cdef uint8_t following
    if frame.size < at + 40:
        return cut_or_malformed(frame, at + 40)
    if header[0] >> 4 != 6:
        return LINK_MALFORMED
    left = big16(header + 4)
    following = header[6]
    memcpy(found.source, header + 8, 16)
    memcpy(found.destination, header + 24, 16)
    at += 40
    while following == 0 or following == 43 or following == 60:  # options and routing
        if left < 8:
            return LINK_MALFORMED
        if frame.size < at + 8:
            return cut_or_malformed(frame, at + 8)
        following = frame.data[at]
        extension = (<size_t>frame.data[at + 1] + 1) * 8
        if extension > left:
            return LINK_MALFORMED
        at += extension
        left -= extension
    if following == 44:
        return LINK_FRAGMENT
    if following != PROTOCOL_UDP:
        return LINK_NOT_UDP
    return find_in_udp(frame, at, left, found)


cdef inline int link_find_datagram(LinkFrame* frame, LinkDatagram* found) noexcept nogil:
    cdef const uint8_t* data = frame.data
    cdef size_t at, size = frame.size
    cdef uint32_t ethertype = 0
    if frame.link_type == LINKTYPE_ETHERNET:
        at = 14
    elif frame.link_type == LINKTYPE_LINUX_SLL:
        at = 16
    elif frame.link_type == LINKTYPE_LINUX_SLL2:
        at = 20
    elif frame.link_type == LINKTYPE_NULL or frame.link_type == LINKTYPE_LOOP:
        at = 4  # skip the address family, whose byte order is unknown; the IP version is enough
    elif (frame.link_type == LINKTYPE_RAW or frame.link_type == LINKTYPE_RAW_BSD
            or frame.link_type == LINKTYPE_RAW_OPENBSD or frame.link_type == LINKTYPE_IPV4
            or frame.link_type == LINKTYPE_IPV6):
        at = 0
    else:
        return LINK_UNKNOWN
    if size < at + 1:
        return cut_or_malformed(frame, at + 1)
    if at <= 4:
        ethertype = ETHERTYPE_IPV6 if data[at] >> 4 == 6 else ETHERTYPE_IPV4
    else:
        ethertype = big16(data) if frame.link_type == LINKTYPE_LINUX_SLL2 else big16(data + at - 2)
    while (ethertype == ETHERTYPE_VLAN or ethertype == ETHERTYPE_VLAN_OUTER
            or ethertype == ETHERTYPE_VLAN_OLD):  # one or two VLAN tags
        if size < at + 5:
            return cut_or_malformed(frame, at + 5)
        ethertype = big16(data + at + 2)
        at += 4
    if ethertype == ETHERTYPE_IPV4:
        return find_in_ipv4(frame, at, found)
    if ethertype == ETHERTYPE_IPV6:
        return find_in_ipv6(frame, at, found)
    return LINK_NOT_IP
