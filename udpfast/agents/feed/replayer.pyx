"""Replay: captured datagrams through the production engine, without sockets, by their own clock."""

import cython

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from udpfast.agents.feed.engine cimport Engine
from udpfast.core.layout cimport CAPTURE_LATE, DATAGRAM_NO_TIMESTAMP, Datagram
from udpfast.net.pcap cimport (
    CAPTURE_DOUBT, CAPTURE_EXPIRE, CAPTURE_FINISH, CAPTURE_FOREIGN, CAPTURE_OWN, CAPTURE_RESTART,
    CaptureEntry)

from udpfast.errors import ConfigError
from udpfast.net.pcap import CAPTURED

__all__ = ["Replayer"]

cdef enum:
    BATCH_MAX = 64               # as many as one recvmmsg brings
    CHANNEL_NONE = 255           # of a datagram that is of none of the feed's lines


@cython.final
cdef class Replayer:
    """Run captured datagrams through an engine; the capture's time stamps are the only clock.

    The same datagrams in the same order make the same records, byte by byte, however they are cut
    into batches.

    Parameters
    ----------
    config : FeedConfig
        The feed; its addresses are not used.
    directory : Path
        Where the instance's regions go; a reader attaches there.
    disk : StoreDisk, optional
        Of a store, which gets the records instead of a ring.

    Attributes
    ----------
    finished : bool
        The input has ended.
    """

    cdef Engine _engine
    cdef int64_t _now_ns
    cdef int64_t _unix_ns
    cdef int64_t _expired_ns
    cdef readonly bint finished      # the input has ended
    cdef Datagram _items[BATCH_MAX]
    cdef uint16_t _lines[CHANNEL_NONE + 1]   # of each channel, how many

    def __init__(self, config: FeedConfig, directory: Path, disk: StoreDisk | None = None):
        self._lines[0], self._lines[1] = (len(names) for names in config.line_names)
        self._lines[CHANNEL_NONE] = 256
        self._engine = Engine(config, directory, disk=disk)

    cdef int _check_line(self, int channel, int line) except -1:
        # The engine has counters and windows for the feed's lines, and for no others.
        if line >= self._lines[channel]:
            raise ConfigError(
                f"expected datagrams of the feed's lines ({self._lines[0]} incremental, "
                f"{self._lines[1]} snapshot), found one of channel {channel}, line {line}")
        return 0

    def play(self, batch: CaptureBatch, int start, int stop, int limit=BATCH_MAX) -> int:
        """Take entries [start, stop) of a batch whose channels and lines are told.

        What our own loop received goes by the loop's clocks, which stand beside it: the engine
        then does what that loop did. A foreign datagram's time stamp is its clock.

        Parameters
        ----------
        batch : CaptureBatch
            Entries of channel 255 belong to no line, and are left out.
        start, stop : int
            As in `replay`.
        limit : int
            Datagrams that the engine takes at once, at most 64, if their clocks are the same.

        Returns
        -------
        int
            Entries taken. Fewer than asked for: the next one begins another run of the feed, that
            of a loop which took over. It is for another Replayer.

        Raises
        ------
        ConfigError
            An entry is of a line that the feed does not have; nothing was taken.
        """
        cdef const uint8_t[::1] headers = batch.headers.view("u1")
        cdef const uint8_t[::1] buffer = batch.buffer
        cdef const uint8_t* payloads = NULL
        cdef const CaptureEntry* entries
        cdef const CaptureEntry* entry
        cdef int i
        if not 0 <= start <= stop <= len(batch.headers):
            raise ValueError(f"start and stop must lie in 0..{len(batch.headers)}, "
                             f"were {start} and {stop}")
        if not 1 <= limit <= BATCH_MAX:
            raise ValueError(f"limit must be 1 to {BATCH_MAX}, was {limit}")
        if batch.headers.dtype != CAPTURED:
            raise ValueError("headers must have dtype CAPTURED")
        if start == stop:
            return 0
        if buffer.shape[0] > 0:
            payloads = <const uint8_t*>&buffer[0]
        entries = <const CaptureEntry*>&headers[0]
        for i in range(start, stop):
            self._check_line(entries[i].channel, entries[i].line)
        i = start
        with nogil:
            while i < stop:
                entry = &entries[i]
                if entry.event == CAPTURE_RESTART or (
                        self.finished and entry.event != CAPTURE_FOREIGN):
                    break
                if entry.event == CAPTURE_EXPIRE:
                    self._engine.expire(entry.now_ns, entry.unix_ns)
                elif entry.event == CAPTURE_DOUBT:
                    self._engine.doubt(entry.now_ns, entry.unix_ns)
                elif entry.event == CAPTURE_FINISH:
                    self._engine.finish(entry.now_ns, entry.unix_ns)
                    self.finished = True
                elif entry.channel != CHANNEL_NONE:
                    i += self._take(entries, i, stop, limit, payloads)
                    continue
                i += 1
        return i - start

    cdef int _take(
            self, const CaptureEntry* entries, int start, int stop, int limit,
            const uint8_t* payloads) noexcept nogil:
        # A run of datagrams with the same clocks. Returns how many.
        cdef const CaptureEntry* first = &entries[start]
        cdef const CaptureEntry* entry = first
        cdef Datagram* item
        cdef bint own = first.event == CAPTURE_OWN
        cdef int64_t now_ns, unix_ns
        cdef uint32_t late_us = first.flags >> CAPTURE_LATE if own else 0
        cdef int count = 0
        while start + count < stop and count < limit:
            entry = &entries[start + count]
            if entry.event != first.event or entry.channel == CHANNEL_NONE:
                break
            if entry.now_ns != first.now_ns or entry.unix_ns != first.unix_ns:
                break
            if own and entry.flags >> CAPTURE_LATE != late_us:
                break
            if not own and entry.timestamp_ns != first.timestamp_ns:
                break
            item = &self._items[count]
            item.data = payloads + entry.datagram.offset
            item.size = entry.datagram.size
            item.received_ns = entry.timestamp_ns
            item.channel = entry.channel
            item.line = entry.line
            item.address = entry.address
            if own:
                item.flags = entry.flags & (1 << CAPTURE_LATE) - 1
            else:
                item.flags = DATAGRAM_NO_TIMESTAMP if entry.timestamp_ns == 0 else 0
            count += 1
        if own:
            self._now_ns, unix_ns = first.now_ns, first.unix_ns
            self._unix_ns = unix_ns
        else:
            # Captures are merged from several cards: a step back must not move the timers.
            self._now_ns = max(self._now_ns, first.timestamp_ns)
            self._unix_ns = unix_ns = self._now_ns
            if self._now_ns != self._expired_ns:
                self._expired_ns = self._now_ns
                self._engine.expire(self._now_ns, unix_ns)
        now_ns = self._now_ns
        self._engine.accept(self._items, count, now_ns, late_us, unix_ns)
        return count

    def replay(
            self, batch: CaptureBatch, const uint8_t[::1] channels, const uint8_t[::1] lines,
            int start, int stop) -> None:
        """Take the captured datagrams [start, stop) of a batch, in order.

        Parameters
        ----------
        batch : CaptureBatch
            From `net.pcap.CaptureReader`.
        channels, lines : numpy.ndarray of uint8, shape (len(batch.headers),)
            The channel and line of each datagram.
        start, stop : int
            Few enough that what they set free fits into the ring before it is read.
        """
        cdef const uint8_t[::1] headers = batch.headers.view("u1")
        cdef const uint8_t[::1] buffer = batch.buffer
        cdef const CaptureEntry* entries
        cdef const CaptureEntry* entry
        cdef const uint8_t* payloads = NULL
        cdef Datagram datagram
        cdef int i
        if not 0 <= start <= stop <= min(len(batch.headers), len(channels), len(lines)):
            raise ValueError(f"start and stop must lie in 0..{len(batch.headers)}, "
                             f"were {start} and {stop}")
        if start == stop:
            return
        for i in range(start, stop):
            self._check_line(channels[i], lines[i])
        if buffer.shape[0] > 0:
            payloads = &buffer[0]
        entries = <const CaptureEntry*>&headers[0]
        with nogil:
            for i in range(start, stop):
                entry = &entries[i]
                datagram.data = payloads + entry.datagram.offset
                datagram.size = entry.datagram.size
                datagram.received_ns = entry.timestamp_ns
                datagram.flags = DATAGRAM_NO_TIMESTAMP if entry.timestamp_ns == 0 else 0
                datagram.channel = channels[i]
                datagram.line = lines[i]
                datagram.address = entry.address
                # Captures are merged from several cards: a step back must not move the timers.
                self._unix_ns = self._now_ns = max(self._now_ns, entry.timestamp_ns)
                self._engine.expire(self._now_ns, self._now_ns)
                self._engine.accept(&datagram, 1, self._now_ns, 0, self._now_ns)

    def finish(self) -> None:
        """End the input: what waits is delivered, and open holes are reported. Idempotent."""
        if not self.finished:
            self.finished = True
            with nogil:
                self._engine.finish(self._now_ns, self._unix_ns)

    def counters(self) -> dict[str, dict[str, int]]:
        """Return all counters by scope."""
        return self._engine.read_counters()

    def close(self) -> None:
        """Close the ring: its reader then knows that nothing more comes."""
        self._engine.close()
