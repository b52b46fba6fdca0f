# Marks: the contents of the file `journal`: the journal's identity, and how far it is written, kept
# and synced.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.atomics cimport fence_acquire, fence_release
from udpfast.log.segment cimport checksum_of

cdef enum:
    IDENTITY_BLOCK = 64          # bytes of JournalHeader up to its checksum
    MARK_WORDS = 16              # of the larger mark
    MARK_ATTEMPTS = 64           # if both places are torn this often, no sane writer is at work
    JOURNAL_HEADER = 4096        # offset of JournalHeader in the region: a page of its own
    JOURNAL_SIZE = 8192          # bytes of the region

cdef enum:  # JournalState
    JOURNAL_OPEN = 1
    JOURNAL_CLOSED = 2           # the writer closed it: complete
    JOURNAL_FAILED = 3           # complete, but an error ended what it records

# Each of the two threads publishes its state as a mark, which it writes to two places, one after
# the other, with a checksum. So one of them is always intact, even if the writer is killed; and if
# one is damaged later, the other says the same.

cdef struct WrittenMark:         # 128 bytes: published by the writer's thread at each flush
    uint64_t turn                # increases; the mark with the larger one is newer
    uint64_t state               # JournalState
    uint64_t epoch               # grows by 1 with each writer
    uint64_t position            # behind the last record
    uint64_t index
    int64_t written_ns           # UNIX ns
    uint64_t lapped              # records missed because the source had overwritten them
    uint64_t dropped             # records dropped because the disk refused them
    uint64_t cut_bytes           # bytes that the last recovery cut off
    # The record of its source with which the journal continues; valid as long as the source's
    # memory.
    uint64_t resume_position     # when this was noted, the journal's next record ...
    uint64_t resume_index
    uint64_t source_position     # ... was to be this record of the source
    uint64_t source_index
    uint8_t source[16]           # identity of the source; zeros: nothing was noted
    uint32_t number              # of the last segment; never reused, even if that one is lost
    uint32_t checksum            # CRC32C of all before it

cdef struct KeptMark:            # 104 bytes: published by the keeper's thread
    uint64_t turn
    uint64_t synced_position     # all records below were on the disk at synced_ns
    uint64_t synced_index
    int64_t synced_ns            # UNIX ns; 0: nothing was ever synced
    uint64_t syncs
    uint64_t sync_errors
    int64_t sync_longest_ns
    uint64_t removed             # segments removed to make room
    uint64_t oldest_number       # the first segment that was not removed
    uint64_t oldest_position
    uint64_t oldest_index
    # All that the journal's source had published by then is in the journal, UNIX ns; 0: not said.
    int64_t current_ns
    uint32_t reserved
    uint32_t checksum

cdef struct JournalHeader:
    uint8_t identity[16]         # random, made with the journal; offsets and exports refer to it
    uint8_t former[16]           # which some segments still have (journal_header); or zeros
    int64_t made_ns              # UNIX ns
    uint64_t inode               # of this file; a copy has another inode or birth time
    int64_t born_ns              # UNIX ns, the birth time; 0: the file system does not store it
    uint32_t folder              # lower half of the inode of the directory that it was made in
    uint32_t checksum
    uint8_t pad[64]
    WrittenMark written[2]
    KeptMark kept[2]


cdef inline void mark_store(uint8_t* places, const void* mark, uint64_t size) noexcept nogil:
    # The first fence orders what the mark describes before the mark; the second orders the first
    # place before the second, so that one of them is always intact. Read by mark_newest in any
    # process.
    cdef int place
    for place in range(2):
        fence_release()
        memcpy(places + place * size, mark, size)


cdef inline bint marks_written(const JournalHeader* header, WrittenMark* mark) noexcept nogil:
    # Load the writer's last mark. False: neither place is intact.
    return mark_newest(<const uint8_t*>header.written, sizeof(WrittenMark), <uint8_t*>mark)


cdef inline bint marks_kept(const JournalHeader* header, KeptMark* mark) noexcept nogil:
    return mark_newest(<const uint8_t*>header.kept, sizeof(KeptMark), <uint8_t*>mark)


cdef inline bint mark_newest(const uint8_t* places, uint64_t size, uint8_t* mark) noexcept nogil:
    # Load the newer one of two intact marks. A mark begins with its turn and ends with its
    # checksum.
    cdef uint64_t[MARK_WORDS] copy
    cdef int _attempt
    cdef int place
    cdef bint found = False
    for _attempt in range(MARK_ATTEMPTS):
        for place in range(2):
            memcpy(copy, places + place * size, size)
            if (copy[0] != 0 and copy[size // 8 - 1] >> 32 == checksum_of(copy, size)
                    and (not found or copy[0] > (<uint64_t*>mark)[0])):
                memcpy(mark, copy, size)
                found = True
        if found:
            break
    # Orders the mark before the loads of the records that it describes; written by mark_store.
    fence_acquire()
    return found
