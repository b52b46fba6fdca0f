# Log: what the state machines of the bus need of a store, whether it is on a disk (agents) or
# simulated (tests). Records are read and appended in place, in the memory of a segment
# (log/segment.pxd), real or not.

from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.atomics cimport load_acquire, store_release
from udpfast.core.hold cimport Hold
from udpfast.core.layout cimport RECORD_SIZE, Record
from udpfast.log.segment cimport (
    LOOK_END, LOOK_INVALID, LOOK_NONE, SEGMENT_END_SIZE, SegmentHeader, SegmentWriter, record_look,
    record_size, segment_append, segment_end_word, segment_enter, segment_place)

cdef struct Place:               # a reading position
    uint64_t base                # the address of position 0, if it were in memory
    uint64_t limit               # position at which the segment's memory ends
    uint64_t position            # of the next record
    uint64_t index


cdef class Log:
    cdef SegmentWriter writer
    cdef readonly bytes identity  # 16 bytes; zeros: the store is new and has none yet
    cdef readonly uint64_t layout_hash
    cdef uint64_t last_position  # of the last record, if there is one
    cdef uint32_t last_checksum
    cdef int64_t last_ns         # its published_ns; INT64_MIN: there is none
    # Set *place to the record at `position`, or to where it will be: in the next segment, if there
    # is one. The returned object keeps the memory that `place` points into.
    cdef object place_at(self, uint64_t position, Place* place)
    cdef object _record_at(self, uint64_t position, Place* place)
    # Get a pointer to the number of names in a table, NULL if it has none; the returned object
    # keeps it.
    cdef object names_count(self, uint64_t number, const uint64_t** count)


cdef enum:
    SILENT_NS = 1_000_000_000    # an end that was silent for this long is dead
    BEAT_NS = 100_000_000        # longest time between two frames of an end


cdef class LinkEnd:              # LinkSender or LinkReceiver
    cdef Hold hold               # of the thread that carries its bytes, if there is one ...
    cdef public bint carried     # ... which is the case once this is set
    cdef bint over               # closed
    cdef bint wants              # the thread cannot continue before `attend`
    cdef list _output            # frames to send while it is not carried
    cdef bytes _said             # ... for the thread, and the part that is still to be sent
    cdef const uint8_t* said
    cdef uint64_t said_size
    cdef _hand_over(self)


cdef class Store:
    cdef readonly Log log
    cdef readonly str host
    cdef readonly object lineage
    cdef readonly uint64_t promised  # records of lower epochs are neither taken nor written
    cdef readonly bint writer    # the sequencer of this host appends to the store
    cdef readonly bint was_writer  # ... or did, and as far as this host knows nobody else since
    cdef readonly uint64_t cuts  # how often records were set aside: readers then read again
    cdef readonly list cut_at    # ... from these positions
    cdef public uint64_t gate
    cdef public tuple standbys   # hosts that copy from here while this is the writer
    cdef public tuple followers  # ... while it is a replica
    cdef public dict links       # living LinkSenders by the host that they send to
    cdef public dict acks        # host -> (received, kept)
    cdef readonly object release  # decides for which standbys outboxes wait
    cdef public LinkEnd intake   # the link end whose thread appends now; None: there is none
    cdef uint64_t changes  # counts changes of lineage and cuts, before the records that follow
    cdef readonly str writer_host    # the host whose sequencer appends; empty: unknown ...
    cdef readonly uint64_t writer_epoch  # ... in this epoch
    cdef public list said        # messages for the operator, the newest last
    cdef uint64_t _released, _kept, _let_go
    cdef readonly object damaged_at  # position of the first record that no copy can get, or None
    cdef bint _ends_empty(self)


cdef inline const Record* place_record(const Place* p) noexcept nogil:
    return <const Record*><size_t>(p.base + p.position)


cdef inline int64_t place_look(const Place* p) noexcept nogil:
    # Return the size of the next record with its padding, or LOOK_NONE, LOOK_END or LOOK_INVALID,
    # without reading its bytes. `place_whole` checks the rest.
    cdef uint64_t word, size
    if p.position + SEGMENT_END_SIZE > p.limit:
        return LOOK_END
    # Acquire: the record's bytes are read after its commit word (log_append, log_copy).
    word = load_acquire(<const uint64_t*><size_t>(p.base + p.position))
    if word == 0:
        return LOOK_NONE
    if word == segment_end_word():
        return LOOK_END
    size = record_size(<uint32_t>word)
    if <uint32_t>word < RECORD_SIZE or size > p.limit - p.position:
        return LOOK_INVALID
    return <int64_t>size


cdef inline bint place_whole(const Place* p) noexcept nogil:
    # Return whether there is a valid record.
    cdef const Record* record = place_record(p)
    return place_look(p) > 0 and record_look(
        <const uint8_t*>record, p.limit - p.position, p.position, record.index) > 0


cdef inline uint64_t place_run(
        const Place* p, uint64_t until, uint64_t room, uint64_t* count) noexcept nogil:
    # Return how many bytes of complete records follow below position `until`; *count: how many
    # records.
    cdef Place at = p[0]
    cdef int64_t size
    count[0] = 0
    while at.position < until:
        size = place_look(&at)
        if size <= 0 or at.position + <uint64_t>size - p.position > room:
            break
        at.position += size
        count[0] += 1
    return at.position - p.position


cdef inline void store_learn(
        Store store, uint64_t released, uint64_t kept, uint64_t let_go) noexcept nogil:
    # Take the source's progress of readers, standbys and outboxes.
    store._released = max(store._released, released)
    store._kept = max(store._kept, kept)
    store._let_go = max(store._let_go, let_go)


cdef inline void log_note(Log log, const Record* record) noexcept nogil:
    log.last_position = record.position
    log.last_checksum = record.checksum
    log.last_ns = record.published_ns


cdef inline bint log_append(Log log, const Record* header, const uint8_t* payload) noexcept nogil:
    # False: the segment is full (roll), and nothing was changed.
    cdef const Record* place = <const Record*>segment_place(&log.writer)
    if not segment_append(&log.writer, header, payload):
        return False
    log_note(log, place)
    return True


cdef inline bint log_copy(Log log, const Record* record, uint64_t size) noexcept nogil:
    # Append a record as another copy of the store has it; the caller has checked it. False: as
    # above.
    cdef SegmentWriter* w = &log.writer
    cdef uint8_t* place = segment_place(w)
    if w.position + size > w.limit:
        return False
    if w.position >= w.entry_due:
        segment_enter(w)
    memcpy(place + 8, <const uint8_t*>record + 8, size - 8)
    # Orders the whole record before its commit word; read by place_look and record_look.
    store_release(<uint64_t*>place, (<const uint64_t*>record)[0])
    w.first_ns = min(w.first_ns, record.published_ns)
    w.last_ns = max(w.last_ns, record.published_ns)
    w.position += size
    w.index += 1
    log_note(log, <const Record*>place)
    return True


cdef inline uint64_t header_position(bytes header):
    # Return where a segment begins, from its header.
    return (<const SegmentHeader*><const char*>header).position


cdef inline uint64_t header_names(bytes header):
    # Return the number of a segment's table of names, from its header.
    return (<const SegmentHeader*><const char*>header).names
