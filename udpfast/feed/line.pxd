# One line of one channel: how far it came, when it was last heard, and what it makes us suspect.
#
# A suspicion is a run of datagrams in a row on one line that do not fit the numbering at hand:
#   SESSION   another session_id, which must come a few times in a row to be believed;
#   RESTART   the same id, but backwards: a publisher that restarted and drew the same id, or a
#             replay of the past. Content decides: a run of datagrams that we know is a replay.
# The datagrams of a run are kept (the newest `held_capacity`), so that believing loses nothing.

from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from udpfast.core.layout cimport DATAGRAM_SIZE_MAX, Datagram, Frame

cdef enum:  # Suspicion
    SUSPICION_NONE = 0
    SUSPICION_SESSION = 1
    SUSPICION_RESTART = 2

cdef enum:
    SUSPECT_STEP_MAX = 16        # seqnos between two datagrams of a restarted publisher

cdef enum:  # Known: whether a datagram from the past is one that we remember
    KNOWN_UNKNOWN = 0            # nothing is remembered about its seqno
    KNOWN_SAME = 1
    KNOWN_OTHER = 2              # the seqno is, with other bytes

cdef struct HeldDatagram:
    int64_t received_ns
    uint32_t size
    uint32_t flags
    uint8_t data[528]            # DATAGRAM_SIZE_MAX

cdef struct Line:
    int64_t highest              # unwrapped seqno; INT64_MIN: silent in this session
    int64_t heard_ns             # INT64_MIN: never
    int64_t* counters            # of core/counter's LineCounter
    uint8_t suspicion
    uint8_t suspect_fragment
    uint16_t suspect_id
    uint32_t suspect_seqno
    uint32_t suspect_count
    bint replaying               # the run at hand was seen to repeat what we know
    uint32_t held_capacity
    uint32_t held_total          # of this run; the newest held_capacity of them are there
    HeldDatagram* held


cdef inline void line_trust(Line* line) noexcept nogil:
    # Whatever was suspected is refuted.
    line.suspicion = SUSPICION_NONE
    line.suspect_count = 0
    line.held_total = 0
    line.replaying = False


cdef inline void line_reset(Line* line) noexcept nogil:
    # Another session or numbering begins.
    line.highest = INT64_MIN
    line_trust(line)


cdef inline void line_hold(Line* line, const Datagram* d) noexcept nogil:
    cdef HeldDatagram* held = &line.held[line.held_total % line.held_capacity]
    held.received_ns = d.received_ns
    held.size = d.size
    held.flags = d.flags
    memcpy(held.data, d.data, d.size)
    line.held_total += 1


cdef inline uint32_t line_held_count(const Line* line) noexcept nogil:
    return line.held_total if line.held_total < line.held_capacity else line.held_capacity


cdef inline HeldDatagram* line_held(Line* line, uint32_t i) noexcept nogil:
    # The i-th of those held, oldest first.
    cdef uint32_t first = line.held_total - line_held_count(line)
    return &line.held[(first + i) % line.held_capacity]


cdef inline bint line_repeats(const Line* line, const Frame* frame) noexcept nogil:
    # The same datagram as the last of the run: a copy is no further evidence.
    return (
        frame.seqno == line.suspect_seqno and frame.fragment == line.suspect_fragment
        and line.suspect_count != 0
    )


cdef inline void line_suspect_note(Line* line, const Frame* frame) noexcept nogil:
    line.suspect_seqno = frame.seqno
    line.suspect_fragment = frame.fragment


cdef inline uint32_t line_suspect_session(Line* line, const Frame* frame) noexcept nogil:
    # How many datagrams of this other session came in a row, this one included; 0: a mere copy.
    if line.suspicion != SUSPICION_SESSION or line.suspect_id != frame.session_id:
        line_trust(line)
        line.suspicion = SUSPICION_SESSION
        line.suspect_id = frame.session_id
    elif line_repeats(line, frame):
        return 0
    line_suspect_note(line, frame)
    line.suspect_count += 1
    return line.suspect_count


cdef inline uint32_t line_suspect_restart(Line* line, const Frame* frame, int known) noexcept nogil:
    # How many datagrams in a row went backwards, advancing among themselves, without being known;
    # 0 when this one is no evidence. A known one proves a replay, for as long as the run advances
    # and until one contradicts what is remembered. Evidence must be dense: delayed copies of one
    # datagram in a hundred advance too, but a publisher counts by one.
    cdef int32_t step = <int32_t>(frame.seqno - line.suspect_seqno)
    cdef bint replaying
    if line.suspicion != SUSPICION_RESTART or step < 0 or (
        step == 0 and frame.fragment < line.suspect_fragment
    ):
        line_trust(line)
        line.suspicion = SUSPICION_RESTART
    elif line_repeats(line, frame):
        return 0
    if known == KNOWN_SAME or step > SUSPECT_STEP_MAX:
        replaying = line.replaying or known == KNOWN_SAME
        line_trust(line)
        line.suspicion = SUSPICION_RESTART
        line.replaying = replaying
    line_suspect_note(line, frame)
    if known == KNOWN_SAME:
        return 0
    if known == KNOWN_OTHER:
        line.replaying = False
    if line.replaying:
        return 0
    line.suspect_count += 1
    return line.suspect_count
