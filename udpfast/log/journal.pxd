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
from udpfast.log.marks cimport JournalHeader, KeptMark, WrittenMark, mark_store
from udpfast.log.segment cimport Segment, SegmentWriter, checksum_of
from udpfast.shm.region cimport Region

cdef class Journal:
    cdef SegmentWriter writer
    cdef WrittenMark written         # the last one, as its thread goes on with it
    cdef KeptMark kept
    cdef JournalHeader* header
    cdef readonly Region region
    cdef readonly object directory
    cdef readonly object recovery    # log.recovery.Recovery: what was found when it was opened
    cdef readonly bint made          # the file `journal` was made when it was opened
    cdef readonly bint failed        # a sync failed: nothing is known to be on the disk any more
    cdef readonly object layouts     # core.layouts.Layouts of what is appended
    cdef uint64_t _capacity
    cdef bytes _name
    cdef list _notes                 # of what was found when it was opened
    cdef bint _closing
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
    cdef _note_oldest(self, removed)
    cdef _seal(self, Segment segment, SegmentWriter* w, int64_t unix_ns, bint durable)


# Appending is segment_append(&journal.writer, ...): False says that the segment is full; roll, then
# try again.

cdef inline void journal_flush(Journal journal, int64_t unix_ns) noexcept nogil:
    # Say how far the journal is: to the keeper, who syncs as far as this, and to readers.
    cdef WrittenMark* mark = &journal.written
    store_relaxed(&mark.index, journal.writer.index)
    store_relaxed(<uint64_t*>&mark.written_ns, <uint64_t>unix_ns)
    # Release: who sees this position finds the records below it (Journal.sync).
    store_release(&mark.position, journal.writer.position)
    mark.turn += 1
    mark.checksum = checksum_of(mark, sizeof(WrittenMark))
    mark_store(<uint8_t*>journal.header.written, mark, sizeof(WrittenMark))


cdef inline void journal_note_resume(
        Journal journal, uint64_t source_position, uint64_t source_index) noexcept nogil:
    # The journal's next record is to be this one of its source. Seen with the next flush.
    journal.written.resume_position = journal.writer.position
    journal.written.resume_index = journal.writer.index
    journal.written.source_position = source_position
    journal.written.source_index = source_index


cdef inline void journal_keep(Journal journal) noexcept nogil:
    # Show what the keeper's thread has to say.
    cdef KeptMark* mark = &journal.kept
    mark.turn += 1
    mark.checksum = checksum_of(mark, sizeof(KeptMark))
    mark_store(<uint8_t*>journal.header.kept, mark, sizeof(KeptMark))
