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
# What an accepted snapshot proves is said in market/gate_snapshots, what a number means in
# market/gate_numbers.
#
# An object that waits while no snapshots come (their channel is silent, or absent) says so by
# a STALE with its next update, once for each silence: it may wait for ever.
#
# An ungated message still extends its object's chain: the next gated update names it in last_seqno.

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport invariant, likely
from udpfast.core.counter cimport (
    FEED_APPLIED,
    FEED_COLLECT_DROPPED,
    FEED_OBJECTS_FULL,
    FEED_RECOVERED_CHAIN,
    FEED_RECOVERED_SNAPSHOT,
    FEED_RELEASED,
    FEED_UNGATED,
    FEED_UPDATES_CONTAINED,
)
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
    WAIT_SNAPSHOT_SILENT,
)
from udpfast.market.collect cimport (
    COLLECT_NONE,
    CollectHead,
    collect_drop,
    collect_head,
    collect_read,
)
from udpfast.market.gate_collected cimport gate_collect, gate_forget_collected
from udpfast.market.gate_numbers cimport (
    object_continues,
    position_advance,
    position_from,
    position_number,
    position_zero,
)
from udpfast.market.gate_snapshots cimport gate_snapshot
from udpfast.market.gate_state cimport (
    Gate,
    OBJECT_TRUSTED,
    Object,
    gate_clear,
    gate_find,
    gate_pending,
    gate_recovered,
    gate_silence,
    gate_stale,
    gate_status,
    object_is_refuted,
    object_turn,
)

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


cdef inline void object_refresh(Gate* gate, Object* object) noexcept nogil:
    # A gap since the object was last looked at puts it in doubt.
    if likely(object.generation == gate.generation):
        return
    if object_is_refuted(gate, object):
        gate_forget_state(gate, object)
    object_turn(gate, object, gate_status(gate, object))
    object.generation = gate.generation
    object.snapshot_since_gap = 0


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


# --- outputs --------------------------------------------------------------------------------------

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
