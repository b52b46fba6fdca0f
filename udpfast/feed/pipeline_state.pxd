# What a pipeline is: its settings, its memory, how it is created, and the few verbs that its
# stages share. What becomes of a unit is in `pipeline`.

from libc.errno cimport EINVAL
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.core.counter cimport FEED_CONTROLS_FULL, Counters
from udpfast.core.keyed cimport Key, keyed_draw
from udpfast.core.layout cimport (
    CHANNEL_COUNT, CHANNEL_INCREMENTAL, CHANNEL_SNAPSHOT, DATAGRAM_SIZE_MAX, FRAGMENT_SIZE,
    LINES_MAX, MESSAGE_SIZE_MAX, Datagram, Gap, Message,
)
from udpfast.feed.control cimport CONTROLS, Control, ControlQueue
from udpfast.feed.fingerprint cimport message_hash
from udpfast.feed.pieces cimport PLACES_MAX, piece_next, pieces_begin
from udpfast.feed.proof cimport Proof, proofs_fill
from udpfast.feed.run cimport NUMBERS_WITHOUT_ZERO, RUN_KEPT, KeptUnit
from udpfast.feed.session cimport Sessions
from udpfast.feed.slab cimport Slab, carve, slab_reset
from udpfast.feed.window_state cimport Early, Fragment, LineAccount, Slot, Window, line_init
from udpfast.wire.frame cimport FrameReader, frame_reader_init
from udpfast.wire.framing cimport (
    FRAMING_ROQ, FRAMING_ROQ_BIG, FRAMING_ROQ_LEGACY, FRAMING_ROQ_LEGACY_BIG,
)
from udpfast.wire.messages cimport MessageWalk
from udpfast.wire.unit cimport UNITS_MAX, Unit

cdef enum:
    STREAMS_MAX = 4096
    # The longest datagram of a framing other than Roq: what a slot of net/datagram holds, a frame
    # of 1,500 bytes and more. A longer one is refused.
    UNIT_DATAGRAM_MAX = 4160
    # An eighth: of a stream so thin that each of its messages follows a pause, a line is dead that
    # brought none of eight.
    LINE_PAUSE_SHIFT = 3

cdef struct PipelineSettings:
    int framing                          # FramingId
    uint32_t number_bits                 # as its facts say
    bint skips_zero                      # as its facts say: 1 follows the highest number
    bint awaits_start                    # what its first numbers say is not said again
    bint each_message                    # its numbers count messages,
    bint undelimited                     # which do not say where they end
    bint announces_start                 # a start of a session comes with its sending time
    uint64_t encodings                   # bit n: encoding n of Roq may be delivered
    uint32_t streams                     # that may be found on the lines, Roq's two aside
    int address_shift                    # as its facts say
    uint32_t lines[2]                    # CHANNEL_COUNT: 1..8, 0..8
    bint served[2]                       # the last of them brings what servers are asked for
    uint32_t window                      # messages per stream, a power of two
    uint32_t slab_cells                  # that may wait: per channel of Roq, else of all streams
    uint32_t out_of_order_max_interval[2]   # per channel: numbers, 1..window
    int64_t lost_packet_wait_ns[2]
    bint lost_packet_wait_auto[2]        # no less than that: as long as lines are behind
    uint32_t on_gap                      # 0 keep_all, 1 latest_run
    uint32_t session_adopt_datagrams     # 1..32
    int64_t stale_session_grace_ns
    uint32_t restart_datagrams           # 1..256; 0: no restart with the same id (PROOF_BACK)
    int64_t inactivity_timeout_ns
    bint doubt_when_silent       # a silent incremental channel is a gap of no number
    int64_t line_dead_ns
    uint32_t controls            # of the feed's own words that may wait, a power of two

cdef struct Carrier:             # what all streams of a channel share: its lines
    bint connected               # CONNECTION READY was said
    bint silent                  # CONNECTION DISCONNECTED was said,
    int64_t heard_ns             # and when it was heard last before that
    uint32_t lines
    int served                   # the line of what servers are asked for; -1: none is
    uint32_t windows             # streams that it carries
    int64_t silent_since_ns[8]   # LINES_MAX; it is silent, and that was said; INT64_MIN: it is not
    int64_t* counters            # of core/counter's ChannelCounter

cdef struct StreamSlot:
    uint64_t key                 # channel, and what the publisher calls the stream
    Window* window               # NULL: free

cdef struct Refused:             # what came of streams without a window, and was not said yet
    uint64_t count               # messages
    uint64_t number              # of the newest unit,
    uint64_t last                # its last number,
    uint32_t stream_key          # its stream,
    uint8_t channel              # and what brought it
    uint8_t line
    int64_t received_ns
    int64_t due_ns               # the next time it may be said

cdef struct Pipeline:
    const Datagram* ready        # next in order and whole: its own memory is the message
    Window* ready_window
    bint roq
    bint legacy                  # of Roq, the older revision
    Window* busy                 # those with something to look at in take(), in their order
    Window* busy_last
    Window* window               # all of them
    uint32_t windows
    Proof proofs[9]              # PROOF_ROWS
    uint16_t session             # ordinal of the latest one
    bint watching                # watch_ns is set
    int64_t now_ns
    int64_t late_ns              # what is accepted came so much later than now_ns, at most
    int64_t received_ns          # of the latest datagram: the UNIX time of what the feed says
    # what is ready of a unit with several messages
    const Unit* unit
    uint32_t* places             # PLACES_MAX: where each is,
    bint ready_placed            # if each says its length
    uint32_t ready_first         # which of them is the first one,
    uint32_t ready_piece         # which one is next,
    uint64_t ready_number        # the first one's number,
    uint64_t ready_step          # and how far each is from the one before
    # other framings than Roq
    int framing
    bint each_message
    bint awaits_start
    bint undelimited
    bint announces_start
    int address_shift            # where in a stream's key the place of its address is; -1: nowhere
    uint32_t streams
    uint32_t streams_max
    uint32_t slots_mask
    StreamSlot* slots
    StreamSlot* latest           # that was asked for
    uint32_t asked               # windows that were asked to give way, from the first one on
    Refused refused
    Key key
    Unit* units                  # UNITS_MAX
    Unit* kept_units             # UNITS_MAX: of a datagram that was kept
    uint64_t datagram            # which one is judged now
    int64_t interval[2]          # of each channel's streams
    int64_t wait_ns[2]
    bint wait_auto[2]
    int64_t wait_due_ns          # waits are chosen again
    int64_t watch_ns             # first call: inactivity counts from there
    int64_t inactivity_ns
    bint doubt_when_silent
    int64_t silence_due_ns       # no line or channel falls silent, or speaks again, before
    const Datagram* parked       # waits until take() has made room
    Window* parked_window
    Unit parked_unit
    uint32_t parked_piece        # from this one on
    int64_t parked_at            # its key
    Gap gap                      # payload of the GAP that was taken last
    Counters counters
    FrameReader reader
    Carrier carrier[2]           # CHANNEL_COUNT
    Slab slab[2]                 # CHANNEL_COUNT; but for Roq the first one is all streams'
    ControlQueue controls


# --- creation -----------------------------------------------------------------------------------

cdef inline void pipeline_settings_default(PipelineSettings* s) noexcept nogil:
    cdef int channel
    memset(s, 0, sizeof(PipelineSettings))
    s.framing = FRAMING_ROQ
    s.number_bits = 32
    s.address_shift = -1
    s.encodings = (1 << 1) | (1 << 2)    # native, FlatBuffers
    s.window = 8192                      # 5 ms between lines at a million messages a second
    s.slab_cells = 16384
    for channel in range(CHANNEL_COUNT):
        s.lines[channel] = 1
        s.out_of_order_max_interval[channel] = 8192
        s.lost_packet_wait_ns[channel] = 5000000
    s.session_adopt_datagrams = 2
    # Two hours, so that a capture of the hour before cannot bring its session back.
    s.stale_session_grace_ns = 7200 * <int64_t>1000000000
    s.restart_datagrams = 32
    s.inactivity_timeout_ns = 10 * <int64_t>1000000000
    s.line_dead_ns = 100000000           # twice the largest skew between lines that is foreseen
    s.controls = CONTROLS


cdef inline bint framing_is_roq(int framing) noexcept nogil:
    return framing <= FRAMING_ROQ_LEGACY_BIG     # the first ones of the list


cdef inline uint32_t pipeline_windows(const PipelineSettings* s) noexcept nogil:
    return CHANNEL_COUNT if framing_is_roq(s.framing) else s.streams


cdef inline size_t pipeline_carve(
    Pipeline* p, const PipelineSettings* s, uint8_t* memory,
) noexcept nogil:
    # Lay the arrays into `memory`; with NULL only measure. The windows come first.
    cdef bint roq = framing_is_roq(s.framing)
    cdef size_t used = 0
    cdef uint32_t windows = pipeline_windows(s)
    cdef uint32_t slots = 16
    cdef uint32_t slabs = CHANNEL_COUNT if roq else 1
    cdef uint32_t cell = FRAGMENT_SIZE if roq else UNIT_DATAGRAM_MAX
    cdef uint32_t i
    cdef uint8_t* scratch = NULL
    cdef Window unused
    cdef Window* w
    while slots < 2 * windows:
        slots *= 2
    p.window = <Window*>carve(memory, &used, windows * sizeof(Window))
    p.units = <Unit*>carve(memory, &used, UNITS_MAX * sizeof(Unit))
    p.kept_units = <Unit*>carve(memory, &used, UNITS_MAX * sizeof(Unit))
    p.places = <uint32_t*>carve(memory, &used, PLACES_MAX * sizeof(uint32_t))
    p.slots = <StreamSlot*>carve(memory, &used, slots * sizeof(StreamSlot))
    p.slots_mask = slots - 1
    p.controls.control = <Control*>carve(memory, &used, s.controls * sizeof(Control))
    p.controls.mask = s.controls - 1
    for i in range(slabs):
        p.slab[i].free = <uint32_t*>carve(memory, &used, s.slab_cells * sizeof(uint32_t))
        p.slab[i].cells = <uint8_t*>carve(memory, &used, <size_t>s.slab_cells * cell)
        p.slab[i].capacity = s.slab_cells
        p.slab[i].cell_size = cell
    if not roq:
        scratch = <uint8_t*>carve(memory, &used, UNIT_DATAGRAM_MAX)
    for i in range(windows):
        w = &p.window[i] if memory != NULL else &unused
        window_carve(p, w, s, i, memory, &used, scratch)
    return used


cdef inline void window_carve(
    Pipeline* p, Window* w, const PipelineSettings* s, uint32_t i, uint8_t* memory, size_t* used,
    uint8_t* scratch,
) noexcept nogil:
    # The arrays of one window, the i-th.
    cdef bint roq = framing_is_roq(s.framing)
    cdef uint32_t fragments = 2 * s.slab_cells + 1024 if roq else 0
    cdef uint32_t datagram = DATAGRAM_SIZE_MAX if roq else UNIT_DATAGRAM_MAX
    cdef uint32_t stride = (sizeof(KeptUnit) + datagram + 7) & ~<uint32_t>7
    cdef uint32_t kept = max(<uint32_t>RUN_KEPT, 2 * s.restart_datagrams)
    cdef uint32_t lines = LINES_MAX if roq else max(s.lines[0], s.lines[1])
    cdef uint8_t* place
    cdef LineAccount* line
    cdef uint32_t n
    w.numbering.sessions = <Sessions*>carve(memory, used, sizeof(Sessions))
    w.slots = <Slot*>carve(memory, used, 2 * <size_t>s.window * sizeof(Slot))
    w.waiting.early = <Early*>carve(memory, used, s.window * sizeof(Early))
    w.waiting.fragments = <Fragment*>carve(memory, used, fragments * sizeof(Fragment))
    w.waiting.fragments_capacity = fragments
    w.waiting.scratch = <uint8_t*>carve(memory, used, MESSAGE_SIZE_MAX) if roq else scratch
    w.waiting.late_ns = &p.late_ns
    w.waiting.slab = &p.slab[i if roq else 0]
    w.waiting.slab_shared = not roq
    for n in range(2 * lines):
        line = &w.line[n >> 1]
        place = <uint8_t*>carve(memory, used, <size_t>kept * stride)
        if n & 1:
            line.foreign.kept = place
            line.foreign.kept_capacity = kept
            line.foreign.kept_stride = stride
        else:
            line.run.kept = place
            line.run.kept_capacity = kept
            line.run.kept_stride = stride


cdef inline size_t pipeline_memory_size(const PipelineSettings* s) noexcept nogil:
    cdef Pipeline measured
    return pipeline_carve(&measured, s, NULL)


cdef inline int pipeline_init(
    Pipeline* p, const PipelineSettings* s, void* memory, size_t size, Counters* counters,
) noexcept nogil:
    # `memory` must be aligned to 64 bytes and outlive the pipeline; it is cleared here, which
    # faults every page in. 0 or -EINVAL.
    cdef int i, channel
    if size < pipeline_memory_size(s) or s.window & (s.window - 1) or s.window == 0:
        return -EINVAL
    if pipeline_windows(s) == 0 or s.streams > STREAMS_MAX:
        return -EINVAL
    memset(p, 0, sizeof(Pipeline))
    memset(memory, 0, size)
    pipeline_carve(p, s, <uint8_t*>memory)
    p.counters = counters[0]
    p.controls.lost = &p.counters.feed[FEED_CONTROLS_FULL]
    p.roq = framing_is_roq(s.framing)
    p.framing = s.framing
    p.legacy = s.framing == FRAMING_ROQ_LEGACY or s.framing == FRAMING_ROQ_LEGACY_BIG
    p.each_message = s.each_message
    p.awaits_start = s.awaits_start
    p.undelimited = s.undelimited
    p.announces_start = s.announces_start
    p.address_shift = s.address_shift
    p.streams_max = s.streams
    p.latest = p.slots
    keyed_draw(&p.key)
    proofs_fill(p.proofs, s.session_adopt_datagrams, s.restart_datagrams)
    p.inactivity_ns = s.inactivity_timeout_ns
    p.doubt_when_silent = s.doubt_when_silent
    frame_reader_init(
        &p.reader, p.legacy, s.framing == FRAMING_ROQ_BIG or s.framing == FRAMING_ROQ_LEGACY_BIG,
        s.encodings)
    for channel in range(CHANNEL_COUNT):
        p.carrier[channel].lines = s.lines[channel]
        p.carrier[channel].served = <int>s.lines[channel] - 1 if s.served[channel] else -1
        p.carrier[channel].counters = counters.channel[channel]
        for i in range(LINES_MAX):
            p.carrier[channel].silent_since_ns[i] = INT64_MIN
        slab_reset(&p.slab[channel])
    for i in range(<int>pipeline_windows(s)):
        window_init(p, &p.window[i], s)
    # A stream takes what its channel has: the settings are kept where it finds them.
    for channel in range(CHANNEL_COUNT):
        p.interval[channel] = s.out_of_order_max_interval[channel]
        p.wait_ns[channel] = s.lost_packet_wait_ns[channel]
        p.wait_auto[channel] = s.lost_packet_wait_auto[channel]
    if p.roq:
        for channel in range(CHANNEL_COUNT):
            window_open(p, channel, <uint16_t>channel, 0)
        p.window[CHANNEL_SNAPSHOT].numbering.sessions = (
            p.window[CHANNEL_INCREMENTAL].numbering.sessions)
        p.window[CHANNEL_SNAPSHOT].numbering.follows = True
        p.window[CHANNEL_INCREMENTAL].numbering.follower = &p.window[CHANNEL_SNAPSHOT]
    return 0


cdef inline void window_init(
    Pipeline* p, Window* w, const PipelineSettings* s,
) noexcept nogil:
    # What is the same for whichever stream gets it.
    w.shift = NUMBERS_WITHOUT_ZERO if s.skips_zero else <uint8_t>(64 - s.number_bits)
    w.numbering.sessions.shift = w.shift
    w.numbering.sessions.grace_ns = s.stale_session_grace_ns
    w.size = s.window
    w.numbering.each_datagram = p.roq
    w.mask = 2 * <int64_t>s.window - 1
    w.line_dead_ns = s.line_dead_ns
    w.pause_ns = s.line_dead_ns >> LINE_PAUSE_SHIFT
    w.numbering.opening_ns = INT64_MAX
    w.waiting.silence_ns = s.inactivity_timeout_ns if s.inactivity_timeout_ns else INT64_MAX
    w.waiting.latest_run = s.on_gap == 1
    w.controls = &p.controls


cdef inline void pipeline_begin_at(Pipeline* p, uint16_t session) noexcept nogil:
    # Sessions before had ordinals up to this one.
    cdef uint32_t i
    p.session = session
    for i in range(p.windows):
        p.window[i].session = session


cdef inline Window* window_open(
    Pipeline* p, uint32_t channel, uint16_t stream, uint32_t stream_key,
) noexcept nogil:
    # The next window, for a stream of this channel.
    p.windows += 1
    window_give(p, &p.window[p.windows - 1], channel, stream, stream_key)
    return &p.window[p.windows - 1]


cdef inline void window_give(
    Pipeline* p, Window* w, uint32_t channel, uint16_t stream, uint32_t stream_key,
) noexcept nogil:
    # A window to a stream of this channel.
    cdef int i
    p.carrier[channel].windows += 1
    w.channel = <uint8_t>channel
    w.stream = stream
    w.stream_key = stream_key
    w.session = p.session
    w.lines = p.carrier[channel].lines
    w.several = w.lines > 1
    w.owing = (<uint32_t>1 << w.lines) - 1
    if p.carrier[channel].served >= 0:
        w.owing >>= 1
    w.waiting.interval = p.interval[channel]
    w.waiting.wait_ns = p.wait_ns[channel]
    w.waiting.wait_auto = p.wait_auto[channel]
    w.connected = p.carrier[channel].connected
    w.packing.wide = 1
    w.counters = p.counters.channel[channel]
    for i in range(LINES_MAX):
        line_init(&w.line[i], p.counters.line[channel][i], w.shift, &w.packing)


# --- what every stage needs -----------------------------------------------------------------------

cdef inline uint32_t pipeline_hash(
    const Pipeline* p, const Window* w, const Datagram* d, const Unit* unit,
) noexcept nogil:
    # A unit's bytes are hashed; of Roq the header, too, which says whose message it is.
    cdef const uint8_t* data = d.data
    cdef uint32_t size = d.size
    if not p.roq:
        data += unit.offset
        size = unit.size
    return message_hash(data, size, w.several)


cdef inline uint32_t pipeline_first_hash(
    Pipeline* p, Window* w, const Datagram* d, const Unit* unit,
) noexcept nogil:
    # The hash of the first message of a unit, or of its only one.
    cdef Unit piece
    cdef MessageWalk walk
    if not p.each_message:
        return pipeline_hash(p, w, d, unit)
    pieces_begin(&walk, d, unit)
    piece_next(&walk, unit, 0, True, &piece)
    return pipeline_hash(p, w, d, &piece)


cdef inline void pipeline_look(Pipeline* p, Window* w) noexcept nogil:
    # take() has something to look at there.
    if w.busy:
        return
    w.busy = True
    w.busy_next = NULL
    if p.busy == NULL:
        p.busy = w
    else:
        p.busy_last.busy_next = w
    p.busy_last = w
