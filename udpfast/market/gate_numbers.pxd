# Seqnos, as a gate compares them: unwrapped to 64 bits at its door; behind it plain comparisons are
# right for ever.
#
# A last_seqno of 0 means either "no update yet" or number 0 of a 2^32 circle. Read as a place it is
# the number 0 behind which snapshots are known to have been taken (`snapshots_named`), so it is
# never ahead and ends no doubt; read as a continuation it proves nothing if a number 0 was missed
# (`zero`): none yet before that, and none yet behind it, are two different states. Nor does it
# before number 0, where a snapshot may have run ahead of the incremental channel and be from
# behind it: its state may contain the very update that says "none yet".

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from udpfast.market.gate_state cimport Gate, Object

cdef enum:
    # The last_seqno of a snapshot may lie ahead of the incremental channel, by some milliseconds of
    # traffic: by fewer messages than this. Any other last_seqno lies behind. An object may thus be
    # quiet for up to 4.2e9 messages (if half of the circle lay ahead, for 2.1e9).
    SNAPSHOT_AHEAD_MAX = 1 << 24
    # The snapshot channel lags behind by fewer messages than this, too. A number 0 that was missed
    # longer ago is contained in every snapshot that comes now.
    SNAPSHOT_BEHIND_MAX = 1 << 24


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


cdef inline bint zero_may_be_ahead(const Gate* gate) noexcept nogil:
    # Whether a snapshot that says 0 may name the number 0 that comes next, or has just come.
    return <uint32_t>(0 - <uint32_t>gate.position) < SNAPSHOT_AHEAD_MAX


cdef inline bint object_continues(
        const Gate* gate, const Object* object, uint32_t last_seqno) noexcept nogil:
    # Whether `last_seqno` names the state that the object has.
    return last_seqno == <uint32_t>object.applied and (
        last_seqno != 0 or (object.applied >= gate.zero and not zero_may_be_ahead(gate)))


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
