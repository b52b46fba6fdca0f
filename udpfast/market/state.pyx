"""What a ring says is true at one position. The rules are in `state.pxd`; only for Cython."""

from libc.errno cimport ENOMEM
from libc.stdint cimport UINT32_MAX, UINT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from udpfast.core.check cimport unlikely
from udpfast.core.keyed cimport keyed_word
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
    doubt_stream, doubt_tag, doubts_add, doubts_begin, doubts_begin_all, doubts_elsewhere,
    doubts_find, doubts_find_gated, doubts_free, doubts_gap, doubts_heard, doubts_incomplete,
    doubts_init, doubts_reach, heard_begin)
from udpfast.market.kept_orders cimport (
    KEPT_DELETE, KEPT_ORDERS_MAX, order_drop, order_put, orders_index)
from udpfast.market.ladder cimport ladder_apply, ladder_free, ladder_reserve
from udpfast.market.update_sizes cimport update_fixed
from udpfast.market.update_header cimport Level, UpdateHeader
from udpfast.market.updates cimport (
    Book, CustomMetrics, ExternalLatency, GatewayStatus, Measurement, Order, Orders, SIZE_ACCOUNT,
    Statistic)

__all__ = []

cdef enum:
    UNSOUND = 1                  # state_take_book

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


# --- objects and their values -------------------------------------------------------------------

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


cdef const uint8_t* value_text(
        uint16_t kind, const uint8_t* payload, uint32_t* size) noexcept nogil:
    # Return the text that identifies a value beside kind and symbol: account, label, user. Its size
    # is a multiple of 8.
    size[0] = 0
    if kind == KIND_GATEWAY_STATUS or kind == KIND_EXTERNAL_LATENCY:
        size[0] = SIZE_ACCOUNT
        return payload + (sizeof(GatewayStatus) if kind == KIND_GATEWAY_STATUS
                          else sizeof(ExternalLatency)) - SIZE_ACCOUNT
    if kind == KIND_CUSTOM_METRICS:
        size[0] = sizeof(CustomMetrics) - sizeof(UpdateHeader)
        return payload + sizeof(UpdateHeader)
    return NULL


cdef inline bint value_is_alone(uint16_t kind) noexcept nogil:
    # An object has only one book and one set of orders, whatever its name is.
    return kind == KIND_BOOK or kind == KIND_ORDERS


cdef bint value_is(
        const StateValue* value, uint16_t kind, uint64_t tag,
        const uint8_t* payload) noexcept nogil:
    cdef uint32_t size
    cdef const uint8_t* text = value_text(kind, payload, &size)
    if value.record.kind != kind or (value.tag != tag and not value_is_alone(kind)):
        return False
    return text == NULL or (
        (<const UpdateHeader*>value.payload).stream_id == (<const UpdateHeader*>payload).stream_id
        and memcmp(value_text(kind, value.payload, &size), text, size) == 0)


cdef uint32_t value_place(
        const State* state, const StateObject* object, uint16_t kind, uint64_t tag,
        const uint8_t* payload) noexcept nogil:
    cdef uint32_t size, at = 0
    cdef uint64_t word
    cdef const uint8_t* text = value_text(kind, payload, &size)
    cdef uint64_t hash_ = keyed_word(
        &state.doubts.key, <uint64_t>state_index(state, object) << 16 | kind)
    if not value_is_alone(kind):
        hash_ = keyed_word(&state.doubts.key, hash_ ^ tag)
    if text != NULL:
        hash_ ^= (<const UpdateHeader*>payload).stream_id
    while at < size:
        memcpy(&word, text + at, 8)
        hash_ = keyed_word(&state.doubts.key, hash_ ^ word)
        at += 8
    return <uint32_t>hash_


cdef StateValue* state_value(
        State* state, const StateObject* object, uint16_t kind, uint64_t tag,
        const uint8_t* payload) noexcept nogil:
    # The hash covers the object, but is no proof: compare the object as well.
    cdef uint32_t hash_ = value_place(state, object, kind, tag, payload)
    cdef uint32_t place = hash_
    cdef StateValue* value
    if state.value_slots == NULL:
        return NULL
    while True:
        place &= state.value_slots_mask
        if state.value_slots[place] == 0:
            return NULL
        value = state.values + state.value_slots[place] - 1
        if (value.place == hash_ and value.object == state_index(state, object)
                and value_is(value, kind, tag, payload)):
            return value
        place += 1


cdef void value_enter(State* state, uint32_t index) noexcept nogil:
    cdef uint32_t place = state.values[index].place
    while state.value_slots[place & state.value_slots_mask]:
        place += 1
    state.value_slots[place & state.value_slots_mask] = index + 1


cdef bint values_grow(State* state) noexcept nogil:
    cdef uint32_t room = max(2 * state.values_room, <uint32_t>STATE_SLOTS_MIN), index
    cdef void* memory = realloc(state.values, room * sizeof(StateValue))
    if memory == NULL:
        return False
    state.values = <StateValue*>memory
    memory = calloc(2 * room, sizeof(uint32_t))
    if memory == NULL:
        return False
    free(state.value_slots)
    state.value_slots = <uint32_t*>memory
    state.value_slots_mask = 2 * room - 1
    state.values_room = room
    for index in range(state.values_count):
        value_enter(state, index)
    return True


cdef StateValue* state_value_add(
        State* state, StateObject* object, uint16_t kind, uint64_t tag,
        const uint8_t* payload) noexcept nogil:
    cdef uint32_t size
    cdef StateValue* value
    if state.values_count == state.values_room and not values_grow(state):
        return NULL
    value = state.values + state.values_count
    memset(value, 0, sizeof(StateValue))
    # The next value is compared with this one before it has a whole payload, so copy what
    # identifies it.
    if value_text(kind, payload, &size) != NULL and not state_keep(
            value, payload, state_fixed(kind, &size)):
        return NULL
    value.size = 0
    value.record.kind = kind
    value.tag = tag
    value.object = state_index(state, object)
    value.place = value_place(state, object, kind, tag, payload)
    value.missing = True
    value.bids.sign = 1
    value.asks.sign = -1
    value.next = object.values
    value_enter(state, state.values_count)
    state.values_count += 1
    object.values = state.values_count
    object.values_count += 1
    return value


cdef bint state_keep(StateValue* value, const uint8_t* payload, uint32_t size) noexcept nogil:
    # Make this the value's payload. Return False if there is no memory.
    cdef void* memory
    if size > value.room:
        memory = realloc(value.payload, size)
        if memory == NULL:
            return False
        value.payload = <uint8_t*>memory
        value.room = size
    memcpy(value.payload, payload, size)
    value.size = size
    return True


cdef uint32_t state_fixed(uint16_t kind, uint32_t* row) noexcept nogil:
    row[0] = 0
    return update_fixed(kind, row)


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
    doubt_applied(&state.doubts, &object.doubt, whole)
    value.record = header[0]
    return 0


cdef int state_take_book(
        StateValue* value, const uint8_t* payload, bint snapshot) noexcept nogil:
    # Return 0, UNSOUND (the book differs from the origin's) or -ENOMEM.
    cdef const Book* update = <const Book*>payload
    cdef const Level* rows = <const Level*>(payload + sizeof(Book))
    cdef uint64_t bids = update.bid_count, asks = update.ask_count
    cdef bint sound
    if not (ladder_reserve(&value.bids, bids) and ladder_reserve(&value.asks, asks)
            and state_keep(value, payload, sizeof(Book))):
        return -ENOMEM
    value.cut = value.cut and not snapshot
    sound = ladder_apply(&value.bids, rows, update.bid_count, snapshot)
    sound = ladder_apply(&value.asks, rows + bids, update.ask_count, snapshot) and sound
    return 0 if sound else UNSOUND


cdef int state_take_orders(
        State* state, StateValue* value, const uint8_t* payload, bint snapshot) noexcept nogil:
    # As state_take_book, for all orders. Return UNSOUND if there are too many.
    cdef const UpdateHeader* update = <const UpdateHeader*>payload
    cdef const Order* added = <const Order*>(payload + sizeof(Orders))
    cdef Order* rows
    cdef uint32_t i, count = 0
    cdef uint64_t most, size
    cdef void* memory
    if not snapshot and value.size:
        count = (<const UpdateHeader*>value.payload).row_count
    most = <uint64_t>count + update.row_count
    if most > KEPT_ORDERS_MAX:
        state.mark.values_refused += 1
        return UNSOUND
    size = sizeof(Orders) + most * sizeof(Order)
    if size > value.room:
        size += most // 2 * sizeof(Order)
        memory = realloc(value.payload, size)
        if memory == NULL:
            return -ENOMEM
        value.payload = <uint8_t*>memory
        value.room = <uint32_t>size
    rows = <Order*>(value.payload + sizeof(Orders))
    if snapshot or value.size == 0:
        value.orders.count = UINT32_MAX      # the table knows other rows
    if not orders_index(&value.orders, &state.doubts.key, rows, count, most + 8):
        return -ENOMEM
    for i in range(update.row_count):
        if added[i].action == KEPT_DELETE or not added[i].quantity > 0:
            order_drop(&value.orders, &state.doubts.key, rows, &added[i])
        else:
            order_put(&value.orders, &state.doubts.key, rows, &added[i])
    memcpy(value.payload, payload, sizeof(Orders))
    (<UpdateHeader*>value.payload).row_count = value.orders.count
    value.size = <uint32_t>(sizeof(Orders) + <uint64_t>value.orders.count * sizeof(Order))
    return 0


cdef int state_merge(
        State* state, StateValue* value, const uint8_t* payload, uint32_t fixed,
        uint32_t row) noexcept nogil:
    # Replace the rows of the same type or name by those of the update; others stay. Return UNSOUND
    # if there are too many to search.
    cdef const UpdateHeader* update = <const UpdateHeader*>payload
    cdef uint32_t count = (<const UpdateHeader*>value.payload).row_count, i, at
    cdef uint64_t size = fixed + (<uint64_t>count + update.row_count) * row
    cdef const uint8_t* added
    cdef void* memory
    if <uint64_t>count + update.row_count > STATE_ROWS_MAX:
        state.mark.values_refused += 1
        return UNSOUND
    if size > value.room:
        memory = realloc(value.payload, size)
        if memory == NULL:
            return -ENOMEM
        value.payload = <uint8_t*>memory
        value.room = <uint32_t>size
    memcpy(value.payload, payload, fixed)
    for i in range(update.row_count):
        added = payload + fixed + <uint64_t>i * row
        at = 0
        while at < count and not state_same_row(
                value.record.kind, value.payload + fixed + <uint64_t>at * row, added):
            at += 1
        memcpy(value.payload + fixed + <uint64_t>at * row, added, row)
        count = max(count, at + 1)
    (<UpdateHeader*>value.payload).row_count = count
    value.size = <uint32_t>(fixed + <uint64_t>count * row)
    return 0


cdef bint state_same_row(uint16_t kind, const uint8_t* one, const uint8_t* other) noexcept nogil:
    if kind == KIND_STATISTICS:
        return (<const Statistic*>one).type == (<const Statistic*>other).type
    return memcmp((<const Measurement*>one).name, (<const Measurement*>other).name,
                  sizeof((<const Measurement*>one).name)) == 0
