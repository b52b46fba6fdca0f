"""Replay: captured datagrams through the production engine, without sockets, by their own clock."""

import cython

from libc.stdint cimport int64_t, uint8_t

from udpfast.agents.engine cimport Engine
from udpfast.core.layout cimport DATAGRAM_NO_TIMESTAMP, Datagram
from udpfast.net.pcap cimport CaptureEntry

__all__ = ["Replayer"]


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
    """

    cdef Engine _engine
    cdef int64_t _now_ns

    def __init__(self, config, directory):
        self._engine = Engine(config, directory)

    def replay(self, batch, const uint8_t[::1] channels, const uint8_t[::1] lines,
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
        cdef const CaptureEntry* entries = <const CaptureEntry*>&headers[0]
        cdef const CaptureEntry* entry
        cdef Datagram datagram
        cdef int i
        if not 0 <= start <= stop <= min(len(batch.headers), len(channels), len(lines)):
            raise ValueError(f"start and stop must lie in 0..{len(batch.headers)}, "
                             f"were {start} and {stop}")
        with nogil:
            for i in range(start, stop):
                entry = &entries[i]
                datagram.data = &buffer[0] + entry.datagram.offset
                datagram.size = entry.datagram.size
                datagram.received_ns = entry.timestamp_ns
                datagram.flags = DATAGRAM_NO_TIMESTAMP if entry.timestamp_ns == 0 else 0
                datagram.channel = channels[i]
                datagram.line = lines[i]
                # Captures are merged from several cards: a step back must not move the timers.
                self._now_ns = max(self._now_ns, entry.timestamp_ns)
                self._engine.expire(self._now_ns, self._now_ns)
                self._engine.accept(&datagram, 1, self._now_ns, self._now_ns)

    def finish(self) -> None:
        """End the input: what waits is delivered, and open holes are reported."""
        with nogil:
            self._engine.finish(self._now_ns, self._now_ns)

    def counters(self) -> dict[str, dict[str, int]]:
        """Return all counters by scope."""
        return self._engine.read_counters()

    def close(self) -> None:
        """Close the ring: its reader then knows that nothing more comes."""
        self._engine.close()
