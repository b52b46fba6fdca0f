# Where a feed's records go: a ring, or a bus's store. The engine claims, fills in place, commits;
# it does not see which of the two it is.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.archive.store cimport StoreLog
from udpfast.bus.log cimport Store, log_note
from udpfast.core.atomics cimport store_relaxed
from udpfast.core.check cimport likely, unlikely
from udpfast.core.layout cimport RECORD_SIZE, Record
from udpfast.log.ring cimport (
    RingWriter, ring_claim, ring_commit, ring_flush, ring_note_current)
from udpfast.log.segment cimport record_size, segment_commit, segment_has_room, segment_place

cdef class Output:
    cdef RingWriter* ring            # NULL: a store
    cdef StoreLog log
    cdef Store store
    cdef readonly object ring_face   # log.ring.Ring: owns the mapping of `ring`; None: a store
    cdef readonly object disk        # agents.bus.store_disk.StoreDisk; None: a ring
    cdef uint8_t* _spare             # what the disk has no room for is written here, and counted
    cdef uint64_t _record_max
    cdef uint64_t _dirty             # position below which claims were written to
    cdef bint _spared                # the claim at hand is at `_spare`
    cdef readonly uint64_t missed    # records since the last that the store has: one will say it
    cdef uint64_t _dropped_told      # what tools were told of all that were ever missed
    cdef Record* _find_room(self, uint64_t size) noexcept nogil
    cdef bint _roll(self) noexcept nogil
    cdef void _say_missed(self, int64_t unix_ns) noexcept nogil
    cdef void _flush_store(self, int64_t unix_ns) noexcept nogil


cdef inline Record* output_claim(Output o, uint32_t payload_size) noexcept nogil:
    # Where the next record goes; NULL if it is larger than any may be. The caller fills the payload
    # and, of the header, all behind `index`. Claiming again without commit is as if for the first
    # time: nothing needs to be taken back.
    cdef uint64_t size = record_size(RECORD_SIZE + <uint64_t>payload_size)
    if likely(o.ring != NULL):
        return ring_claim(o.ring, payload_size)
    if unlikely(size > o._record_max):
        return NULL
    if unlikely(o.missed or o._spared or not o.store.writer
                or not segment_has_room(&o.log.writer, size)):
        return o._find_room(size)
    o._dirty = max(o._dirty, o.log.writer.position + size)
    return <Record*>segment_place(&o.log.writer)


cdef inline void output_commit(
        Output o, Record* record, int kind, int line, int flags, uint32_t payload_size
        ) noexcept nogil:
    # Make the claimed record visible. payload_size: the final one, at most what was claimed.
    if likely(o.ring != NULL):
        ring_commit(o.ring, kind, line, flags, payload_size)
    elif unlikely(o._spared):
        o.missed += 1
        o.log.journal.written.dropped += 1
    else:
        # As output_time: what was said of the disk meanwhile has a time of its own.
        record.published_ns = max(record.published_ns, o.log.last_ns)
        segment_commit(&o.log.writer, kind, line, flags, payload_size)
        log_note(o.log, record)


cdef inline int64_t output_time(Output o, int64_t unix_ns) noexcept nogil:
    # The loop's clock, as what it publishes and what it received are kept with: in a store, times
    # do not fall with positions, though a host's clock is set back.
    return unix_ns if likely(o.ring != NULL) else max(unix_ns, o.log.last_ns)


cdef inline void output_flush(Output o, int64_t unix_ns) noexcept nogil:
    # Say how far it is: for tools, for who attaches, for the next writer. Once per batch.
    if likely(o.ring != NULL):
        ring_flush(o.ring)
    else:
        o._flush_store(unix_ns)


cdef inline void output_note_current(Output o, int64_t now_ns) noexcept nogil:
    # All that had come by then was read. Of a store its daemon says that it is at work.
    if o.ring != NULL:
        ring_note_current(o.ring, now_ns)


cdef inline uint64_t output_position(Output o) noexcept nogil:
    return o.ring.position if o.ring != NULL else o.log.writer.position


cdef inline void output_note_session(Output o, uint64_t session) noexcept nogil:
    if o.ring != NULL:
        o.ring.header.session = session
    else:
        o.log.session = max(o.log.session, session)
