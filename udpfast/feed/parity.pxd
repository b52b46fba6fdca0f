# Parity: what a line loses is rebuilt from what it did not lose. Datagrams go round some
# groups, `depth`; when one has `members` of them, their parity follows, `depth` datagrams later:
#
#   depth 3, members 2:   1a 2b 3c 4a 5b 6c 7a A 8b B 9c C ...       A = 1 xor 4, B = 2 xor 5, ...
#
# So a burst of up to `depth` datagrams takes one of a group at most, its parity included.
#
# A parity datagram looks like one of Roq's with an encoding that no feed allows (wire/frame), so
# that a receiver that knows nothing of it counts it and passes it over. All integers are
# little-endian, and the members are of one session:
#
#    0 u8 15   1 u8 0   2 u8 0   3 u8 version   4 u16 members   6 u16 session
#    8 u32 number of the first member   12 u32 size of the xor
#   16 u64 sum of the members' fingerprints   24 u16 xor of their sizes   26 u16 0
#   28 members: u16 number less the first one's, u8 fragment, u8 0
#   .. xor of the members' bytes, header included, each filled up with zeros
#
# The sum is no xor: members that are not what the sender had give another one, whatever was rebuilt
# from them.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.core.layout cimport DATAGRAM_SIZE_MAX, FRAME_SIZE, Frame
from udpfast.feed.fingerprint cimport fingerprint

cdef enum:
    PARITY_CONTROL = 15
    PARITY_VERSION = 1
    PARITY_MEMBERS_MAX = 32
    PARITY_DEPTH_MAX = 32
    PARITY_HEADER = 28
    PARITY_SIZE_MAX = 684        # header, 32 members of 4 bytes, and a whole datagram
    PARITY_SPAN_MAX = 60000      # numbers from the first member to the last, less than 16 bits

cdef packed struct ParityHeader:
    uint8_t control
    uint8_t fragment
    uint8_t fragment_max
    uint8_t version
    uint16_t members
    uint16_t session
    uint32_t first
    uint32_t xor_size
    uint64_t sum
    uint16_t sizes
    uint16_t reserved

cdef packed struct ParityMember:
    uint16_t number
    uint8_t fragment
    uint8_t reserved

cdef struct ParityGroup:
    ParityHeader header
    ParityMember members[PARITY_MEMBERS_MAX]
    uint8_t xor_bytes[DATAGRAM_SIZE_MAX]
    uint64_t due                 # it leaves with the datagram of that count; 0: it is not complete

cdef struct Parity:
    uint32_t members             # 0: there is no parity
    uint32_t depth
    uint64_t count               # datagrams so far
    int64_t since_ns             # when the oldest that no parity covers yet was added; 0: none
    ParityGroup groups[2 * PARITY_DEPTH_MAX]     # those that fill, and those that wait to leave


cdef inline void parity_init(Parity* parity, uint32_t members, uint32_t depth) noexcept nogil:
    memset(parity, 0, sizeof(Parity))
    parity.members = members
    parity.depth = depth


cdef inline void parity_xor(uint8_t* to, const uint8_t* data, uint32_t size) noexcept nogil:
    cdef uint64_t a, b
    cdef uint32_t i = 0
    while i + 8 <= size:
        memcpy(&a, to + i, 8)
        memcpy(&b, data + i, 8)
        a ^= b
        memcpy(to + i, &a, 8)
        i += 8
    while i < size:
        to[i] ^= data[i]
        i += 1


cdef inline uint32_t parity_add(
        Parity* parity, const uint8_t* data, uint32_t size, int64_t now_ns,
        uint8_t* out) noexcept nogil:
    # A datagram that leaves. The size of the parity that is to leave behind it, in `out`; 0: none.
    cdef uint32_t place = <uint32_t>(parity.count % parity.depth)
    cdef ParityGroup* group = parity.groups + place
    cdef ParityGroup* done = group + parity.depth
    cdef uint32_t made = 0
    cdef Frame frame
    memcpy(&frame, data, FRAME_SIZE)
    parity.count += 1
    if done.due:
        made = parity_write(done, out)
    if group.header.members and (
            group.header.session != frame.session_id
            or frame.seqno - group.header.first > <uint32_t>PARITY_SPAN_MAX):
        # It cannot be one of these: what they are leaves as it is.
        done[0] = group[0]
        done.due = parity.count
        memset(group, 0, sizeof(ParityGroup))
    if group.header.members == 0:
        group.header.control = PARITY_CONTROL
        group.header.version = PARITY_VERSION
        group.header.session = frame.session_id
        group.header.first = frame.seqno
    group.members[group.header.members].number = <uint16_t>(frame.seqno - group.header.first)
    group.members[group.header.members].fragment = frame.fragment
    group.header.members += 1
    group.header.sizes ^= <uint16_t>size
    group.header.sum += fingerprint(data, size)
    group.header.xor_size = max(group.header.xor_size, size)
    parity_xor(group.xor_bytes, data, size)
    if group.header.members == parity.members:
        done[0] = group[0]
        done.due = parity.count
        memset(group, 0, sizeof(ParityGroup))
    if parity.since_ns == 0:
        parity.since_ns = now_ns
    return made


cdef inline uint32_t parity_rest(Parity* parity, uint8_t* out) noexcept nogil:
    # The next parity of what was added so far; 0: all of it is covered. Those that wait to leave
    # come first; then those that are not complete, as many in one as it may have members: of a few
    # datagrams that came slowly each is lost by itself.
    cdef ParityGroup* first = NULL
    cdef ParityGroup* group
    cdef uint32_t i
    for i in range(parity.depth):
        group = parity.groups + parity.depth + (parity.count + i) % parity.depth
        if group.header.members:
            return parity_write(group, out)
        group -= parity.depth
        if group.header.members and (first == NULL or <int32_t>(
                group.header.first - first.header.first) < 0):
            first = group
    if first == NULL:
        parity.since_ns = 0
        return 0
    for i in range(parity.depth):
        if parity.groups + i != first and parity.groups[i].header.members:
            parity_merge(parity, first, parity.groups + i)
    return parity_write(first, out)


cdef inline void parity_merge(
        const Parity* parity, ParityGroup* to, ParityGroup* group) noexcept nogil:
    # Cover what another group covers, if one parity may.
    cdef uint32_t ahead = group.header.first - to.header.first
    cdef uint32_t i, count = group.header.members
    if (group.header.session != to.header.session or to.header.members + count > parity.members
            or ahead + group.members[count - 1].number > <uint32_t>PARITY_SPAN_MAX):
        return
    for i in range(count):
        to.members[to.header.members] = group.members[i]
        to.members[to.header.members].number += <uint16_t>ahead
        to.header.members += 1
    to.header.sizes ^= group.header.sizes
    to.header.sum += group.header.sum
    to.header.xor_size = max(to.header.xor_size, group.header.xor_size)
    parity_xor(to.xor_bytes, group.xor_bytes, group.header.xor_size)
    memset(group, 0, sizeof(ParityGroup))


cdef inline uint32_t parity_write(ParityGroup* group, uint8_t* out) noexcept nogil:
    cdef uint32_t members = group.header.members
    cdef uint32_t at = PARITY_HEADER
    memcpy(out, &group.header, PARITY_HEADER)
    memcpy(out + at, group.members, members * sizeof(ParityMember))
    at += members * <uint32_t>sizeof(ParityMember)
    memcpy(out + at, group.xor_bytes, group.header.xor_size)
    at += group.header.xor_size
    memset(group, 0, sizeof(ParityGroup))
    return at
