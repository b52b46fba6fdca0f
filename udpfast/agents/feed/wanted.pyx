"""What a feed's loop lacks that venues' servers may have: written where their agents look."""

import cython

from libc.string cimport memcpy

from udpfast.agents.feed.engine_settings cimport lost_packet_wait_us
from udpfast.core.layout cimport CHANNEL_INCREMENTAL, CHANNEL_SNAPSHOT
from udpfast.feed.holes cimport Hole, pipeline_holes
from udpfast.feed.window_state cimport Window
from udpfast.shm.answers cimport (
    HEADER_BYTES, WANTS_MAX, AnswersHeader, Want, wants_begin, wants_end)

__all__ = ["Wanted"]

cdef enum:
    INTERVAL_NS = 250_000        # a server is tens of microseconds away, at best


@cython.final
cdef class Wanted:
    """What agents beside a feed are asked to fetch.

    Parameters
    ----------
    config : FeedConfig
    directory : Path
        The instance's, where a file is made for each kind of server that the feed has.
    """

    def __init__(self, config: FeedConfig, directory: Path):
        self.retransmission = self._open(config, directory, "retransmission", CHANNEL_INCREMENTAL)
        self.snapshot_server = self._open(config, directory, "snapshot_server", CHANNEL_SNAPSHOT)
        self.any = self.retransmission is not None or self.snapshot_server is not None
        self._ask_after_ns = 1_000 * lost_packet_wait_us(config, config.incremental)

    def _open(self, config, directory, name, channel):
        if getattr(config, name).enabled:
            return AnswersRegion.create(
                directory, name, channel, len(config.line_names[channel]) - 1)
        (directory / f"answers.{name}").unlink(missing_ok=True)
        return None

    @property
    def regions(self) -> list[AnswersRegion]:
        """The files that were made: `AnswersRegion` of each."""
        return [each for each in (self.retransmission, self.snapshot_server) if each is not None]

    cdef void note_header(self, const Datagram* item) noexcept nogil:
        # An agent compares the session that it names with the one that is wanted.
        cdef AnswersHeader* header
        if self.retransmission is None or item.channel != CHANNEL_INCREMENTAL:
            return
        header = self.retransmission.answers.header
        wants_begin(&self.retransmission.answers)
        header.header_size = min(item.size, <uint32_t>HEADER_BYTES)
        memcpy(header.header, item.data, header.header_size)
        wants_end(&self.retransmission.answers, header.count)

    cdef void note(
            self, Pipeline* pipeline, const MarketStream* streams, int64_t now_ns) noexcept nogil:
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + INTERVAL_NS
        if self.retransmission is not None:
            self._want_messages(pipeline, now_ns)
        if self.snapshot_server is not None:
            self._want_snapshots(pipeline, streams)

    cdef bint is_books(self, const Datagram* item) noexcept nogil:
        return item.channel == CHANNEL_SNAPSHOT and self.snapshot_server is not None and (
            item.line == self.snapshot_server.answers.line)

    cdef void _want_messages(self, Pipeline* pipeline, int64_t now_ns) noexcept nogil:
        cdef Hole holes[WANTS_MAX]
        cdef Want* want = self.retransmission.answers.header.wants
        cdef uint32_t i
        cdef uint32_t count = pipeline_holes(
            pipeline, now_ns - self._ask_after_ns, holes, WANTS_MAX)
        if count == 0 and self._written[CHANNEL_INCREMENTAL] == 0:
            return
        self._written[CHANNEL_INCREMENTAL] = count
        wants_begin(&self.retransmission.answers)
        for i in range(count):
            want[i].session = holes[i].session
            want[i].first, want[i].last = holes[i].first, holes[i].last
            want[i].number = holes[i].last
            want[i].stream, want[i].numbering = holes[i].stream, holes[i].numbering
        wants_end(&self.retransmission.answers, count)

    cdef void _want_snapshots(
            self, Pipeline* pipeline, const MarketStream* streams) noexcept nogil:
        cdef const MarketStream* stream
        cdef const Window* window
        cdef Want* want = self.snapshot_server.answers.header.wants
        cdef uint32_t i, count = 0
        for i in range(pipeline.windows):
            window = &pipeline.window[i]
            stream = &streams[window.stream]
            if window.channel == CHANNEL_INCREMENTAL and stream.needs and count < WANTS_MAX:
                if count == 0:
                    wants_begin(&self.snapshot_server.answers)
                want[count].session, want[count].stream = window.session_id, window.stream_key
                want[count].first = want[count].last = stream.needs - 1
                want[count].number, want[count].numbering = stream.number, window.session
                count += 1
        if count == 0:
            if self._written[CHANNEL_SNAPSHOT] == 0:
                return
            wants_begin(&self.snapshot_server.answers)
        self._written[CHANNEL_SNAPSHOT] = count
        wants_end(&self.snapshot_server.answers, count)
