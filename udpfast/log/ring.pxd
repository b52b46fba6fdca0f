# Ring: a log of Records with one writer and any number of readers, none of which can slow it.
# Positions only grow; the record at position p lies at data + (p mod capacity). A record never
# wraps around the end of the data: a PAD record fills the rest of the lap.
#
# The protocol, in four rules:
#
#   1. The commit word of a Record (its first 8 bytes: length .. flags) is stored last. Length 0
#      means "not there yet". Before a record is committed, the commit word behind it is zeroed: a
#      reader that has consumed record n sees 0 until record n + 1 itself is committed, and so
#      waits on the record it wants, not on a tail that all share.
#   2. Before the writer touches a byte at position q, it makes `intent` > q. A reader's copy of
#      positions [p, p + n) is sound if, after the copy, intent <= p + capacity.
#   3. A reader copies a run of records and then validates the whole run once, by rule 2. It
#      discards a run that fails: the reader was lapped and continues at `latest`; a recorder at
#      the oldest records that are not about to be overwritten.
#   4. Each Record carries its own position and index. The position confirms where it lies; the
#      index gives the exact number of records that a lapped reader missed.
#
# Readers never write to the ring. They load each value once and check it before use: a length from
# the ring moves a pointer only after it is known to stay inside the ring.

from libc.errno cimport EBADMSG, EMSGSIZE, EOVERFLOW, EPIPE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.atomics cimport (
    cpu_relax,
    fence_acquire,
    fence_release,
    load_acquire,
    load_relaxed,
    prefetch_read,
    prefetch_write,
    store_relaxed,
    store_release,
)
from udpfast.core.check cimport likely, unlikely
from udpfast.core.layout cimport KIND_PAD, RECORD_SIZE, Record
from udpfast.shm.region cimport Region

cdef enum:
    RING_DATA = 4096             # offset of the data in the region: a page of its own
    RING_CAPACITY_MIN = 4096
    RING_RECORD_PART = 8         # the largest record is 1/8 of the capacity
    RING_RECORD_MAX = 1 << 30    # and its size fits the i32 of Record.length
    RING_CHUNK_PART = 16         # intent moves ahead by 1/16 of the capacity, at most
    RING_CHUNK_MAX = 65536       # 64 KiB: its cache line changes owner every few hundred records
    RING_AHEAD = 2048            # bytes: how far ahead of the writer cache lines are prefetched
    RING_LINE = 64
    RING_STEP_RECORDS = 2        # found in one poll: more than this means a writer at full speed
    RING_REST_MIN = 4            # pauses: 70 ns on Zen 4
    RING_REST_MAX = 128          # 2 us, 190 records of 64 bytes at full speed
    RING_ATTEMPTS = 16           # jumps to `latest` within one poll, before it returns empty
    # An idle loop sleeps for 1 ms at most. If it reports nothing for this long, it is stuck.
    RING_STUCK_NS = 1_000_000_000

cdef enum:  # RingState
    RING_OPEN = 1
    RING_CLOSED = 2              # the writer closed it in good order: nothing more will come
    RING_REPLACED = 3  # the writer did not close it; the next writer continues in another file
    RING_FAILED = 4  # an error ended its writer; the next one will continue in another file
    RING_LEFT = 5    # stopped to be started again; the next writer will continue in another file

# A log outlives its files. If a writer is killed, the next one continues in the file it left. If
# that is impossible (the settings ask for another size) or not allowed (the writer closed the
# file), the next writer begins a new file of the same log, in which positions and indices continue
# where the previous file ended. So the pair (log, index) identifies a record for good, and the
# number of records that a reader missed is the difference of two indices, whatever happened to the
# files. A new log begins only if the last file is missing or unreadable: then nobody knows how many
# records it held.

# --- RingHeader: the first 512 bytes of the region ------------------------------------------
#
#   0 RegionHeader | 128 intent | 256 latest .. current_ns | 384 state .. names | 4096 data
#
# Each group has 128 bytes of its own, because processors fetch cache lines in pairs. Every reader
# reads intent once per run; waiting readers read state; tools, and readers that start or were
# lapped, read the tail.

cdef struct RingHeader:
    uint8_t region[128]
    uint64_t intent          # bytes below may already belong to the next lap
    uint8_t pad_intent[120]
    uint64_t latest          # position of the newest record, as of the last flush
    uint64_t tail            # end of the committed records, as of the last flush; for tools
    uint64_t tail_index      # number of records below tail
    int64_t current_ns       # what was received by then (monotonic) is below tail; 0: never said
    uint8_t pad_tail[96]
    uint64_t state           # RingState
    uint64_t epoch           # grows by 1 with each writer of the log
    uint64_t began           # position of the current writer's first record
    uint64_t began_index     # its index
    int64_t born_ns          # UNIX ns: when this file was created, by whichever writer
    uint64_t log[2]          # identity of the log: 16 random bytes
    uint64_t generation      # number of this file in its log, from 1
    uint64_t first           # position where this file begins, and where the previous one ended
    uint64_t first_index     # index of the record at `first`
    uint64_t session         # ordinal of the log's latest session
    uint64_t names           # mark of the table of names that its records use; 0: not stated
    uint8_t pad_state[32]

cdef struct RingWriter:
    uint8_t* data
    RingHeader* header
    uint64_t capacity
    uint64_t mask
    uint64_t chunk
    uint64_t record_max      # bytes of header and payload
    uint64_t position        # of the next record
    uint64_t index           # of the next record
    uint64_t intent          # as stored in the header
    uint64_t latest          # position of the last committed record

cdef struct RingReader:
    const uint8_t* data
    const RingHeader* header
    uint64_t capacity
    uint64_t mask
    uint64_t chunk
    uint64_t record_max
    uint64_t cursor          # position of the next record to read
    uint64_t index           # index of that record, unless the reader gets lapped
    uint64_t lapped          # records missed since it attached
    bint stays               # lapped, it stays where it is: its owner says where it continues
    bint jumped              # the record at the cursor may have a later index than `index`
    bint waiting             # the last poll found nothing: the next record is returned alone
    bint in_step             # the last poll read all there was: the next one rests first
    uint32_t rest            # pauses; 0 unless the writer is at full speed (ring_pace)

cdef enum:  # why a run ended (ring_run)
    RUN_DONE = 0             # limit or chunk reached
    RUN_LAPPED = 1           # overwritten while it was read: the run is discarded
    RUN_FULL = 2             # the next payload does not fit the room that is left
    RUN_CORRUPT = 3          # intent says sound, but there is no valid record: the writer is broken
    RUN_EMPTY = 4            # there is nothing more to read

cdef struct RingRun:
    # The records copied so far, and the caller's arrays that hold them.
    Record* headers
    uint64_t* offsets
    uint8_t* payloads
    uint64_t room            # size of `payloads` in bytes
    int64_t limit            # most records to copy
    int64_t count            # records copied and validated
    uint64_t used            # bytes of `payloads` in use
    uint64_t lapped          # records missed before the first one

cdef inline uint64_t ring_aligned(uint64_t length) noexcept nogil:
    return (length + 7) & ~<uint64_t>7

# --- writing ----------------------------------------------------------------------------------

cdef inline void ring_flush(RingWriter* w) noexcept nogil:
    # Publish the end of the log for tools, for readers that attach or were lapped, and for the next
    # writer. Once per batch is enough: readers that keep up do not read it. Release: whoever reads
    # `latest` (a lapped reader, the next writer) finds that record complete.
    store_release(&w.header.latest, w.latest)
    store_relaxed(&w.header.tail_index, w.index)
    # Release: whoever searches for records below `tail` (_seek_oldest) finds each of them
    # committed.
    store_release(&w.header.tail, w.position)

cdef inline void ring_note_current(RingWriter* w, int64_t now_ns) noexcept nogil:
    # Report that the loop is running and has read everything received by now_ns. A writer that
    # never reports is never considered stuck. Release: whoever sees the time also finds the records
    # committed before it.
    store_release(<uint64_t*>&w.header.current_ns, <uint64_t>now_ns)

cdef inline void ring_advance(RingWriter* w, uint64_t end) noexcept nogil:
    # Announce that everything below `end` plus one chunk may be overwritten from now on.
    ring_flush(w)
    w.intent = end + w.chunk
    # Release: a reader that sees this intent, and therefore jumps, finds the `latest` flushed
    # above.
    store_release(&w.header.intent, w.intent)
    # Orders intent before every byte written under it; ring_run reads intent after its copy.
    fence_release()

cdef inline void ring_store_commit(
        uint64_t* record, uint64_t* behind, uint64_t word) noexcept nogil:
    # Zero the commit word of what comes behind a record, then commit the record.
    store_relaxed(behind, 0)
    # Orders header, payload and the zero behind them before the commit word; read by ring_run.
    store_release(record, word)

cdef inline void ring_wrap(RingWriter* w) noexcept nogil:
    # Fill the rest of this lap with a PAD. It consists of a commit word only, so that it fits even
    # in 8 bytes.
    cdef uint64_t rest = w.capacity - (w.position & w.mask)
    if w.position + rest + 8 > w.intent:
        ring_advance(w, w.position + rest + 8)
    ring_store_commit(
        <uint64_t*>(w.data + (w.position & w.mask)), <uint64_t*>w.data,
        rest | (<uint64_t>KIND_PAD << 32))
    w.position += rest

cdef inline Record* ring_claim(RingWriter* w, uint32_t payload_size) noexcept nogil:
    # Return the place of the next record, or NULL if it is larger than record_max. The caller fills
    # the header from received_ns to session, and writes up to payload_size bytes behind it.
    # Claiming again without a commit returns the same place.
    cdef uint64_t size = ring_aligned(RECORD_SIZE + <uint64_t>payload_size)
    cdef uint64_t end
    if unlikely(size > w.record_max):
        return NULL
    if unlikely((w.position & w.mask) + size > w.capacity):
        ring_wrap(w)
    end = w.position + size + 8  # with the commit word behind it
    if unlikely(end > w.intent):
        ring_advance(w, end)
    return <Record*>(w.data + (w.position & w.mask))

cdef inline void ring_commit(
        RingWriter* w, int kind, int line, int flags, uint32_t payload_size) noexcept nogil:
    # Make the claimed record visible. payload_size is the final size, at most the claimed one. Each
    # field of `w` is read once: for all a compiler knows, a store to the record changes them.
    cdef uint8_t* data = w.data
    cdef uint64_t mask = w.mask
    cdef uint64_t position = w.position
    cdef uint8_t* at = data + (position & mask)
    cdef Record* record = <Record*>at
    cdef uint64_t length = RECORD_SIZE + <uint64_t>payload_size
    cdef uint64_t size = ring_aligned(length)
    cdef uint64_t* last = <uint64_t*>(at + size - 8)
    if length != size:  # zero the padding: equal records have equal bytes everywhere
        last[0] &= ~<uint64_t>0 >> (8 * (size - length))
    record.position = position
    record.index = w.index
    record.checksum = 0
    w.latest = position
    w.position = position + size
    w.index += 1
    ring_store_commit(
        <uint64_t*>at, <uint64_t*>(data + ((position + size) & mask)),
        length | (<uint64_t><uint8_t>kind << 32) | (<uint64_t><uint8_t>line << 40)
        | (<uint64_t><uint16_t>flags << 48))
    ring_fetch_ahead(data, mask, position, size)

cdef inline void ring_fetch_ahead(
        uint8_t* data, uint64_t mask, uint64_t position, uint64_t size) noexcept nogil:
    # A ring is larger than the cache, so each cache line of a record misses, and a store that
    # misses holds up the stores behind it. Lines that were requested some records ahead have
    # arrived by then.
    cdef uint64_t at = (position + RING_AHEAD + RING_LINE - 1) & ~<uint64_t>(RING_LINE - 1)
    cdef uint64_t end = position + RING_AHEAD + size
    while at < end:
        prefetch_write(data + (at & mask))
        at += RING_LINE


# --- reading ----------------------------------------------------------------------------------

cdef inline bint ring_stuck(
        const RingHeader* header, int64_t now_ns, int64_t patience_ns) noexcept nogil:
    # Return whether the writer's loop has not been up to date for `patience_ns`: it is stuck, or
    # still catching up.
    cdef int64_t current_ns = <int64_t>load_acquire(<const uint64_t*>&header.current_ns)
    return current_ns != 0 and now_ns - current_ns >= patience_ns

cdef inline void ring_reader_init(
        RingReader* r, const uint8_t* region, uint64_t size_bytes) noexcept nogil:
    # Set the reader to the beginning of a mapped region. The caller has checked its size: RING_DATA
    # plus a power of two.
    r.header = <const RingHeader*>region
    r.data = region + RING_DATA
    r.capacity = size_bytes - RING_DATA
    r.mask = r.capacity - 1
    r.chunk = min(r.capacity // RING_CHUNK_PART, <uint64_t>RING_CHUNK_MAX)
    r.record_max = min(r.capacity // RING_RECORD_PART, <uint64_t>RING_RECORD_MAX)
    r.cursor = r.header.first & ~<uint64_t>7
    r.index = r.header.first_index
    r.lapped = 0
    r.stays = False
    r.jumped = False
    r.waiting = False
    r.in_step = False
    r.rest = 0

cdef inline bint ring_pad_fits(
        const RingReader* r, uint64_t offset, uint64_t length) noexcept nogil:
    # Whether a PAD may be at an offset: it fills what is left of a lap that has records.
    return offset != 0 and length == r.capacity - offset

cdef inline bint ring_walk(RingReader* r, bint to_tail, uint64_t* last) noexcept nogil:
    # Find a place to start: set cursor and index to the newest flushed record or, with to_tail,
    # behind the last committed one. *last is the position of that record. False: a record is
    # invalid, or was overwritten meanwhile.
    cdef uint64_t word, length, offset
    cdef uint64_t cursor = load_acquire(&r.header.latest)
    cdef const Record* record
    cdef bint valid = cursor & 7 == 0
    cdef uint64_t start = cursor
    cdef uint64_t index = r.header.first_index  # the header's, if the ring has no record yet
    last[0] = cursor
    while valid and cursor - start < r.capacity:
        offset = cursor & r.mask
        word = load_acquire(<const uint64_t*>(r.data + offset))
        length = <uint32_t>word
        if length == 0:
            break
        if <uint8_t>(word >> 32) == KIND_PAD:
            valid = ring_pad_fits(r, offset, length)
            cursor += length
            continue
        record = <const Record*>(r.data + offset)
        valid = (RECORD_SIZE <= length and ring_aligned(length) <= r.record_max
                 and offset + ring_aligned(length) <= r.capacity
                 and record.position == cursor and (cursor == start or record.index == index))
        index = record.index
        if not to_tail:
            break
        last[0] = cursor
        cursor += ring_aligned(length)
        index += 1
    # As in ring_run: what was read is valid only if the writer has not lapped it meanwhile.
    fence_acquire()
    r.cursor = cursor
    r.index = index
    return valid and load_relaxed(&r.header.intent) <= start + r.capacity

cdef inline void ring_fetch(const RingReader* r, uint64_t position) noexcept nogil:
    # Prefetch the cache line behind a record's header together with its commit word: the payload
    # then arrives with the header instead of after it, 30 to 40 ns sooner. If the writer is still
    # filling that line, the prefetch is wasted and the next poll fetches it again.
    prefetch_read(r.data + ((position + RING_LINE) & r.mask))

cdef inline bint ring_ready(const RingReader* r) noexcept nogil:
    # Return whether polling is worthwhile: there is a record. Laps and the end of the log do not
    # show here.
    ring_fetch(r, r.cursor)
    return <int32_t>load_relaxed(<const uint64_t*>(r.data + (r.cursor & r.mask))) != 0

cdef inline int ring_run(RingReader* r, RingRun* run) noexcept nogil:
    # Copy the committed records from the cursor on, up to about one chunk, then validate the run
    # once. The cursor and run.count advance only over sound records.
    cdef uint64_t start = r.cursor, cursor = r.cursor, index = r.index, used = run.used
    cdef uint64_t word, length, offset, size
    cdef int64_t count = run.count
    # After a lap, copy one record at a time. A writer that keeps lapping this reader would
    # overwrite a long run before it is validated, and the reader would never get anything. A reader
    # that waited also gets one record at once (ring_poll).
    cdef uint64_t run_size = 1 if r.jumped or r.waiting else r.chunk
    cdef uint64_t lapped = 0
    cdef int end = RUN_DONE
    cdef Record* header
    while count < run.limit and cursor - start < run_size:
        offset = cursor & r.mask
        ring_fetch(r, cursor)
        # Acquire: the record's bytes are read after its commit word (ring_store_commit).
        word = load_acquire(<const uint64_t*>(r.data + offset))
        length = <uint32_t>word
        if length == 0:
            end = RUN_EMPTY
            break
        if <uint8_t>(word >> 32) == KIND_PAD:
            if not ring_pad_fits(r, offset, length):
                end = RUN_CORRUPT
                break
            cursor += length
            continue
        size = ring_aligned(length)
        if length < RECORD_SIZE or size > r.record_max or offset + size > r.capacity:
            end = RUN_CORRUPT
            break
        if used + size - RECORD_SIZE > run.room:
            end = RUN_FULL
            break
        header = run.headers + count
        memcpy(header, r.data + offset, RECORD_SIZE)
        memcpy(header, &word, 8)  # the word that was checked: a broken writer may have changed it
        if unlikely(header.position != cursor or header.index != index):
            if header.position != cursor or header.index < index or not r.jumped or count > 0:
                end = RUN_CORRUPT
                break
            lapped = header.index - index
            index = header.index
        run.offsets[count] = used
        memcpy(run.payloads + used, r.data + offset + RECORD_SIZE, size - RECORD_SIZE)
        used += size - RECORD_SIZE
        cursor += size
        index += 1
        count += 1
    # Orders the copies before the load of intent; the writer stores intent before it overwrites.
    fence_acquire()
    if unlikely(load_relaxed(&r.header.intent) > start + r.capacity):
        # Orders the load of intent before that of `latest` (ring_jump), so that `latest` is not
        # older.
        fence_acquire()
        return RUN_LAPPED
    if end == RUN_CORRUPT and cursor != start:
        end = RUN_DONE  # the records before it are sound; the next run begins with it
    if count > run.count:
        r.jumped = False
    r.cursor = cursor
    r.index = index
    r.lapped += lapped
    run.lapped += lapped
    run.count = count
    run.used = used
    return end

cdef inline bint ring_jump(RingReader* r) noexcept nogil:
    # Continue at a recent record. False: there is none ahead, which only a broken writer says.
    # Acquire: the record at `latest` is complete (ring_flush).
    cdef uint64_t latest = load_acquire(&r.header.latest)
    if latest <= r.cursor or latest & 7:
        return False
    r.cursor = latest
    r.jumped = True
    return True

cdef inline void ring_pace(RingReader* r, int64_t count) noexcept nogil:
    # After a poll that returned `count` records, all there were: decide how long to leave the
    # writer alone. A reader close behind a writer at full speed takes cache lines away from it: the
    # one with the next commit word, and those that the processor prefetches. Both then pay 50 ns
    # per record instead of 9. So the rest grows as long as it yields more than one record per two
    # pauses (one per 30 ns), a rate that no feed sustains, and drops to 0 at the first poll that
    # yields less.
    r.in_step = True
    if count > RING_STEP_RECORDS + r.rest // 2:
        r.rest = min(2 * r.rest + RING_REST_MIN, <uint32_t>RING_REST_MAX)
    else:
        r.rest = 0

cdef inline void ring_rest(RingReader* r) noexcept nogil:
    # Rest only once after a poll that caught up, not at every poll: a waiting reader polls all the
    # time.
    cdef uint32_t _pause
    if r.in_step:
        r.in_step = False
        for _pause in range(r.rest):
            cpu_relax()

cdef inline int64_t ring_poll(
        RingReader* r, Record* headers, uint64_t* offsets, uint8_t* payloads, size_t room,
        int64_t limit, uint64_t* lapped) noexcept nogil:
    # Copy up to `limit` records: the headers into one array, the payloads behind each other
    # (8-aligned, payload i at payloads + offsets[i]). Never waits for a record; behind a writer at
    # full speed it first rests for up to RING_REST_MAX pauses. After a call that found nothing, it
    # returns the first record alone as soon as it has it: to find out whether there are more would
    # cost this call the transfer of a cache line, and the next call does it anyway. A caller that
    # wants everything at once sets r.waiting to False.
    #
    # *lapped: number of records missed *before the first returned one*. The records of one call
    # are consecutive. It is > 0 only together with a count > 0.
    #
    # Returns the count; 0: nothing new; -EPIPE: nothing more will come, because the ring is closed
    # or was replaced by the next writer's file (if its writer failed or was killed and no next
    # writer has come yet: 0); -EMSGSIZE: room is too small for the next payload; -EBADMSG: the
    # ring holds no valid record where one must be; -EOVERFLOW, with r.stays: the reader is lapped.
    cdef RingRun run
    cdef int end
    cdef int attempts = 0
    cdef bint closed = False
    cdef uint64_t state
    lapped[0] = 0
    run.headers = headers
    run.offsets = offsets
    run.payloads = payloads
    run.room = room
    run.limit = limit
    run.count = 0
    run.used = 0
    run.lapped = 0
    ring_rest(r)
    while run.count < limit:
        end = ring_run(r, &run)
        if end == RUN_DONE:
            if r.waiting and run.count > 0:
                break
            continue
        if run.count > 0:
            # These records are sound and consecutive; the next call meets first what stopped this
            # one.
            if end == RUN_EMPTY:
                ring_pace(r, run.count)
            break
        if end == RUN_LAPPED:
            if r.stays:
                return -EOVERFLOW
            attempts += 1
            if attempts > RING_ATTEMPTS:
                break
            if not ring_jump(r):
                return -EBADMSG
            continue
        if end == RUN_FULL:
            return -EMSGSIZE
        if end == RUN_CORRUPT:
            return -EBADMSG
        if closed:
            return -EPIPE
        # Acquire: the next run sees every record committed before the end was announced.
        state = load_acquire(&r.header.state)
        closed = state == RING_CLOSED or state == RING_REPLACED
        if not closed:
            r.waiting = True
            break
    if run.count > 0:
        r.waiting = False
    lapped[0] = run.lapped
    return run.count

cdef inline bint ring_awaits(const RingReader* r) noexcept nogil:
    # Return whether the writer said that another one will continue, and everything it left has been
    # read. Acquire: the last record was committed before the state changed.
    cdef uint64_t state = load_acquire(&r.header.state)
    return (state == RING_FAILED or state == RING_LEFT) and not ring_ready(r)

# --- the Python face --------------------------------------------------------------------------

cdef class Ring:
    cdef RingWriter writer
    cdef readonly Region region
    cdef readonly bint restarted
    cdef Region _before          # the file that this one will replace; None: there is none
    cdef bint _published
    cdef uint64_t _names         # mark of its records' table of names, stored by `publish`
    cdef _check_open(self)
