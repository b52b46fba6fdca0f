"""The feed for tests and conformance: datagrams in, messages in order out.

The C face in `pipeline.pxd` is what a subscriber runs without the GIL; `FeedPipeline` is the same
code behind Python objects, one datagram per call.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from typing import NamedTuple

from udpfast.core.counter cimport (
    CHANNEL_COUNTER_COUNT, FEED_COUNTER_COUNT, LINE_COUNTER_COUNT, Counters,
)
from udpfast.core.layout cimport (
    CHANNEL_COUNT, CHANNEL_INCREMENTAL, CHANNEL_SNAPSHOT, KIND_MESSAGE, LINES_MAX, Datagram,
    Message,
)
from udpfast.core.memory cimport Memory
from udpfast.feed.control cimport CONTROLS
from udpfast.feed.expiry cimport pipeline_expire, pipeline_finish
from udpfast.feed.lines cimport WAIT_MAX_NS
from udpfast.feed.pipeline_state cimport (
    STREAMS_MAX, Pipeline, PipelineSettings, pipeline_init, pipeline_memory_size,
    pipeline_settings_default,
)
from udpfast.feed.proof cimport PROOF_ROWS, Proof
from udpfast.feed.taking cimport pipeline_take
from udpfast.feed.units cimport pipeline_units
from udpfast.feed.window_state cimport LineAccount
from udpfast.wire.roq cimport roq_control

from udpfast.core.counter import CHANNEL_COUNTERS, LINE_COUNTERS
from udpfast.core.layout import Kind
from udpfast.errors import ConfigError
from udpfast.wire.facts import Numbers
from udpfast.wire.framing import Framing

__all__ = ["WAIT_MAX_US", "FeedMessage", "FeedPipeline"]

#: The longest wait of `lost_packet_wait_us = "auto"`.
WAIT_MAX_US: int = WAIT_MAX_NS // 1000

if sizeof(LineAccount) != 512:
    raise ImportError(f"LineAccount has {sizeof(LineAccount)} bytes, not 512")

_CHANNELS = ("incremental", "snapshot")
_REVISIONS = {"current": "roq", "legacy": "roq_legacy"}
_BYTEORDERS = {"little": "", "big": "_big"}
_ON_GAP = {"keep_all": 0, "latest_run": 1}


class FeedMessage(NamedTuple):
    """One thing that the feed hands out: a message, or what it says itself (`kind` GAP ..).

    Times are in ns. `payload` of a kind other than MESSAGE is the packed struct of core/layout
    (`CONTROL_DTYPES[kind]` reads it). `fragments` is 0 for the feed's own. What lies between
    `session_id` and `control` is Roq's; `number`, `session` and `stream` are as a record has them;
    what follows `payload` is of every other framing.
    """

    kind: Kind
    flags: int
    channel: int
    line: int
    session_id: int
    seqno: int
    last_seqno: int
    object_type: int
    object_id: int
    control: int
    fragments: int
    received_ns: int
    payload: bytes
    number: int = 0
    session: int = 0
    stream: int = 0
    sent_ns: int = 0
    object: int = 0
    detail: int = 0


_FEED_MESSAGE = tuple.__new__
_KINDS = {kind.value: kind for kind in Kind}


def _choice(str name, value, dict choices):
    if value not in choices:
        expected = " or ".join(repr(choice) for choice in choices)
        raise ConfigError(f"{name} must be {expected}, was {value!r}")
    return choices[value]


def _integer(str name, value, long long low, long long high):
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name} must be an integer from {low} to {high}, was {value!r}")
    return value


cdef void pipeline_settings_framing(PipelineSettings* s, framing) except *:
    # What a framing's facts say of its numbers.
    facts = framing.facts
    s.framing = framing.index
    s.number_bits = facts.number_bits
    s.skips_zero = facts.skips_zero
    s.undelimited = facts.undelimited
    s.announces_start = facts.announces_start
    s.address_shift = facts.address_shift
    s.each_message = facts.numbers is Numbers.MESSAGES


cdef uint64_t _encodings_mask(encodings) except? 0:
    cdef uint64_t mask = 0
    for encoding in encodings:
        mask |= <uint64_t>1 << _integer("encodings", encoding, 0, 63)
    return mask


@cython.final
cdef class FeedPipeline:
    """All streams of one feed, passive: nothing happens but by a call, and time is an argument.

    Parameters
    ----------
    framing
        How datagrams are made: `roq`, or another of `wire.framing.FRAMINGS`.
    revision, byteorder
        Of Roq: `current` or `legacy`, `little` or `big`.
    encodings
        Those that may be delivered, 0..63; a payload in any other is refused (and counted).
    lines_incremental, lines_snapshot
        Redundant copies of each channel, 1..8 (snapshot: 0..8).
    window
        Messages that may wait, and that are remembered, per stream: a power of two, 16..2^20.
    slab_cells
        Fragments that may wait, per channel; default: as many as the window has messages. Of
        other framings than Roq, messages of all streams together.
    streams
        Numberings that may be found on the lines, of other framings than Roq: 1..4096.
    out_of_order_max_interval
        A hole is lost when every live line is further than this ahead; default: the window.
    lost_packet_wait_ns
        A hole is lost when it was first seen this long ago.
    lost_packet_wait_auto
        It may be longer: as long as the slowest line is behind of late, and a quarter more.
    on_gap
        `keep_all`, or `latest_run` (only the most recent run without holes survives a gap).
    session_adopt_datagrams
        A new session id is believed after this many in a row on one line; 1 = at once.
    stale_session_grace_ns
        A session that is over is refused for this long.
    restart_datagrams
        A restart with the same id is believed after this many in a row; 0 = never.
    inactivity_timeout_ns
        A channel that is silent for this long is DISCONNECTED; 0 = never.
    line_dead_ns
        A line that is silent for this long is not waited for by the interval.
    doubt_when_silent
        A silent incremental channel puts all its streams in doubt: a GAP of no number of each.
    controls
        The feed's own words that may wait at once, a power of two, 1..2048: fewer only to test that
        none are lost.

    Raises
    ------
    ConfigError
        If a setting is wrong; says what was expected and what was found.
    """

    cdef Pipeline* _pipeline
    cdef Memory _memory          # malloc() would not take again what such a one gave back
    cdef int64_t* _counters
    cdef Datagram _datagram
    cdef object _data            # keeps the bytes alive that a message may point into
    cdef uint32_t _lines[2]
    cdef list _taken             # of units whose datagram has more behind them

    def __cinit__(
            self, *, framing: str = "roq", revision: str = "current", byteorder: str = "little",
            encodings: Iterable[int] = (1, 2), streams: int = 64, lines_incremental: int = 1,
            lines_snapshot: int = 1, window: int = 8192, slab_cells: int | None = None,
            out_of_order_max_interval: int | None = None, lost_packet_wait_ns: int = 5_000_000,
            lost_packet_wait_auto: bool = False, on_gap: str = "keep_all",
            session_adopt_datagrams: int = 2, stale_session_grace_ns: int = 7_200_000_000_000,
            restart_datagrams: int = 32, inactivity_timeout_ns: int = 10_000_000_000,
            line_dead_ns: int = 100_000_000, doubt_when_silent: bool = False,
            controls: int = 2048):
        cdef PipelineSettings s
        pipeline_settings_default(&s)
        name = _choice("revision", revision, _REVISIONS) + _choice(
            "byteorder", byteorder, _BYTEORDERS)
        wire = Framing(name if framing == "roq" else framing)
        pipeline_settings_framing(&s, wire)
        s.streams = _integer("streams", streams, 1, STREAMS_MAX)
        self._taken = []
        s.on_gap = _choice("on_gap", on_gap, _ON_GAP)
        s.encodings = _encodings_mask(encodings)
        s.lines[CHANNEL_INCREMENTAL] = _integer(
            "lines_incremental", lines_incremental, 1, LINES_MAX)
        s.lines[CHANNEL_SNAPSHOT] = _integer("lines_snapshot", lines_snapshot, 0, LINES_MAX)
        s.window = _integer("window", window, 16, 1 << 20)
        if s.window & (s.window - 1):
            raise ConfigError(f"window must be a power of two, was {window}")
        s.slab_cells = _integer(
            "slab_cells", max(window, 64) if slab_cells is None else slab_cells, 64, 1 << 22)
        for channel in range(CHANNEL_COUNT):
            s.out_of_order_max_interval[channel] = _integer(
                "out_of_order_max_interval",
                window if out_of_order_max_interval is None else out_of_order_max_interval,
                1, window)
            s.lost_packet_wait_ns[channel] = _integer(
                "lost_packet_wait_ns", lost_packet_wait_ns, 0, 1 << 60)
            s.lost_packet_wait_auto[channel] = bool(lost_packet_wait_auto)
        s.session_adopt_datagrams = _integer(
            "session_adopt_datagrams", session_adopt_datagrams, 1, 32)
        s.stale_session_grace_ns = _integer(
            "stale_session_grace_ns", stale_session_grace_ns, 0, 1 << 60)
        s.restart_datagrams = _integer("restart_datagrams", restart_datagrams, 0, 256)
        s.inactivity_timeout_ns = _integer(
            "inactivity_timeout_ns", inactivity_timeout_ns, 0, 1 << 60)
        s.line_dead_ns = _integer("line_dead_ns", line_dead_ns, 0, 1 << 60)
        s.doubt_when_silent = bool(doubt_when_silent)
        s.controls = _integer("controls", controls, 1, CONTROLS)
        self._create(&s)

    cdef void _create(self, PipelineSettings* s) except *:
        cdef Counters counters
        cdef size_t size = pipeline_memory_size(s)
        cdef int64_t* next_scope
        cdef int channel, line
        self._pipeline = <Pipeline*>calloc(1, sizeof(Pipeline))
        self._counters = <int64_t*>calloc(
            FEED_COUNTER_COUNT + 2 * (CHANNEL_COUNTER_COUNT + LINES_MAX * LINE_COUNTER_COUNT),
            sizeof(int64_t))
        if self._pipeline == NULL or self._counters == NULL:
            raise MemoryError
        self._memory = Memory(size)
        next_scope = self._counters
        counters.feed = next_scope
        next_scope += FEED_COUNTER_COUNT
        for channel in range(CHANNEL_COUNT):
            counters.channel[channel] = next_scope
            next_scope += CHANNEL_COUNTER_COUNT
            for line in range(LINES_MAX):
                counters.line[channel][line] = next_scope
                next_scope += LINE_COUNTER_COUNT
        self._lines[CHANNEL_INCREMENTAL] = s.lines[CHANNEL_INCREMENTAL]
        self._lines[CHANNEL_SNAPSHOT] = s.lines[CHANNEL_SNAPSHOT]
        pipeline_init(self._pipeline, s, self._memory.pointer, size, &counters)

    def __dealloc__(self):
        free(self._counters)
        free(self._pipeline)

    def accept(
            self, int channel, int line, bytes data not None, int64_t received_ns, int64_t now_ns,
            *, uint32_t flags=0, uint8_t address=0) -> int:
        """Take in one datagram; call `take` before the next.

        Of framings other than Roq it may hold several units.

        Parameters
        ----------
        channel, line
            Where it came from: 0 incremental, 1 snapshot; 0-based line.
        data
            Header and payload.
        received_ns
            UNIX ns of its receipt.
        now_ns
            Monotonic ns; may not go backwards.
        flags
            `DatagramFlag` bits of core/layout.
        address
            Place among the addresses of its line.

        Returns
        -------
        int
            The verdict: an index into `core.counter.VERDICTS`. Of several units, the last one's;
            -1: there is none, and the datagram's own is counted.
        """
        cdef int verdict = -1
        cdef int i
        if not 0 <= channel < CHANNEL_COUNT or not 0 <= line < <int>self._lines[channel]:
            raise ValueError(f"no line {line} of channel {channel} is configured")
        if self._pipeline.ready != NULL or self._pipeline.parked != NULL:
            raise RuntimeError("take() what the datagram before brought, then accept the next")
        self._data = data
        self._datagram.data = data
        self._datagram.size = <uint32_t>len(data)
        self._datagram.flags = flags
        self._datagram.received_ns = received_ns
        self._datagram.channel = <uint8_t>channel
        self._datagram.line = <uint8_t>line
        self._datagram.address = address
        if self._pipeline.roq:
            return pipeline_accept(self._pipeline, &self._datagram, now_ns)
        self._pipeline.now_ns = now_ns
        for i in range(pipeline_units(self._pipeline, &self._datagram)):
            if verdict >= 0:
                self._take()
            verdict = pipeline_order(
                self._pipeline, &self._datagram, &self._pipeline.units[i], now_ns)
        return verdict

    def take(self) -> list[FeedMessage]:
        """Return everything that is due, in order, as a list of `FeedMessage`."""
        self._take()
        taken, self._taken = self._taken, []
        return taken

    cdef _take(self):
        cdef Message m
        messages = self._taken
        while pipeline_take(self._pipeline, &m):
            roq = self._pipeline.roq or m.kind != KIND_MESSAGE
            # Keywords, and a call of an enum, would take three times as long.
            messages.append(_FEED_MESSAGE(FeedMessage, (
                _KINDS[m.kind], m.flags, m.channel, m.line,
                m.session_id if roq else 0, <uint32_t>m.number if roq else 0,
                <uint32_t>m.detail if roq else 0,
                m.object >> 16 if roq else 0, m.object & 0xFFFF if roq else 0,
                roq_control(&m) if roq else 0,
                m.fragments, m.received_ns,
                (<const char*>m.payload)[:m.size],
                m.number, m.session, m.stream,
                0 if self._pipeline.roq else m.sent_ns, m.object, m.detail)))

    def expire(self, int64_t now_ns) -> None:
        """Say that time has passed and nothing came; then `take`."""
        pipeline_expire(self._pipeline, now_ns)

    def finish(self, int64_t now_ns) -> None:
        """Say that the input ended: open holes become gaps (reason FINISH); then `take`."""
        pipeline_finish(self._pipeline, now_ns)

    def counters(self) -> dict[str, dict[str, int]]:
        """Return all counters: `{"incremental": {...}, "incremental.0": {...}, ...}`.

        `datagrams` and `bytes` of a line are the receiver's to count and stay 0 here; the sum of
        a line's verdicts is its calls to `accept` and, for those of several units, `units_more`.
        """
        cdef int channel, line, i
        cdef Counters* c = &self._pipeline.counters
        found = {}
        for channel in range(CHANNEL_COUNT):
            name = _CHANNELS[channel]
            found[name] = {
                CHANNEL_COUNTERS[i].name: c.channel[channel][i]
                for i in range(CHANNEL_COUNTER_COUNT)
            }
            for line in range(<int>self._lines[channel]):
                found[f"{name}.{line}"] = {
                    LINE_COUNTERS[i].name: c.line[channel][line][i]
                    for i in range(LINE_COUNTER_COUNT)
                }
        return found

    def set_proof(self, int row, str column, uint32_t value) -> None:
        """Change a cell of the table of proofs (`feed/proof.pxd`), to see that tests find it."""
        cdef Proof* proof
        if not 0 <= row < PROOF_ROWS:
            raise ValueError(f"row must be from 0 to {PROOF_ROWS - 1}, was {row}")
        proof = &self._pipeline.proofs[row]
        if column == "datagrams":
            proof.datagrams = value
        elif column == "empty":
            proof.empty = value
        elif column == "quiet":
            proof.quiet = <uint8_t>value
        elif column == "unquiet":
            proof.unquiet = value
        elif column == "contradict":
            proof.contradict = value
        elif column == "repeats":
            proof.repeats = value
        else:
            raise ValueError(f"no column {column!r}")

    @property
    def pending(self) -> tuple[int, int]:
        """Messages that wait, whole or partial: (incremental, snapshot)."""
        cdef uint32_t i
        counts = [0, 0]
        for i in range(self._pipeline.windows):
            counts[self._pipeline.window[i].channel] += self._pipeline.window[i].pending
        return tuple(counts)
