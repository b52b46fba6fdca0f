# The values of a state: what tells them apart, how they are kept, and what updates do to them.

from libc.errno cimport ENOMEM
from libc.stdint cimport UINT32_MAX, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from udpfast.core.keyed cimport keyed_word
from udpfast.core.update_kinds cimport (
    KIND_BOOK, KIND_CUSTOM_METRICS, KIND_EXTERNAL_LATENCY, KIND_GATEWAY_STATUS, KIND_ORDERS,
    KIND_STATISTICS)
from udpfast.market.kept_orders cimport (
    KEPT_DELETE, KEPT_ORDERS_MAX, order_drop, order_put, orders_index)
from udpfast.market.ladder cimport ladder_apply, ladder_reserve
from udpfast.market.state cimport (
    State, StateObject, StateValue, STATE_ROWS_MAX, STATE_SLOTS_MIN, state_index)
from udpfast.market.update_header cimport Level, UpdateHeader
from udpfast.market.update_sizes cimport update_fixed
from udpfast.market.updates cimport (
    Book, CustomMetrics, ExternalLatency, GatewayStatus, Measurement, Order, Orders, SIZE_ACCOUNT,
    Statistic)

cdef enum:
    UNSOUND = 1                  # an update was taken, but the value differs from the origin's


cdef inline StateValue* state_value(
        State* state, const StateObject* object, uint16_t kind, uint64_t tag,
        const uint8_t* payload) noexcept nogil:
    # Return the value that an update of this kind belongs to, or NULL. `payload` has at least the
    # kind's fixed part, which identifies the value. The hash covers the object, but is no proof:
    # compare the object as well.
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


cdef inline StateValue* state_value_add(
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


cdef inline bint state_keep(
        StateValue* value, const uint8_t* payload, uint32_t size) noexcept nogil:
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


cdef inline uint32_t state_fixed(uint16_t kind, uint32_t* row) noexcept nogil:
    # Return the bytes of a kind's fixed part, and of one row in *row; 0 if the kind is not kept.
    row[0] = 0
    return update_fixed(kind, row)


cdef inline int state_take_book(
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


cdef inline int state_take_orders(
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


cdef inline int state_merge(
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


cdef inline bint state_same_row(
        uint16_t kind, const uint8_t* one, const uint8_t* other) noexcept nogil:
    if kind == KIND_STATISTICS:
        return (<const Statistic*>one).type == (<const Statistic*>other).type
    return memcmp((<const Measurement*>one).name, (<const Measurement*>other).name,
                  sizeof((<const Measurement*>one).name)) == 0


cdef inline const uint8_t* value_text(
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


cdef inline bint value_is(
        const StateValue* value, uint16_t kind, uint64_t tag,
        const uint8_t* payload) noexcept nogil:
    cdef uint32_t size
    cdef const uint8_t* text = value_text(kind, payload, &size)
    if value.record.kind != kind or (value.tag != tag and not value_is_alone(kind)):
        return False
    return text == NULL or (
        (<const UpdateHeader*>value.payload).stream_id == (<const UpdateHeader*>payload).stream_id
        and memcmp(value_text(kind, value.payload, &size), text, size) == 0)


cdef inline uint32_t value_place(
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


cdef inline void value_enter(State* state, uint32_t index) noexcept nogil:
    cdef uint32_t place = state.values[index].place
    while state.value_slots[place & state.value_slots_mask]:
        place += 1
    state.value_slots[place & state.value_slots_mask] = index + 1


cdef inline bint values_grow(State* state) noexcept nogil:
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
