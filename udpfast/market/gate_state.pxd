# What a gate knows: of its feed, and of each object, which it finds by its key. market/gate decides
# by it, and says what an object's states are.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport likely, unlikely
from udpfast.core.counter cimport (
    FEED_COLLECT_DROPPED,
    FEED_OBJECTS,
    FEED_OBJECTS_STRANDED,
    FEED_OBJECTS_WAITING,
    FEED_STALE,
)
from udpfast.core.keyed cimport Key, keyed_draw, keyed_word
from udpfast.core.layout cimport (
    KIND_RECOVERED,
    KIND_STALE,
    MESSAGE_SIZE_MAX,
    Message,
    OBJECT_LIVE,
    OBJECT_STALE,
    OBJECT_UNKNOWN,
    OBJECT_WAITING,
    ObjectState,
    WAIT_SNAPSHOT,
    WAIT_SNAPSHOT_ABSENT,
)
from udpfast.market.collect cimport (
    COLLECT_NONE,
    Collect,
    collect_clear,
    collect_init,
    collect_memory_size,
)

cdef enum:
    OBJECT_TRUSTED = 4           # LIVE to everybody else; see market/gate_snapshots


cdef struct GateSettings:
    uint32_t objects_max
    uint32_t collect_messages_max  # of each object
    uint64_t collect_bytes         # of all objects together
    bint snapshots                 # the feed has lines that bring them


cdef struct ObjectSlot:
    uint32_t epoch               # of the session; another one: the slot is empty
    uint32_t index


cdef struct Object:              # 64 bytes, one cache line
    uint64_t applied             # unwrapped seqno that its state contains; 0: no state yet
    uint64_t needs_from          # the first one collected, or lost; 0: not collecting
    uint64_t tag                 # exchange_id << 32 | symbol_id (gate_tag); 0: not decoded yet
    uint32_t key
    uint32_t generation          # of gaps: an older one turns LIVE into UNKNOWN
    uint32_t head                # collected messages, oldest first
    uint32_t tail
    uint32_t collected           # how many of them
    uint8_t status               # ObjectStatus, or OBJECT_TRUSTED
    uint8_t snapshot_since_gap   # UNKNOWN: a snapshot came since the gap
    uint16_t said                # Gate.silence of which it has told that it waits in vain
    uint32_t snapshot_number     # seqno of the snapshot that was believed last
    uint32_t from_snapshot       # 1: its state began with one of the snapshot channel
    uint32_t reserved


cdef struct Gate:
    ObjectSlot* slots
    Object* objects
    uint8_t* payload             # where a released message is put together
    int64_t* counters            # the feed's scope
    Collect collect
    uint64_t position            # unwrapped: the newest incremental seqno, delivered or lost
    uint64_t missed_to           # the newest incremental seqno that we never got
    uint64_t snapshots_named     # the newest one that a snapshot named: later ones are from later
    uint64_t zero                # the newest number 0 that we may never have got
    Key key                      # of the slots
    uint32_t slots_mask
    uint32_t objects_max
    uint32_t objects_count
    uint32_t collect_messages_max
    uint32_t collected           # messages, of all objects
    uint32_t epoch
    uint32_t generation
    uint32_t refuted             # the one that found the snapshots of before not to be the feed's
    uint16_t waiting             # the FeedCounter of objects that wait
    uint16_t silence             # number of silences of the snapshot channel; 0: none yet
    uint8_t waits                # ObjectWait: whether snapshots come, are silent, or have no line
    bint joined                  # the session's first incremental message came
    bint snapshots_may_lag       # they may have been taken before `missed_to` was published
    bint saw_session_from_first  # no seqno of the session was missed, and none has wrapped
    # what gate_take hands out next: first the state, then the message, then what was collected
    Object* object               # of the message; NULL: ungated, or one of our own
    uint16_t state_kind          # KIND_STALE, KIND_RECOVERED or 0
    bint message_ready
    uint32_t release             # first of the released messages, or COLLECT_NONE
    Message* message             # as admitted; borrowed until everything is taken
    Message output               # a state or a released message, put together here
    ObjectState state


# --- memory -------------------------------------------------------------------------------------

cdef inline uint64_t gate_slots(const GateSettings* settings) noexcept nogil:
    # At most half full: a probe ends after one or two steps.
    cdef uint64_t slots = 16
    while slots < 2 * <uint64_t>settings.objects_max:
        slots *= 2
    return slots


cdef inline size_t gate_memory_size(const GateSettings* settings) noexcept nogil:
    return (gate_slots(settings) * sizeof(ObjectSlot)
            + <size_t>settings.objects_max * sizeof(Object)
            + MESSAGE_SIZE_MAX + collect_memory_size(settings.collect_bytes))


cdef inline void gate_init(
        Gate* gate, void* memory, const GateSettings* settings,
        int64_t* counters) noexcept nogil:
    # `memory`: gate_memory_size bytes, aligned to 64. `counters`: the feed's scope.
    cdef uint64_t slots = gate_slots(settings)
    cdef uint8_t* place = <uint8_t*>memory
    memset(gate, 0, sizeof(Gate))
    gate.counters = counters
    gate.slots = <ObjectSlot*>place
    gate.slots_mask = <uint32_t>(slots - 1)
    memset(gate.slots, 0, slots * sizeof(ObjectSlot))
    place += slots * sizeof(ObjectSlot)
    gate.objects = <Object*>place
    gate.objects_max = settings.objects_max
    place += <size_t>settings.objects_max * sizeof(Object)
    gate.payload = place
    place += MESSAGE_SIZE_MAX
    collect_init(&gate.collect, place, settings.collect_bytes)
    gate.collect_messages_max = settings.collect_messages_max
    gate.waits = WAIT_SNAPSHOT
    gate.waiting = FEED_OBJECTS_WAITING if settings.snapshots else FEED_OBJECTS_STRANDED
    if not settings.snapshots:
        gate_silence(gate, WAIT_SNAPSHOT_ABSENT)
    keyed_draw(&gate.key)
    gate_clear(gate)


cdef inline void gate_clear(Gate* gate) noexcept nogil:
    # Forget everything of a session, in a time that does not depend on the number of objects.
    gate.epoch += 1
    gate.objects_count = 0
    counter_add(&gate.counters[FEED_OBJECTS], -gate.counters[FEED_OBJECTS])
    counter_add(&gate.counters[gate.waiting], -gate.counters[gate.waiting])
    counter_add(&gate.counters[FEED_COLLECT_DROPPED], gate.collected)
    gate.collected = 0
    collect_clear(&gate.collect)
    gate.position = 0
    gate.missed_to = <uint64_t>-1
    gate.snapshots_named = 0
    gate.zero = 0
    gate.joined = False
    gate.snapshots_may_lag = True
    gate.saw_session_from_first = False
    gate.object = NULL
    gate.state_kind = 0
    gate.message_ready = False
    gate.release = COLLECT_NONE


cdef inline void gate_silence(Gate* gate, uint8_t waits) noexcept nogil:
    # From now on no snapshots come. 0 is left out: it means that an object has told of no silence.
    gate.waits = waits
    gate.silence = gate.silence % 0xFFFF + 1


# --- objects ------------------------------------------------------------------------------------

cdef inline Object* gate_find(Gate* gate, uint32_t key, bint insert) noexcept nogil:
    # NULL: not there, or (inserting) no room.
    cdef uint32_t place = <uint32_t>keyed_word(&gate.key, key)
    cdef ObjectSlot* slot
    cdef Object* object
    while True:
        place &= gate.slots_mask
        slot = &gate.slots[place]
        if slot.epoch != gate.epoch:
            break
        object = &gate.objects[slot.index]
        if likely(object.key == key):
            return object
        place += 1
    if not insert or gate.objects_count == gate.objects_max:
        return NULL
    slot.epoch = gate.epoch
    slot.index = gate.objects_count
    object = &gate.objects[gate.objects_count]
    gate.objects_count += 1
    counter_add(&gate.counters[FEED_OBJECTS], 1)
    counter_add(&gate.counters[gate.waiting], 1)
    memset(object, 0, sizeof(Object))
    object.key = key
    object.generation = gate.generation
    object.head = COLLECT_NONE
    return object


cdef inline void object_turn(Gate* gate, Object* object, uint8_t status) noexcept nogil:
    if unlikely(status != object.status):
        counter_add(
            &gate.counters[gate.waiting], object_waits(status) - object_waits(object.status))
        object.status = status


cdef inline int object_waits(uint8_t status) noexcept nogil:
    return status == OBJECT_WAITING or status == OBJECT_STALE


cdef inline bint object_is_refuted(const Gate* gate, const Object* object) noexcept nogil:
    # Its state began with a snapshot of a numbering that was not the feed's.
    return object.from_snapshot and <int32_t>(gate.refuted - object.generation) > 0


cdef inline uint8_t gate_status(Gate* gate, const Object* object) noexcept nogil:
    # ObjectStatus, as of now.
    cdef bint sound = object.status == OBJECT_LIVE or object.status == OBJECT_TRUSTED
    if object_is_refuted(gate, object):
        return OBJECT_STALE
    if sound:
        return OBJECT_LIVE if object.generation == gate.generation else OBJECT_UNKNOWN
    return object.status


# --- what is to be said ---------------------------------------------------------------------------

cdef inline bint gate_pending(const Gate* gate) noexcept nogil:
    return (gate.message_ready or gate.state_kind != 0
            or gate.release != COLLECT_NONE)


cdef inline void gate_stale(Gate* gate, Object* object) noexcept nogil:
    object_turn(gate, object, OBJECT_STALE)
    gate.state_kind = KIND_STALE
    counter_add(&gate.counters[FEED_STALE], 1)


cdef inline void gate_recovered(Gate* gate, int counter) noexcept nogil:
    gate.state_kind = KIND_RECOVERED
    counter_add(&gate.counters[counter], 1)
