"""The recorder: reads rings as any strategy does, and keeps their records in journals.

ring     -> recorder's thread -> journal        segments made, synced, sealed and removed by
capture  ->                   -> journal/raw    the keeper's thread

Neither thread is the feed's, and the feed waits for neither. While the disk is slow, the ring holds
what comes; if that is not enough, the journal says how many records are missing.
"""

import contextlib
import errno
import threading
from pathlib import Path

import cython
from msgspec import structs

from libc.stdint cimport int64_t

from udpfast.agents.feed.recording cimport Recording
from udpfast.core.agent cimport AGENT_DONE, Agent
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.linux cimport ECANCELED
from udpfast.log.segment cimport SEGMENT_BYTES_MIN

from udpfast.agents.feed.recording import Recording as RecordingFace
from udpfast.archive.feed_settings import copy_feed, note_journal, other_feed
from udpfast.core.layouts import CONTROL_LAYOUTS
from udpfast.core.log import say_warning
from udpfast.core.worker import Worker
from udpfast.errors import ConfigError, UdpfastError
from udpfast.log.journal_state import journal_state
from udpfast.log.readers import ReaderRegistration
from udpfast.log.segment import segment_file_bytes
from udpfast.market.names import name_table_size
from udpfast.market.updates import LAYOUTS
from udpfast.shm.instance import journal_directory
from udpfast.shm.names import NAMES_TABLE

__all__ = ["Recorder", "build", "bytes_to_begin", "count_missing"]

cdef enum:
    # Pages are touched this far ahead of the writer, so often: 32 MiB in 5 ms is 6 GB/s, more than
    # memory takes.
    AHEAD_BYTES = 1 << 25
    PAUSE_MS = 5
    PAUSE_BATCH_US = 100         # with sync = batch, where the writer waits for the disk
    RETRY_NS = 200_000_000       # between two tries to get space on a disk that had none
    REPORT_NS = 100_000_000      # how often tools are told how far it is
    REMOVED_USUAL = 4            # segments that a limit removes for a further one


@cython.final
cdef class Recorder(Agent):
    """Keep what an instance publishes, and what it received if the feed captures that.

    Parameters
    ----------
    config : RecordConfig
    directory : Path
        The instance's.
    name : str
        The instance's name.

    Attributes
    ----------
    recordings : list[Recording]
    """

    cdef object _config
    cdef object _directory
    cdef object _name
    cdef readonly list recordings
    cdef Recording _first            # the same, for the loop; None: there is none
    cdef Recording _second
    cdef object _keeper
    cdef object _stopping
    cdef list _keepings
    cdef object _keeping             # held by whoever keeps
    cdef object _registration
    cdef object _begin               # records passed before it registered
    cdef int64_t _report_at_ns

    def __init__(self, config: RecordConfig, directory: Path, name: str):
        super().__init__("udpfast record")
        self._config = config
        self._directory = Path(directory)
        self._name = name
        self.recordings = []

    def on_start(self) -> None:
        """Open the journals, cut to what is valid, and the rings where the journals end."""
        what = self._config.what
        self._config = _within_limit(self._config)
        target = journal_directory(self._config.directory or self._name, create=True)
        if owner := other_feed(target, self._name):
            raise ConfigError(
                f"record.directory: expected a journal of {self._name}, {target} is one of the "
                f"feed {owner}: name another directory, or move that one away")
        try:
            if what != "raw":
                self.recordings.append(RecordingFace(
                    self._directory / "ring", target, LAYOUTS, self._directory, self._config,
                    self._name))
            if what != "records":
                self.recordings.append(RecordingFace(
                    self._directory / "capture", target / "raw", CONTROL_LAYOUTS, None,
                    self._config, self._name))
            for recording in self.recordings:
                copy_feed(self._directory, recording.journal.directory)
            if what != "raw":
                note_journal(self._directory, self.recordings[0].journal.directory)
        except BaseException:
            self._close()
            raise
        self._first = self.recordings[0]
        self._second = self.recordings[1] if len(self.recordings) > 1 else None
        if what != "raw":
            self._registration = ReaderRegistration.create(
                self._directory, "record", self._first.cursor.index, clock_realtime_ns())
            self._begin = self._first.cursor.index - self._first.cursor.lapped_total
        self._keepings = [
            _Keeping(recording, self._config, self.recordings) for recording in self.recordings]
        self._keeping = threading.Lock()
        self._stopping = threading.Event()
        self._keeper = Worker(self._keep, "udpfast keep")
        self._keeper.start()

    def on_stop(self) -> None:
        """Sync and seal what was written; the journals are then complete."""
        self._stopping.set()
        self._keeper.finish()
        if self._registration is not None:
            self._registration.close()
        left = sum(each.backlog for each in self.recordings
                   if each.cursor.life in ("finished", "failed", "left"))
        self._close()
        if left:
            raise TimeoutError(
                f"the ring has ended, and its last {left} records are not in the journal yet: "
                "start a recorder before the feed starts again, and it takes them")

    def _close(self):
        for recording in self.recordings:
            recording.close()

    def work(self, int64_t now_ns) -> int:
        """Do one turn, as a runner does; for tests."""
        return self.do_work(now_ns)

    def keep(self) -> None:
        """Do one turn of the keeper: make and touch space, sync, seal, remove."""
        with self._keeping:
            for keeping in self._keepings:
                try:
                    keeping.look(clock_monotonic_ns())
                except BaseException as failure:
                    keeping.recording.fail(failure)

    cdef int do_work(self, int64_t now_ns) noexcept nogil:
        cdef int count = self._first.work(now_ns), more = 0
        if self._second is not None and count >= 0:
            more = self._second.work(now_ns)
        if count < 0 or more < 0:
            return self._end(count if count < 0 else more)
        if now_ns >= self._report_at_ns:
            self._report_at_ns = now_ns + REPORT_NS
            if self._registration is not None:
                self._report()
        if count + more == 0 and self._first.ended and (
                self._second is None or self._second.ended):
            return AGENT_DONE
        return count + more

    cdef int _end(self, int code) noexcept nogil:
        # The exception is the recording's, if it has one.
        with gil:
            for recording in self.recordings:
                if recording.failure is not None:
                    self.failure = recording.failure
                    return -ECANCELED
        return code

    cdef void _report(self) noexcept nogil:
        with gil:
            cursor = self._first.cursor
            self._registration.report(
                cursor, clock_realtime_ns(),
                max(0, cursor.index - cursor.lapped_total - self._begin))  # of a log begun anew

    def _keep(self):
        # The keeper's thread: everything that may take long.
        pause_s = PAUSE_BATCH_US / 1e6 if self._config.sync == "batch" else PAUSE_MS / 1e3
        while True:
            self.keep()
            if self._stopping.wait(pause_s):
                return


class _Keeping:
    """What a journal needs beside its records: space, pages, syncs. Time is an argument.

    Room is made by the oldest of all segments, of whichever of the journals it is.
    """

    def __init__(self, recording, config, recordings):
        self.recording = recording
        self._config = config
        self._journals = [each.journal for each in recordings]
        self._sync_at_ns = 0
        self._retry_at_ns = 0

    def look(self, now_ns):
        """Do what is due."""
        if self.recording.failure is not None:
            return
        if not self.recording.journal.ready and now_ns >= self._retry_at_ns:
            self._make_room(now_ns)
        if not self.recording.dropping:
            self.recording.journal.populate(AHEAD_BYTES)
        self.recording.note_current()
        if now_ns >= self._sync_at_ns:
            if self._config.sync != "batch":
                self._sync_at_ns = now_ns + self._config.sync_ms * 1_000_000
            self._sync()

    def _make_room(self, now_ns):
        journal = self.recording.journal
        keep_bytes = self._config.keep_bytes
        removed = 0
        while keep_bytes and journal.segment_bytes + sum(
                each.size_bytes() for each in self._journals) > keep_bytes:
            if not self._remove_oldest():
                break
            removed += 1
        if removed > REMOVED_USUAL:
            what = "with the journal beside it, it" if len(self._journals) > 1 else "it"
            say_warning(
                f"udpfast: {journal.directory}: removed the {removed} oldest segments: {what} took "
                f"more than record.keep_bytes = {keep_bytes:,}")
        while True:
            try:
                journal.prepare()
                self.recording.drop(False)
                return
            except OSError as failure:
                if self._config.full == "stop":
                    raise
                full = failure.errno in (errno.ENOSPC, errno.EDQUOT)
                if self._config.full == "oldest" and full and self._remove_oldest():
                    continue
            self._retry_at_ns = now_ns + RETRY_NS
            self.recording.drop(True)
            return

    def _remove_oldest(self):
        # False: nothing can go. What waits for its seal is sealed first: it may be the oldest.
        for each in self._journals:
            if each.ending:
                with contextlib.suppress(OSError):  # the disk failed, and that was noted
                    each.sync(clock_realtime_ns())
        found = [(info.opened_ns, place) for place, each in enumerate(self._journals)
                 if (info := each.oldest()) is not None]
        return bool(found) and self._journals[min(found)[1]].remove_oldest() > 0

    def _sync(self):
        journal = self.recording.journal
        done = journal.state().synced_position == journal.position and not journal.ending
        if self._config.sync != "none" and done:
            return
        try:
            self.recording.sync_names()
            journal.sync(clock_realtime_ns())
        except OSError:
            # Recorded on; but how much of it the disk has, nobody knows any more.
            if self._config.full == "stop":
                raise


def _within_limit(config):
    # Each journal has a segment that is written and one that is ready: of a small limit, half.
    if not config.keep_bytes:
        return config
    journals = 2 if config.what == "both" else 1
    most = config.keep_bytes // (4 * journals) * 63 // 64 // 4096 * 4096 - 8192
    return structs.replace(
        config, segment_bytes=max(SEGMENT_BYTES_MIN, min(config.segment_bytes, most)))


def bytes_to_begin(config: RecordConfig, names: int) -> int:
    """Return how many bytes of the disk a recorder needs where no journal is yet.

    Parameters
    ----------
    config : RecordConfig
    names : int
        For how many the instance's table has room.
    """
    config = _within_limit(config)
    # One that ends when its disk is full needs the segment that is written, and one that is ready.
    segments = (2 if config.what == "both" else 1) * (2 if config.full == "stop" else 1)
    table = 0 if config.what == "raw" else NAMES_TABLE + name_table_size(names)
    return table + segments * segment_file_bytes(config.segment_bytes)


def count_missing(config: FeedConfig, directory: Path) -> int:
    """Return how many records and datagrams a feed's journals say that they lack."""
    total = 0
    with contextlib.suppress(OSError, UdpfastError):  # there is none, or not both of them
        target = journal_directory(config.record.directory or config.name)
        for journal in (target, target / "raw"):
            state = journal_state(journal)
            total += state.lapped + state.dropped
    return total


def build(config: FeedConfig, directory: Path) -> Recorder:
    """Return the recorder that a feed's file asks for."""
    return Recorder(config.record, directory, config.name)
