"""What a ring says is true at one position. The rules are in `state.pxd`; only for Cython."""

from libc.errno cimport ENOMEM
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from udpfast.core.check cimport unlikely
from udpfast.core.layout cimport (
    CHANNEL_COUNT, CHANNEL_INCREMENTAL, CONNECTION_CHANNEL, CONNECTION_DISCONNECTED,
    CONNECTION_LINE, KIND_CONNECTION, KIND_GAP, KIND_LAPPED, KIND_MESSAGE, KIND_RECOVERED,
    KIND_RESTART, KIND_SESSION, KIND_STALE, KIND_UPDATES, LINES_MAX, Lapped, ObjectState,
    RECORD_SIZE, RECORD_TRUNCATED, RECORD_UNGATED, Restart)
from udpfast.core.update_kinds cimport (
    KIND_BOOK, KIND_CUSTOM_METRICS, KIND_EXTERNAL_LATENCY, KIND_GATEWAY_STATUS, KIND_ORDERS,
    KIND_STATISTICS)
from udpfast.market.book cimport UPDATE_TYPE_STALE, book_room, update_replaces
from udpfast.market.doubt cimport (
    SESSION_UNSEEN, doubt_applied, doubt_begin, doubt_begins, doubt_heard, doubt_key,
    doubt_key_stream, doubt_lapped, doubt_passed, doubt_said, doubt_said_tag, doubt_stands,
    doubt_stream, doubt_tag, doubt_ungated, doubts_add, doubts_begin, doubts_begin_all,
    doubts_elsewhere,
    doubts_find, doubts_find_gated, doubts_free, doubts_gap, doubts_heard, doubts_incomplete,
    doubts_init, doubts_reach, heard_begin)
from udpfast.market.ladder cimport ladder_free
from udpfast.market.state_values cimport (
    state_value, state_value_add, state_keep, state_fixed, state_take_book, state_take_orders,
    state_merge, value_is_alone, UNSOUND)
from udpfast.market.update_header cimport UpdateHeader

__all__ = []

if sizeof(StateMark) % 8:
    raise ImportError(f"StateMark has {sizeof(StateMark)} bytes, not a multiple of 8")

# --- memory -------------------------------------------------------------------------------------

cdef void state_init(State* state, uint32_t objects_max) noexcept nogil:
    memset(state, 0, sizeof(State))
    doubts_init(&state.doubts, sizeof(StateObject))
    state.objects_max = objects_max


cdef void state_free(State* state) noexcept nogil:
    state_drop_objects(state, False)
    doubts_free(&state.doubts)
    free(state.sessions)
    free(state.values)
    free(state.value_slots)
    free(state.changed)
    state_init(state, state.objects_max)


cdef void state_drop_objects(State* state, bint complete) noexcept nogil:
    cdef uint32_t i
    for i in range(state.values_count):
        free(state.values[i].payload)
        ladder_free(&state.values[i].bids)
        ladder_free(&state.values[i].asks)
        free(state.values[i].orders.slots)
    state.values_count = 0
    state.changed_count = 0
    state.mark.refused = 0
    state.mark.values_refused = 0
    doubts_begin(&state.doubts, complete)
    if state.value_slots != NULL:
        memset(state.value_slots, 0, (state.value_slots_mask + 1) * sizeof(uint32_t))


cdef bint state_reach(State* state, uint32_t stream) noexcept nogil:
    cdef void* memory
    if not doubts_reach(&state.doubts, stream):
        return False
    if state.sessions_count < state.doubts.streams:
        memory = realloc(state.sessions, state.doubts.streams * sizeof(StateSession))
        if memory == NULL:
            return False
        state.sessions = <StateSession*>memory
        memset(state.sessions + state.sessions_count, 0,
               (state.doubts.streams - state.sessions_count) * sizeof(StateSession))
        state.sessions_count = state.doubts.streams
    return True


cdef void state_begin_all(State* state, bint complete) noexcept nogil:
    # Forget all objects: a session begins, or (not `complete`) its beginning was missed.
    state_drop_objects(state, complete)
    state.mark.generation += 1
    if state.sessions != NULL:
        memset(state.sessions, 0, state.sessions_count * sizeof(StateSession))


cdef void state_begin(State* state, const Record* header) noexcept nogil:
    # The same for one stream: its SESSION came, or the first record of a session whose SESSION was
    # missed. Objects that are ahead of the record know already.
    cdef bint complete = header.kind == KIND_SESSION
    cdef uint32_t stream = doubt_stream(header.stream), i
    cdef StateObject* object
    if doubts_begin_all(header):
        state_begin_all(state, complete)
        return
    heard_begin(doubts_heard(&state.doubts, header), complete)
    memset(state.sessions + stream, 0, sizeof(StateSession))
    for i in range(state.doubts.count):
        object = state_at(state, i)
        if doubt_key_stream(object.doubt.key) == stream and object.until <= header.position:
            state_begin_object(state, object, header)


cdef void state_begin_object(
        State* state, StateObject* object, const Record* header) noexcept nogil:
    cdef uint32_t index = object.values
    cdef StateValue* value
    while index:
        value = state.values + index - 1
        value.missing = True
        value.cut = False
        value.size = value.bids.count = value.asks.count = 0
        index = value.next
    doubt_begin(&state.doubts, &object.doubt)
    object.applied = 0
    object.session = header.session
    object.unkept = False
    object.waits = 0
    state_touch(state, object, header)
    if header.kind != KIND_SESSION:
        object.until = header.position  # keep the record itself, which comes next


cdef void state_lapped(State* state, uint64_t count, uint64_t epoch) noexcept nogil:
    if epoch != state.mark.epoch:
        state_begin_all(state, False)
        state.mark.epoch = epoch
    state_miss_all(state, count, UINT64_MAX)


cdef void state_miss_all(State* state, uint64_t count, uint64_t position) noexcept nogil:
    # Records are missing at `position`. Objects that are ahead of it know already.
    cdef StateObject* object
    cdef uint32_t i
    state.mark.lapped += count
    doubts_incomplete(&state.doubts)
    for i in range(state.doubts.count):
        object = state_at(state, i)
        if object.until <= position:
            doubt_lapped(&state.doubts, &object.doubt)
            state_miss(state, object)
            state_changed(state, object)


cdef void state_forget_changes(State* state) noexcept nogil:
    cdef uint32_t i
    for i in range(state.changed_count):
        state_at(state, state.changed[i]).changed = False
    state.changed_count = 0


cdef void state_changed(State* state, StateObject* object) noexcept nogil:
    if not object.changed:
        object.changed = True
        state.changed[state.changed_count] = state_index(state, object)
        state.changed_count += 1


# --- objects ------------------------------------------------------------------------------------

cdef StateObject* state_add(State* state, uint64_t key, uint64_t tag) noexcept nogil:
    cdef uint32_t room = max(2 * state.changed_room, <uint32_t>STATE_SLOTS_MIN)
    cdef void* memory
    if state.doubts.count == state.changed_room:
        memory = realloc(state.changed, room * sizeof(uint32_t))
        if memory == NULL:
            return NULL
        state.changed = <uint32_t*>memory
        state.changed_room = room
    return <StateObject*>doubts_add(&state.doubts, key, tag)


# --- records ------------------------------------------------------------------------------------

cdef int state_apply(State* state, const Record* header, const uint8_t* payload) noexcept nogil:
    cdef uint64_t size = header.length - RECORD_SIZE
    cdef Restart restart
    cdef Lapped lapped
    cdef Connection connection
    cdef int rc = 0
    state.took = 0
    if unlikely(not state_reach(state, doubt_stream(header.stream))):
        return -ENOMEM
    if unlikely(doubts_elsewhere(&state.doubts, header)):
        state_go_elsewhere(state, header)
    if header.kind >= KIND_UPDATES:
        rc = state_update(state, header, payload, size)
    elif header.kind == KIND_MESSAGE:
        state_pass_by(state, header)
    elif header.kind == KIND_STALE or header.kind == KIND_RECOVERED:
        rc = state_gate(state, header, payload)
    elif header.kind == KIND_GAP:
        doubts_gap(&state.doubts, header, payload)
    elif header.kind == KIND_SESSION and size >= sizeof(Session):
        state_begin(state, header)
        state.sessions[doubt_stream(header.stream)].record = header[0]
        memcpy(&state.sessions[doubt_stream(header.stream)].session, payload, sizeof(Session))
    elif header.kind == KIND_RESTART and size >= sizeof(Restart):
        state_begin_all(state, False)
        memset(state.mark.has_connection, 0, CHANNEL_COUNT)
        memset(state.mark.silent_lines, 0, CHANNEL_COUNT)
        memcpy(&restart, payload, sizeof(Restart))
        state.mark.epoch = restart.epoch
    elif header.kind == KIND_LAPPED:
        # The ring has a LAPPED of its own if its source missed records that it publishes again.
        lapped.missed = 0
        if size >= sizeof(Lapped):
            memcpy(&lapped, payload, sizeof(Lapped))
        state_miss_all(state, lapped.missed, header.position)
    elif (header.kind == KIND_CONNECTION and size >= sizeof(Connection)
            and header.stream < CHANNEL_COUNT):
        memcpy(&connection, payload, sizeof(Connection))
        if connection.scope == CONNECTION_CHANNEL:
            state.mark.has_connection[header.stream] = True
            state.mark.connection_record[header.stream] = header[0]
            state.mark.connection[header.stream] = connection
        elif connection.scope == CONNECTION_LINE and header.line < LINES_MAX:
            state_note_line(&state.mark, header, &connection)
    if rc < 0:
        # The record is not contained.
        return rc
    state.mark.position = header.position + ((header.length + 7) & ~7)
    state.mark.index = header.index + 1
    return 0


cdef void state_go_elsewhere(State* state, const Record* header) noexcept nogil:
    if doubts_heard(&state.doubts, header).session != SESSION_UNSEEN:
        state_begin(state, header)
    doubts_heard(&state.doubts, header).session = header.session


cdef void state_note_line(
        StateMark* mark, const Record* header, const Connection* said) noexcept nogil:
    # Note which lines are silent, for late joiners.
    cdef uint8_t bit = <uint8_t>(1 << header.line)
    if said.status == CONNECTION_DISCONNECTED:
        mark.silent_lines[header.stream] |= bit
    else:
        mark.silent_lines[header.stream] &= ~bit
    mark.line_record[header.stream][header.line] = header[0]
    mark.line_connection[header.stream][header.line] = said[0]


cdef StateObject* state_object(
        State* state, const Record* header, uint64_t tag, int* rc) noexcept nogil:
    # Return the object of a record, new or known. Return NULL if the object contains the record
    # already, or if there is no room (*rc < 0: no memory).
    cdef uint64_t key = doubt_key(header)
    cdef StateObject* object = <StateObject*>doubts_find(&state.doubts, key, tag)
    if object != NULL:
        return object if object.until <= header.position else NULL
    if state.doubts.count == state.objects_max:
        state.mark.refused += 1
        return NULL
    object = state_add(state, key, tag)
    if object == NULL:
        rc[0] = -ENOMEM
        return NULL
    object.session = header.session
    return object


cdef StateObject* state_find(
        const State* state, const Record* header, uint64_t tag) noexcept nogil:
    return <StateObject*>doubts_find(&state.doubts, doubt_key(header), tag)


cdef bint state_sound(const State* state, const StateValue* value) noexcept nogil:
    return value.size and not value.missing and not value.cut and not doubt_stands(
        &state.doubts, &state_at(state, value.object).doubt)


cdef void state_touch(State* state, StateObject* object, const Record* header) noexcept nogil:
    object.until = header.position + 1
    object.index = header.index
    state_changed(state, object)


cdef void state_pass_by(State* state, const Record* header) noexcept nogil:
    # Count an update that is not kept, or an ungated one, for the gated object of its number.
    cdef StateObject* object = <StateObject*>doubts_find_gated(
        &state.doubts, header)
    if object != NULL and object.until <= header.position:
        state_passed(state, object, header)


cdef void state_passed(State* state, StateObject* object, const Record* header) noexcept nogil:
    doubt_passed(&object.doubt, header)
    if header.stream == CHANNEL_INCREMENTAL:
        object.applied = header.number
    state_touch(state, object, header)


cdef int state_gate(State* state, const Record* header, const uint8_t* payload) noexcept nogil:
    cdef ObjectState said
    cdef StateObject* object
    cdef uint64_t tag = doubt_said_tag(header, payload)
    cdef int rc = 0
    object = state_object(state, header, tag, &rc)
    if object == NULL:
        return rc
    if <uint32_t>tag:
        object.doubt.tag = tag
    object.waits = 0
    if header.length >= <int64_t>(RECORD_SIZE + sizeof(said)):
        memcpy(&said, payload, sizeof(said))
        object.waits = said.waits
        object.applied = said.applied
    if doubt_said(&state.doubts, &object.doubt, header, payload):
        state_miss(state, object)
    state_touch(state, object, header)
    return 0


cdef void state_miss(State* state, const StateObject* object) noexcept nogil:
    # Mark all values of the object as missing.
    cdef uint32_t index = object.values
    while index:
        state.values[index - 1].missing = True
        index = state.values[index - 1].next


cdef int state_update(
        State* state, const Record* header, const uint8_t* payload, uint64_t size) noexcept nogil:
    cdef UpdateHeader update
    cdef StateObject* object
    cdef StateValue* value
    cdef uint64_t tag
    cdef uint32_t row
    cdef int rc = 0
    if size < sizeof(UpdateHeader):
        state_miss_all(state, 0, header.position)  # it may concern any object
        return 0
    memcpy(&update, payload, sizeof(update))
    tag = doubt_tag(update.exchange_id, update.symbol_id)
    if header.flags & RECORD_UNGATED:
        state_pass_by(state, header)
    object = state_object(state, header, tag, &rc)
    if object == NULL:
        return rc
    object.doubt.tag = tag
    if state_fixed(header.kind, &row) == 0:
        return state_leave(state, object, header)
    if not update_sound(header.kind, payload, size):
        state_damaged(state, object, header)
        return 0
    if header.flags & RECORD_TRUNCATED and update_nameless(header, &update):
        state.mark.values_refused += 1
        return state_leave(state, object, header)
    value = state_value(state, object, header.kind, tag, payload)
    if value == NULL:
        if object.values_count == STATE_VALUES_MAX:
            state.mark.values_refused += 1
            return state_leave(state, object, header)
        value = state_value_add(state, object, header.kind, tag, payload)
        if value == NULL:
            return -ENOMEM
    if value.tag != tag:
        value.tag = tag
        # What is held is the book of the old name.
        value.missing = True
        value.size = value.bids.count = value.asks.count = 0
        state_touch(state, object, header)
    state.took = <uint32_t>(value - state.values) + 1
    return state_take(state, object, value, header, payload)


cdef int state_leave(State* state, StateObject* object, const Record* header) noexcept nogil:
    # An update is not kept, but its object continues.
    object.unkept = True
    state_passed(state, object, header)
    return 0


cdef bint update_sound(uint16_t kind, const uint8_t* payload, uint64_t size) noexcept nogil:
    # Return True if the payload is as long as its counts say.
    cdef uint32_t row
    cdef uint64_t fixed = state_fixed(kind, &row)
    if size < fixed or size - fixed < <uint64_t>(<const UpdateHeader*>payload).row_count * row:
        return False
    return kind != KIND_BOOK or book_room(payload, size) >= 0


cdef bint update_nameless(const Record* header, const UpdateHeader* update) noexcept nogil:
    # Return True if a cut text, or a name without an id, could make two values equal. A gated value
    # is identified by its object, except metrics, of which an object may have many.
    if header.kind in (KIND_GATEWAY_STATUS, KIND_EXTERNAL_LATENCY, KIND_CUSTOM_METRICS):
        return True
    return header.flags & RECORD_UNGATED and (update.exchange_id == 0 or update.symbol_id == 0)


cdef void state_damaged(State* state, StateObject* object, const Record* header) noexcept nogil:
    # An update is shorter than it says, so all values of its kind may be wrong.
    cdef uint32_t index = object.values
    cdef bint found = False
    while index:
        if state.values[index - 1].record.kind == header.kind:
            state.values[index - 1].missing = found = True
        index = state.values[index - 1].next
    object.unkept = object.unkept or not found
    state_touch(state, object, header)


cdef int state_take(
        State* state, StateObject* object, StateValue* value, const Record* header,
        const uint8_t* payload) noexcept nogil:
    # Apply one update to one value.
    cdef const UpdateHeader* update = <const UpdateHeader*>payload
    cdef uint32_t row
    cdef uint64_t fixed = state_fixed(header.kind, &row)
    cdef bint parts = header.kind in (
        KIND_BOOK, KIND_ORDERS, KIND_STATISTICS, KIND_CUSTOM_METRICS)
    cdef bint snapshot = update_replaces(header.flags, update.update_type)
    cdef bint whole = snapshot or not parts
    cdef int rc
    if (value.missing and doubt_begins(&state.doubts, &object.doubt, header)) or (
            not value_is_alone(header.kind) and value.size == 0
            and doubts_heard(&state.doubts, header).complete):
        snapshot = True
    if value_is_alone(header.kind):
        if value.missing and not snapshot:
            if doubt_heard(&object.doubt, header):
                state_touch(state, object, header)
            return 0
        if header.kind == KIND_BOOK:
            rc = state_take_book(value, payload, snapshot)
        else:
            rc = state_take_orders(state, value, payload, snapshot)
    elif parts and not snapshot and value.size:
        rc = state_merge(state, value, payload, <uint32_t>fixed, row)
    else:
        rc = 0 if state_keep(
            value, payload, <uint32_t>(fixed + <uint64_t>update.row_count * row)) else -ENOMEM
    if rc < 0:
        # Nothing of the update was applied.
        return rc
    # Any update can say that it is stale.
    value.missing = (rc == UNSOUND or update.update_type == UPDATE_TYPE_STALE
                     or (value.missing and not whole and not snapshot))
    state_passed(state, object, header)
    if whole and doubt_ungated(object.doubt.key) and doubt_stands(&state.doubts, &object.doubt):
        state_miss_others(state, object, value)
    doubt_applied(&state.doubts, &object.doubt, whole)
    value.record = header[0]
    return 0


cdef void state_miss_others(
        State* state, const StateObject* object, const StateValue* value) noexcept nogil:
    # A value ends the doubt of its ungated object. Its other books were not replaced: they are
    # missing until they are.
    cdef uint32_t index = object.values
    cdef StateValue* other
    while index:
        other = state.values + index - 1
        index = other.next
        if other != value and value_is_alone(other.record.kind):
            other.missing = True
