# One line of one stream: how far it came, when it was last heard, and what it brings that may
# belong to another numbering than the one at hand.

from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint32_t

from udpfast.feed.candidate cimport (
    CANDIDATE_BACK_MAX, CLAIM_NEW_ID, CLAIM_OLD_ID, Candidate, Packing, candidate_forget,
    candidate_span,
)
from udpfast.wire.unit cimport UNIT_RETRANSMISSION, Unit

cdef struct Line:                # 512 bytes: a shift finds one
    int64_t highest              # unwrapped seqno; INT64_MIN: silent in this numbering
    int64_t heard_ns             # INT64_MIN: never
    int64_t* counters            # of core/counter's LineCounter
    int64_t lagged_ns            # it went on, further behind than the window remembers
    int64_t sent_ns              # the latest sending time that it brought of this numbering
    int64_t named                # the number beyond the window that its last heartbeat named
    int64_t part_of              # a message in fragments, the furthest of which that it
    uint32_t part                # brought is this one
    Candidate candidate          # of this session: AHEAD, BEHIND
    Candidate foreign            # of another one: NEW_ID, OLD_ID
    uint8_t pad[80]


cdef inline void line_reset(Line* line) noexcept nogil:
    # Another numbering begins.
    line.highest = INT64_MIN
    line.part_of = INT64_MIN
    line.lagged_ns = INT64_MIN
    line.named = INT64_MIN
    line.sent_ns = 0


cdef inline int64_t line_spoke_ns(const Line* line) noexcept nogil:
    # When it brought anything of the numbering at hand, or of a new session.
    return line.heard_ns if line.heard_ns > line.lagged_ns else line.lagged_ns


cdef inline bint line_advances(const Line* line, const Unit* unit, int64_t at) noexcept nogil:
    # Whether a unit that ends with this seqno carries the line further: a later number, or a later
    # fragment of the same message.
    return at > line.highest or (
        at == line.highest and unit.fragments > 1
        and (line.part_of != at or unit.fragment > line.part)
    )


cdef inline void line_reach(Line* line, uint32_t fragment, int64_t at) noexcept nogil:
    # Where it is now, if that is further.
    if at > line.highest:
        line.highest = at
    elif at < line.highest or (line.part_of == at and fragment <= line.part):
        return
    line.part_of = at
    line.part = fragment


cdef inline void line_bring(Line* line, const Unit* unit, int64_t at) noexcept nogil:
    # A unit that is accepted and ends with this seqno; one that is sent again tells nothing.
    if unit.flags & UNIT_RETRANSMISSION:
        return
    line_reach(line, unit.fragment, at)
    if unit.sent_ns > line.sent_ns:
        line.sent_ns = unit.sent_ns


cdef inline bint line_was_beyond(const Line* line, int64_t at, const Unit* unit) noexcept nogil:
    # Whether the line brought what lies further on, and its sender's clock says that this one was
    # sent behind that: a line falls behind itself only where its numbers began anew.
    return line.highest > at and 0 < line.sent_ns < unit.sent_ns


cdef inline bint line_steps_back(const Line* line, int64_t at) noexcept nogil:
    # Further than its datagrams overtake each other: it had come to beyond this one.
    return at + candidate_span(&line.candidate, CANDIDATE_BACK_MAX) < line.highest


cdef inline void line_init(
    Line* line, int64_t* counters, uint8_t shift, const Packing* packing,
) noexcept nogil:
    line.counters = counters
    line.candidate.shift = shift
    line.foreign.shift = shift
    line.candidate.packing = packing
    line.foreign.packing = packing
    line.heard_ns = INT64_MIN
    line_reset(line)
    candidate_forget(&line.candidate)
    candidate_forget(&line.foreign)


cdef inline Candidate* line_claims(Line* line, uint8_t claim) noexcept nogil:
    # The candidate that makes this claim, if any does.
    if claim == CLAIM_NEW_ID or claim == CLAIM_OLD_ID:
        return &line.foreign
    return &line.candidate
