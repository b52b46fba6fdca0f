# Which snapshot of the snapshot channel a gate accepts, and what that proves.
#
# An accepted snapshot does not prove by itself that the object is sound: the snapshot channel may
# lag, so that a lost update (or one from before we joined) is newer than the snapshot. It is proven
# once any snapshot was seen whose last_seqno is not before the last number that we lost
# (`missed_to`): later snapshots were taken later. Without that proof
#   - the first snapshot of a new object is believed, as the protocol says, but kept TRUSTED: LIVE
#     outside, while its next update must continue it and a newer snapshot still replaces it;
#   - an object in doubt after a gap stays UNKNOWN until its second snapshot since (a channel lags
#     less than its own cycle) and is then TRUSTED;
#   - so is one whose snapshot says 0 shortly before a number 0 (market/gate_numbers).

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport likely
from udpfast.core.counter cimport (
    FEED_APPLIED,
    FEED_COLLECT_DROPPED,
    FEED_RECOVERED_SNAPSHOT,
    FEED_SNAPSHOTS_BROKEN,
    FEED_SNAPSHOTS_SKIPPED,
    FEED_SNAPSHOTS_TOO_OLD,
)
from udpfast.core.layout cimport (
    Message,
    OBJECT_LIVE,
    OBJECT_UNKNOWN,
    OBJECT_WAITING,
    RECORD_SNAPSHOT,
)
from udpfast.market.collect cimport COLLECT_NONE, collect_drop, collect_head
from udpfast.market.gate_collected cimport collected_begin_at, collected_continue
from udpfast.market.gate_numbers cimport object_continues, position_of, zero_may_be_ahead
from udpfast.market.gate_state cimport (
    Gate,
    OBJECT_TRUSTED,
    Object,
    gate_recovered,
    object_turn,
)

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
        if <uint32_t>object.applied == 0 and zero_may_be_ahead(gate):
            status = OBJECT_TRUSTED      # two states say 0: its next update must continue both
    elif object.snapshot_since_gap:
        status = OBJECT_TRUSTED
    if status != OBJECT_UNKNOWN and object.status != OBJECT_TRUSTED:
        gate_recovered(gate, FEED_RECOVERED_SNAPSHOT)
    object_turn(gate, object, status)
    object.snapshot_since_gap = 1
    object.from_snapshot = 1
    object.snapshot_number = <uint32_t>gate.message.number
