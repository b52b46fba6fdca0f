# What a stream is: what is known of each of its numbers, what waits, which numbering it follows,
# and an account of each line. What becomes of them is in `window`, `waiting`, `numbering`, `lines`.
# This is `pipeline_state` for one stream.
#
# Numbers become keys of 64 bits at the door (window_unwrap: RFC 1982 with as many bits as they
# have), so that no comparison behind it can wrap, and every numbering starts behind a fresh
# multiple of 2^32, so that a slot's key alone says whether it belongs to this numbering. The low
# half of a key is that of the number.

from libc.stdint cimport (
    INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
)

from udpfast.core.check cimport unlikely
from udpfast.core.layout cimport Datagram
from udpfast.feed.control cimport ControlQueue
from udpfast.feed.named cimport NamedQueue
from udpfast.feed.run cimport Packing, Run, number_step, run_forget
from udpfast.feed.session cimport Sessions
from udpfast.feed.slab cimport Slab

cdef enum:
    WINDOW_EARLY = 8             # messages that loss and reordering cut off a session's beginning
    WINDOW_START = 64            # fingerprints of a session's first messages that are kept
    # The pace of a numbering is measured by so many datagrams at a time (of Roq: messages). Longer
    # than they take, and it is quieter than it used to be: few enough to see that soon, and that a
    # burst is not a pace.
    WINDOW_PACE = 8
    WINDOW_PACE_UNKNOWN_NS = 50000000
    WINDOW_FORK_MAX = 256        # datagrams between gaps: so many are a feed with loss
    WINDOW_JUDGE_MAX = 256       # messages whose losses are counted per turn, at most
    FRAGMENTS_NONE = 0x7FFFFFFF  # this slot's fragments are not (or no longer) told apart
    # 2^30: further ahead is no jump (18 minutes of a million messages a second) but another
    # numbering, and unwrapping stays unambiguous.
    WINDOW_FOREIGN = 1073741824

cdef enum:  # SlotState
    SLOT_PARTIAL = 1
    SLOT_WHOLE = 2
    SLOT_DELIVERED = 3
    SLOT_LOST = 4

cdef struct Slot:                # 32 bytes; what is kept for `size` seqnos behind and ahead
    int64_t key                  # unwrapped seqno
    int64_t received_ns          # first receipt of its first datagram
    uint32_t hash                # of its only fragment
    uint32_t fragments           # index of its Fragment run, or FRAGMENTS_NONE
    uint32_t cell                # of its only fragment; DELIVERED: its object instead
    uint8_t state
    uint8_t fragment_max
    uint8_t line                 # that brought the only fragment first, or completed the message
    uint8_t lines                # bit mask: the lines that brought any of it

cdef struct Early:               # 64 bytes; only for what waits: [next, next + size)
    int64_t seen_ns              # when it came; later: when its latest fragment came
    int64_t frontier_ns          # when it became the furthest so far
    int64_t sent_ns              # these as its unit has them
    uint64_t detail
    uint32_t object
    uint32_t unit_flags
    uint16_t final_size          # payload bytes of the last fragment
    uint16_t flags               # RecordFlag
    uint16_t arrived             # fragments that are there
    uint8_t other_line           # + 1: brought other bytes for one of its fragments; 0: none did
    uint8_t other_fragment
    uint32_t other_hash
    uint32_t other_object        # of the other bytes
    bint frontier                # it was the furthest when it came

cdef struct Fragment:            # 24 bytes
    int64_t came_ns              # by the loop's clock
    uint32_t hash
    int32_t delay_ns             # its first receipt, after the message's
    uint32_t cell
    uint8_t present
    uint8_t line                 # that brought it first
    uint8_t lines
    uint8_t frontier             # it was the furthest when it came

cdef struct FragmentRun:         # 24 bytes: precedes the Fragments of one message
    int64_t key                  # of its slot; 0: padding at the end of the ring
    uint32_t count
    uint16_t head                # the first one that is missing
    uint16_t end                 # behind the furthest that came
    int64_t overtaken_ns            # when one behind `head` came; INT64_MAX: none did

cdef struct LineAccount:         # 512 bytes: a shift finds one
    int64_t highest              # unwrapped seqno; INT64_MIN: silent in this numbering
    int64_t heard_ns             # INT64_MIN: never
    int64_t* counters            # of core/counter's LineCounter
    int64_t lagged_ns            # it went on, further behind than the window remembers
    int64_t sent_ns              # the latest sending time that it brought of this numbering
    int64_t named                # the number beyond the window that its last heartbeat named
    int64_t lag_ns               # the longest of late that it was behind the first copy
    int64_t excused_ns           # silent since then or later: pauses of all lines are left out
    int64_t part_of              # a message in fragments, the furthest of which that it
    uint32_t part                # brought is this one
    Run run                      # of this session: AHEAD, BACK
    Run foreign                  # of another one: SESSION, ENDED
    uint8_t pad[64]

cdef struct Known:               # of the first messages of this numbering, for as long as it lasts
    int64_t start_end            # base + WINDOW_START
    uint64_t start_known         # bit n: the fingerprint of base + n is kept
    uint32_t start_hash[64]      # WINDOW_START

cdef struct Waiting:
    int64_t highest              # furthest seqno that waits; valid while pending > 0
    int64_t decided              # holes before this one are lost
    int64_t decide_frontier      # cache of waiting_hole_seen, for each of those who ask
    int64_t gap_frontier
    int64_t jump_from            # a datagram beyond the window: the first of its run
    int64_t interval
    int64_t wait_ns
    bint wait_auto               # wait_ns follows the lines
    int64_t silence_ns           # a message whose rest does not come is given up after this long
    uint32_t decided_reason      # GapReason
    bint finishing               # input ended: latest_run is suspended
    bint latest_run              # on_gap
    bint silent                  # the channel is: a gap of no number is to be said
    const int64_t* late_ns       # the pipeline's
    bint slab_shared
    Slab* slab                   # Roq's windows have one each, others share one
    Early* early
    uint8_t* scratch             # MESSAGE_SIZE_MAX: the message at `next`, in its final place
    Fragment* fragments
    uint32_t fragments_capacity
    uint64_t fragments_head      # positions in the ring of fragments; they only grow
    uint64_t fragments_tail
    int64_t named                # the furthest that a heartbeat named as the next one
    NamedQueue names             # when heartbeats named which, while what lies before is missing

cdef struct Numbering:           # the current one; what every datagram asks of it is the window's
    int64_t base                 # its first key
    int64_t origin               # ... and of all that it resumed
    int64_t begun_ns
    int64_t resumed_at           # what follows the last gap
    int64_t fork_from            # first seqno of the gaps since which little came in one piece
    int64_t ended_at             # its sender said that it ends before this seqno
    int64_t fork_came            # what was delivered between these gaps
    int64_t pace_at              # the seqno that ends the messages which are being timed
    int64_t pace_from
    int64_t pace_from_ns
    int64_t pace_ns              # the longest of late that WINDOW_PACE messages took
    uint32_t pace_left           # not Roq: so many datagrams end them
    bint pace_known              # not Roq: a pace was measured
    int64_t marks[16]            # PACE_MARKS; not Roq: the furthest seqno, each WINDOW_PACE
    uint32_t marked              # datagrams, in a ring; so many were set
    bint each_datagram           # Roq: each datagram takes a number, or a part of one
    int64_t opening_ns           # a session that is proven begins by then; INT64_MAX: none waits
    # the numbering before a restart with the same id: its stragglers must not look like a jump
    uint64_t previous_next
    int64_t previous_until_ns
    Sessions* sessions           # Roq's two windows share one
    Window* follower             # Roq's snapshot window, which has the sessions of this one
    bint follows                 # this is one

cdef struct Window:
    # what every datagram reads: two cache lines, of as many windows as there are streams
    int64_t next                 # the key to deliver next
    int64_t mask                 # of slots: 2 * size - 1
    uint64_t session_id          # as published; of Roq's snapshot window that of the other one
    uint64_t zero                # a number less its key; of 32 bits: the 0 of its first circle
    uint32_t pending             # messages that wait, whole or partial
    uint16_t stream              # ordinal, as records carry it
    uint16_t session             # ordinal, as records carry it
    bint has_runs                # some line may have a run: what is next is weighed, too
    bint started                 # `next` is set: this numbering's first datagram came
    bint several                 # more than one line
    bint connected               # CONNECTION READY was said
    uint8_t channel              # whose lines
    uint8_t shift                # as a Run's
    Slot* slots
    int64_t* counters            # of core/counter's ChannelCounter
    int64_t milestone            # from this seqno on, pace_pass_milestone has something to do
    int64_t settled              # losses are counted of what lies before
    int64_t forward_ns           # when this numbering last went on, on any line
    int64_t begun_sent_ns        # when its first unit was sent
    int64_t sent_ns              # the latest sending time of what was accepted
    int64_t size                 # messages that may wait, and that are remembered
    uint32_t lines
    uint32_t owing               # bit n: line n is to bring every message
    uint32_t stream_key          # what the publisher calls the stream
    int64_t settle_until         # what was delivered by settle_ns
    int64_t settle_ns
    int64_t line_dead_ns
    int64_t pause_ns             # of a pause of all lines so much counts as silence of each
    bint busy                    # in the pipeline's list of those to look at in take()
    Window* busy_next
    ControlQueue* controls
    Waiting waiting
    Numbering numbering
    Known known
    Packing packing
    LineAccount line[8]          # LINES_MAX


cdef inline uint64_t window_number(const Window* w, int64_t key) noexcept nogil:
    # As records carry it: the publisher's, and on beyond its wraps.
    return <uint64_t>key - w.zero


cdef inline int64_t window_unwrap(const Window* w, uint64_t number) noexcept nogil:
    cdef int64_t step = number_step(number, window_number(w, w.next), w.shift)
    # Beyond 2^40 all is equally far. (A constant of 64 bits would widen its whole enumeration.)
    if unlikely(step > <int64_t>1 << 40):
        step = <int64_t>1 << 40
    elif unlikely(step < -(<int64_t>1 << 40)):
        step = -(<int64_t>1 << 40)
    return w.next + step


cdef inline void slot_deliver(Slot* slot, const Datagram* d, uint32_t object) noexcept nogil:
    # All but key and hash of a message that is delivered at once.
    slot.received_ns = d.received_ns
    slot.fragments = FRAGMENTS_NONE
    slot.cell = object
    slot.state = SLOT_DELIVERED
    slot.fragment_max = 0
    slot.line = d.line
    slot.lines = <uint8_t>(1 << d.line)


cdef inline Slot* window_slot(Window* w, int64_t key) noexcept nogil:
    return &w.slots[key & w.mask]


cdef inline Early* window_early(Window* w, int64_t key) noexcept nogil:
    return &w.waiting.early[key & (w.mask >> 1)]


cdef inline int64_t window_furthest(const Window* w) noexcept nogil:
    # The furthest seqno that was accepted.
    return w.waiting.highest if w.pending else w.next - 1


cdef inline void window_begin(Window* w, uint64_t number, int64_t now_ns) noexcept nogil:
    # The first unit of a numbering sets its base.
    w.numbering.base = (((w.next >> 32) + 4) << 32) | <uint32_t>number
    w.zero = <uint64_t>w.numbering.base - number
    w.next = w.numbering.base
    w.numbering.origin = w.numbering.base
    w.waiting.named = w.numbering.base
    w.waiting.names.count = 0
    w.begun_sent_ns = 0
    w.sent_ns = 0
    w.waiting.decided = w.numbering.base
    w.waiting.decide_frontier = 0
    w.waiting.gap_frontier = 0
    w.numbering.resumed_at = w.numbering.base
    w.numbering.fork_from = w.numbering.base
    w.numbering.fork_came = 0
    w.milestone = w.numbering.base
    w.known.start_end = w.numbering.base + WINDOW_START
    w.known.start_known = 0
    w.numbering.pace_at = w.numbering.base + WINDOW_PACE if w.numbering.each_datagram else INT64_MAX
    w.numbering.pace_left = WINDOW_PACE + 1        # the first one begins them
    w.numbering.pace_known = False
    w.numbering.marked = 0
    w.numbering.pace_from = w.numbering.base
    w.numbering.pace_from_ns = now_ns
    w.numbering.pace_ns = 0
    w.settled = w.numbering.base
    w.settle_until = w.numbering.base
    w.numbering.begun_ns = now_ns
    w.forward_ns = now_ns
    w.started = True
    w.waiting.finishing = False


cdef inline int64_t window_span(const Window* w, int64_t datagrams) noexcept nogil:
    # How many numbers so many datagrams of this stream may take.
    return datagrams * w.packing.wide


cdef inline void line_reset(LineAccount* line) noexcept nogil:
    # Another numbering begins.
    line.highest = INT64_MIN
    line.part_of = INT64_MIN
    line.lagged_ns = INT64_MIN
    line.named = INT64_MIN
    line.excused_ns = INT64_MIN
    line.sent_ns = 0


cdef inline void line_init(
    LineAccount* line, int64_t* counters, uint8_t shift, const Packing* packing,
) noexcept nogil:
    line.counters = counters
    line.run.shift = shift
    line.foreign.shift = shift
    line.run.packing = packing
    line.foreign.packing = packing
    line.heard_ns = INT64_MIN
    line.lag_ns = 0
    line_reset(line)
    run_forget(&line.run)
    run_forget(&line.foreign)
