# Collect: holds updates while their object waits for a snapshot. Whole messages are copied into a
# pool of small blocks that all objects share. A common update takes one block, the largest message
# 260. Nothing is allocated after collect_init.
#
# Blocks are named by index. The `next` of a free block is the next free block; blocks from
# `blocks_fresh` on were never used, so that clearing the pool takes constant time.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.layout cimport KIND_MESSAGE, Message

cdef enum:
    COLLECT_BLOCK_SIZE = 512     # a typical update (100 to 400 bytes) and both headers
    COLLECT_BLOCK_BYTES = 504    # of it, behind `next`
    COLLECT_NONE = 0xFFFFFFFF

cdef struct CollectBlock:
    uint32_t next                # next block of the message, or next free block
    uint32_t reserved
    uint8_t bytes[504]

cdef struct CollectHead:         # 80 bytes, before the payload in a message's first block
    uint64_t seqno               # extended to 64 bits
    uint64_t through             # the same, or the last ungated number that continues it
    uint64_t number              # these as of the message
    int64_t received_ns
    uint64_t detail              # this and session_id as in the message
    uint64_t session_id
    uint32_t object
    uint32_t next_message        # the next held message of the same object
    uint32_t size                # payload bytes
    uint32_t blocks
    uint16_t flags
    uint16_t fragments
    uint16_t session
    uint16_t stream
    uint8_t channel
    uint8_t line
    uint8_t reserved[6]

cdef struct Collect:
    CollectBlock* blocks
    uint32_t blocks_max
    uint32_t blocks_fresh        # blocks from here on were not used since the last clear
    uint32_t blocks_used
    uint32_t free_head


cdef inline size_t collect_memory_size(uint64_t size_bytes) noexcept nogil:
    return <size_t>(size_bytes // COLLECT_BLOCK_SIZE) * sizeof(CollectBlock)


cdef inline void collect_init(Collect* collect, void* memory, uint64_t size_bytes) noexcept nogil:
    collect.blocks = <CollectBlock*>memory
    collect.blocks_max = <uint32_t>(size_bytes // COLLECT_BLOCK_SIZE)
    collect_clear(collect)


cdef inline void collect_clear(Collect* collect) noexcept nogil:
    collect.blocks_fresh = 0
    collect.blocks_used = 0
    collect.free_head = COLLECT_NONE


cdef inline CollectHead* collect_head(Collect* collect, uint32_t index) noexcept nogil:
    return <CollectHead*>collect.blocks[index].bytes


cdef inline uint32_t collect_put(
        Collect* collect, const Message* message, uint64_t seqno) noexcept nogil:
    # Copy a message into the pool. Return its first block, or COLLECT_NONE if there is no room.
    cdef uint32_t needed = <uint32_t>(
        (sizeof(CollectHead) + message.size + COLLECT_BLOCK_BYTES - 1) // COLLECT_BLOCK_BYTES)
    cdef uint32_t first, index, room, left = message.size
    cdef const uint8_t* source = message.payload
    cdef CollectHead* head
    if needed > collect.blocks_max - collect.blocks_used:
        return COLLECT_NONE
    first = block_take(collect)
    head = collect_head(collect, first)
    head.seqno = seqno
    head.through = seqno
    head.received_ns = message.received_ns
    head.detail = message.detail
    head.session_id = message.session_id
    head.object = message.object
    head.next_message = COLLECT_NONE
    head.size = message.size
    head.blocks = needed
    head.flags = message.flags
    head.fragments = message.fragments
    head.number = message.number
    head.session = message.session
    head.stream = message.stream
    head.channel = message.channel
    head.line = message.line
    room = COLLECT_BLOCK_BYTES - sizeof(CollectHead)
    if left < room:
        room = left
    if room:                     # memcpy needs a valid pointer even for 0 bytes
        memcpy(collect.blocks[first].bytes + sizeof(CollectHead), source, room)
    index = first
    while left > room:
        source += room
        left -= room
        room = COLLECT_BLOCK_BYTES if left > COLLECT_BLOCK_BYTES else left
        collect.blocks[index].next = block_take(collect)
        index = collect.blocks[index].next
        memcpy(collect.blocks[index].bytes, source, room)
    collect.blocks[index].next = COLLECT_NONE
    return first


cdef inline void collect_read(
        Collect* collect, uint32_t first, uint8_t* target, Message* message) noexcept nogil:
    # Restore a message. Its payload is assembled at `target`, which has MESSAGE_SIZE_MAX bytes.
    cdef CollectHead* head = collect_head(collect, first)
    cdef uint32_t index = first, room, left = head.size
    message.payload = target
    message.size = head.size
    message.kind = KIND_MESSAGE
    message.flags = head.flags
    message.received_ns = head.received_ns
    message.detail = head.detail
    message.session_id = head.session_id
    message.object = head.object
    message.number = head.number
    message.session = head.session
    message.stream = head.stream
    message.channel = head.channel
    message.line = head.line
    message.fragments = head.fragments
    room = COLLECT_BLOCK_BYTES - sizeof(CollectHead)
    if left < room:
        room = left
    memcpy(target, collect.blocks[first].bytes + sizeof(CollectHead), room)
    while left > room:
        target += room
        left -= room
        room = COLLECT_BLOCK_BYTES if left > COLLECT_BLOCK_BYTES else left
        index = collect.blocks[index].next
        memcpy(target, collect.blocks[index].bytes, room)


cdef inline uint32_t collect_drop(Collect* collect, uint32_t first) noexcept nogil:
    # Free a message's blocks. Return the next held message of the same object.
    cdef CollectHead* head = collect_head(collect, first)
    cdef uint32_t next_message = head.next_message, last = first
    collect.blocks_used -= head.blocks
    while collect.blocks[last].next != COLLECT_NONE:
        last = collect.blocks[last].next
    collect.blocks[last].next = collect.free_head
    collect.free_head = first
    return next_message


cdef inline uint32_t block_take(Collect* collect) noexcept nogil:
    # Return a free block. The caller has made sure that there is one.
    cdef uint32_t index = collect.free_head
    collect.blocks_used += 1
    if index != COLLECT_NONE:
        collect.free_head = collect.blocks[index].next
        return index
    index = collect.blocks_fresh
    collect.blocks_fresh += 1
    return index
