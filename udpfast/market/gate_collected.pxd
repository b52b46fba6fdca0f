# What a gate collects of an object while that waits for a snapshot: its updates, oldest first.

from libc.stdint cimport uint32_t, uint64_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.counter cimport FEED_COLLECT_FULL, FEED_COLLECTED, FEED_WAITS_IN_VAIN
from udpfast.core.layout cimport KIND_STALE, Message, WAIT_SNAPSHOT
from udpfast.market.collect cimport (
    COLLECT_NONE,
    CollectHead,
    collect_drop,
    collect_head,
    collect_put,
)
from udpfast.market.gate_numbers cimport zero_may_be_ahead
from udpfast.market.gate_state cimport Gate, Object

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
        if head.seqno > seqno and (<uint32_t>head.detail != previous
                                   or (previous == 0 and zero_may_be_ahead(gate))):
            return False
        if head.through > seqno:
            previous = <uint32_t>head.through
        index = head.next_message
    return True
