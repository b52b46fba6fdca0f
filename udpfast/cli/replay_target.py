"""Where a replay goes: through the engine, out over UDP, into a capture file; and how fast."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from udpfast.agents.feed.lines import received_addresses
from udpfast.agents.feed.recorder import Recorder
from udpfast.agents.feed.replay_lines import CHANNEL_NONE
from udpfast.agents.feed.replay_source import STEP_NS
from udpfast.agents.feed.replayer import Replayer
from udpfast.archive.feed_settings import write_feed
from udpfast.cli.replay_output import Output
from udpfast.cli.replay_progress import Progress
from udpfast.cli.scratch import scratch_directory
from udpfast.client.reader import Reader
from udpfast.config import FeedConfig, RecordConfig, framing_name
from udpfast.core.clock import monotonic_ns
from udpfast.monitor.ledger import ledger_of
from udpfast.net.capture_writer import CaptureWriter
from udpfast.net.pcap import CaptureBatch
from udpfast.net.sender import DatagramSender

__all__ = ["EngineTarget", "FileTarget", "Pacer", "Target", "UdpTarget"]

# Entries between two readings of the ring: what they can set free must fit into it. 16 KiB for
# each are enough for a message that its last fragment completes once per eight datagrams.
STEP_MIN, STEP_MAX = 64, 1024
STEP_BYTES = 1 << 14

#: A wait of the pacer sleeps until so long before it ends, and then looks at the clock.
SPIN_NS = 150_000
#: Longest sleep: how far the replay is can be said meanwhile.
LOOK_NS = 500_000_000
PAUSE_S = 0.0001


class Pacer:
    """When entries are due: at the pace of their stamps, a multiple of it, or at once.

    Parameters
    ----------
    speed : float
        Times the recorded pace; 0: at once.
    progress : Progress, optional
        Is told how far the replay is.
    """

    def __init__(self, speed: float, progress: Progress | None = None) -> None:
        self._speed = speed
        self._progress = progress
        self._first_ns: int | None = None
        self._began_ns = 0
        self._latest_ns = 0

    def due(self, stamps: npt.NDArray[np.int64], start: int, limit: int) -> int:
        """Wait until entry `start` is due; return behind the last of `limit` that are by then."""
        stop = self._due(stamps, start, limit)
        if self._progress is not None:
            self._progress.take(int(stamps[stop - 1]), stop - start)
        return stop

    def _due(self, stamps: npt.NDArray[np.int64], start: int, limit: int) -> int:
        stop = min(len(stamps), start + limit)
        first_ns = int(stamps[start])
        if not self._speed:
            self._look(first_ns)
            return stop
        if self._first_ns is None:
            self._first_ns, self._began_ns = first_ns, monotonic_ns()
        # Stamps of several cards step back now and then: what comes later is not due earlier. A
        # clock that was set back goes on at its own pace from there.
        if first_ns < self._latest_ns - STEP_NS:
            self._first_ns, self._began_ns, self._latest_ns = first_ns, monotonic_ns(), first_ns
        self._latest_ns = max(self._latest_ns, first_ns)
        part = stamps[start:stop]
        back = np.flatnonzero(np.maximum.accumulate(part) - part > STEP_NS)
        stop = start + int(back[0]) if len(back) else stop
        due_ns = self._began_ns + int((self._latest_ns - self._first_ns) / self._speed)
        while (now_ns := monotonic_ns()) < due_ns:
            if due_ns - now_ns > 2 * SPIN_NS:
                time.sleep(min(due_ns - now_ns - SPIN_NS, LOOK_NS) / 1e9)
                left_ns = due_ns - monotonic_ns()
                self._look(first_ns - max(0, int(left_ns * self._speed)))
        self._look(first_ns)
        passed_ns = int((now_ns - self._began_ns) * self._speed) + self._first_ns
        later = np.flatnonzero(stamps[start:stop] > passed_ns)
        return start + max(1, int(later[0])) if len(later) else stop

    def _look(self, at_ns: int) -> None:
        if self._progress is not None:
            self._progress.look(monotonic_ns(), at_ns)


class Target(Protocol):
    """Where batches go."""

    def take(self, batch: CaptureBatch, pacer: Pacer) -> None:
        """Take a batch, as its entries are due."""

    def finish(self) -> dict[str, Any]:
        """End; return what there is to say."""

    def close(self) -> None:
        """Let go of everything. Idempotent."""


class EngineTarget:
    """The production engine: the records of each run of the feed, and what they amount to.

    Parameters
    ----------
    config : FeedConfig
    directory : Path or None
        The instance's, for other readers to attach to; None: it is private.
    batch : int
        Datagrams that the engine takes at once.
    journal : Path, optional
        Where all that comes out is kept, at the replay's own pace: nothing is overtaken.
    progress : Progress, optional
        Says beside the ring of `directory` how far the replay is.
    """

    def __init__(
        self,
        config: FeedConfig,
        directory: Path | None,
        batch: int,
        journal: Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._config = replace(config, record=RecordConfig())
        self._stack = ExitStack()
        self._progress = None if directory is None else progress
        self._directory = directory or self._own_directory()
        self._batch = batch
        self._step = max(STEP_MIN, min(STEP_MAX, config.ring.capacity_bytes // STEP_BYTES))
        self._output = Output(framing_name(config.wire))
        self._journal = journal
        self._recorder: Recorder | None = None
        self._counters: dict[str, Counter[str]] = {}
        self._runs = 0
        self._replayer: Replayer | None = None

    def take(self, batch: CaptureBatch, pacer: Pacer) -> None:
        """Take a batch; where it says that another run of the feed began, so does the output."""
        stamps = batch.headers["timestamp_ns"]
        at = 0
        while at < len(stamps):
            replayer = self._replayer or self._begin()
            stop = pacer.due(stamps, at, self._step)
            taken = replayer.play(batch, at, stop, self._batch)
            self._read()
            if at + taken < stop:
                self._end()
                at += self._is_mark(batch, at + taken)
            at += taken

    def _is_mark(self, batch: CaptureBatch, at: int) -> int:
        # A RESTART only says what the new run's beginning says, too.
        return int(batch.headers["event"][at] == 4)

    def _own_directory(self) -> Path:
        return self._stack.enter_context(scratch_directory("udpfast-replay-"))

    def _begin(self) -> Replayer:
        # In the same directory as the run before, as a feed does: names go on, counters begin anew.
        self._replayer = Replayer(self._config, self._directory)
        self._runs += 1
        if self._progress is not None:
            self._progress.publish(self._directory, counted=True)
        reader = Reader(f"ring:{self._directory}", start="begin")
        reader._take_for_recorded()
        self._output.begin(self._stack.enter_context(reader))
        if self._journal is not None:
            write_feed(self._config, self._directory)
            record = RecordConfig(directory=str(self._journal))
            recorder = Recorder(record, self._directory, self._journal.name)
            recorder.on_start()
            self._recorder = recorder
        return self._replayer

    def _read(self) -> None:
        self._output.read_ring()
        recorder = self._recorder
        while recorder is not None:
            count = recorder.work(monotonic_ns())
            for recording in recorder.recordings:
                if recording.failure is not None:
                    raise recording.failure
            if not any(recording.backlog for recording in recorder.recordings):
                return
            if count <= 0:
                recorder.keep()  # it waits for space, which its own thread makes later

    def _end(self) -> None:
        if self._replayer is not None:
            self._read()
            for scope, values in self._replayer.counters().items():
                self._counters.setdefault(scope, Counter()).update(values)
            self._replayer.close()
            self._replayer = None
            self._read()
            self._stop_recorder()

    def _stop_recorder(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.on_stop()

    def finish(self) -> dict[str, Any]:
        """Deliver what waits, and say what came out."""
        replayer = self._replayer or self._begin()
        replayer.finish()
        self._end()
        counters = {scope: dict(values) for scope, values in self._counters.items()}
        result = self._output.result()
        return {
            "runs": self._runs,
            "ledger": ledger_of(counters),
            "counters": counters,
        } | result

    def close(self) -> None:
        """Close ring, reader and journal."""
        if self._replayer is not None:
            self._replayer.close()
            self._replayer = None
        try:
            self._stop_recorder()
        finally:
            self._stack.close()


class UdpTarget:
    """The network: each datagram goes to the address of its line.

    Parameters
    ----------
    config : FeedConfig
    host : str
        Instead of the lines' own addresses, with their ports; empty: those.
    interface : str
        For multicast.
    """

    def __init__(self, config: FeedConfig, host: str, interface: str) -> None:
        self._senders: dict[int, DatagramSender] = {}
        self._sent = 0
        try:
            for each in received_addresses(config):
                address, _, port = each.where.address.rpartition(":")
                self._senders[each.channel << 16 | each.line << 8 | each.address] = DatagramSender(
                    f"{host or address}:{port}", interface=interface
                )
        except BaseException:
            self.close()
            raise

    def take(self, batch: CaptureBatch, pacer: Pacer) -> None:
        """Send a batch's datagrams, those that are due together and of one address at once."""
        headers = batch.headers
        headers = headers[(headers["event"] < 2) & (headers["channel"] != CHANNEL_NONE)]
        stamps = headers["timestamp_ns"]
        keys = headers["channel"].astype(np.int64) << 16
        keys |= headers["line"].astype(np.int64) << 8 | headers["address"]
        offsets, sizes = headers["offset"].astype(np.int64), headers["size"].astype(np.int64)
        at = 0
        while at < len(headers):
            stop = pacer.due(stamps, at, STEP_MAX)
            turns = np.flatnonzero(np.diff(keys[at:stop])) + at + 1
            for end in (*turns.tolist(), stop):
                self._send(int(keys[at]), batch.buffer, offsets[at:end], sizes[at:end])
                at = end

    def _send(
        self,
        key: int,
        buffer: bytes | memoryview,
        offsets: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
    ) -> None:
        sender = self._senders[key]
        done = 0
        while done < len(sizes):
            done += sender.send((buffer, offsets[done:], sizes[done:]))
            if done < len(sizes):
                time.sleep(PAUSE_S)  # the socket's queue is full
        self._sent += done

    def finish(self) -> dict[str, Any]:
        """Say how many datagrams went out."""
        gave_up = sum(sender.counts["unreachable"] for sender in self._senders.values())
        return {"sent": self._sent - gave_up, "unreachable": gave_up}

    def close(self) -> None:
        """Close the sockets."""
        for sender in self._senders.values():
            sender.close()


class FileTarget:
    """A capture file.

    Parameters
    ----------
    path : Path
        Its name says which kind.
    """

    def __init__(self, path: Path) -> None:
        self._writer = CaptureWriter(path)

    def take(self, batch: CaptureBatch, pacer: Pacer) -> None:
        """Write a batch's datagrams."""
        headers = batch.headers
        self._writer.write(CaptureBatch(headers[headers["channel"] != CHANNEL_NONE], batch.buffer))

    def finish(self) -> dict[str, Any]:
        """Say how many frames were written."""
        return {"written": self._writer.frames}

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()
