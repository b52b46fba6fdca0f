# One run of one line: datagrams that do not continue the current numbering and may be of another
# one. They are kept beside it until they are believed or the current numbering has shown that it
# goes on. A line has two runs: one of this session, one of others, so that neither makes the other
# forgotten.
#
# Here is what a run is: which datagrams belong to it, what they are evidence of, and what is kept.
# What a run has to prove is in `proof`, what becomes of it in `numbering`.
#
# A datagram is one piece of evidence, however many units and messages it has. A run is DENSE: each
# datagram lies at most RUN_STEP_MAX datagrams behind the furthest one, since a publisher counts by
# one; reordered and doubled ones a little before it belong to it, and prove nothing. How many
# numbers a datagram takes is as its stream's datagrams were seen to have (Packing). What the
# current numbering does next voids what a run has proven (run_refute) but not what it holds: a run
# that is believed in the end loses nothing.

from libc.stdint cimport UINT32_MAX, int64_t, uint16_t, uint32_t, uint64_t, uint8_t

from udpfast.core.check cimport unlikely
from udpfast.wire.unit cimport Unit

cdef enum:  # Claim: what a run says
    CLAIM_NONE = 0
    CLAIM_SESSION = 1            # a session never heard of, or this one announced anew
    CLAIM_AHEAD = 2              # this session, beyond the window
    CLAIM_ENDED = 3              # a session that is over
    CLAIM_BACK = 4               # this session, numbered anew

# How one mode of a run leads to another:
#
#   from              what happens                                           to
#   ----------------  -----------------------------------------------------  --------
#   any               a datagram begins another run (run_begin)              REFUTED
#   REFUTED, REVIVED  that one, or one that carries it on, is evidence       PROVING
#   PROVING           the current numbering goes on (run_refute)             REFUTED
#   REFUTED           a copy, or a late one of it, comes (run_returns)       REVIVED
#   PROVING           it is proven, by this line or together (run_believe)   BELIEVED
#   any               delivered, voided or forgotten (run_forget)            ABSENT
cdef enum:  # RunMode
    RUN_ABSENT = 0
    RUN_PROVING = 1
    RUN_REFUTED = 2              # the current numbering went on, or nothing has counted yet
    RUN_REVIVED = 3              # refuted, it had copies and late ones since
    RUN_BELIEVED = 4             # current now: what is kept is about to be delivered

cdef enum:  # Bytes: what is known of a datagram's bytes, the strongest last
    BYTES_NONE = 0               # nothing that would tell numberings apart
    BYTES_EMPTY = 1              # a heartbeat's: they look the same in every numbering
    BYTES_SAME = 2               # those that the current numbering has for these numbers
    BYTES_NEW = 3                # nothing is remembered of these numbers
    BYTES_OTHER = 4              # not those that the current numbering has

cdef enum:
    # Distances in datagrams: to the next one of a dense run (loss, reordering); between two lines'
    # parts of one beginning; from the furthest one back to reordered ones and copies.
    RUN_STEP_MAX = 16
    RUN_APART_MAX = 1024
    RUN_BACK_MAX = 64
    # Kept of one run, at least: four times what proves one by default, for loss, copies and a
    # numbering that takes long to be quiet. Twice `restart` if that is more.
    RUN_KEPT = 128
    # Runs that may break each other off: one of each numbering that speaks by turns.
    BROKEN_MAX = 2
    # A run that has come so far is not given up for a few datagrams from elsewhere.
    RUN_ESTABLISHED = 4
    RUN_STRAYS_MAX = 3
    # A replay repeats what is remembered; a publisher that began anew repeats by chance.
    REPLAY_PER_CONTRADICTING = 16

cdef enum:
    NUMBERS_WITHOUT_ZERO = 255   # in place of a shift: 32 bits, the highest of which 1 follows

cdef struct Packing:             # how a stream's numbers lie in its datagrams
    uint64_t datagram            # which one is judged now
    uint64_t counted             # which one carried the current numbering further last
    uint32_t numbers             # that this one took
    uint32_t widest              # numbers that a datagram took at most, since a pace was timed
    uint32_t wide                # ... of late: what a lost one may have taken

cdef struct Evidence:            # what a datagram tells of the numbering that it is of
    uint8_t bytes                # Bytes
    bint repeated                # its line had brought these bytes before: it is not just slower
    bint straggler               # the current numbering gave these numbers up: it may be late
    bint filled                  # it fills a hole of the current numbering, too

cdef struct KeptUnit:            # and behind it its whole datagram
    int64_t received_ns
    uint64_t datagram            # as Packing's
    uint32_t size
    uint32_t units               # that are kept of it: `unit` and those right behind it
    uint16_t flags
    uint16_t known_in            # the current numbering had these bytes: `proof` as of then, or 0
    Unit unit

cdef struct Run:
    uint8_t claim
    uint8_t mode                 # RunMode
    uint8_t shift                # 64 less the bits of a number, or NUMBERS_WITHOUT_ZERO
    uint16_t fragment            # of the furthest datagram
    uint32_t wide                # numbers that one of its datagrams took at most
    const Packing* packing       # of its stream
    uint64_t datagram            # the latest that was counted in,
    uint64_t datagram_first      # and its first number
    uint64_t session_id
    uint64_t first               # earliest number of the run, kept or not
    uint64_t first_new           # behind what is known byte for byte, and what was refuted
    uint64_t furthest
    int64_t sent_ns              # of the first: what was sent before it is not of this run
    uint32_t strays              # in a row that did not belong to it
    uint32_t same                # datagrams with BYTES_SAME, of the whole run
    uint32_t contradicting       # ... BYTES_OTHER
    uint32_t filled              # ... that filled holes of the current numbering, too
    uint32_t total               # datagrams that carried it further
    # since the current numbering last went on
    uint32_t since_count         # datagrams that carried the run further
    uint32_t new_bytes           # of these: BYTES_NEW or BYTES_OTHER
    uint32_t repeated            # of these: empty, and brought before by this line
    uint64_t since_first         # earliest of them
    int64_t since_ns             # when the first of them came
    uint16_t proof               # how often it began to prove itself, never 0
    uint32_t broken              # so many runs before this one were given up for others, and
    uint64_t broken_first[BROKEN_MAX]    # began here; the newest first
    uint64_t returned_first      # REVIVED: the earliest of those that it had since
    uint32_t kept_capacity
    uint32_t kept_total          # of this run; the newest kept_capacity of them are there
    uint32_t kept_stride         # bytes from one to the next
    uint8_t* kept


cdef inline void evidence_begin(Evidence* e) noexcept nogil:
    e.bytes = BYTES_NONE
    e.repeated = False
    e.straggler = False
    e.filled = False


cdef inline void evidence_add(Evidence* e, uint8_t bytes, bint repeated) noexcept nogil:
    # For a unit with several messages, take the strongest.
    e.bytes = max(e.bytes, bytes)
    e.repeated = e.repeated or repeated


cdef inline int64_t number_step(uint64_t number, uint64_t before, uint8_t shift) noexcept nogil:
    # How far a number lies behind another one, on a circle of as many bits as numbers have.
    if unlikely(shift == NUMBERS_WITHOUT_ZERO):
        return number_step_without_zero(number, before)
    return <int64_t>((number - before) << shift) >> shift


cdef inline int64_t number_step_without_zero(uint64_t number, uint64_t before) noexcept nogil:
    # The same where the circle is one number shorter.
    cdef int64_t circle = UINT32_MAX
    cdef int64_t step = <int64_t>(number - before) % circle
    if step > circle >> 1:
        return step - circle
    return step + circle if step < -(circle >> 1) else step


cdef inline int64_t run_step(
    const Run* run, uint64_t number, uint64_t before,
) noexcept nogil:
    return number_step(number, before, run.shift)


cdef inline int64_t run_span(const Run* run, int64_t datagrams) noexcept nogil:
    # How many numbers so many datagrams may take.
    return datagrams * max(run.wide, run.packing.wide)


# --- which datagrams belong to it -----------------------------------------------------------------

cdef inline bint run_is_replay(const Run* run) noexcept nogil:
    return run.same > REPLAY_PER_CONTRADICTING * run.contradicting


cdef inline bint run_follows(
    const Run* run, uint8_t claim, const Unit* unit,
) noexcept nogil:
    # Whether a datagram belongs to the run.
    cdef int64_t step = run_step(run, unit.number, run.furthest)
    # A refuted one goes on, or is over.
    cdef int64_t back = -run_span(run, RUN_BACK_MAX) if run.mode == RUN_PROVING else 1
    if run.claim != claim or run.session_id != unit.session:
        return False
    return claim == CLAIM_SESSION or back <= step <= run_span(run, RUN_STEP_MAX)


cdef inline bint run_is_stray(
    Run* run, uint8_t claim, const Unit* unit, const Evidence* e,
) noexcept nogil:
    # Whether a datagram that does not follow the run leaves it as it is, instead of beginning
    # another one.
    if run.claim != CLAIM_BACK or run.mode != RUN_PROVING or run_is_replay(run):
        return False
    if e.bytes == BYTES_SAME:
        return True                      # of the current numbering, for all we know
    if run.new_bytes and e.bytes == BYTES_EMPTY:
        return True
    if run.since_count >= RUN_ESTABLISHED and run.strays < RUN_STRAYS_MAX:
        run.strays += 1
        return True
    return False


cdef inline bint run_is_same(
    const Run* run, const Run* other,
) noexcept nogil:
    # Whether two lines' runs are one: what they brought since the current numbering last went on
    # overlaps. Of a session never heard of, one line may have lost more at its beginning.
    cdef int64_t apart = run_span(
        run, RUN_APART_MAX if run.claim == CLAIM_SESSION else RUN_STEP_MAX)
    return (
        other.claim == run.claim and other.session_id == run.session_id
        and other.mode == RUN_PROVING
        and run_step(run, other.since_first, run.furthest) <= apart
        and run_step(run, run.since_first, other.furthest) <= apart
        and not run_is_denied(run, other) and not run_is_denied(other, run)
    )


cdef inline bint run_is_denied(const Run* run, const Run* other) noexcept nogil:
    # Whether one run contradicts the current numbering, whose copies alone the other one has: what
    # a slower line brings while the current numbering is quiet. More of them than this are no
    # chance: a beginning may repeat a few bytes, on each line.
    return run.contradicting != 0 and other.contradicting == 0 and (
        other.same > REPLAY_PER_CONTRADICTING)


cdef inline bint run_leads_to(
    const Run* run, const Run* other, uint64_t first,
) noexcept nogil:
    # Whether a refuted run may have been the beginning of another line's, which came from this
    # number on. That cannot be known, so it is not delivered, but reported.
    return (
        run.claim == other.claim and run.session_id == other.session_id
        and run.mode != RUN_PROVING and run.total and not run_is_replay(run)
        and run_step(run, run.first, first) < 0
        and -run_span(run, RUN_BACK_MAX) <= run_step(run, first, run.furthest)
        and run_step(run, first, run.furthest) <= run_span(run, RUN_STEP_MAX)
    )


cdef inline uint64_t run_first(const Run* run) noexcept nogil:
    # The earliest seqno that came: of a run that was broken off by another one, too.
    cdef uint64_t first = run.first
    cdef int64_t back
    cdef uint32_t i
    for i in range(run.broken):
        back = run_step(run, run.first, run.broken_first[i])
        if 0 < back <= run_span(run, RUN_BACK_MAX):
            if run_step(run, run.broken_first[i], first) < 0:
                first = run.broken_first[i]
    return first


# --- what becomes of it ---------------------------------------------------------------------------

cdef inline bint run_note(
    Run* run, uint8_t claim, const Unit* unit, const Evidence* e, int64_t now_ns,
) noexcept nogil:
    # Count a datagram in, or begin a run with it. False: it does not belong to it.
    # What lies before the furthest is kept, but proves nothing; of a new session all is proof.
    cdef uint64_t last = unit.number + unit.count - 1
    if not run_follows(run, claim, unit):
        if run_is_stray(run, claim, unit, e):
            return False
        run_begin(run, claim, unit)
    elif run_step(run, last, run.furthest) == 0 and unit.fragment == run.fragment:
        if unit.count or claim != CLAIM_SESSION:
            return True                  # a copy, or other bytes; heartbeats come again and again
    run.strays = 0
    if run_has_counted(run, unit, last):
        return True
    if run.mode != RUN_PROVING or (run.same >= run.total and run_first(run) == run.first):
        run.first_new = unit.number
    run.same += e.bytes == BYTES_SAME
    run.contradicting += e.bytes == BYTES_OTHER
    run.filled += e.filled
    if run_reach(run, unit, last) or claim == CLAIM_SESSION:
        run_prove(run, unit, e, now_ns)
    return True


cdef inline bint run_reach(Run* run, const Unit* unit, uint64_t last) noexcept nogil:
    # Whether a unit that ends with this number carries the run further. One from before its
    # furthest may be its first.
    cdef int64_t step = run_step(run, last, run.furthest)
    if step < 0:
        if run_step(run, unit.number, run.first) < 0:
            run.first = unit.number
        if run_step(run, unit.number, run.since_first) < 0:
            run.since_first = unit.number
        return False
    if step == 0 and unit.fragment < run.fragment:
        return False
    run.furthest = last
    run.fragment = unit.fragment
    return True


cdef inline void run_prove(
    Run* run, const Unit* unit, const Evidence* e, int64_t now_ns,
) noexcept nogil:
    # What a datagram proves of its run, which begins to prove itself with it if it did not yet.
    if e.bytes == BYTES_NONE:
        return
    if run.mode != RUN_PROVING:
        run.mode = RUN_PROVING
        run.since_first = unit.number
        run.since_ns = now_ns
        run.proof = run.proof % 0xFFFF + 1
    run.since_count += 1
    run.total += 1
    run.new_bytes += e.bytes >= BYTES_NEW
    run.repeated += e.bytes == BYTES_EMPTY and e.repeated


cdef inline void run_begin(Run* run, uint8_t claim, const Unit* unit) noexcept nogil:
    # Another run begins with this unit. Where the one before began is remembered, if this one may
    # be its continuation.
    cdef uint32_t broken = 0
    if run.mode == RUN_REVIVED:
        run.broken_first[0] = run.returned_first
        broken = 1
    elif run_was_run(run) and run.claim == claim and run.session_id == unit.session:
        run_break(run)
        broken = run.broken
    elif run.mode == RUN_ABSENT:
        broken = run.broken
    run_forget(run)
    run.broken = broken
    run.claim = claim
    run.mode = RUN_REFUTED
    run.session_id = unit.session
    run.first = unit.number
    run.furthest = unit.number - 1
    run.sent_ns = unit.sent_ns
    run.same = 0
    run.contradicting = 0
    run.filled = 0
    run.total = 0
    run.new_bytes = 0
    run.repeated = 0


cdef inline bint run_has_counted(
    Run* run, const Unit* unit, uint64_t last,
) noexcept nogil:
    # Whether another unit of the same datagram was counted in; then this one only carries the run
    # further.
    cdef bint counted = run.datagram == run.packing.datagram and run.total
    if not counted:
        run.datagram = run.packing.datagram
        run.datagram_first = unit.number
    if unit.count:
        run.wide = max(run.wide, <uint32_t>run_step(run, last, run.datagram_first) + 1)
    if counted and run_step(run, last, run.furthest) > 0:
        run.furthest = last
        run.fragment = unit.fragment
    return counted


cdef inline void run_forget(Run* run) noexcept nogil:
    run.claim = CLAIM_NONE
    run.mode = RUN_ABSENT
    run.wide = 1
    run.since_count = 0
    run.broken = 0
    run.kept_total = 0


cdef inline void run_believe(Run* run) noexcept nogil:
    run.claim = CLAIM_NONE
    run.mode = RUN_BELIEVED


cdef inline void run_refute(Run* run) noexcept nogil:
    # The current numbering is alive: this one has to prove itself from here on.
    if run.mode == RUN_PROVING:
        run.mode = RUN_REFUTED
    run.since_count = 0
    run.new_bytes = 0
    run.repeated = 0
    run.broken = 0


cdef inline void run_set_aside(Run* run) noexcept nogil:
    # Refuted, and its line went on in the current numbering: of what may have been the beginning of
    # another one all is forgotten but where that was.
    cdef uint32_t broken
    if run_was_run(run):
        run_break(run)
    broken = run.broken
    run_forget(run)
    run.broken = broken


cdef inline void run_break(Run* run) noexcept nogil:
    # Remember where the run began that another one breaks off: it may go on later. So may the one
    # that it had broken off itself: two numberings, one of them late, come by turns.
    cdef uint64_t begun = run_first(run)
    cdef uint64_t before = begun
    cdef uint32_t i
    for i in range(run.broken):
        if before == begun:
            before = run.broken_first[i]
    run.broken_first[0] = begun
    run.broken_first[1] = before
    run.broken = 1 + (before != begun)


cdef inline bint run_was_run(const Run* run) noexcept nogil:
    # Refuted or not, a run that may have been the beginning of one that goes on later.
    return run.mode == RUN_PROVING or (run.total != 0 and not run_is_replay(run))
