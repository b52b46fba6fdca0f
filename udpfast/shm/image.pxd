# Image: entries of any size in a region, which one writer replaces as a whole and any number of
# readers copy. The contents of an entry are its writer's business.
#
#   0               4096               4096 + 64 * slots
#   +-------------+----------------------+-------------------------------------------+
#   | ImageHeader | ImageSlot[slots]     | blocks: powers of two, from 256 bytes     |
#   +-------------+----------------------+-------------------------------------------+
#
# Every slot has two buffers; version n lies in buffer n & 1. The protocol, in three rules:
#
#   1. Before the writer touches the buffer of version n, it sets `begun` to n; once the buffer is
#      complete, it sets `done` to n.
#   2. A reader loads `done` = n, copies buffer n & 1, then loads `begun`: the copy is sound if
#      `begun` is at most n + 1 (then only the other buffer was written meanwhile).
#   3. A buffer that must grow moves to another block with its new version. A reader that copied
#      from the old block finds by rule 2 that it was too slow.
#
# If the writer dies while it writes, the previous version stays intact. Readers map the region
# read-only, copy before they validate, and check offset and size against the region: a broken
# writer can feed them wrong bytes, but not lead them outside the region.

from libc.errno cimport EAGAIN, EBADMSG, EMSGSIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.core.atomics cimport (
    fence_acquire,
    fence_release,
    load_acquire,
    load_relaxed,
    store_relaxed,
    store_release,
)
from udpfast.core.check cimport unlikely
from udpfast.shm.region cimport Region

cdef enum:
    IMAGE_SLOTS = 4096           # offset of the slots in the region
    IMAGE_SLOT_SIZE = 64
    IMAGE_SLOTS_MAX = 16777216
    IMAGE_BLOCK_BITS = 8         # the smallest block has 2^8 bytes
    IMAGE_CLASSES = 40
    IMAGE_ATTEMPTS = 1000        # attempts to copy an entry that keeps being replaced

cdef struct ImageHeader:
    uint8_t region[128]
    uint64_t slots

cdef struct ImageSlot:           # 64 bytes
    uint64_t begun
    uint64_t done                # 0: never written
    uint64_t offset[2]           # of each buffer's block in the region; 0: none
    uint64_t room[2]             # bytes of the block
    uint64_t size[2]             # bytes of the entry

cdef struct ImageWriter:
    uint8_t* memory              # the region
    ImageSlot* slots
    uint64_t slots_count
    uint64_t next                # offset of the memory that was never part of a block
    uint64_t end
    uint64_t free[IMAGE_CLASSES]  # offset of the first free block of 2^i bytes; 0: none

cdef struct ImageReader:
    const uint8_t* memory
    const ImageSlot* slots
    uint64_t slots_count
    uint64_t size                # of the region, in bytes


# --- writing ------------------------------------------------------------------------------------

cdef inline int image_class(uint64_t size) noexcept nogil:
    cdef int bits = IMAGE_BLOCK_BITS
    while bits < IMAGE_CLASSES and (<uint64_t>1 << bits) < size:
        bits += 1
    return bits


cdef inline uint64_t image_block(ImageWriter* w, int bits) noexcept nogil:
    # Return the offset of a free block of 2^bits bytes; 0: there is none.
    cdef uint64_t offset, size = <uint64_t>1 << bits
    if bits >= IMAGE_CLASSES:
        return 0
    offset = w.free[bits]
    if offset:
        memcpy(&w.free[bits], w.memory + offset, 8)
        return offset
    if w.end - w.next < size:
        return 0
    offset = w.next
    w.next += size
    return offset


cdef inline void image_release(ImageWriter* w, uint64_t offset, uint64_t room) noexcept nogil:
    cdef int bits = image_class(room)
    memcpy(w.memory + offset, &w.free[bits], 8)
    w.free[bits] = offset


cdef inline bint image_reserve(ImageWriter* w, uint32_t slot, uint64_t size) noexcept nogil:
    # Give a slot that was never written two blocks, so that image_begin always has room for `size`.
    # False: there is no room; the slot keeps what it got for the next attempt.
    cdef ImageSlot* s = w.slots + slot
    cdef int side, bits = image_class(size)
    for side in range(2):
        if s.offset[side] == 0:
            s.offset[side] = image_block(w, bits)
            s.room[side] = <uint64_t>1 << bits
        if s.offset[side] == 0:
            return False
    return True


cdef inline uint8_t* image_begin(ImageWriter* w, uint32_t slot, uint64_t size) noexcept nogil:
    # Return where to write the next version of an entry of `size` bytes. image_end must follow.
    # NULL: there is no room, and the previous version stays.
    cdef ImageSlot* s = w.slots + slot
    cdef uint64_t version = s.done + 1
    cdef int side = version & 1
    cdef int bits = image_class(size)
    cdef bint fits = s.offset[side] != 0 and size <= s.room[side]
    # Give back a block that is much too large, because each session numbers its objects anew.
    cdef bint move = not fits or s.room[side] > <uint64_t>8 << bits
    cdef uint64_t offset = image_block(w, bits) if move else s.offset[side]
    if unlikely(offset == 0):
        if not fits:
            return NULL
        move = False
        offset = s.offset[side]
    store_relaxed(&s.begun, version)
    # Orders `begun` before every byte of the buffer; read by image_copy after its copy.
    fence_release()
    if move:
        if s.offset[side]:
            image_release(w, s.offset[side], s.room[side])
        store_relaxed(&s.offset[side], offset)
        store_relaxed(&s.room[side], <uint64_t>1 << bits)
    store_relaxed(&s.size[side], size)
    return w.memory + offset


cdef inline void image_end(ImageWriter* w, uint32_t slot) noexcept nogil:
    cdef ImageSlot* s = w.slots + slot
    # Orders the buffer before its version; read by image_copy.
    store_release(&s.done, s.begun)


# --- reading ------------------------------------------------------------------------------------

cdef inline int64_t image_copy(
        const ImageReader* r, uint32_t slot, uint8_t* out, uint64_t room) noexcept nogil:
    # Copy an entry. Returns its size; 0 if it was never written; -EMSGSIZE: room is too small (*out
    # then holds the size in 8 bytes, which `room` must have); -EBADMSG: the slot is corrupt;
    # -EAGAIN: the entry was replaced too often.
    cdef int64_t size = image_copy_head(r, slot, out, room)
    if size > 0 and <uint64_t>size > room:
        memcpy(out, &size, 8)
        return -EMSGSIZE
    return size


cdef inline int64_t image_copy_head(
        const ImageReader* r, uint32_t slot, uint8_t* out, uint64_t room) noexcept nogil:
    # Copy the first `room` bytes of an entry, or all of it; otherwise as image_copy.
    cdef const ImageSlot* s = r.slots + slot
    cdef uint64_t version, offset, size
    cdef int _attempt
    for _attempt in range(IMAGE_ATTEMPTS):
        version = load_acquire(&s.done)
        if version == 0:
            return 0
        offset = load_relaxed(&s.offset[version & 1])
        size = load_relaxed(&s.size[version & 1])
        if size <= r.size and offset <= r.size - size:
            memcpy(out, r.memory + offset, min(size, room))
        # Orders the copy before the load of `begun`, which the writer stores before it overwrites.
        fence_acquire()
        if load_relaxed(&s.begun) > version + 1:
            continue
        if size > r.size or offset > r.size - size or offset & 7:
            return -EBADMSG
        return <int64_t>size
    return -EAGAIN


cdef class Image:
    cdef ImageWriter writer
    cdef readonly Region region

cdef class ImageView:
    cdef ImageReader reader
    cdef readonly Region region
