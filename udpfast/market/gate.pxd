# Gate: which messages a subscriber may see, so that the state it builds of an object is sound or
# known not to be (docs/protocol.md). It lies behind the windows and takes their messages in order
# of their numbers:
#
#     gate_admit(&gate, &message, gated)      decides, counts
#     while (output := gate_take(&gate)):     zero or more outputs, in publishing order
#
#   from      what happens                                                    to
#   --------  --------------------------------------------------------------  -------
#   WAITING   a snapshot is accepted, or the session was seen from the first  LIVE
#             seqno on, and the object's first update comes
#   LIVE      a gap                                                           UNKNOWN
#   UNKNOWN   the next update continues, or a snapshot is proven              LIVE
#   UNKNOWN   the next update does not continue                               STALE
#   any       a payload cannot be used, or copies disagree about the object   STALE
#   STALE     a snapshot is accepted                                          LIVE
#
#   what comes                        LIVE      UNKNOWN                 STALE, WAITING
#   --------------------------------  --------  ----------------------  ------------------------
#   GAP (all at once, O(1))           UNKNOWN   stays                   stays
#   update that continues its object  pass      RECOVERED, pass         collect
#   update that does not              pass      STALE, collect          collect
#   snapshot in the stream            pass      RECOVERED, pass         RECOVERED, pass
#   snapshot channel: same state      skip      RECOVERED if proven     pass it, then what was
#                                                                       collected behind it
#   snapshot channel: newer state     skip      pass; RECOVERED if      pass it, then what was
#                                               proven                  collected behind it
#   snapshot channel: older state     skip      skip                    skip; as newer, if the first
#                                                                       collected continues it
#   first update of a session seen    pass      -                       WAITING: RECOVERED, pass
#     from its first number
#   payload that cannot be used       STALE     STALE                   STALE
#   snapshots were somebody else's    UNKNOWN, or STALE if its state began with one of them
#
# Seqnos are unwrapped to 64 bits at the door; behind it plain comparisons are right for ever.
#
# An accepted snapshot does not prove by itself that the object is sound: the snapshot channel may
# lag, so that a lost update (or one from before we joined) is newer than the snapshot. It is proven
# once any snapshot was seen whose last_seqno is not before the last number that we lost
# (`missed_to`): later snapshots were taken later. Without that proof
#   - the first snapshot of a new object is believed, as the protocol says, but kept TRUSTED: LIVE
#     outside, while its next update must continue it and a newer snapshot still replaces it;
#   - an object in doubt after a gap stays UNKNOWN until its second snapshot since (a channel lags
#     less than its own cycle) and is then TRUSTED.
#
# A last_seqno of 0 means either "no update yet" or number 0 of a 2^32 circle. Read as a place it is
# the number 0 behind which snapshots are known to have been taken (`snapshots_named`), so it is
# never ahead and ends no doubt; read as a continuation it proves nothing if a number 0 was missed
# (`zero`): none yet before that, and none yet behind it, are two different states.
#
# An object that waits while no snapshots come (their channel is silent, or absent) says so by
# a STALE with its next update, once for each silence: it may wait for ever.
#
# An ungated message still extends its object's chain: the next gated update names it in last_seqno.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport invariant, likely, unlikely
from udpfast.core.counter cimport (
    FEED_APPLIED,
    FEED_COLLECT_DROPPED,
    FEED_COLLECT_FULL,
    FEED_COLLECTED,
    FEED_OBJECTS,
    FEED_OBJECTS_FULL,
    FEED_OBJECTS_STRANDED,
    FEED_OBJECTS_WAITING,
    FEED_RECOVERED_CHAIN,
    FEED_RECOVERED_SNAPSHOT,
    FEED_RELEASED,
    FEED_SNAPSHOTS_BROKEN,
    FEED_SNAPSHOTS_SKIPPED,
    FEED_SNAPSHOTS_TOO_OLD,
    FEED_STALE,
    FEED_UNGATED,
    FEED_UPDATES_CONTAINED,
    FEED_WAITS_IN_VAIN,
)
from udpfast.core.keyed cimport Key, keyed_draw, keyed_word
from udpfast.core.layout cimport (
    CHANNEL_INCREMENTAL,
    CHANNEL_SNAPSHOT,
    CONNECTION_CHANNEL,
    CONNECTION_DISCONNECTED,
    Connection,
    GAP_ANEW,
    Gap,
    KIND_CONNECTION,
    KIND_DISAGREEMENT,
    KIND_GAP,
    KIND_MESSAGE,
    KIND_RECOVERED,
    KIND_SESSION,
    KIND_STALE,
    MESSAGE_SIZE_MAX,
    Message,
    OBJECT_LIVE,
    OBJECT_STALE,
    OBJECT_UNKNOWN,
    OBJECT_WAITING,
    ObjectState,
    RECORD_HEARTBEAT,
    RECORD_RELEASED,
    RECORD_SNAPSHOT,
    RECORD_UNGATED,
    SESSION_RESUMED,
    Session,
    WAIT_NONE,
    WAIT_SNAPSHOT,
    WAIT_SNAPSHOT_ABSENT,
    WAIT_SNAPSHOT_SILENT,
)
from udpfast.market.collect cimport (
    COLLECT_NONE,
    Collect,
    CollectHead,
    collect_clear,
    collect_drop,
    collect_head,
    collect_init,
    collect_memory_size,
    collect_put,
    collect_read,
)

cdef enum:
    OBJECT_TRUSTED = 4           # LIVE to everybody else; see above
    # The last_seqno of a snapshot may lie ahead of the incremental channel, by some milliseconds of
    # traffic: by fewer messages than this. Any other last_seqno lies behind. An object may thus be
    # quiet for up to 4.2e9 messages (if half of the circle lay ahead, for 2.1e9).
    SNAPSHOT_AHEAD_MAX = 1 << 24
    # The snapshot channel lags behind by fewer messages than this, too. A number 0 that was missed
    # longer ago is contained in every snapshot that comes now.
    SNAPSHOT_BEHIND_MAX = 1 << 24

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


# --- the two verbs --------------------------------------------------------------------------------

cdef inline bint gate_admit(
        Gate* gate, Message* message, bint gated) noexcept nogil:
    # Decide what becomes of a message; whether there is something to take. Everything must have
    # been taken before. `gated` false: objects of this type have no snapshots. The message is not
    # copied: it gets its last flags and its tag where it is, and stays until all is taken.
    cdef uint64_t seqno = 0
    invariant(not gate_pending(gate))
    gate.object = NULL
    gate.message = message
    if message.kind != KIND_MESSAGE:
        gate_control(gate, message)
        gate.message_ready = True
        return True
    if message.channel == CHANNEL_INCREMENTAL:
        seqno = position_advance(gate, <uint32_t>message.number)
    if message.flags & RECORD_HEARTBEAT:
        return False
    if not message.object >> 16 or not gated:
        counter_add(&gate.counters[FEED_UNGATED], 1)
        gate.message_ready = True
        gate.message.flags |= RECORD_UNGATED
        if message.object >> 16 and message.channel == CHANNEL_INCREMENTAL:
            gate_extend(gate, message, seqno)
        return True
    gate.object = gate_find(gate, message.object, True)
    if gate.object == NULL:
        counter_add(&gate.counters[FEED_OBJECTS_FULL], 1)
        return False
    object_refresh(gate, gate.object)
    if message.channel == CHANNEL_INCREMENTAL:
        gate_update(gate, gate.object, message, seqno)
    else:
        gate_snapshot(gate, gate.object, message)
    return gate_pending(gate)


cdef inline Message* gate_take(Gate* gate) noexcept nogil:
    # Hand out the next output, NULL if there is none: the admitted message itself, or one that is
    # valid until the next call.
    cdef Message* output = &gate.output
    if gate.state_kind:
        gate_state(gate, output)
        return output
    if gate.message_ready:
        gate.message_ready = False
        output = gate.message
    elif gate.release != COLLECT_NONE:
        collect_read(&gate.collect, gate.release, gate.payload, output)
        gate.release = collect_drop(&gate.collect, gate.release)
        gate.collected -= 1
        output.flags |= RECORD_RELEASED
        counter_add(&gate.counters[FEED_RELEASED], 1)
    else:
        return NULL
    output.tag = gate.object.tag if gate.object != NULL else 0
    return output


cdef inline void gate_tag(Gate* gate, uint32_t key, uint64_t tag) noexcept nogil:
    # Remember what decoding told about an object; from now on its outputs carry it.
    cdef Object* object = gate.object
    if object == NULL or object.key != key:
        object = gate_find(gate, key, False)
    if object != NULL:
        object.tag = tag


cdef inline bint gate_known(Gate* gate, uint32_t key) noexcept nogil:
    # Whether an object was gated before, in this session.
    return gate_find(gate, key, False) != NULL


cdef inline void gate_reject(Gate* gate, const Message* output) noexcept nogil:
    # An output could not be used (a damaged payload): its object missed it, so it is STALE, and
    # waits for a snapshot that contains it. What was to be released behind it goes too.
    cdef Object* object = gate.object
    if object == NULL or output.flags & RECORD_UNGATED:
        return
    while gate.release != COLLECT_NONE:
        gate.release = collect_drop(&gate.collect, gate.release)
        gate.collected -= 1
        counter_add(&gate.counters[FEED_COLLECT_DROPPED], 1)
    gate_stale(gate, object)
    if object.needs_from == 0:
        object.needs_from = object.applied


cdef inline uint8_t gate_status(Gate* gate, const Object* object) noexcept nogil:
    # ObjectStatus, as of now.
    cdef bint sound = object.status == OBJECT_LIVE or object.status == OBJECT_TRUSTED
    if object_is_refuted(gate, object):
        return OBJECT_STALE
    if sound:
        return OBJECT_LIVE if object.generation == gate.generation else OBJECT_UNKNOWN
    return object.status


# --- rules ----------------------------------------------------------------------------------------

cdef inline void gate_control(Gate* gate, const Message* message) noexcept nogil:
    cdef Gap gap
    cdef Session session
    cdef Connection connection
    if message.kind == KIND_SESSION:
        memcpy(&session, message.payload, sizeof(Session))
        gate_clear(gate)
        # The session's numbers are here. Its first snapshot may be of an object that has been quiet
        # for more than half of the circle: a wrong place to unwrap from.
        gate.position = position_from(session.first_number)
        # last_seqno 0 says "none yet", so publishers number from 1. One that began with 0 and was
        # seen from there on is as good; if its message 0 is lost, nothing on the wire can tell.
        gate.saw_session_from_first = (
            session.first_number <= 1 and session.unseen == 0
            and session.reason != SESSION_RESUMED)
    elif message.kind == KIND_GAP and message.channel != CHANNEL_INCREMENTAL:
        memcpy(&gap, message.payload, sizeof(Gap))
        if gap.reason == GAP_ANEW:
            gate.missed_to = gate.position
            gate.snapshots_may_lag = True
            gate.generation += 1
            gate.refuted = gate.generation
    elif message.kind == KIND_GAP:
        memcpy(&gap, message.payload, sizeof(Gap))
        gate.missed_to = position_advance(gate, <uint32_t>gap.last)
        if <uint32_t>gate.missed_to < gap.count:
            gate.zero = position_zero(gate.missed_to)
        gate.snapshots_may_lag = True
        gate.saw_session_from_first = False
        gate.generation += 1      # every LIVE object is UNKNOWN now
    elif message.kind == KIND_DISAGREEMENT:
        gate.object = gate_find(gate, message.object, False)
        if gate.object != NULL:
            object_refresh(gate, gate.object)
            gate_doubt(gate, gate.object, message)
    elif message.kind == KIND_CONNECTION and message.channel == CHANNEL_SNAPSHOT:
        memcpy(&connection, message.payload, sizeof(Connection))
        if connection.scope != CONNECTION_CHANNEL:
            return
        if connection.status == CONNECTION_DISCONNECTED:
            gate_silence(gate, WAIT_SNAPSHOT_SILENT)
        else:
            gate.waits = WAIT_SNAPSHOT


cdef inline void gate_silence(Gate* gate, uint8_t waits) noexcept nogil:
    # From now on no snapshots come. 0 is left out: it means that an object has told of no silence.
    gate.waits = waits
    gate.silence = gate.silence % 0xFFFF + 1


cdef inline void gate_doubt(
        Gate* gate, Object* object, const Message* message) noexcept nogil:
    # Somebody said two things with one number, perhaps of this object: only a snapshot that was
    # taken behind it tells what is right. What a snapshot said matters only while it is believed.
    if (message.channel != CHANNEL_INCREMENTAL
            and object.snapshot_number != <uint32_t>message.number):
        return
    gate.missed_to = gate.position
    gate.snapshots_may_lag = True
    gate_forget_state(gate, object)


cdef inline void gate_forget_state(Gate* gate, Object* object) noexcept nogil:
    # What is known of it may be somebody else's invention: it waits for a snapshot.
    gate_forget_collected(gate, object, FEED_COLLECT_DROPPED)
    object.applied = 0
    object.snapshot_since_gap = 0
    object.from_snapshot = 0
    if object.status != OBJECT_STALE:
        gate_stale(gate, object)


cdef inline void gate_update(
        Gate* gate, Object* object, const Message* message, uint64_t seqno) noexcept nogil:
    # An update, or a snapshot, of the incremental channel.
    if seqno <= object.applied:      # a snapshot ran ahead of the incremental channel
        counter_add(&gate.counters[FEED_UPDATES_CONTAINED], 1)
        return
    if message.flags & RECORD_SNAPSHOT:
        gate_forget_collected(gate, object, FEED_COLLECT_DROPPED)
        object.from_snapshot = 0
        if object.status != OBJECT_LIVE and object.status != OBJECT_TRUSTED:
            gate_recovered(gate, FEED_RECOVERED_SNAPSHOT)
    elif object.status == OBJECT_UNKNOWN or object.status == OBJECT_TRUSTED:
        if not object_continues(gate, object, <uint32_t>message.detail):
            gate_stale(gate, object)
            gate_collect(gate, object, message, seqno)
            return
        if object.status == OBJECT_UNKNOWN:
            gate_recovered(gate, FEED_RECOVERED_CHAIN)
    elif object.status != OBJECT_LIVE:
        if not gate_begins_with(gate, object, message):
            gate_collect(gate, object, message, seqno)
            return
        gate_recovered(gate, FEED_RECOVERED_CHAIN)
    object_turn(gate, object, OBJECT_LIVE)
    object.applied = seqno
    counter_add(&gate.counters[FEED_APPLIED], 1)
    gate.message_ready = True


cdef inline bint gate_begins_with(
        const Gate* gate, const Object* object, const Message* message) noexcept nogil:
    # Whether an update is the very first of its object.
    return (gate.saw_session_from_first and <uint32_t>message.detail == 0
            and object.status == OBJECT_WAITING and object.needs_from == 0)


cdef inline void gate_extend(
        Gate* gate, const Message* message, uint64_t seqno) noexcept nogil:
    # A message without a gate, on its way already, of an object that may be known.
    cdef Object* object = gate_find(gate, message.object, False)
    cdef CollectHead* tail
    if object == NULL or seqno <= object.applied:
        return
    gate.object = object
    object_refresh(gate, object)
    if object.status == OBJECT_UNKNOWN or object.status == OBJECT_TRUSTED:
        if not object_continues(gate, object, <uint32_t>message.detail):
            gate_stale(gate, object)
        else:
            if object.status == OBJECT_UNKNOWN:
                gate_recovered(gate, FEED_RECOVERED_CHAIN)
            object_turn(gate, object, OBJECT_LIVE)
    if likely(object.status == OBJECT_LIVE):
        object.applied = seqno
        return
    if object.collected:
        tail = collect_head(&gate.collect, object.tail)
        if <uint32_t>message.detail == <uint32_t>tail.through:
            tail.through = seqno
            return
    # Between those collected and this one something is missing: no snapshot from before continues.
    gate_forget_collected(gate, object, FEED_COLLECT_DROPPED)
    object.needs_from = seqno


cdef inline void gate_snapshot(
        Gate* gate, Object* object, const Message* message) noexcept nogil:
    # A message of the snapshot channel.
    cdef uint64_t seqno = position_of(gate, <uint32_t>message.detail)
    cdef bint equal = ((object.status == OBJECT_UNKNOWN or object.status == OBJECT_TRUSTED)
                       and object_continues(gate, object, <uint32_t>message.detail))
    if seqno > gate.snapshots_named:
        gate.snapshots_named = seqno
    if gate.snapshots_may_lag and seqno >= gate.missed_to:
        gate.snapshots_may_lag = False       # this one, and all that follow, were taken behind it
    if likely(object.status == OBJECT_LIVE):
        counter_add(&gate.counters[FEED_SNAPSHOTS_SKIPPED], 1)
    elif object.needs_from:
        if seqno < object.needs_from and not collected_begin_at(gate, object, seqno):
            counter_add(&gate.counters[FEED_SNAPSHOTS_TOO_OLD], 1)
        elif not collected_continue(gate, object, seqno):
            counter_add(&gate.counters[FEED_SNAPSHOTS_BROKEN], 1)
        else:
            gate_accept(gate, object, seqno)
    elif equal:
        counter_add(&gate.counters[FEED_SNAPSHOTS_SKIPPED], 1)
        gate_believe(gate, object)
    elif seqno < object.applied:
        counter_add(&gate.counters[FEED_SNAPSHOTS_TOO_OLD], 1)
    else:
        gate_accept(gate, object, seqno)


cdef inline void gate_accept(Gate* gate, Object* object, uint64_t seqno) noexcept nogil:
    # Apply a snapshot, and behind it the collected updates that are newer.
    object.applied = seqno
    if object.collected and collect_head(&gate.collect, object.tail).through > seqno:
        object.applied = collect_head(&gate.collect, object.tail).through
    while object.collected and collect_head(&gate.collect, object.head).seqno <= seqno:
        object.head = collect_drop(&gate.collect, object.head)
        object.collected -= 1
        gate.collected -= 1
        counter_add(&gate.counters[FEED_COLLECT_DROPPED], 1)
    gate.release = object.head
    if object.status == OBJECT_WAITING and object.needs_from == 0:
        object.snapshot_since_gap = 1    # nothing known of it: the first snapshot is believed
    object.head = COLLECT_NONE
    object.collected = 0
    object.needs_from = 0
    gate_believe(gate, object)
    counter_add(&gate.counters[FEED_APPLIED], 1)
    gate.message_ready = True
    gate.message.flags |= RECORD_SNAPSHOT


cdef inline void gate_believe(Gate* gate, Object* object) noexcept nogil:
    # A snapshot says that the object's state was as of `applied`: is that all there is?
    cdef uint8_t status = OBJECT_UNKNOWN
    if not gate.snapshots_may_lag or object.applied >= gate.missed_to:
        status = OBJECT_LIVE
    elif object.snapshot_since_gap:
        status = OBJECT_TRUSTED
    if status != OBJECT_UNKNOWN and object.status != OBJECT_TRUSTED:
        gate_recovered(gate, FEED_RECOVERED_SNAPSHOT)
    object_turn(gate, object, status)
    object.snapshot_since_gap = 1
    object.from_snapshot = 1
    object.snapshot_number = <uint32_t>gate.message.number


cdef inline bint collected_begin_at(
        Gate* gate, const Object* object, uint64_t seqno) noexcept nogil:
    # Whether what was collected begins with the update that a snapshot from before names as the one
    # due next: nothing of the object lies between them. 0 names none.
    cdef const CollectHead* head
    if object.collected == 0 or <uint32_t>seqno == 0:
        return False
    head = collect_head(&gate.collect, object.head)
    return head.seqno == object.needs_from and <uint32_t>head.detail == <uint32_t>seqno


cdef inline bint collected_continue(Gate* gate, Object* object, uint64_t seqno) noexcept nogil:
    # Whether the collected updates newer than a snapshot form a chain that begins at it; it may
    # have been taken at one of the ungated messages behind a collected one.
    cdef uint32_t index = object.head, previous = <uint32_t>seqno
    cdef const CollectHead* head
    while index != COLLECT_NONE:
        head = collect_head(&gate.collect, index)
        if head.seqno > seqno and <uint32_t>head.detail != previous:
            return False
        if head.through > seqno:
            previous = <uint32_t>head.through
        index = head.next_message
    return True


cdef inline void gate_collect(
        Gate* gate, Object* object, const Message* message, uint64_t seqno) noexcept nogil:
    # Collect an update until a snapshot comes. At a limit the object gives up what it has and
    # begins anew with this one: snapshots grow newer, so the newest updates are the ones that the
    # next snapshot needs, and a chain with its end missing would pass for complete.
    cdef uint32_t index = COLLECT_NONE
    counter_add(&gate.counters[FEED_COLLECTED], 1)
    if gate.waits != WAIT_SNAPSHOT and object.said != gate.silence:
        object.said = gate.silence
        gate.state_kind = KIND_STALE
        counter_add(&gate.counters[FEED_WAITS_IN_VAIN], 1)
    if object.collected >= gate.collect_messages_max:
        gate_forget_collected(gate, object, FEED_COLLECT_FULL)
    index = collect_put(&gate.collect, message, seqno)
    if index == COLLECT_NONE and object.collected:
        gate_forget_collected(gate, object, FEED_COLLECT_FULL)
        index = collect_put(&gate.collect, message, seqno)
    if index == COLLECT_NONE:
        counter_add(&gate.counters[FEED_COLLECT_FULL], 1)
        object.needs_from = seqno         # a snapshot must contain it
        return
    if object.collected:
        collect_head(&gate.collect, object.tail).next_message = index
    else:
        object.head = index
    object.tail = index
    object.collected += 1
    gate.collected += 1
    if object.needs_from == 0:
        object.needs_from = seqno


cdef inline void gate_forget_collected(
        Gate* gate, Object* object, int counter) noexcept nogil:
    counter_add(&gate.counters[counter], object.collected)
    gate.collected -= object.collected
    while object.head != COLLECT_NONE:
        object.head = collect_drop(&gate.collect, object.head)
    object.collected = 0
    object.needs_from = 0


# --- outputs --------------------------------------------------------------------------------------

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


cdef inline void gate_state(Gate* gate, Message* output) noexcept nogil:
    # STALE or RECOVERED: the object as it is once all outputs of this message are taken.
    cdef Object* object = gate.object
    cdef bint replaced = (gate.message_ready and gate.message.flags & RECORD_SNAPSHOT
                          and not gate.message.flags & RECORD_UNGATED)
    gate.state.object = object.key
    gate.state.status = gate_status(gate, object)
    gate.state.continues = gate.state_kind == KIND_RECOVERED and not replaced
    gate.state.applied = position_number(object.applied)
    gate.state.exchange_id = <uint32_t>(object.tag >> 32)
    gate.state.symbol_id = <uint32_t>object.tag
    gate.state.waits = WAIT_NONE
    if gate.state.status == OBJECT_STALE or gate.state.status == OBJECT_WAITING:
        gate.state.waits = gate.waits
    output[0] = gate.message[0]
    output.payload = <const uint8_t*>&gate.state
    output.size = sizeof(ObjectState)
    output.kind = gate.state_kind
    output.flags = 0
    output.fragments = 0
    output.tag = object.tag
    gate.state_kind = 0


# --- table and numbers ----------------------------------------------------------------------------


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


cdef inline bint object_continues(
        const Gate* gate, const Object* object, uint32_t last_seqno) noexcept nogil:
    # Whether `last_seqno` names the state that the object has.
    return last_seqno == <uint32_t>object.applied and (
        last_seqno != 0 or object.applied >= gate.zero)


cdef inline bint object_is_refuted(const Gate* gate, const Object* object) noexcept nogil:
    # Its state began with a snapshot of a numbering that was not the feed's.
    return object.from_snapshot and <int32_t>(gate.refuted - object.generation) > 0


cdef inline void object_refresh(Gate* gate, Object* object) noexcept nogil:
    # A gap since the object was last looked at puts it in doubt.
    if likely(object.generation == gate.generation):
        return
    if object_is_refuted(gate, object):
        gate_forget_state(gate, object)
    object_turn(gate, object, gate_status(gate, object))
    object.generation = gate.generation
    object.snapshot_since_gap = 0


cdef inline uint64_t position_zero(uint64_t position) noexcept nogil:
    # The number 0 of its circle.
    return position >> 32 << 32


cdef inline uint64_t position_from(uint64_t number) noexcept nogil:
    # With room for numbers before it.
    return (<uint64_t>1 << 32) + number


cdef inline uint64_t position_number(uint64_t position) noexcept nogil:
    # As records carry it; one from before the session's first circle as it was published.
    return position - position_from(0) if position >> 32 else position


cdef inline uint64_t position_advance(Gate* gate, uint32_t seqno) noexcept nogil:
    # Unwrap a seqno of the incremental channel, and go there if it is new.
    cdef uint64_t unwrapped
    if gate.position == 0:
        gate.position = position_from(seqno)
    unwrapped = gate.position + <uint64_t><int64_t><int32_t>(seqno - <uint32_t>gate.position)
    if not gate.joined:
        gate.joined = True
        gate.missed_to = unwrapped - 1
        gate.snapshots_may_lag = not gate.saw_session_from_first
        if gate.snapshots_may_lag and <uint32_t>gate.missed_to < SNAPSHOT_BEHIND_MAX:
            gate.zero = position_zero(gate.missed_to)
    if unwrapped > gate.position:
        if unwrapped >> 32 != gate.position >> 32:
            gate.saw_session_from_first = False       # 0 is a number like any other now
        gate.position = unwrapped
    return unwrapped


cdef inline uint64_t position_of(Gate* gate, uint32_t seqno) noexcept nogil:
    # Unwrap the last_seqno of a snapshot, relative to where the incremental channel is.
    cdef uint32_t ahead
    if seqno == 0:
        return position_zero(gate.snapshots_named)
    if gate.position == 0:
        gate.position = position_from(seqno)
    ahead = seqno - <uint32_t>gate.position
    if ahead < SNAPSHOT_AHEAD_MAX:
        return gate.position + ahead
    return gate.position + ahead - (<uint64_t>1 << 32)
