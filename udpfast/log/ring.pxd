# Ring: one writer, any number of readers that cannot slow it. A log of Records whose positions
# only grow; record at position p lies at data + (p mod capacity) and never wraps: a PAD fills up.
#
# The protocol, in four rules:
#
#   1. The commit word of a Record (its first 8 bytes: length .. flags) is stored last. Length 0
#      means "not there yet". Before a record is committed, the commit word behind it is zeroed: a
#      reader that has consumed record n sees 0 until record n + 1 itself is committed, and so
#      waits on the record it wants, not on a tail that all share.
#   2. Before the writer touches a byte at position q, `intent` is > q. The bytes of positions
#      [p, p + n) are sound if, after copying them, intent <= p + capacity.
#   3. A reader copies a run of records, then validates the whole run by rule 2, once. A run that
#      fails is thrown away: the reader was lapped, and goes on at `latest`.
#   4. Each Record carries its own position and index: the same fact a second way, and the exact
#      number of records that a lapped reader missed.
#
# Readers write nothing here. What they read is read once and checked before it is used: a length
# from the ring moves no pointer before it is known to stay inside, and is not loaded again.

from libc.errno cimport EBADMSG, EMSGSIZE, EPIPE
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
    RING_RECORD_MAX = 1 << 30    # and fits the i32 of Record.length
    RING_CHUNK_PART = 16         # intent moves ahead by 1/16 of the capacity,
    RING_CHUNK_MAX = 65536       # or 64 KiB: its line changes hands every few hundred records
    RING_AHEAD = 2048            # bytes: how far ahead of the writer lines are fetched
    RING_LINE = 64
    RING_STEP_RECORDS = 2        # in one look: more of them come from a writer at full speed
    RING_REST_MIN = 4            # pauses: 70 ns on Zen 4
    RING_REST_MAX = 128          # 2 us, 190 records of 64 bytes at full speed
    RING_ATTEMPTS = 16           # jumps to `latest` within one poll, before it returns empty
    # A loop at rest sleeps for 1 ms at most, so one that says nothing for so long stands still.
    RING_STUCK_NS = 1_000_000_000

cdef enum:  # RingState
    RING_OPEN = 1
    RING_CLOSED = 2              # by its writer, in good order: nothing more will come
    RING_REPLACED = 3            # its writer did not close it; the next one went on in another file
    RING_FAILED = 4              # an error ended its writer: the next one goes on in another file

# A log outlives its files. A writer that is killed leaves a file that the next one goes on with;
# where it cannot (its settings want another size) or must not (its writer closed it), it begins
# a new file of the same log: positions and indices go on where the file before ended. So the pair
# (log, index) names a record for good, and what a reader missed is a difference of two indices,
# whatever became of the files. A log begins anew only when its last file is not there any more, or
# cannot be read: then nobody knows how many records that were.

# --- RingHeader: the first 512 bytes of the region ------------------------------------------
#
#   0 RegionHeader | 128 intent | 256 latest .. current_ns | 384 state .. names | 4096 data
#
# Each group has 128 bytes of its own (processors fetch lines in pairs): intent is read by every
# reader once per run, state by waiting readers, the tail by tools and by who starts or was lapped.

cdef struct RingHeader:
    uint8_t region[128]
    uint64_t intent          # positions below may have been written over the last lap
    uint8_t pad_intent[120]
    uint64_t latest          # position of the newest record, as of the last flush
    uint64_t tail            # committed end, for tools: as of the last flush
    uint64_t tail_index      # number of records below tail
    int64_t current_ns       # what had come by then (monotonic) lies below tail; 0: not said
    uint8_t pad_tail[96]
    uint64_t state           # RingState
    uint64_t epoch           # grows by 1 with each writer of the log
    uint64_t began           # position of this writer's first record
    uint64_t began_index     # its index
    int64_t born_ns          # UNIX ns: when this file was made, whoever writes it now
    uint64_t log[2]          # which log: 16 random bytes
    uint64_t generation      # number of this file in its log, from 1
    uint64_t first           # position where this file begins, and the one before it ended
    uint64_t first_index     # index of the record there
    uint64_t session         # ordinal of the log's latest session
    uint64_t names           # mark of the table that its records' ids are of; 0: not said
    uint8_t pad_state[32]

cdef struct RingWriter:
    uint8_t* data
    RingHeader* header
    uint64_t capacity
    uint64_t mask
    uint64_t chunk
    uint64_t record_max      # header and payload
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
    uint64_t index           # its index, unless the reader gets lapped
    uint64_t lapped          # records missed since it was attached
    bint jumped              # the record at the cursor may have a later index
    bint waiting             # the last look found nothing: the next record is handed out alone
    bint in_step             # the last poll read all that was there: the next one rests first
    uint32_t rest            # pauses: 0, or more while the writer is at full speed (ring_pace)

cdef enum:  # how a run ended (ring_run)
    RUN_DONE = 0             # limit or chunk reached
    RUN_LAPPED = 1           # overwritten while it was read: nothing of the run counts
    RUN_FULL = 2             # the next payload does not fit in the room that is left
    RUN_CORRUPT = 3          # sound by intent, and yet no record: a writer gone mad
    RUN_EMPTY = 4            # nothing more there

cdef struct RingRun:
    # What a run has copied so far, into the caller's arrays.
    Record* headers
    uint64_t* offsets
    uint8_t* payloads
    uint64_t room            # bytes at payloads
    int64_t limit            # records
    int64_t count            # copied and validated
    uint64_t used            # bytes of room
    uint64_t lapped          # missed before the first record

cdef inline uint64_t ring_aligned(uint64_t length) noexcept nogil:
    return (length + 7) & ~<uint64_t>7

# --- writing ----------------------------------------------------------------------------------

cdef inline void ring_flush(RingWriter* w) noexcept nogil:
    # Publish how far the log reaches: for tools, for readers that attach or were lapped, and for
    # the next writer. Once per batch is enough: readers in step do not look at it.
    # Release: who reads `latest` (a lapped reader, the next writer) finds that record whole.
    store_release(&w.header.latest, w.latest)
    store_relaxed(&w.header.tail_index, w.index)
    # Release: who looks for records below `tail` (_seek_oldest) finds each of them committed.
    store_release(&w.header.tail, w.position)

cdef inline void ring_note_current(RingWriter* w, int64_t now_ns) noexcept nogil:
    # Say that the loop turns, and has read all that had come by then. A writer that never says so
    # is never taken for stuck. Release: who sees it finds what was committed before.
    store_release(<uint64_t*>&w.header.current_ns, <uint64_t>now_ns)

cdef inline void ring_advance(RingWriter* w, uint64_t end) noexcept nogil:
    # Say that everything below `end` (and a chunk more) may be overwritten from now on.
    ring_flush(w)
    w.intent = end + w.chunk
    # Release: a reader that sees this intent, and therefore jumps, finds the `latest` of above.
    store_release(&w.header.intent, w.intent)
    # Orders the intent before every byte written under it; read by ring_run after its copy.
    fence_release()

cdef inline void ring_store_commit(RingWriter* w, uint64_t next, uint64_t word) noexcept nogil:
    # Zero the commit word at `next`, then commit the record at w.position.
    store_relaxed(<uint64_t*>(w.data + (next & w.mask)), 0)
    # Orders header, payload and the zero behind them before the word; read by ring_run.
    store_release(<uint64_t*>(w.data + (w.position & w.mask)), word)

cdef inline void ring_wrap(RingWriter* w) noexcept nogil:
    # Fill the rest of this lap with a PAD: a commit word only, which fits even in 8 bytes.
    cdef uint64_t rest = w.capacity - (w.position & w.mask)
    if w.position + rest + 8 > w.intent:
        ring_advance(w, w.position + rest + 8)
    ring_store_commit(w, w.position + rest, rest | (<uint64_t>KIND_PAD << 32))
    w.position += rest

cdef inline Record* ring_claim(RingWriter* w, uint32_t payload_size) noexcept nogil:
    # Return where the next record goes; NULL if it is larger than record_max. The caller fills
    # all of the header but length, position, index and checksum, and
    # writes up to payload_size bytes behind it. Claiming again without commit gives the same place.
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

cdef inline void ring_commit(RingWriter* w, uint32_t payload_size) noexcept nogil:
    # Make the claimed record visible. payload_size: the final one, at most what was claimed.
    cdef Record* record = <Record*>(w.data + (w.position & w.mask))
    cdef uint64_t length = RECORD_SIZE + <uint64_t>payload_size
    cdef uint64_t size = ring_aligned(length)
    cdef uint64_t* last = <uint64_t*>(<uint8_t*>record + size - 8)
    if length != size:  # the padding is zero: the same record is the same bytes everywhere
        last[0] &= ~<uint64_t>0 >> (8 * (size - length))
    record.position = w.position
    record.index = w.index
    record.checksum = 0
    ring_store_commit(
        w, w.position + size,
        length | (<uint64_t>record.kind << 32) | (<uint64_t>record.line << 40)
        | (<uint64_t>record.flags << 48))
    ring_fetch_ahead(w, size)
    w.latest = w.position
    w.position += size
    w.index += 1

cdef inline void ring_fetch_ahead(RingWriter* w, uint64_t size) noexcept nogil:
    # A ring is larger than the cache, so each line of a record is a miss to memory, and a store
    # that misses holds up those behind it. Asked for some records before, the lines are there.
    cdef uint64_t at = (w.position + RING_AHEAD) & ~<uint64_t>(RING_LINE - 1)
    cdef uint64_t end = w.position + RING_AHEAD + size
    while at < end:
        prefetch_write(w.data + (at & w.mask))
        at += RING_LINE


# --- reading ----------------------------------------------------------------------------------

cdef inline bint ring_stuck(
        const RingHeader* header, int64_t now_ns, int64_t patience_ns) noexcept nogil:
    # Whether the writer's loop has not been up to date for so long: it stands still, or catches up.
    cdef int64_t current_ns = <int64_t>load_acquire(<const uint64_t*>&header.current_ns)
    return current_ns != 0 and now_ns - current_ns >= patience_ns

cdef inline void ring_reader_init(
        RingReader* r, const uint8_t* region, uint64_t size_bytes) noexcept nogil:
    # Over a mapped region whose size is checked: RING_DATA and a power of two. Where it begins.
    r.header = <const RingHeader*>region
    r.data = region + RING_DATA
    r.capacity = size_bytes - RING_DATA
    r.mask = r.capacity - 1
    r.chunk = min(r.capacity // RING_CHUNK_PART, <uint64_t>RING_CHUNK_MAX)
    r.record_max = min(r.capacity // RING_RECORD_PART, <uint64_t>RING_RECORD_MAX)
    r.cursor = r.header.first & ~<uint64_t>7
    r.index = r.header.first_index
    r.lapped = 0
    r.jumped = False
    r.waiting = False
    r.in_step = False
    r.rest = 0

cdef inline bint ring_walk(RingReader* r, bint to_tail, uint64_t* last) noexcept nogil:
    # Begin to read: set cursor and index to the newest flushed record, or (to_tail) behind the
    # last committed one; *last: position of that one. False: a record is not valid, or was
    # overwritten meanwhile.
    cdef uint64_t word, length, offset
    cdef uint64_t cursor = load_acquire(&r.header.latest)
    cdef const Record* record
    cdef bint valid = cursor & 7 == 0
    cdef uint64_t start = cursor
    cdef uint64_t index = r.header.first_index  # `latest` has a record, unless there is none yet
    last[0] = cursor
    while valid and cursor - start < r.capacity:
        offset = cursor & r.mask
        word = load_acquire(<const uint64_t*>(r.data + offset))
        length = <uint32_t>word
        if length == 0:
            break
        if <uint8_t>(word >> 32) == KIND_PAD:
            valid = length == r.capacity - offset
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
    # As in ring_run: what was read counts only if the writer had not come round.
    fence_acquire()
    r.cursor = cursor
    r.index = index
    return valid and load_relaxed(&r.header.intent) <= start + r.capacity

cdef inline void ring_fetch(const RingReader* r, uint64_t position) noexcept nogil:
    # The line behind a record's header, asked for together with its commit word: the payload then
    # comes at the same time and not after it, 30 to 40 ns sooner. A line that the writer still
    # fills is asked for in vain, and comes again with the next look.
    prefetch_read(r.data + ((position + RING_LINE) & r.mask))

cdef inline bint ring_ready(const RingReader* r) noexcept nogil:
    # Whether there is something to poll for: a record, or (not seen here) a lap or the end.
    ring_fetch(r, r.cursor)
    return <int32_t>load_relaxed(<const uint64_t*>(r.data + (r.cursor & r.mask))) != 0

cdef inline int ring_run(RingReader* r, RingRun* run) noexcept nogil:
    # Copy what is committed from the cursor on, up to about a chunk, then validate it once.
    # The cursor moves, and run.count grows, only by records that were sound.
    cdef uint64_t start = r.cursor, cursor = r.cursor, index = r.index, used = run.used
    cdef uint64_t word, length, offset, size
    cdef int64_t count = run.count
    # Behind a lap one record at a time: a writer that laps this reader again and again overwrites
    # a long run before it is validated, and then nothing would ever be read. And one for who waits.
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
            if length != r.capacity - offset:
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
        memcpy(header, &word, 8)  # as it was checked: a writer gone mad may store another meanwhile
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
    # Orders the copies before the look at intent; the writer stored it before it overwrote.
    fence_acquire()
    if unlikely(load_relaxed(&r.header.intent) > start + r.capacity):
        # Orders the intent seen before `latest` (ring_jump): that one is not from before it.
        fence_acquire()
        return RUN_LAPPED
    if end == RUN_CORRUPT and cursor != start:
        end = RUN_DONE  # what came before it is sound; the next run begins with it
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
    # Go on at a recent record. False if there is none ahead, which no sane writer says.
    # Acquire: the record at `latest` is whole (ring_flush).
    cdef uint64_t latest = load_acquire(&r.header.latest)
    if latest <= r.cursor or latest & 7:
        return False
    r.cursor = latest
    r.jumped = True
    return True

cdef inline void ring_pace(RingReader* r, int64_t count) noexcept nogil:
    # After a poll that read all there was, `count` records: how long is the writer left alone?
    #
    # A reader right behind a writer at full speed takes lines out of its hands: the one with the
    # next commit word, and those that the processor fetches ahead. Both then pay 50 ns per record
    # instead of 9. So the rest grows as long as it brings more than a record per two pauses (one
    # per 30 ns), which no feed sustains, and is gone with the first that does not.
    r.in_step = True
    if count > RING_STEP_RECORDS + r.rest // 2:
        r.rest = min(2 * r.rest + RING_REST_MIN, <uint32_t>RING_REST_MAX)
    else:
        r.rest = 0

cdef inline void ring_rest(RingReader* r) noexcept nogil:
    # Once per poll that was in step, not once per look: who waits for a record looks all the time.
    cdef uint32_t _pause
    if r.in_step:
        r.in_step = False
        for _pause in range(r.rest):
            cpu_relax()

cdef inline int64_t ring_poll(
        RingReader* r, Record* headers, uint64_t* offsets, uint8_t* payloads, size_t room,
        int64_t limit, uint64_t* lapped) noexcept nogil:
    # Copy up to `limit` records: headers into one array, payloads behind each other (8-aligned,
    # payload i at payloads + offsets[i]). Never waits for a record; behind a writer at full speed
    # it rests for up to RING_REST_MAX pauses before it looks. After a call that found nothing it
    # returns the first record alone, as soon as it has it: whether there are more is the next
    # call's first look, and would cost this one the transfer of a line. A caller that wants all
    # that is there sets r.waiting to False.
    #
    # *lapped is the number of records missed *before the first returned one*: records within one
    # call follow each other without a hole. It is > 0 only together with a count > 0.
    #
    # Returns the count; 0: nothing new; -EPIPE: nothing more will come (closed, or replaced by the
    # next writer: behind one that failed, or was killed, that is waited for);
    # -EMSGSIZE: room is too small for the next payload; -EBADMSG: the ring holds no valid record
    # where one must be.
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
            # Sound and contiguous; what stopped it is met first by the next call.
            if end == RUN_EMPTY:
                ring_pace(r, run.count)
            break
        if end == RUN_LAPPED:
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
        # Acquire: a record committed before the end is seen by the run that follows.
        state = load_acquire(&r.header.state)
        closed = state == RING_CLOSED or state == RING_REPLACED
        if not closed:
            r.waiting = True
            break
    if run.count > 0:
        r.waiting = False
    lapped[0] = run.lapped
    return run.count

cdef inline bint ring_failed(const RingReader* r) noexcept nogil:
    # Whether an error ended the writer, and all that it left was read. Acquire: its last record was
    # committed before it said so.
    return load_acquire(&r.header.state) == RING_FAILED and not ring_ready(r)

# --- the Python face --------------------------------------------------------------------------

cdef class Ring:
    cdef RingWriter writer
    cdef readonly Region region
    cdef readonly bint restarted
    cdef Region _before          # the file whose place it is to take; None: there is none
    cdef bint _published
    cdef uint64_t _names         # that its records go by, said when it is published
    cdef _check_open(self)
