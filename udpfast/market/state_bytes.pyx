"""A state as entries of an image and as records for a late joiner; mostly for Cython."""

from libc.errno cimport EAGAIN, EBADMSG, EMSGSIZE, ENOMEM
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from udpfast.core.layout cimport (
    CHANNEL_COUNT, CHANNEL_SNAPSHOT, Connection, FLIGHT_UNKNOWN, KIND_RECOVERED, KIND_STALE,
    LINES_MAX, OBJECT_LIVE, OBJECT_STALE, OBJECT_UNKNOWN, OBJECT_WAITING, ObjectState,
    RECORD_RELEASED, RECORD_SIZE, RECORD_SNAPSHOT, RECORD_TRUNCATED, RECORD_UNGATED,
    STREAM_FIRST, STREAM_NONE, Session)
from udpfast.core.update_kinds cimport (
    KIND_BOOK, KIND_CUSTOM_METRICS, KIND_ORDERS, KIND_STATISTICS)
from udpfast.market.book cimport UPDATE_TYPE_SNAPSHOT, UPDATE_TYPE_STALE, book_room
from udpfast.market.doubt cimport (
    DOUBT_UNHEARD, doubt_key_stream, doubt_stands, doubt_ungated, doubts_find)
from udpfast.market.ladder cimport ladder_apply, ladder_copy, ladder_depth, ladder_reserve
from udpfast.market.state cimport (
    STATE_VALUES_MAX, StateMark, StateObject, StateSession, StateValue, state_add, state_at,
    state_changed, state_reach)
from udpfast.market.state_values cimport (
    state_fixed, state_keep, state_value, state_value_add, value_is_alone)
from udpfast.market.update_header cimport (
    Level, OBJECT_IMPLIED, PRESENT_ASKS, PRESENT_ROWS, UpdateHeader)
from udpfast.market.updates cimport Book

from udpfast.core.layout import CONNECTION, RECORD, SESSION, layout_hash
from udpfast.errors import FormatError
from udpfast.market.updates import PAYLOAD_HASH

__all__ = ["ENTRY_HASH", "read_mark"]

_LAYOUT = 6  # changes with StateHead, StateStream, StateEntry and StateEntryValue

#: Identifies the layouts of entries.
ENTRY_HASH: int = layout_hash(RECORD, SESSION, CONNECTION) ^ PAYLOAD_HASH ^ _LAYOUT

cdef enum:
    STREAMS_MAX = STREAM_NONE    # records have no larger stream

if sizeof(StateEntry) != 64 or sizeof(StateEntryValue) != 88:
    raise ImportError(f"StateEntry has {sizeof(StateEntry)} bytes, not 64; "
                      f"StateEntryValue {sizeof(StateEntryValue)}, not 88")


def read_mark(bytes entry) -> dict[str, int]:
    """Return what an image's first entry says about the image as a whole.

    Returns
    -------
    dict of str to int
        `epoch` of the ring's writer; `objects` known in this session; `objects_refused` and
        `values_refused`, which were not kept; `lapped`: records that its keeper missed, ever.

    Raises
    ------
    FormatError
        The entry is too short.
    """
    cdef StateHead head
    if len(entry) < <Py_ssize_t>sizeof(head):
        raise FormatError(
            f"an image's first entry has at least {sizeof(head)} bytes, found {len(entry)}")
    memcpy(&head, <const char*>entry, sizeof(head))
    return {
        "epoch": head.mark.epoch, "objects": head.objects,
        "objects_refused": head.mark.refused, "values_refused": head.mark.values_refused,
        "lapped": head.mark.lapped,
    }


cdef uint64_t padded(uint64_t size) noexcept nogil:
    return (size + 7) & ~<uint64_t>7


# --- values -------------------------------------------------------------------------------------

cdef uint64_t value_size(const StateValue* value, uint32_t depth) noexcept nogil:
    # Return the size of its payload as an update; 0 if there is none yet.
    if value.size == 0 or value.record.kind != KIND_BOOK:
        return value.size
    return sizeof(Book) + sizeof(Level) * (
        <uint64_t>ladder_depth(&value.bids, depth) + ladder_depth(&value.asks, depth))


cdef void value_write(const StateValue* value, uint32_t depth, uint8_t* out) noexcept nogil:
    # Write its payload as a complete update.
    cdef Book* book = <Book*>out
    cdef Level* rows = <Level*>(out + sizeof(Book))
    cdef UpdateHeader* update = <UpdateHeader*>out
    if value.size == 0:
        return
    memcpy(out, value.payload, value.size)
    if value.record.kind == KIND_BOOK:
        book.bid_count = ladder_copy(&value.bids, depth, rows)
        book.ask_count = ladder_copy(&value.asks, depth, rows + book.bid_count)
        update.row_count = book.bid_count + book.ask_count
        update.present |= PRESENT_ROWS | PRESENT_ASKS
    elif value.record.kind not in (KIND_ORDERS, KIND_STATISTICS, KIND_CUSTOM_METRICS):
        return
    if update.update_type != UPDATE_TYPE_STALE:
        update.update_type = UPDATE_TYPE_SNAPSHOT


cdef bint value_cut(const StateValue* value, uint32_t depth) noexcept nogil:
    return value.cut or ladder_depth(&value.bids, depth) < value.bids.count or (
        ladder_depth(&value.asks, depth) < value.asks.count)


# --- entries ------------------------------------------------------------------------------------

cdef uint64_t entry_size(
        const State* state, uint32_t object, uint32_t depth, bint bare) noexcept nogil:
    cdef uint64_t size = sizeof(StateEntry)
    cdef uint32_t index = 0 if bare else value_from(state, state_at(state, object).values)
    while index:
        size += sizeof(StateEntryValue) + padded(value_size(state.values + index - 1, depth))
        index = value_from(state, state.values[index - 1].next)
    return size


cdef uint32_t value_from(const State* state, uint32_t index) noexcept nogil:
    # Return this value or the first one after it that has a payload or is a book; 0 if there is
    # none. A value other than a book is identified by its payload only.
    while index and state.values[index - 1].size == 0 and (
            state.values[index - 1].record.kind != KIND_BOOK):
        index = state.values[index - 1].next
    return index


cdef void entry_write(
        const State* state, uint32_t object, uint32_t depth, bint bare,
        uint8_t* out) noexcept nogil:
    cdef const StateObject* of = state_at(state, object)
    cdef StateEntry* entry = <StateEntry*>out
    cdef StateEntryValue* written
    cdef const StateValue* value
    cdef uint32_t index = 0 if bare else value_from(state, of.values)
    memset(entry, 0, sizeof(StateEntry))
    entry.doubt = of.doubt
    entry.until = of.until
    entry.index = of.index
    entry.applied = of.applied
    entry.generation = state.mark.generation
    entry.session = of.session
    entry.waits = of.waits
    entry.unkept = of.unkept or bare
    out += sizeof(StateEntry)
    while index:
        value = state.values + index - 1
        written = <StateEntryValue*>out
        memset(written, 0, sizeof(StateEntryValue))
        written.tag = value.tag
        written.size = <uint32_t>value_size(value, depth)
        written.missing = value.missing
        written.cut = value_cut(value, depth)
        written.record = value.record
        value_write(value, depth, out + sizeof(StateEntryValue))
        out += sizeof(StateEntryValue) + padded(written.size)
        entry.values += 1
        index = value_from(state, value.next)


cdef uint64_t head_size(const State* state, bint bare) noexcept nogil:
    return sizeof(StateHead) + (
        0 if bare else <uint64_t>state.doubts.streams * sizeof(StateStream))


cdef void head_write(const State* state, bint bare, uint8_t* out) noexcept nogil:
    cdef StateHead* head = <StateHead*>out
    cdef StateStream* stream = <StateStream*>(out + sizeof(StateHead))
    cdef uint32_t i
    head.mark = state.mark
    head.objects = 0 if bare else state.doubts.count
    head.streams = 0 if bare else state.doubts.streams
    for i in range(head.streams):
        stream[i].heard = state.doubts.heard[i]
        if i < state.sessions_count:
            stream[i].session = state.sessions[i]
        else:
            memset(&stream[i].session, 0, sizeof(StateSession))


cdef int entry_read(State* state, const uint8_t* entry, uint64_t size) noexcept nogil:
    cdef StateEntry head
    cdef StateObject* object
    cdef uint64_t at = sizeof(StateEntry)
    cdef uint32_t _value
    cdef int rc
    if size < sizeof(StateEntry):
        return -EBADMSG
    memcpy(&head, entry, sizeof(head))
    if head.generation != state.mark.generation:
        # An older entry: its place belongs to an object now for which there was no room.
        return -EAGAIN if <int>(head.generation - state.mark.generation) > 0 else 0
    if state.doubts.count >= state.objects_max or (
            doubt_key_stream(head.doubt.key) > STREAMS_MAX
            or doubts_find(&state.doubts, head.doubt.key, head.doubt.tag) != NULL):
        return -EBADMSG
    if not state_reach(state, doubt_key_stream(head.doubt.key)):
        return -ENOMEM           # the stream came after the head was written
    object = state_add(state, head.doubt.key, head.doubt.tag)
    if object == NULL:
        return -ENOMEM
    object.doubt = head.doubt
    object.until = head.until
    state.newest = max(state.newest, head.until)
    object.index = head.index
    object.applied = head.applied
    object.session = head.session
    object.waits = head.waits
    object.unkept = head.unkept
    state_changed(state, object)
    for _value in range(head.values):
        rc = entry_read_value(state, object, entry, size, &at)
        if rc < 0:
            return rc
    return 0


cdef int64_t copy_whole(
        entry_copy copy, const void* source, uint32_t i, uint8_t** memory,
        uint64_t* room) noexcept nogil:
    # Copy a whole entry, into memory that grows as needed.
    cdef int64_t size = copy(source, i, memory[0], room[0])
    cdef uint64_t wanted
    cdef void* grown
    while size == -EMSGSIZE:
        memcpy(&wanted, memory[0], 8)
        grown = realloc(memory[0], wanted)
        if grown == NULL:
            return -ENOMEM
        memory[0] = <uint8_t*>grown
        room[0] = wanted
        size = copy(source, i, memory[0], room[0])
    return size


cdef int state_read(
        State* state, entry_copy copy, const void* source, uint64_t entries) noexcept nogil:
    cdef uint64_t room = 1 << 16
    cdef uint8_t* memory = <uint8_t*>malloc(room)
    cdef int rc = -ENOMEM
    if memory != NULL:
        rc = read_all(state, copy, source, entries, &memory, &room)
    free(memory)
    return rc


cdef int read_all(
        State* state, entry_copy copy, const void* source, uint64_t entries, uint8_t** memory,
        uint64_t* room) noexcept nogil:
    cdef StateHead head
    cdef StateStream stream
    cdef int64_t size = copy_whole(copy, source, 0, memory, room)
    cdef uint32_t i
    cdef int rc
    if size <= 0:
        return <int>size if size < 0 else -EAGAIN
    if not head_sound(memory[0], <uint64_t>size, entries, &head) or head.mark.position & 7:
        return -EBADMSG
    state.mark = head.mark
    state.newest = head.mark.position
    if head.streams and not state_reach(state, head.streams - 1):
        return -ENOMEM
    for i in range(head.streams):
        memcpy(&stream, memory[0] + sizeof(head) + i * sizeof(stream), sizeof(stream))
        state.doubts.heard[i] = stream.heard
        state.sessions[i] = stream.session
    for i in range(head.objects):
        size = copy_whole(copy, source, 1 + i, memory, room)
        if size == 0:
            continue  # there was no room for it
        rc = <int>size if size < 0 else entry_read(state, memory[0], <uint64_t>size)
        if rc < 0:
            return rc
    return 0


cdef bint head_sound(
        const uint8_t* entry, uint64_t size, uint64_t entries, StateHead* head) noexcept nogil:
    # Return True if the head is as long as it says, and contains nothing impossible.
    if size < sizeof(StateHead):
        return False
    memcpy(head, entry, sizeof(StateHead))
    return (head.objects < entries and head.streams <= 2 * STREAMS_MAX
            and size == sizeof(StateHead) + head.streams * sizeof(StateStream))


cdef int doubts_read(
        StateDoubts* out, entry_copy copy, const void* source, uint64_t entries) noexcept nogil:
    cdef StateHead head
    cdef int64_t size = copy(source, 0, <uint8_t*>&head, sizeof(head))
    cdef int64_t room = size
    cdef uint8_t* memory
    cdef int rc
    memset(out, 0, sizeof(StateDoubts))
    if size <= 0:
        return <int>size if size < 0 else -EAGAIN
    memory = <uint8_t*>malloc(<size_t>room)
    if memory == NULL:
        return -ENOMEM
    size = copy(source, 0, memory, <uint64_t>room)
    if size < 0:
        rc = <int>size
    elif size != room:
        rc = -EAGAIN             # a stream was added meanwhile
    elif not head_sound(memory, <uint64_t>size, entries, &head):
        rc = -EBADMSG
    else:
        rc = 0
        doubts_read_entries(
            out, copy, source, &head, <const StateStream*>(memory + sizeof(head)))
    free(memory)
    return rc


cdef void doubts_read_entries(
        StateDoubts* out, entry_copy copy, const void* source, const StateHead* head,
        const StateStream* streams) noexcept nogil:
    cdef StateEntry entry
    cdef uint32_t i, stream
    cdef int64_t size
    for i in range(head.objects):
        size = copy(source, 1 + i, <uint8_t*>&entry, sizeof(entry))
        if size < 0 or 0 < size < <int64_t>sizeof(entry):
            out.damaged += 1
        elif size and entry.generation == head.mark.generation:
            stream = doubt_key_stream(entry.doubt.key)
            doubts_count(out, streams[stream].heard.gaps if stream < head.streams else 0, &entry)


cdef inline void doubts_count(
        StateDoubts* out, uint32_t gaps, const StateEntry* entry) noexcept nogil:
    # Count a venue's instruments once, by their levels, and nothing else that is ungated. An entry
    # may know of more gaps than the head.
    if doubt_ungated(entry.doubt.key) and (
            doubt_key_stream(entry.doubt.key) == 0
            or <uint32_t>entry.doubt.key >= <uint32_t>OBJECT_IMPLIED):
        return
    if entry.doubt.doubted == DOUBT_UNHEARD:
        out.unheard += 1
    elif entry.doubt.doubted:
        out.waits[entry.waits & 3] += 1
    elif <int32_t>(gaps - entry.doubt.sure) > 0:
        out.gap += 1
    else:
        out.sound += 1


cdef int entry_read_value(
        State* state, StateObject* object, const uint8_t* entry, uint64_t size,
        uint64_t* at) noexcept nogil:
    cdef StateEntryValue head
    cdef UpdateHeader update
    cdef StateValue* value
    cdef const uint8_t* payload
    cdef uint32_t row = 0
    cdef uint64_t fixed
    if size - at[0] < sizeof(StateEntryValue):
        return -EBADMSG
    memcpy(&head, entry + at[0], sizeof(head))
    at[0] += sizeof(StateEntryValue)
    payload = entry + at[0]
    fixed = state_fixed(head.record.kind, &row)
    if fixed == 0 or size - at[0] < padded(head.size):
        return -EBADMSG
    at[0] += padded(head.size)
    # A book without a payload: only its object identifies it.
    if head.size < fixed:
        if head.size or head.record.kind != KIND_BOOK:
            return -EBADMSG
    if object.values_count == STATE_VALUES_MAX or (
            state_value(state, object, head.record.kind, head.tag, payload) != NULL):
        return -EBADMSG
    value = state_value_add(state, object, head.record.kind, head.tag, payload)
    if value == NULL:
        return -ENOMEM
    value.record = head.record
    value.missing = head.missing != 0
    value.cut = head.cut != 0
    if head.size == 0:
        return 0
    memcpy(&update, payload, sizeof(update))
    if head.record.kind == KIND_BOOK:
        return entry_read_book(value, payload, head.size)
    if head.size != fixed + <uint64_t>update.row_count * row:
        return -EBADMSG
    return 0 if state_keep(value, payload, head.size) else -ENOMEM


cdef int entry_read_book(
        StateValue* value, const uint8_t* payload, uint64_t size) noexcept nogil:
    cdef const Book* book = <const Book*>payload
    cdef const Level* rows = <const Level*>(payload + sizeof(Book))
    cdef uint64_t bids = book.bid_count, asks = book.ask_count
    if book_room(payload, size) < 0:
        return -EBADMSG
    if not (ladder_reserve(&value.bids, bids) and ladder_reserve(&value.asks, asks)
            and state_keep(value, payload, sizeof(Book))):
        return -ENOMEM
    if not (ladder_apply(&value.bids, rows, book.bid_count, True)
            and ladder_apply(&value.asks, rows + bids, book.ask_count, True)):
        return -EBADMSG
    return 0


# --- records ------------------------------------------------------------------------------------

cdef Record* output_claim(
        StateOutput* output, const Record* like, uint64_t payload_size) noexcept nogil:
    # Room for one more record, its header as `like` and its payload zeros. NULL: out of memory.
    cdef uint64_t size = padded(RECORD_SIZE + payload_size)
    cdef uint64_t room = max(2 * output.room, output.used + size, <uint64_t>4096)
    cdef Record* record
    cdef void* memory
    if output.used + size > output.room:
        memory = realloc(output.bytes, room)
        if memory == NULL:
            return NULL
        output.bytes = <uint8_t*>memory
        output.room = room
    record = <Record*>(output.bytes + output.used)
    memset(record, 0, size)
    memcpy(record, like, RECORD_SIZE)
    record.length = <int>(RECORD_SIZE + payload_size)
    record.flags = (like.flags & ~RECORD_RELEASED) | RECORD_SNAPSHOT
    record.checksum = 0
    output.used += size
    output.count += 1
    return record


cdef int state_records(const State* state, StateOutput* output) noexcept nogil:
    # A reader of these records is as far as one that followed the ring all the time. A SESSION that
    # was not seen is left out: a joiner would take the silence of the feed for knowledge.
    cdef const StateMark* mark = &state.mark
    cdef const StateObject* object
    cdef Record* record
    cdef uint32_t i, line
    cdef int rc = 0, gated
    for i in range(state.sessions_count):
        if state.sessions[i].record.kind and state.doubts.heard[i].complete:
            record = output_claim(output, &state.sessions[i].record, sizeof(Session))
            if record == NULL:
                return -ENOMEM
            memcpy(<uint8_t*>record + RECORD_SIZE, &state.sessions[i].session, sizeof(Session))
    for i in range(<uint32_t>CHANNEL_COUNT):
        if mark.has_connection[i]:
            record = output_claim(output, &mark.connection_record[i], sizeof(Connection))
            if record == NULL:
                return -ENOMEM
            memcpy(<uint8_t*>record + RECORD_SIZE, &mark.connection[i], sizeof(Connection))
        for line in range(<uint32_t>LINES_MAX):
            if mark.silent_lines[i] >> line & 1:
                record = output_claim(output, &mark.line_record[i][line], sizeof(Connection))
                if record == NULL:
                    return -ENOMEM
                memcpy(<uint8_t*>record + RECORD_SIZE, &mark.line_connection[i][line],
                       sizeof(Connection))
    # An object may be gated and ungated: what its gate says comes last.
    for gated in range(2):
        for i in range(state.doubts.count):
            object = state_at(state, i)
            if gated != doubt_ungated(object.doubt.key) and rc == 0:
                rc = object_records(state, object, output)
    return rc


cdef int object_records(
        const State* state, const StateObject* object, StateOutput* output) noexcept nogil:
    # As in a ring, RECOVERED precedes the values that it announces. A doubt follows them: UNKNOWN
    # if it is the feed's, WAITING if something is missing here, STALE for both.
    cdef bint doubted = doubt_stands(&state.doubts, &object.doubt)
    cdef bint missing = object_misses(state, object)
    cdef int rc = 0
    if not doubted and not missing and not doubt_ungated(object.doubt.key):
        rc = output_state(object, KIND_RECOVERED, OBJECT_LIVE, output)
    if rc == 0:
        rc = object_values(state, object, output)
    if rc == 0 and (doubted or missing):
        rc = output_state(
            object, KIND_STALE,
            OBJECT_WAITING if not doubted else OBJECT_STALE if missing else OBJECT_UNKNOWN, output)
    return rc


cdef bint object_misses(const State* state, const StateObject* object) noexcept nogil:
    # Return True if a value is missing on which updates build: the book, if there is one.
    cdef const StateValue* value
    cdef uint32_t index = object.values
    cdef bint book = False, missing = index == 0
    while index:
        value = state.values + index - 1
        index = value.next
        if value.record.kind == KIND_BOOK and not book:
            book, missing = True, value.missing
        elif value.record.kind == KIND_BOOK or not book:
            missing = missing or value.missing
    return missing or object.unkept


cdef int object_values(
        const State* state, const StateObject* object, StateOutput* output) noexcept nogil:
    # Missing books and orders are passed on as they were last known; other missing values are not.
    # Orders say so themselves: their object is sound while its book of levels is.
    cdef const StateValue* value
    cdef Record* record
    cdef uint32_t index = object.values
    while index:
        value = state.values + index - 1
        index = value.next
        if value.size == 0 or (value.missing and not value_is_alone(value.record.kind)):
            continue
        record = output_claim(output, &value.record, value_size(value, 0))
        if record == NULL:
            return -ENOMEM
        value_write(value, 0, <uint8_t*>record + RECORD_SIZE)
        if value.missing:
            (<UpdateHeader*>(<uint8_t*>record + RECORD_SIZE)).update_type = UPDATE_TYPE_STALE
        if value.cut:
            record.flags |= RECORD_TRUNCATED
        output_place(record)
    return 0


cdef int output_state(
        const StateObject* object, int kind, int status, StateOutput* output) noexcept nogil:
    cdef ObjectState said
    cdef Record like
    cdef Record* record
    memset(&like, 0, sizeof(like))
    like.kind = <uint8_t>kind
    like.flags = RECORD_UNGATED if doubt_ungated(object.doubt.key) else 0
    like.position = object.until - 1
    like.index = object.index
    like.object = <uint32_t>object.doubt.key
    if doubt_key_stream(object.doubt.key):
        like.stream = <uint16_t>(STREAM_FIRST - 1 + doubt_key_stream(object.doubt.key))
    like.session = object.session
    like.flight_ns = FLIGHT_UNKNOWN
    record = output_claim(output, &like, sizeof(ObjectState))
    if record == NULL:
        return -ENOMEM
    output_place(record)
    memset(&said, 0, sizeof(said))
    said.object = record.object
    said.status = <uint8_t>status
    said.continues = object.doubt.begun
    said.applied = object.applied
    said.exchange_id = <uint32_t>(object.doubt.tag >> 32)
    said.symbol_id = <uint32_t>object.doubt.tag
    if object.doubt.doubted and (status == OBJECT_STALE or status == OBJECT_WAITING):
        said.waits = object.waits
    memcpy(<uint8_t*>record + RECORD_SIZE, &said, sizeof(said))
    return 0


cdef void output_place(Record* record) noexcept nogil:
    # Place the record in the snapshot channel, because no number of the incremental one is its own.
    # With framings other than Roq's each object keeps its stream.
    if record.stream < STREAM_FIRST:
        record.stream = CHANNEL_SNAPSHOT
    record.line = 0
    record.number = 0
