"""The relay: reads a ring or store and publishes it to other hosts (docs/relay.md).

feed's ring -> relay's thread -> incremental and snapshot datagrams on every line

The feed waits for it as little as for a strategy. What it misses it does not hide: the far end is
in doubt until it has been told everything anew.
"""

from pathlib import Path

import cython

from libc.errno cimport EPIPE
from libc.stdint cimport int64_t, uint64_t

from udpfast.agents.feed.feed_state cimport state_open
from udpfast.agents.relay.relay_feed cimport RelayFeed
from udpfast.agents.relay.relay_told cimport RELAY_LAPPED
from udpfast.archive.feed_cursor cimport FeedCursor
from udpfast.core.agent cimport AGENT_DONE, Agent
from udpfast.core.atomics cimport store_relaxed
from udpfast.core.check cimport unlikely
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.layout cimport CHANNEL_INCREMENTAL, KIND_RESTART
from udpfast.core.linux cimport ECANCELED
from udpfast.core.oserr cimport check
from udpfast.log.readers cimport ReaderRegistration
from udpfast.market.state cimport state_free

from udpfast.agents.relay.relay_feed import RelayFeed
from udpfast.agents.relay.relay_lines import RelayLines, line_budget
from udpfast.archive.names import RingTable
from udpfast.config import FeedConfig, RelayConfig
from udpfast.core.log import say_info, say_warning
from udpfast.errors import NotReadyError
from udpfast.log.readers import ReaderRegistration
from udpfast.shm.image import has_image
from udpfast.shm.relay_counts import RelayCounts

__all__ = ["Relay", "build", "try_start"]

cdef enum:
    BATCH = 256                  # records of one turn
    LOOK_NS = 100_000_000        # lines, and how the feed's process is, so often
    REPORT_NS = 10_000_000       # tools see how far it is so often, or at every turn with records
    REJOIN_NS = 1_000_000_000    # between two tries to go on with an image


@cython.final
cdef class Relay(Agent):
    """Publish what an instance publishes to other hosts.

    Parameters
    ----------
    config : RelayConfig
    directory : Path
        The instance's.
    name : str
        What the feed is called in messages.
    keep : bool
        Datagrams are kept in `feed.kept`, and leave by no line: for tests.
    waits : bool
        Its process waits for the next feed when this one ends: the counters stay open until
        `close`, so that tools know when that process is gone.

    Attributes
    ----------
    counts : RelayCounts
    """

    cdef object _config
    cdef object _directory
    cdef object _name
    cdef bint _keep
    cdef bint _waits
    cdef readonly RelayFeed feed
    cdef readonly object counts          # RelayCounts
    cdef FeedCursor _cursor
    cdef ReaderRegistration _registration
    cdef object _names                   # RingTable
    cdef int64_t _at                     # of the records of the last poll, the next to take,
    cdef int64_t _count                  # and how many there are
    cdef int64_t _started_ns             # by the clock
    cdef int64_t _turn_ns                # of the last turn
    cdef int64_t _current_ns             # when all had been taken that was there; 0: no turn yet
    cdef uint64_t _read
    cdef int64_t _report_at_ns
    cdef int64_t _look_at_ns
    cdef int64_t _rejoin_at_ns
    cdef uint64_t _joined                # records before this index lie back: they are learnt
    cdef bint _gone                      # the feed's process was killed,
    cdef bint _stuck                     # or its loop stands still, or catches up after that
    cdef bint _ended                     # the far end was told that nothing more comes
    cdef dict _troubles
    cdef dict _last_counts               # of a relay that was stopped

    def __init__(self, config: RelayConfig, directory: Path, name: str = "relay", *,
                 keep: bool = False, waits: bool = False):
        super().__init__("udpfast relay")
        self._config = config
        self._directory = Path(directory)
        self._name = name
        self._keep = keep
        self._waits = waits
        self._names = RingTable()
        self._troubles = {}

    def on_start(self) -> None:
        """Open the lines, and the log: where its image ends, or where its writer began."""
        config = self._config
        self.counts = RelayCounts.create(
            self._directory, [line.name for line in config.lines])
        lines = None
        try:
            if not self._keep:
                lines = RelayLines(config.lines, self.counts.lines,
                                   parity_wait_ns=config.parity_wait_ms * 1_000_000)
            self.feed = RelayFeed(
                lines, objects=config.objects, counts=self.counts.relay,
                heartbeat_interval_ns=config.heartbeat_ms * 1_000_000,
                snapshot_interval_ns=config.snapshot_interval_ms * 1_000_000,
                snapshot_rate_per_s=config.snapshot_rate_per_s,
                late_ns=config.late_ms * 1_000_000, **line_budget(config.lines))
            # Before the image is read: a relay that is stopped in between has old books.
            self._started_ns = clock_monotonic_ns()
            self._cursor = state_open(
                &self.feed.state, self._directory, BATCH, config.objects)
            self._registration = ReaderRegistration.create(
                self._cursor.readers, "relay", self._cursor.index(), clock_realtime_ns())
            self._renew_names()
        except BaseException as failure:
            if lines is not None:
                lines.close()
            if self._cursor is not None:
                self._cursor.close()
            # A feed that is not ready yet is tried again.
            self.counts.close(ended=isinstance(failure, (FileNotFoundError, NotReadyError)))
            raise
        self._begin()

    def _begin(self):
        check(self.feed.begin(), "begin", str(self._directory))
        self._joined = self._cursor.end_index()
        if self.feed.state.mark.lapped:
            self.feed.counts[RELAY_LAPPED] += <int64_t>self.feed.state.mark.lapped
            say_warning(
                f"udpfast: {self._name}: relay: {self.feed.state.mark.lapped:,} records came "
                "before it: an object is sent once the feed tells all of it; with [image] enabled "
                "the relay begins with all of them")

    def on_stop(self) -> None:
        """Tell the far end that nothing more comes, and close the sockets."""
        ended = False
        try:
            self._say_end()
            ended = self.failure is None
        finally:
            self._registration.close()
            if self.feed.lines is not None:
                self.feed.lines.close()
            self._cursor.close()
            self.counts.rest()
            self._last_counts = self.counts.read()
            if not (ended and self._waits):
                self.counts.close(ended=ended)

    def close(self) -> None:
        """Say that it ended in good order; for one that `waits`, and has not failed."""
        self.counts.close(ended=True)

    @property
    def index(self) -> int:
        """Index of the next record to read."""
        return self._cursor.index()

    def read_counts(self) -> dict[str, dict[str, int]]:
        """Return what was counted, as `RelayCounts.read`; after the end too."""
        return self._last_counts or self.counts.read()

    def work(self, int64_t now_ns) -> int:
        """Do one turn, as a runner does; for tests."""
        return self.do_work(now_ns)

    cdef int do_work(self, int64_t now_ns) noexcept nogil:
        cdef int64_t i, count = 0
        cdef uint64_t first
        cdef int rc
        self.feed.now_ns = now_ns
        self.feed.unix_ns = clock_realtime_ns()
        if unlikely(self._current_ns == 0):
            self._current_ns = self._turn_ns = now_ns if self._keep else self._started_ns
        # A relay that was stopped, or has not come to the end for long, takes old records.
        if not self.feed.behind and (
                now_ns - self._turn_ns >= self.feed.pause_ns
                or now_ns - self._current_ns >= self.feed.late_ns):
            self.feed.fall_behind(True)
        self._turn_ns = now_ns
        if self._at == self._count:
            rc = self._poll(now_ns)
            if rc != 0:
                return rc
        first = self._cursor.index() - <uint64_t>self._count
        # What the lines have no room for stays in the log.
        while self._at < self._count and not self.feed.full():
            i = self._at
            self._at += 1
            count += 1
            if unlikely(first + <uint64_t>i < self._joined):
                rc = self.feed.learn(
                    self._cursor.headers + i, self._cursor.payloads + self._cursor.offsets[i])
            else:
                rc = self.feed.take(
                    self._cursor.headers + i, self._cursor.payloads + self._cursor.offsets[i])
            if rc < 0:
                return rc
            if self._cursor.headers[i].kind == KIND_RESTART:
                with gil:
                    self._renew_names()
        if now_ns >= self._look_at_ns:
            self._look_at_ns = now_ns + LOOK_NS
            with gil:
                self._look()
        if self._at == self._count and not self._cursor.ready():
            if self.feed.behind and not (self._gone or self._stuck):
                with gil:
                    self._look()     # of a feed that is dead or stuck nothing is new
            # What a feed that caught up committed before it said so is there now: not before.
            if not self._cursor.ready():
                self._current_ns = now_ns
                self.feed.fall_behind(self._gone or self._stuck)
        # In the middle of what lies back, what is true is an old truth.
        rc = self.feed.work() if first + <uint64_t>self._at >= self._joined else 0
        if count or now_ns >= self._report_at_ns:
            self._report_at_ns = now_ns + REPORT_NS
            store_relaxed(&self._registration.entry.read, self._read)
            self._cursor.report(self._registration.entry)
        return <int>count + rc

    cdef int _poll(self, int64_t now_ns) noexcept nogil:
        # The next records. Not 0: the turn ends with that.
        cdef int64_t count = self._cursor.poll(BATCH)
        self._at = self._count = 0
        if count < 0:
            return self._stop(count)
        if count and self._gone or self._cursor.missed:
            with gil:
                if self._resume(now_ns):
                    return 1
        self._count = count
        self._read += count      # those that wait for room on the lines, too
        return 0

    cdef int _stop(self, int64_t code) noexcept nogil:
        with gil:
            try:
                if code != -EPIPE:
                    self._cursor.fail(code)
                if self._cursor.follow():
                    return 1
                self._say_end()
            except BaseException as failure:
                self.failure = failure
                return -ECANCELED
        return AGENT_DONE

    cdef bint _resume(self, int64_t now_ns) noexcept:
        # The feed's process is back, or records are missing before those that were read. Whether
        # to poll anew.
        if self._gone:
            self._gone = self._stuck = False
            self.feed.say_available(True)
        if not self._cursor.missed:
            return False
        self.feed.miss(self._cursor.missed, self._cursor.epoch())
        self.feed.flush(CHANNEL_INCREMENTAL)     # what lies back is read first
        self._joined = self._cursor.end_index()
        self._renew_names()              # a RESTART may be among them
        say_warning(
            f"udpfast: {self._name}: relay: {self._cursor.missed:,} records were overwritten "
            "before they were read: the far end is in doubt until it is told all anew")
        if now_ns < self._rejoin_at_ns or not has_image(self._directory):
            return False
        self._rejoin_at_ns = now_ns + REJOIN_NS
        try:
            self._rejoin()
        except BaseException as failure:
            self.failure = failure
        return True

    cdef _rejoin(self):
        # Go on with the image, which has all objects: in a session of its own.
        self.feed.flush_all()
        self._cursor.close()
        state_free(&self.feed.state)
        self._cursor = state_open(
            &self.feed.state, self._directory, BATCH, self._config.objects)
        self._joined = self._cursor.end_index()
        self.feed.begin_session()
        check(self.feed.begin(), "begin", str(self._directory))

    cdef _renew_names(self):
        # A new writer may have begun a new table; its RESTART comes after it.
        if self._names.renew(self._cursor.names_file(), self._cursor.names_mark()):
            self.feed.use_names(self._names.table)

    cdef _look(self):
        # What is rarely different: by whom nothing waits.
        cdef dict troubles = {} if self.feed.lines is None else self.feed.lines.troubles()
        self._look_at_feed()
        for line, trouble in troubles.items():
            if self._troubles.get(line) != trouble:
                say_warning(f"udpfast: {self._name}: relay: line {line} cannot send: {trouble}")
        for line in self._troubles.keys() - troubles.keys():
            say_info(f"udpfast: {self._name}: relay: line {line} sends again")
        self._troubles = troubles

    cdef _look_at_feed(self):
        cdef bint stuck
        if not self._gone and self._cursor.gone():
            self._gone = True
            self.feed.say_available(False)
            say_warning(
                f"udpfast: {self._name}: relay: the feed's process is gone: the far end is told "
                "that all is in doubt")
        # Behind a stuck one another may write, which knows nothing of what was before its RESTART.
        stuck = self._cursor.stuck(self.feed.now_ns, max(self.feed.late_ns, LOOK_NS)) or (
            self._stuck and self._cursor.epoch() != self.feed.state.mark.epoch)
        if stuck == self._stuck or self._gone:
            return
        self._stuck = stuck
        self.feed.say_available(not stuck)
        if stuck:
            say_warning(
                f"udpfast: {self._name}: relay: the feed stands still, though its process is "
                "there: the far end is told that all is in doubt")
            return
        self.feed.look_at_connection()
        say_info(f"udpfast: {self._name}: relay: the feed goes on")

    cdef _say_end(self):
        if not self._ended:
            self._ended = True
            self.feed.now_ns = clock_monotonic_ns()
            self.feed.unix_ns = clock_realtime_ns()
            self.feed.say_end()


def build(config: FeedConfig, directory: Path) -> Relay:
    """Return the relay that a feed's file asks for, for the instance in `directory`."""
    return Relay(config.relay, directory, config.name)


def try_start(config: FeedConfig) -> None:
    """Open the lines for a moment; raise what opening them does."""
    RelayLines(config.relay.lines).close()
