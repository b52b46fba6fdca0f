# The table of proofs: what a run has to prove before a stream follows its numbering. There is one
# row for each thing that a run can say of itself. docs/protocol.md shows the same rows in the same
# order, and calls the columns by what they ask for.

from libc.stdint cimport UINT32_MAX, int64_t, uint8_t, uint32_t, uint64_t

from udpfast.feed.pace cimport pace_is_quiet
from udpfast.feed.run cimport REPLAY_PER_CONTRADICTING, Run
from udpfast.feed.window_state cimport WINDOW_PACE, Window

cdef enum:  # ProofRow
    PROOF_SESSION = 0            # another session id, never heard of
    PROOF_RESET = 1              # this session, and its sender says that it begins anew
    PROOF_START = 2              # ... or starts it again: later, or behind its end
    PROOF_BACK = 3               # numbers of this session that fall back
    PROOF_GAP = 4                # ... to a gap which little has followed
    PROOF_RESUMED = 5            # ... to where the numbering before a restart was left
    PROOF_AHEAD = 6              # numbers of this session beyond the window
    PROOF_ENDED = 7              # a session that is over goes on where it was left
    PROOF_DRAWN = 8              # ... or somewhere else
    PROOF_ROWS = 9

cdef enum:  # Quiet: for how long the current numbering must not have gone on
    QUIET_NONE = 0               # it may go on
    QUIET_PACE = 1               # longer than so many of its datagrams used to take (WINDOW_PACE)
    QUIET_DEAD = 2               # line_dead
    QUIET_UNDERWAY = 3           # STRAGGLER_MAX_NS

cdef enum:
    # A run of so many is more than anybody forges by chance. Where that is only a few messages, on
    # many lines or in many fragments, the current numbering need not be quiet for longer than so
    # many take, but for QUIET_MIN at least: some are lost, or late.
    PROOF_LONG = 64
    # A line that proves a run together with others brings a quarter of it at least.
    PROOF_SHARE = 4
    QUIET_MIN = 3
    # Nothing is under way for longer than this: neither a straggler nor a slower line.
    STRAGGLER_MAX_NS = 1000000000

cdef struct Proof:
    uint32_t datagrams           # so many, in a row
    uint32_t empty               # ... if all are heartbeats, which repeat by nature
    uint8_t quiet                # Quiet
    uint32_t unquiet             # so many, though the current numbering is not quiet
    uint32_t contradict          # ... with PROOF_LONG, so many of the run that have other bytes
    uint32_t repeats             # more known bytes for one with other bytes are a replay

cdef struct Brought:             # a run, on all lines that prove it; counts are of datagrams
    # since the current numbering last went on
    uint32_t datagrams
    uint32_t new_bytes           # with bytes that the current numbering does not have
    uint32_t repeated            # heartbeats that their lines had brought before
    # ever
    uint32_t datagrams_ever      # of the line at hand alone
    uint32_t same                # with the bytes of the current numbering
    uint32_t same_or_filled      # ... or that filled its holes
    uint32_t contradicting       # with other bytes than it has
    int64_t messages             # that `datagrams` span
    uint64_t first_new           # the number from which on its bytes are not all known


cdef inline void proof_set(
    Proof* proof, uint32_t datagrams, uint32_t empty, uint8_t quiet, uint32_t unquiet,
    uint32_t contradict, uint32_t repeats,
) noexcept nogil:
    proof.datagrams = datagrams
    proof.empty = empty
    proof.quiet = quiet
    proof.unquiet = unquiet
    proof.contradict = contradict
    proof.repeats = repeats


cdef inline void proofs_fill(Proof* rows, uint32_t adopt, uint32_t restart) noexcept nogil:
    # The rows follow from both settings; `never` is more than any run has. Of rows without a quiet
    # time `datagrams` alone is read, and the three of a session that says itself that it is another
    # one prove alike.
    cdef uint32_t never = UINT32_MAX
    cdef uint32_t any = UINT32_MAX
    cdef uint32_t replay = REPLAY_PER_CONTRADICTING
    #   row, datagrams, empty, quiet, unquiet, contradict, repeats
    proof_set(&rows[PROOF_SESSION], adopt, adopt, QUIET_NONE, never, never, any)
    proof_set(&rows[PROOF_RESET], adopt, adopt, QUIET_NONE, never, never, any)
    proof_set(&rows[PROOF_START], adopt, adopt, QUIET_NONE, never, never, any)
    proof_set(&rows[PROOF_BACK], restart, 2 * restart, QUIET_PACE, never, 64, replay)
    proof_set(&rows[PROOF_GAP], restart, 2 * restart, QUIET_PACE, 112, 64, replay)
    proof_set(&rows[PROOF_RESUMED], 8, 16, QUIET_PACE, never, 64, replay)
    proof_set(&rows[PROOF_AHEAD], 2, 2, QUIET_NONE, never, never, any)
    proof_set(&rows[PROOF_ENDED], 8, 8, QUIET_DEAD, 112, never, any)
    proof_set(&rows[PROOF_DRAWN], restart, restart, QUIET_UNDERWAY, never, 64, replay)


cdef inline bint proof_is_quiet(
    const Proof* proof, const Brought* brought, const Window* w, int64_t now_ns,
) noexcept nogil:
    # Whether the current numbering has been quiet for as long as this claim needs.
    cdef int64_t since_ns = now_ns - w.forward_ns
    cdef int64_t datagrams = WINDOW_PACE
    if proof.quiet == QUIET_NONE:
        return True
    if proof.quiet == QUIET_DEAD:
        return since_ns > w.line_dead_ns
    if proof.quiet == QUIET_UNDERWAY:
        return since_ns >= STRAGGLER_MAX_NS
    if brought.datagrams >= PROOF_LONG and brought.messages < WINDOW_PACE:
        datagrams = brought.messages if brought.messages > QUIET_MIN else QUIET_MIN
    return pace_is_quiet(w, datagrams, now_ns)


cdef inline bint proof_is_replay(const Proof* proof, uint32_t same, uint32_t other) noexcept nogil:
    return proof.repeats != UINT32_MAX and same > proof.repeats * other


cdef inline bint proof_is_met(
    const Proof* proof, const Run* run, const Brought* brought, const Window* w, int64_t now_ns,
) noexcept nogil:
    # A dense run, on all lines that bring it, which is no replay. Heartbeats that their lines had
    # not brought before may be a slower line's, for as long as one can be under way. Many that
    # contradict what was accepted, byte for byte, are no replay, whatever their pace.
    cdef uint32_t needed = proof.datagrams
    if proof_is_replay(proof, run.same, run.contradicting):
        return False
    if brought.datagrams_ever >= proof.unquiet:
        return True
    if needed == 0 or PROOF_SHARE * run.since_count < needed:
        return False
    if run.new_bytes == 0 and proof_is_replay(proof, brought.same, brought.contradicting):
        return False                     # of slower lines, this one of which brought heartbeats
    if brought.new_bytes == 0 and proof.empty > needed:
        needed = proof.empty
        if brought.repeated < needed and now_ns - w.forward_ns <= w.line_dead_ns:
            return False
    if brought.datagrams >= PROOF_LONG and brought.contradicting >= proof.contradict:
        return True
    return brought.datagrams >= needed and proof_is_quiet(proof, brought, w, now_ns)
