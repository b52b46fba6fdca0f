# Journal: a log that is kept: a directory of segments (segment.pxd), one writer, any number of
# readers (journal_cursor.pxd).
#
#   journal              a region: who writes it, how far it is written and synced; for tools
#   00000001.segment     records, the oldest first
#   00000002.segment
#   next.segment         space taken for the segment after the last
#   00000001.names       what name ids in its records mean; kept by who records
#
# Two threads serve a journal. The writer's appends and rolls; it makes no file, waits for no disk
# and touches no page for the first time. The keeper's does all that, ahead of it (prepare,
# populate) and behind it (sync, seal). What the writer cannot go on without, the next segment, it
# asks for (roll), and does without if it is not there yet.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from udpfast.core.atomics cimport store_relaxed, store_release
from udpfast.shm.region cimport Region
from udpfast.shm.segment cimport Segment, SegmentWriter

cdef enum:
    JOURNAL_HEADER = 4096        # offset of JournalHeader in the region: a page of its own
    JOURNAL_SIZE = 8192          # of the region

cdef enum:  # JournalState
    JOURNAL_OPEN = 1
    JOURNAL_CLOSED = 2           # by its writer: complete

# Which record of its source the journal goes on with. Written after each batch, in turns, so that
# one of the two is always whole; good only as long as the source's memory is, so it is not synced.
cdef struct Resume:
    uint64_t journal_position    # the next record of the journal, when this was written, ...
    uint64_t journal_index
    uint64_t source_position     # ... was to be this one of the source
    uint64_t source_index
    uint64_t source_born_ns      # which source: UNIX ns of its creation
    uint64_t turn                # grows; the larger one counts. Stored last

cdef struct JournalHeader:
    # The writer's thread
    uint64_t state               # JournalState
    uint64_t epoch               # grows by 1 with each writer
    uint64_t position            # behind the last record, as of the last flush
    uint64_t index
    int64_t written_ns           # UNIX ns, of that flush
    uint64_t lapped              # records missed, because the source had overwritten them
    uint64_t dropped             # records given up, because the disk took none
    uint64_t cut_bytes           # that the last recovery cut off
    uint8_t pad_writer[64]
    # The keeper's thread
    uint64_t synced_position     # the disk has all records below, as of synced_ns
    uint64_t synced_index
    int64_t synced_ns            # UNIX ns; 0: nothing was ever synced
    uint64_t syncs
    uint64_t sync_errors
    int64_t sync_longest_ns
    uint64_t removed             # segments removed to make room
    uint8_t pad_keeper[72]
    Resume resume[2]


cdef class Journal:
    cdef SegmentWriter writer
    cdef JournalHeader* header
    cdef readonly Region region
    cdef readonly object directory
    cdef readonly object recovery    # shm.recovery.Recovery: what was found when it was opened
    cdef readonly bint failed        # a sync failed: nothing is known to be on the disk any more
    cdef uint64_t _layout_hash
    cdef uint64_t _capacity
    cdef bytes _name
    cdef bint _durable               # segments are sealed when the disk has them
    cdef object _lock                # guards the four below: the writer's thread, the keeper's
    cdef Segment _active
    cdef Segment _next
    cdef list _ending                # (Segment, SegmentWriter as bytes): ended, not sealed yet
    cdef bint _renamed               # the directory has names that the disk may not have
    cdef uint64_t _number            # of the last segment
    cdef int64_t _opened_ns          # monotonic or UNIX, as the caller of roll counts
    cdef _check_open(self)
    cdef _end_active(self)
    cdef _seal(self, Segment segment, SegmentWriter* w, int64_t unix_ns, bint durable)


# Appending is segment_append(&journal.writer, ...): False says that the segment is full; roll, then
# try again.

cdef inline void journal_flush(
        JournalHeader* header, const SegmentWriter* w, int64_t unix_ns) noexcept nogil:
    # Say how far the journal is: to the keeper, who syncs as far as this, and to tools.
    store_relaxed(&header.index, w.index)
    store_relaxed(<uint64_t*>&header.written_ns, <uint64_t>unix_ns)
    # Release: who sees this position finds the records below it (Journal.sync).
    store_release(&header.position, w.position)


cdef inline void journal_note_resume(
        JournalHeader* header, const SegmentWriter* w, uint64_t source_position,
        uint64_t source_index, uint64_t source_born_ns) noexcept nogil:
    cdef uint64_t turn = max(header.resume[0].turn, header.resume[1].turn) + 1
    cdef Resume* resume = &header.resume[turn & 1]
    # Orders the void before the values: a writer killed in between leaves the other one.
    store_release(&resume.turn, 0)
    resume.journal_position = w.position
    resume.journal_index = w.index
    resume.source_position = source_position
    resume.source_index = source_index
    resume.source_born_ns = source_born_ns
    # Orders the values before the turn that makes them count.
    store_release(&resume.turn, turn)
