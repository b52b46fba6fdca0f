# Repair: the other half of parity.pxd. It keeps the newest datagrams of all lines, and what a
# parity datagram covers of which one was lost is rebuilt and goes on as if its line had brought it:
#
#   repair_note(r, data, size)               # each datagram of the channel
#   repair_parity(r, data, size)             # or it is a parity datagram
#   while repair_next(r, out, &size): ...    # REPAIR_FOUND: `out` has `size` bytes; or refused
#
# What was rebuilt is believed only if the fingerprints of all members add up to what the sender
# said. Members that are missing may come later by another line, so a parity waits for them.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.core.layout cimport DATAGRAM_SIZE_MAX, FRAME_SIZE, Frame
from udpfast.feed.fingerprint cimport fingerprint
from udpfast.feed.parity cimport (
    PARITY_CONTROL, PARITY_HEADER, PARITY_MEMBERS_MAX, PARITY_SIZE_MAX, PARITY_VERSION,
    ParityHeader, ParityMember, parity_xor)

cdef enum:
    # Two lines of a burst each, and groups of 32 by 32: a power of two.
    REPAIR_KEPT = 2048
    REPAIR_WAITING = 32          # parities of which more than one member is missing
    REPAIR_FOUND = 1
    REPAIR_REFUSED = 2           # what was rebuilt is not what the sender had

cdef struct RepairKept:
    uint64_t key
    uint64_t serial              # from 1; 0: nothing is kept here
    uint64_t before              # serial of the one before of the same bucket
    uint32_t size
    uint8_t data[DATAGRAM_SIZE_MAX]

cdef struct RepairWaiting:
    uint32_t size                # 0: nothing waits here
    uint32_t first               # its members' numbers: from here, and so far
    uint32_t span
    bint changed                 # one of these may have come since it was tried
    uint8_t data[PARITY_SIZE_MAX]

cdef struct Repair:
    uint64_t serial
    uint64_t buckets[REPAIR_KEPT]
    RepairKept kept[REPAIR_KEPT]
    RepairWaiting waiting[REPAIR_WAITING]
    uint32_t waiting_at          # where the next one is put
    uint32_t waiting_count
    bint changed                 # one of those that wait has changed


cdef inline bint repair_is_parity(const uint8_t* data, uint32_t size) noexcept nogil:
    return size > PARITY_HEADER and data[0] == PARITY_CONTROL and data[3] == PARITY_VERSION


cdef inline uint64_t repair_key(uint16_t session, uint32_t number, uint8_t fragment) noexcept nogil:
    return <uint64_t>session << 40 | <uint64_t>number << 8 | fragment


cdef inline uint32_t repair_bucket(uint64_t key) noexcept nogil:
    return <uint32_t>((key * <uint64_t>0x9E3779B97F4A7C15) >> 53)     # 11 bits: REPAIR_KEPT


cdef inline RepairKept* repair_find(Repair* repair, uint64_t key) noexcept nogil:
    cdef uint64_t serial = repair.buckets[repair_bucket(key)]
    cdef RepairKept* kept
    while serial and serial + REPAIR_KEPT > repair.serial:
        kept = repair.kept + (serial & (REPAIR_KEPT - 1))
        if kept.serial != serial:
            return NULL
        if kept.key == key:
            return kept
        serial = kept.before
    return NULL


cdef inline void repair_note(Repair* repair, const uint8_t* data, uint32_t size) noexcept nogil:
    # The first copy counts: that another one differs is for the window to say.
    cdef Frame frame
    cdef RepairKept* kept
    cdef uint64_t key
    if size < FRAME_SIZE or size > DATAGRAM_SIZE_MAX:
        return
    memcpy(&frame, data, FRAME_SIZE)
    key = repair_key(frame.session_id, frame.seqno, frame.fragment)
    if repair_find(repair, key) != NULL:
        return
    repair.serial += 1
    kept = repair.kept + (repair.serial & (REPAIR_KEPT - 1))
    kept.key = key
    kept.serial = repair.serial
    kept.before = repair.buckets[repair_bucket(key)]
    kept.size = size
    memcpy(kept.data, data, size)
    repair.buckets[repair_bucket(key)] = repair.serial
    if repair.waiting_count:
        repair_wake(repair, frame.seqno)


cdef inline void repair_wake(Repair* repair, uint32_t number) noexcept nogil:
    # A number came that may be missing from what waits.
    cdef uint32_t i
    for i in range(<uint32_t>REPAIR_WAITING):
        if repair.waiting[i].size and number - repair.waiting[i].first <= repair.waiting[i].span:
            repair.waiting[i].changed = repair.changed = True


cdef inline bint repair_parity(Repair* repair, const uint8_t* data, uint32_t size) noexcept nogil:
    # Keep it until what it covers is there. False: it is none that anybody would send.
    cdef ParityHeader header
    cdef ParityMember member
    cdef uint32_t i
    cdef RepairWaiting* place = repair.waiting + repair.waiting_at
    if size < PARITY_HEADER or size > PARITY_SIZE_MAX:
        return False
    memcpy(&header, data, PARITY_HEADER)
    if (header.members == 0 or header.members > PARITY_MEMBERS_MAX
            or header.xor_size < FRAME_SIZE or header.xor_size > DATAGRAM_SIZE_MAX
            or size != PARITY_HEADER + header.members * sizeof(ParityMember) + header.xor_size):
        return False
    repair.waiting_count += place.size == 0
    place.size = size
    memcpy(place.data, data, size)
    place.first = header.first
    place.span = 0
    for i in range(header.members):
        memcpy(&member, data + PARITY_HEADER + i * sizeof(ParityMember), sizeof(ParityMember))
        place.span = max(place.span, <uint32_t>member.number)
    place.changed = True
    repair.waiting_at = (repair.waiting_at + 1) % REPAIR_WAITING
    repair.changed = True
    return True


cdef inline int repair_next(Repair* repair, uint8_t* out, uint32_t* size) noexcept nogil:
    # 0: nothing more; REPAIR_FOUND: `out` has a datagram, which is noted; REPAIR_REFUSED: one that
    # must not be believed, and its parity is forgotten.
    cdef uint32_t i
    cdef int rc
    if not repair.changed:
        return 0
    for i in range(<uint32_t>REPAIR_WAITING):
        if repair.waiting[i].changed:
            repair.waiting[i].changed = False
            if repair.waiting[i].size == 0:
                continue
            rc = repair_try(repair, repair.waiting + i, out, size)
            if rc:
                return rc
    repair.changed = False
    return 0


cdef inline int repair_try(
        Repair* repair, RepairWaiting* waiting, uint8_t* out, uint32_t* size) noexcept nogil:
    cdef ParityHeader header
    cdef ParityMember member, missing
    cdef RepairKept* kept
    cdef uint64_t sum_
    cdef uint32_t i, lost = 0
    cdef uint16_t sizes
    memcpy(&header, waiting.data, PARITY_HEADER)
    sum_ = 0
    sizes = header.sizes
    memset(&missing, 0, sizeof(ParityMember))
    for i in range(header.members):
        memcpy(&member, waiting.data + PARITY_HEADER + i * sizeof(ParityMember),
               sizeof(ParityMember))
        if repair_find(repair, repair_key(
                header.session, header.first + member.number, member.fragment)) == NULL:
            missing = member
            lost += 1
    if lost > 1:
        return 0
    waiting.size = 0
    repair.waiting_count -= 1
    memset(out, 0, DATAGRAM_SIZE_MAX)
    memcpy(out, waiting.data + PARITY_HEADER + header.members * sizeof(ParityMember),
           header.xor_size)
    for i in range(header.members):
        memcpy(&member, waiting.data + PARITY_HEADER + i * sizeof(ParityMember),
               sizeof(ParityMember))
        kept = repair_find(repair, repair_key(
            header.session, header.first + member.number, member.fragment))
        if kept != NULL:
            parity_xor(out, kept.data, kept.size)
            sizes ^= <uint16_t>kept.size
            sum_ += fingerprint(kept.data, kept.size)
    if lost == 0:
        return 0 if sum_ == header.sum else REPAIR_REFUSED
    if not repair_is_sound(out, sizes, &header, &missing) or (
            sum_ + fingerprint(out, sizes) != header.sum):
        return REPAIR_REFUSED
    size[0] = sizes
    repair_note(repair, out, sizes)
    return REPAIR_FOUND


cdef inline bint repair_is_sound(
        const uint8_t* data, uint32_t size, const ParityHeader* header,
        const ParityMember* member) noexcept nogil:
    cdef Frame frame
    if size < FRAME_SIZE or size > header.xor_size:
        return False
    memcpy(&frame, data, FRAME_SIZE)
    return (frame.session_id == header.session and frame.fragment == member.fragment
            and frame.seqno == header.first + member.number)
