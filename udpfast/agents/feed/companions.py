"""The agents beside a feed: started, watched, started again, drained. None of them is the feed's.

feed's thread -> ring -> image keeper, ZeroMQ fan-out, ...: one thread or process each
                             ^ looked at by one thread that sleeps between its looks
"""

from __future__ import annotations

import re
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from udpfast.agents.feed.backoff import Backoff
from udpfast.agents.feed.companion_run import CompanionRun, ProcessRun, ThreadRun, describe_failure
from udpfast.agents.feed.factories import AgentFactory, wanted_agents
from udpfast.config import FeedConfig
from udpfast.core.clock import monotonic_ns, realtime_ns
from udpfast.core.log import say_error, say_warning
from udpfast.core.worker import Worker
from udpfast.errors import UdpfastError
from udpfast.log.readers import remove_dead_readers
from udpfast.shm.roster import AgentEntry, AgentState, Roster

__all__ = ["Companion", "Companions"]

_LOOK_S = 0.2
_DRAIN_LOOK_S = 0.01
#: A loop that has made no turn for so long hangs: the longest sleep of an idle one is 1 ms.
STUCK_NS = 5_000_000_000
#: Entries of dead readers are looked for this often, and for at most this share of the time.
READERS_NS = 500_000_000
READERS_SHARE = 20

_DIGITS = re.compile(r"\d+")


class Companion:
    """The life of one agent: run after run. Time is an argument.

    Parameters
    ----------
    name : str
    launch : callable
        Starts a run and returns it; what it raises is a failure like any other.
    config : FeedConfig
    records : callable
        Returns how many records the feed has put out.
    missing : callable
        Returns how many of them the agent has missed so far, for good.

    Attributes
    ----------
    entry : AgentEntry
        How it is.
    """

    def __init__(
        self,
        name: str,
        launch: Callable[[], CompanionRun],
        config: FeedConfig,
        records: Callable[[], int] = lambda: 0,
        missing: Callable[[], int] = lambda: 0,
    ) -> None:
        self.entry = AgentEntry(name)
        self._feed = config.name
        self._said = ""
        self._launch = launch
        self._backoff = Backoff(config.run)
        self._steady_ns = config.run.restart_steady_ms * 1_000_000
        self._records = records
        self._missing = missing
        self._missed = 0
        self._run: CompanionRun | None = None
        self._start_at_ns = 0
        self._started_ns = 0
        self._began_ns = 0  # the run's first turn, UNIX; 0: not yet
        self._turned_ns = 0
        self._stopping = False

    @property
    def running(self) -> bool:
        """Whether there is a run that has not ended."""
        return self._run is not None

    def look(self, now_ns: int) -> None:
        """Note how the run is; start the next one when its time has come."""
        if self._run is None:
            if not self._stopping and self.entry.state in (AgentState.STARTING, AgentState.WAITING):
                self._start_when_due(now_ns)
            return
        ended, failure = self._run.look()
        if ended:
            self._note_end(now_ns, failure)
        elif self._run.cycles != self.entry.cycles:
            self.entry.cycles = self._run.cycles
            if self.entry.state is AgentState.STUCK:
                self._say_stuck("turns again", now_ns)
            self._turned_ns = now_ns
            self._began_ns = self._began_ns or realtime_ns()
            self._become(AgentState.RUNNING, self._began_ns)
            if self.entry.down_ns and now_ns - self._started_ns >= self._steady_ns:
                self._note_return()
        elif now_ns - self._turned_ns >= STUCK_NS:
            if self.entry.state is not AgentState.STUCK:
                self._say_stuck("makes no turn", now_ns)
            self._become(AgentState.STUCK, realtime_ns() - (now_ns - self._turned_ns))

    def stop(self) -> None:
        """Ask the run to end, and start no other."""
        self._stopping = True
        if self._run is not None:
            self._run.stop()

    def drain(self) -> None:
        """Start no other run; the present one ends by itself when the ring has."""
        self._stopping = True

    def abandon(self) -> None:
        """Give up a run that did not end when asked to, or had not begun, or waits for the next."""
        if self._run is not None:
            self._run.abandon()
            self._run = None
            self.entry.failure = "did not end in time after it was told to stop"
            self._become(AgentState.FAILED)
        elif self.entry.state is AgentState.STARTING:
            self.entry.failure = "did not come to the end of its start before the feed had ended"
            self._become(AgentState.FAILED)
        elif self.entry.state is AgentState.WAITING:
            # Nothing starts it again: what has come since it failed stays undone.
            came = max(_count(self._records) - self.entry.down_records, 0)
            self.entry.failure += f"; {came:,} records have come since"
            self._become(AgentState.FAILED)

    def _start_when_due(self, now_ns: int) -> None:
        if now_ns < self._start_at_ns:
            return
        self.entry.restarts += self.entry.state is AgentState.WAITING
        self._started_ns = self._turned_ns = now_ns
        self.entry.cycles = 0
        try:
            self._run = self._launch()
        except Exception as failure:
            self._note_end(now_ns, describe_failure(failure))
            return
        self.entry.pid = self._run.pid
        self._began_ns = 0
        self._become(AgentState.STARTING)  # it works from its first turn on

    def _note_end(self, now_ns: int, failure: str) -> None:
        self._run = None
        self.entry.pid = 0
        # Each reason once, whatever the numbers in it: a full disk names others at each attempt.
        reason = _DIGITS.sub("", failure)
        if failure and reason != self._said:
            self._said = reason
            then = "" if self._stopping else " and is being restarted"
            say_error(f"udpfast: {self._feed}: agent {self.entry.name} failed{then}: {failure}")
        self.entry.failure = failure or self.entry.failure
        if failure and not self.entry.down_ns:
            self.entry.down_ns = realtime_ns()
            self.entry.down_records = _count(self._records)
            self._missed = _count(self._missing)
        if not failure:
            self._become(AgentState.ENDED)
        elif self._stopping:
            self._become(AgentState.FAILED)
        else:
            self._start_at_ns = now_ns + self._backoff.ended(now_ns - self._started_ns)
            self._become(AgentState.WAITING)

    def _note_return(self) -> None:
        missed = _count(self._missing) - self._missed
        seconds = (realtime_ns() - self.entry.down_ns) // 1_000_000_000
        self.entry.down_ns = 0
        self._said = ""  # what ends it next is said again
        lost = f": {missed:,} records are missing in what it keeps" if missed else ""
        say_warning(
            f"udpfast: {self._feed}: agent {self.entry.name} works again, {seconds:,} s after it "
            f"failed{lost}"
        )

    def _say_stuck(self, what: str, now_ns: int) -> None:
        seconds = (now_ns - self._turned_ns) // 1_000_000_000
        say_warning(
            f"udpfast: {self._feed}: agent {self.entry.name} (pid {self.entry.pid}) {what}, "
            f"{seconds:,} s after its last one"
        )

    def _become(self, state: AgentState, since_ns: int = 0) -> None:
        if state is not self.entry.state or not self.entry.changed_ns:
            self.entry.state = state
            self.entry.changed_ns = since_ns or realtime_ns()


class Companions:
    """All agents beside one feed, and the thread that watches them.

    It also frees the entries of readers that have died, and keeps the instance's roster. What goes
    wrong here is noted there: it never reaches the feed.

    Parameters
    ----------
    config : FeedConfig
    directory : Path
        Of the instance.
    feed : callable
        Returns the feed's own entry in the roster.
    records : callable
        Returns how many records the feed has put out.
    """

    def __init__(
        self,
        config: FeedConfig,
        directory: Path,
        feed: Callable[[], AgentEntry],
        records: Callable[[], int] = lambda: 0,
    ) -> None:
        self.agents = [
            Companion(
                factory.name,
                _launcher(factory, config, directory),
                config,
                records,
                partial(factory.missing, config, directory),
            )
            for factory in wanted_agents(config)
        ]
        self._drain_ns = config.run.drain_ms * 1_000_000
        self._directory = directory
        self._feed = feed
        self._roster = Roster(directory, 1 + len(self.agents))
        self._readers_due_ns = 0
        self._ended = threading.Event()
        self._stopped = False
        self._watcher = Worker(self._watch, "udpfast watch")

    @property
    def entries(self) -> list[AgentEntry]:
        """How the feed and each agent are."""
        return [self._feed(), *(agent.entry for agent in self.agents)]

    def start(self) -> None:
        """Start the thread that starts and watches the agents; returns at once."""
        self._roster.write(self.entries, realtime_ns())
        self._roster.publish()
        self._watcher.start()

    def stop(self, hurried: Callable[[], bool] = lambda: False) -> None:
        """Let the agents read what is left in the ring, `run.drain_ms` at most; end them.

        Safe to call twice, and without `start`.

        Parameters
        ----------
        hurried : callable
            Asked again and again: once it returns True, they are told to end with what they have.
        """
        if self._stopped:
            return
        self._stopped = True
        self._ended.set()
        deadline_ns = monotonic_ns() + self._drain_ns
        started = self._watcher.join(1.0)
        while not started and monotonic_ns() < deadline_ns and not hurried():
            started = self._watcher.join(_DRAIN_LOOK_S)
        if any(agent.running for agent in self.agents):
            self._finish(Companion.drain, deadline_ns, hurried)
        self._finish(Companion.stop, monotonic_ns() + 1_000_000_000)
        for agent in self.agents:
            agent.abandon()
        self._roster.write(self.entries, realtime_ns())
        if started:  # else an agent hangs in its start, and its watcher may still come to this
            self._roster.close()

    def _finish(
        self,
        how: Callable[[Companion], None],
        deadline_ns: int,
        hurried: Callable[[], bool] = lambda: False,
    ) -> None:
        pause = threading.Event()
        for agent in self.agents:
            how(agent)
        while any(agent.running for agent in self.agents) and monotonic_ns() < deadline_ns:
            if hurried():
                return
            pause.wait(_DRAIN_LOOK_S)
            for agent in self.agents:
                agent.look(monotonic_ns())

    def _watch(self) -> None:
        while True:
            # A watcher that an agent could end would watch no other.
            try:
                for agent in self.agents:
                    agent.look(monotonic_ns())
                self._free_readers(monotonic_ns())
                self._roster.write(self.entries, realtime_ns())
            except Exception:
                traceback.print_exc()
            if self._ended.wait(_LOOK_S):
                return

    def _free_readers(self, now_ns: int) -> None:
        if now_ns >= self._readers_due_ns:
            remove_dead_readers(self._directory)
            took_ns = monotonic_ns() - now_ns
            self._readers_due_ns = now_ns + max(READERS_NS, READERS_SHARE * took_ns)


def _count(what: Callable[[], int]) -> int:
    # What is counted may be damaged or gone: then nobody knows, and the agent's life goes on.
    try:
        return what()
    except (OSError, UdpfastError):
        return 0


def _launcher(
    factory: AgentFactory, config: FeedConfig, directory: Path
) -> Callable[[], CompanionRun]:
    apart = factory.apart or config.run.processes == "each"
    run = ProcessRun if apart else ThreadRun
    return lambda: run(factory, config, directory)
