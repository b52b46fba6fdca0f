# Answers: what a feed's loop asks a venue's server for, and what an agent beside it receives from
# there. The loop waits for neither: it publishes what it lacks, and takes what is in the queue.
#
#   loop    wants: it makes `version` odd, writes, and makes it even again     -> agent
#   agent   datagrams of the feed's framing in a queue: bytes, then `written`  -> loop, then `read`
#
# Each word has one writer. The queue is never overwritten: an agent waits if it has no room. If an
# agent dies, the datagrams below `written` count and a half-written one does not.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.atomics cimport fence_release, load_acquire, store_relaxed, store_release
from udpfast.core.check cimport likely, unlikely
from udpfast.core.layout cimport DATAGRAM_NO_TIMESTAMP, Datagram
from udpfast.shm.region cimport REGION_PAGE, Region

cdef enum:
    WANTS_MAX = 64
    HEADER_BYTES = 48            # of a datagram: the longest header that an agent needs
    ANSWERS_BYTES = 1 << 20      # of the queue; a power of two
    ANSWERS_BATCH = 4            # most datagrams that the loop takes in one turn: lines come first
    ANSWER_ALIGN = 8
    ANSWER_TALLIES = 64

# --- AnswersHeader -----------------------------------------------------------------------------
#
#      0 RegionHeader | 128 read, over | 192 written | 256 version, counts, header | 320 wants
#   3584 tallies | 4096 the queue: u32 size (0: skip to the lap end), u32 zero, bytes; and so on

cdef struct Want:                # 48 bytes
    uint64_t session             # as published
    uint64_t first               # missing numbers; a snapshot must contain everything up to `last`
    uint64_t last
    uint64_t number              # the latest number of the stream that was delivered or lost
    uint32_t stream              # as the publisher names it
    uint32_t numbering           # ordinal of the session: a session id may begin its numbers anew
    uint64_t reserved_too

cdef struct AnswersHeader:
    uint8_t region[128]
    uint64_t read                # by the loop: bytes of the queue that it has processed
    uint64_t over                # 1: the feed has ended
    uint8_t pad_read[48]
    uint64_t written             # by the agent: bytes of the queue that it has filled
    uint8_t pad_written[56]
    uint64_t version             # by the loop, as all that follows up to `tallies`
    uint32_t count
    uint32_t header_size
    uint8_t header[48]           # first HEADER_BYTES of a recent datagram
    Want wants[64]               # WANTS_MAX
    uint8_t pad_wants[192]
    int64_t tallies[64]          # ANSWER_TALLIES: the agent's counters, read by tools

cdef struct Answers:
    AnswersHeader* header        # NULL: the feed has no such agent
    uint8_t* queue
    uint8_t channel
    uint8_t line
    uint64_t taken               # bytes of the queue that the loop has been given


cdef inline int answers_take(Answers* a, Datagram* items) noexcept nogil:
    # Return the datagrams in the queue, at most ANSWERS_BATCH. They stay valid until answers_done.
    cdef uint64_t written, left
    cdef uint32_t size, at
    cdef int count = 0
    if likely(a.header == NULL):
        return 0
    written = load_acquire(&a.header.written) & ~<uint64_t>(ANSWER_ALIGN - 1)
    while a.taken != written and count < ANSWERS_BATCH:
        at = <uint32_t>(a.taken & (ANSWERS_BYTES - 1))
        left = min(written - a.taken, <uint64_t>(ANSWERS_BYTES - at))
        size = (<uint32_t*>(a.queue + at))[0]
        if size == 0 or size > left - ANSWER_ALIGN:
            a.taken += left
            continue
        items[count].data = a.queue + at + ANSWER_ALIGN
        items[count].size = size
        items[count].flags = DATAGRAM_NO_TIMESTAMP
        items[count].received_ns = 0
        items[count].channel = a.channel
        items[count].line = a.line
        items[count].address = 0
        a.taken += ANSWER_ALIGN + ((size + ANSWER_ALIGN - 1) & ~<uint32_t>(ANSWER_ALIGN - 1))
        count += 1
    return count


cdef inline void answers_done(Answers* a) noexcept nogil:
    store_release(&a.header.read, a.taken)


cdef inline void wants_begin(Answers* a) noexcept nogil:
    store_relaxed(&a.header.version, a.header.version + 1)
    fence_release()              # a reader that sees a new want also sees the odd version


cdef inline void wants_end(Answers* a, uint32_t count) noexcept nogil:
    a.header.count = count
    store_release(&a.header.version, a.header.version + 1)


cdef class AnswersRegion:
    cdef readonly Region region
    cdef Answers answers
    cdef uint64_t _written
    cdef bint _is_loop
    cdef _point(self)
