# Journal: a log on disk. It is a directory of segments (segment.pxd) with one writer and any number
# of readers (journal_cursor.pxd).
#
#   journal              a region for tools: who writes it, how far it is written and synced
#   00000001.segment     records, the oldest first
#   00000002.segment
#   next.segment         space reserved for the segment after the last one
#   00000001.names       what name ids in its records mean; the recorder writes it
#
# Two threads serve a journal. The writer's thread appends and rolls; it creates no file, waits for
# no disk and touches no page for the first time. The keeper's thread does all that, ahead of the
# writer (prepare, populate) and behind it (sync, seal). The writer needs the keeper only for the
# next segment: it asks for it (roll), and copes if it is not ready yet.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from udpfast.core.atomics cimport store_relaxed, store_release
from udpfast.log.marks cimport JournalHeader, KeptMark, WrittenMark, mark_store
from udpfast.log.segment cimport Segment, SegmentWriter, checksum_of
from udpfast.shm.region cimport Region

cdef class Journal:
    cdef SegmentWriter writer
    cdef WrittenMark written         # the writer's last mark, from which it makes the next one
    cdef KeptMark kept
    cdef JournalHeader* header
    cdef readonly Region region
    cdef readonly object directory
    cdef readonly object recovery    # log.recovery.Recovery: what opening it found
    cdef readonly bint made          # opening it created the file `journal`
    cdef readonly bint failed        # a sync failed: from then on nothing counts as synced
    cdef readonly object layouts     # core.layouts.Layouts of the records appended
    cdef uint64_t _capacity
    cdef bytes _name
    cdef list _notes                 # notes about what opening it found
    cdef bint _closing
    cdef bint _durable               # segments are sealed once they are on the disk
    cdef object _lock  # guards the four below between the writer's and the keeper's thread
    cdef Segment _active
    cdef Segment _next
    cdef list _ending  # (Segment, SegmentWriter as bytes) of segments ended but not sealed
    cdef bint _renamed               # the directory has entries that may not be on the disk
    cdef uint64_t _number            # number of the last segment
    cdef int64_t _opened_ns          # monotonic or UNIX ns, whichever the caller of roll uses
    cdef _check_open(self)
    cdef _end_active(self)
    cdef _note_oldest(self, removed)
    cdef _seal(self, Segment segment, SegmentWriter* w, int64_t unix_ns, bint durable)


# Append with segment_append(&journal.writer, ...). If it returns False, the segment is full: roll
# and try again.

cdef inline void journal_flush(Journal journal, int64_t unix_ns) noexcept nogil:
    # Publish how far the journal is written, for readers and for the keeper, which syncs up to
    # there.
    cdef WrittenMark* mark = &journal.written
    store_relaxed(&mark.index, journal.writer.index)
    store_relaxed(<uint64_t*>&mark.written_ns, <uint64_t>unix_ns)
    # Release: whoever sees this position finds the records below it (Journal.sync).
    store_release(&mark.position, journal.writer.position)
    mark.turn += 1
    mark.checksum = checksum_of(mark, sizeof(WrittenMark))
    mark_store(<uint8_t*>journal.header.written, mark, sizeof(WrittenMark))


cdef inline void journal_note_resume(
        Journal journal, uint64_t source_position, uint64_t source_index) noexcept nogil:
    # Note that the journal's next record is this record of its source. The next flush publishes it.
    journal.written.resume_position = journal.writer.position
    journal.written.resume_index = journal.writer.index
    journal.written.source_position = source_position
    journal.written.source_index = source_index


cdef inline void journal_keep(Journal journal) noexcept nogil:
    # Publish the mark of the keeper's thread.
    cdef KeptMark* mark = &journal.kept
    mark.turn += 1
    mark.checksum = checksum_of(mark, sizeof(KeptMark))
    mark_store(<uint8_t*>journal.header.kept, mark, sizeof(KeptMark))
