# What a pipeline is: its settings, its memory, how it is created, and the few verbs that its
# stages share. What becomes of a datagram is in `pipeline`.

from libc.errno cimport EINVAL
from libc.stdint cimport int64_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport unlikely
from udpfast.core.counter cimport CHANNEL_READY, Counters
from udpfast.core.layout cimport (
    CHANNEL_COUNT, CHANNEL_INCREMENTAL, CONNECTION_CHANNEL, CONNECTION_READY, KIND_CONNECTION,
    LINES_MAX, MESSAGE_SIZE_MAX, Datagram, Frame, Gap,
)
from udpfast.feed.candidate cimport CANDIDATE_HELD, HeldDatagram
from udpfast.feed.control cimport Control, ControlQueue, control_push
from udpfast.feed.fingerprint cimport fingerprint, fingerprint_edges
from udpfast.feed.frame cimport FrameReader, frame_reader_init
from udpfast.feed.line cimport Line, line_init
from udpfast.feed.session cimport SessionBook
from udpfast.feed.slab cimport carve, slab_reset
from udpfast.feed.window cimport Early, Fragment, Slot, Window

cdef struct PipelineSettings:
    uint32_t revision                    # Revision: 0 current, 1 legacy
    bint big_endian
    uint64_t encodings                   # bit n: encoding n may be delivered
    uint32_t lines_incremental           # 1..8
    uint32_t lines_snapshot              # 0..8
    uint32_t window                      # messages per channel, a power of two
    uint32_t slab_cells                  # fragments that may wait, per channel
    uint32_t out_of_order_max_interval   # messages, 1..window
    int64_t lost_packet_wait_ns
    uint32_t on_gap                      # 0 keep_all, 1 latest_run
    uint32_t session_adopt_datagrams     # 1..32
    int64_t stale_session_grace_ns
    uint32_t restart_datagrams           # 2..256; 0: never believe a restart with the same id
    int64_t inactivity_timeout_ns
    int64_t line_dead_ns

cdef struct Pipeline:
    const Datagram* ready        # next in order and whole: its own memory is the message
    Frame frame                  # of `ready`
    uint32_t busy                # bit mask: channels with something to look at in take()
    uint32_t adopt_datagrams
    uint32_t restart_datagrams
    bint watching                # watch_ns is set
    int64_t now_ns
    int64_t received_ns          # of the latest datagram: the UNIX time of what the feed says
    int64_t watch_ns             # first call: inactivity counts from there
    int64_t inactivity_ns
    int64_t silence_due_ns       # no line or channel falls silent, or speaks again, before
    const Datagram* parked       # waits until take() has made room
    Frame parked_frame
    int64_t parked_at
    uint32_t parked_hash
    Gap gap                      # payload of the GAP that was taken last
    Counters counters
    FrameReader reader
    SessionBook book
    ControlQueue controls
    Window window[2]             # CHANNEL_COUNT


# --- creation -----------------------------------------------------------------------------------

cdef inline void pipeline_settings_default(PipelineSettings* s) noexcept nogil:
    memset(s, 0, sizeof(PipelineSettings))
    s.encodings = (1 << 1) | (1 << 2)    # native, FlatBuffers
    s.lines_incremental = 1
    s.lines_snapshot = 1
    s.window = 8192                      # 5 ms between lines at a million messages a second
    s.slab_cells = 16384
    s.out_of_order_max_interval = 8192
    s.lost_packet_wait_ns = 5000000
    s.session_adopt_datagrams = 2
    # Two hours, so that a capture of the hour before cannot bring its session back.
    s.stale_session_grace_ns = 7200 * <int64_t>1000000000
    s.restart_datagrams = 32
    s.inactivity_timeout_ns = 10 * <int64_t>1000000000
    s.line_dead_ns = 100000000           # twice the largest skew between lines that is foreseen


cdef inline size_t pipeline_carve(
    Pipeline* p, const PipelineSettings* s, uint8_t* memory,
) noexcept nogil:
    # Lay the windows' arrays into `memory`; with NULL only measure.
    cdef size_t used = 0
    cdef uint32_t fragments = 2 * s.slab_cells + 1024
    cdef uint32_t held = CANDIDATE_HELD
    cdef int channel, i
    cdef Window* w
    if 2 * s.restart_datagrams > held:
        held = 2 * s.restart_datagrams
    for channel in range(CHANNEL_COUNT):
        w = &p.window[channel]
        w.slots = <Slot*>carve(memory, &used, 2 * <size_t>s.window * sizeof(Slot))
        w.early = <Early*>carve(memory, &used, s.window * sizeof(Early))
        w.fragments = <Fragment*>carve(memory, &used, fragments * sizeof(Fragment))
        w.fragments_capacity = fragments
        w.scratch = <uint8_t*>carve(memory, &used, MESSAGE_SIZE_MAX)
        w.slab.free = <uint32_t*>carve(memory, &used, s.slab_cells * sizeof(uint32_t))
        w.slab.cells = <uint8_t*>carve(memory, &used, <size_t>s.slab_cells * 512)
        w.slab.capacity = s.slab_cells
        for i in range(LINES_MAX):
            w.line[i].candidate.held = <HeldDatagram*>carve(
                memory, &used, held * sizeof(HeldDatagram))
            w.line[i].candidate.held_capacity = held
            w.line[i].foreign.held = <HeldDatagram*>carve(
                memory, &used, held * sizeof(HeldDatagram))
            w.line[i].foreign.held_capacity = held
    return used


cdef inline size_t pipeline_memory_size(const PipelineSettings* s) noexcept nogil:
    cdef Pipeline measured
    return pipeline_carve(&measured, s, NULL)


cdef inline int pipeline_init(
    Pipeline* p, const PipelineSettings* s, void* memory, size_t size, Counters* counters,
) noexcept nogil:
    # `memory` must be aligned to 64 bytes and outlive the pipeline; it is cleared here, which
    # faults every page in. 0 or -EINVAL.
    cdef int channel, i
    cdef Window* w
    if size < pipeline_memory_size(s) or s.window & (s.window - 1) or s.window == 0:
        return -EINVAL
    memset(p, 0, sizeof(Pipeline))
    memset(memory, 0, size)
    pipeline_carve(p, s, <uint8_t*>memory)
    p.counters = counters[0]
    p.adopt_datagrams = s.session_adopt_datagrams
    p.restart_datagrams = s.restart_datagrams
    p.inactivity_ns = s.inactivity_timeout_ns
    p.book.grace_ns = s.stale_session_grace_ns
    frame_reader_init(&p.reader, <int>s.revision, s.big_endian, s.encodings)
    for channel in range(CHANNEL_COUNT):
        w = &p.window[channel]
        w.channel = <uint8_t>channel
        w.lines = s.lines_incremental if channel == CHANNEL_INCREMENTAL else s.lines_snapshot
        w.several = w.lines > 1
        w.size = s.window
        w.mask = 2 * <int64_t>s.window - 1
        w.interval = s.out_of_order_max_interval
        w.wait_ns = s.lost_packet_wait_ns
        w.line_dead_ns = s.line_dead_ns
        w.latest_run = s.on_gap == 1
        w.counters = counters.channel[channel]
        w.controls = &p.controls
        w.reader = &p.reader
        slab_reset(&w.slab)
        for i in range(LINES_MAX):
            line_init(&w.line[i], counters.line[channel][i])
    return 0


# --- what every stage needs -----------------------------------------------------------------------

cdef inline uint32_t pipeline_hash(const Window* w, const Datagram* d) noexcept nogil:
    # One line alone needs to know its past again; several must agree in every byte.
    return fingerprint(d.data, d.size) if w.several else fingerprint_edges(d.data, d.size)


cdef inline void pipeline_hear(Pipeline* p, Window* w, Line* line, int64_t now_ns) noexcept nogil:
    # A sign of life of this line, hence of its channel.
    if unlikely(not w.connected):
        w.connected = True
        w.silent = False
        counter_add(&w.counters[CHANNEL_READY], 1)
        pipeline_watch(p, now_ns)
        pipeline_say_connection(
            p, w, CONNECTION_READY, CONNECTION_CHANNEL, 0, pipeline_silent_ns(p, w, now_ns))
    line.heard_ns = now_ns


cdef inline void pipeline_watch(Pipeline* p, int64_t now_ns) noexcept nogil:
    if not p.watching:
        p.watching = True
        p.watch_ns = now_ns


cdef inline int64_t pipeline_silent_ns(Pipeline* p, const Window* w, int64_t now_ns) noexcept nogil:
    # How long nothing of this channel has been heard.
    cdef int64_t heard_ns = p.watch_ns
    cdef uint32_t i
    for i in range(w.lines):
        if w.line[i].heard_ns > heard_ns:
            heard_ns = w.line[i].heard_ns
    return now_ns - heard_ns


cdef inline void pipeline_say_connection(
    Pipeline* p, Window* w, uint32_t status, uint32_t scope, uint32_t line, int64_t silent_ns,
) noexcept nogil:
    cdef Control* control = control_push(&p.controls)
    if control == NULL:
        return
    control.kind = KIND_CONNECTION
    control.channel = w.channel
    control.line = <uint8_t>line
    control.received_ns = p.received_ns
    control.session_id = p.book.session_id
    control.session = w.session
    control.size = sizeof(control.payload.connection)
    control.payload.connection.status = status
    control.payload.connection.scope = scope
    control.payload.connection.silent_ns = silent_ns
