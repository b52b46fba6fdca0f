"""The subscriber: one feed, one thread, one core, one ring."""

from __future__ import annotations

import inspect
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from errno import EPERM
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from udpfast.agents.feed.companion_run import describe_failure
from udpfast.agents.feed.companions import Companions
from udpfast.agents.feed.denied import denied_sentences
from udpfast.agents.feed.engine import Engine
from udpfast.agents.feed.factories import wanted_cores
from udpfast.agents.feed.feed_loop import FeedLoop
from udpfast.agents.feed.feed_store import FeedStore
from udpfast.agents.feed.line_watch import LineWatch, WatchedInterface, WatchedLine
from udpfast.agents.feed.lines import received_addresses
from udpfast.agents.feed.recent_losses import RecentLosses
from udpfast.archive.bus_files import note_store
from udpfast.archive.feed_settings import write_feed
from udpfast.config import FeedConfig, load_feed, parse_feed
from udpfast.core.agent import AgentRunner
from udpfast.core.clock import monotonic_ns, realtime_ns
from udpfast.core.core_number import check_core
from udpfast.core.stop import Stop
from udpfast.core.worker import shielded
from udpfast.errors import ConfigError, UdpfastError, WriterExistsError, unexpected_keyword
from udpfast.log.journal_state import journal_state
from udpfast.net.bypass import STACKS, Bypass, inspect_bypass
from udpfast.shm.counters import CounterBlock
from udpfast.shm.image import note_image
from udpfast.shm.instance import admit_group, instance_directory, journal_directory
from udpfast.shm.roster import AgentEntry, AgentState, read_roster
from udpfast.shm.trust import find_group

if TYPE_CHECKING:
    from udpfast.agents.bus.store_disk import StoreDisk

__all__ = ["Subscriber"]

#: What happened to lines, for whoever asks; without one, the last of it is kept.
EVENTS_MAX = 100
#: What was lost of late is counted so often.
RECENT_LOOK_NS = 1_000_000_000


class Subscriber:
    """Receive one feed and publish it to local strategies, in a thread of its own.

    Parameters
    ----------
    config : str, Path, FeedConfig or mapping
        A TOML file, or a mapping with its keys.
    disk : StoreDisk, optional
        The store's disk, if a bus daemon keeps it.

    Raises
    ------
    ConfigError
        The configuration is wrong.
    WriterExistsError
        Another live process runs this instance.
    OSError
        A socket or a region could not be opened.

    Notes
    -----
    Use it as a context manager. The thread runs without the GIL; this process's Python code does
    not slow it, but pin it to a core of its own (`agent.core`) where latency counts. The agents
    that the file asks for run beside it, and are started again when they fail (`agents`).
    """

    def __init__(
        self,
        config: str | Path | FeedConfig | Mapping[str, Any],
        disk: StoreDisk | None = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            raise unexpected_keyword(Subscriber, unknown)
        try:
            self.config = config = _read(config)
        except ConfigError as error:
            # What is wrong is in its sentence: the way through the checks helps nobody.
            raise error.with_traceback(None) from None
        if config.access.group:
            find_group(config.access.group)
        # Who may read it is changed with the rest, by a start that is not refused.
        self.directory = instance_directory(config.name, create=True, group=None)
        self._disk = disk
        self._store: FeedStore | None = None
        self._engine: Engine | None = None
        self._counters: CounterBlock | None = None
        self._loop: FeedLoop | None = None
        self._runner: AgentRunner | None = None
        self._companions: Companions | None = None
        self._watch: LineWatch | None = None
        self._wish: Stop | None = None
        self._interrupted = False
        self._said: deque[str] = deque(maxlen=EVENTS_MAX)
        self._feed = AgentEntry("feed")
        self._recent, self._recent_due_ns = RecentLosses(), 0
        self._notes: tuple[str, ...] = ()
        self._bypass: Bypass | None = None

    @property
    def name(self) -> str:
        """The instance's name."""
        return self.config.name

    def start(self) -> None:
        """Open regions and sockets, start the loop, then the agents beside it.

        A start that fails leaves the instance as it was: all that can fail comes first. What a
        signal's handler raises meanwhile (KeyboardInterrupt) is raised when all is stopped again.
        """
        try:
            shielded(self._start)
        except BaseException as failure:
            # A loop that ran on would hold the instance, and nobody could end it.
            with suppress(Exception):
                self.stop()
            if isinstance(failure, WriterExistsError):
                raise failure.with_traceback(None) from None
            raise

    def _start(self) -> None:
        for key, core in wanted_cores(self.config).items():
            check_core(key, core)
        if self.config.output == "store" and self._disk is None:
            self._store = FeedStore(self.config)
            self._said.extend(self._store.disk.store.said)
        self._companions, self._interrupted = None, False
        self._recent, self._recent_due_ns = RecentLosses(), 0
        self._counters = None
        before = _last_of(self.directory)
        try:
            self._engine = engine = Engine(
                self.config,
                self.directory,
                publish=False,
                disk=self._disk if self._store is None else self._store.disk,
            )
        except WriterExistsError as error:
            if not error.pid:
                raise
            # Which of its files was the first to be taken helps nobody.
            text = f"feed {self.name} runs already (pid {error.pid}): only one process can run it"
            raise WriterExistsError(text, error.pid) from None
        if before is not None and before.state is not AgentState.ENDED:
            engine.note_takeover()
            self._said.append(_describe_takeover(before, realtime_ns()))
        elif before is None and (left_ns := _unclosed_ns(self.config)):
            engine.note_takeover()
            self._said.append(_describe_unclosed(left_ns, realtime_ns()))
        missing = engine.missing_pages()
        if self.config.agent.strict and missing:
            raise PermissionError(EPERM, missing[0])
        self._companions = Companions(
            self.config, self.directory, self._look, lambda: self.counters()["feed"]["records"]
        )
        self._start_loop(engine, partial(self._take_over, engine))
        self._notes = self._find_notes(engine)
        self._companions.start()

    def _find_notes(self, engine: Engine) -> tuple[str, ...]:
        assert self._runner is not None
        assert self._loop is not None
        assert self._bypass is not None
        return denied_sentences(
            self.config, self._runner.grants, self._loop, engine.missing_pages(), self._bypass
        )

    def _take_over(self, engine: Engine) -> None:
        # The lines are open, all memory is taken: readers find the new writer from here on.
        self._find_bypass(engine)
        admit_group(self.directory, self.config.access.group)
        write_feed(self.config, self.directory)
        note_image(self.directory, self.config.image.enabled)
        engine.publish(realtime_ns())
        self._counters = CounterBlock.attach(self.directory / "counters")
        note_store(self.directory, None if engine.disk is None else engine.disk.directory)

    def _close_store(self, failed: bool) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close(failed=failed)

    def _start_loop(self, engine: Engine, ready: Callable[[], None] | None = None) -> None:
        agent = self.config.agent
        self._loop = FeedLoop(engine, self.config, ready, reopened=ready is None)
        runner = AgentRunner(
            self._loop,
            core=agent.core,
            idle=agent.idle,
            fifo_priority=agent.fifo_priority or None,
            lock_memory=agent.lock_memory,
            strict=agent.strict,
        )
        self._loop.count_turns(runner)
        runner.start()
        self._runner = runner
        self._become(AgentState.RUNNING)
        self._watch_lines(self._loop)

    def _watch_lines(self, loop: FeedLoop) -> None:
        # A loop that ended by itself has left its watch, which knows only closed sockets.
        self._end_watch()
        self._watch = LineWatch(
            self._find_interfaces(loop)
            if self.config.receive.path == "xdp"
            else self._find_lines(loop),
            self._said,
        )

    def _find_interfaces(self, loop: FeedLoop) -> list[WatchedLine]:
        return [
            WatchedLine(receiver.address, WatchedInterface(loop, index), lambda: None)
            for index, receiver in enumerate(loop.receivers)
        ]

    def _find_lines(self, loop: FeedLoop) -> list[WatchedLine]:
        return [
            WatchedLine(each.shown, receiver, partial(loop.count_reopened, each.channel, each.line))
            for each, receiver in zip(received_addresses(self.config), loop.receivers, strict=True)
        ]

    def _end_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.stop()

    def reopen(self) -> None:
        """Open all lines again, after an error of theirs ended the loop (`join` raised it).

        To the readers it is an outage of all lines: the same ring goes on, and what did not come
        is a gap.

        Raises
        ------
        OSError
            A line could not be opened; try again.
        """
        if self._engine is None or not self.ended:
            raise RuntimeError(f"{self.name}: the feed's loop must have ended first")
        self._feed.restarts += 1
        shielded(partial(self._start_loop, self._engine))

    def pass_time(self, now_ns: int) -> None:
        """Let time pass for a feed whose loop has ended, and will go on: silence is said in-band.

        Raises
        ------
        RuntimeError
            The loop runs: its time is its own.
        """
        if self._engine is None or self._loop is None or not self.ended:
            raise RuntimeError(f"{self.name}: the feed's loop must have ended first")
        self._loop.pass_time(now_ns)

    def note_failure(self, failure: BaseException | str, again: bool) -> None:
        """Have tools know what ended the loop, and whether it will be started again."""
        self._feed.failure = failure if isinstance(failure, str) else describe_failure(failure)
        self._feed.down_ns = self._feed.down_ns or realtime_ns()
        self._feed.down_records = self.counters()["feed"]["records"]
        self._become(AgentState.WAITING if again else AgentState.FAILED)

    @property
    def ended(self) -> bool:
        """Whether the loop has ended, by itself or by `stop`."""
        return self._find_end()[0]

    @property
    def failure(self) -> Exception | None:
        """The exception that ended the loop; None if it runs, or was stopped."""
        return self._find_end()[1]

    def _find_end(self) -> tuple[bool, Exception | None]:
        failure = _failure_of(self._runner)
        return self._runner is None or failure is not None or self._runner.join(0.0), failure

    @property
    def agents(self) -> list[AgentEntry]:
        """How the feed and each agent beside it are: `AgentEntry` of `shm.roster`."""
        return [self._look()] if self._companions is None else self._companions.entries

    def _look(self) -> AgentEntry:
        if self._runner is not None:
            self._feed.cycles = self._runner.cycles
        now_ns = monotonic_ns()
        if now_ns >= self._recent_due_ns and self._counters is not None:
            self._recent_due_ns = now_ns + RECENT_LOOK_NS
            lost, disagreements = self._recent.look(self.counters(), now_ns)
            self._feed.lost_recent, self._feed.disagreements_recent = lost, disagreements
        return self._feed

    def _become(self, state: AgentState) -> None:
        self._feed.state = state
        if state is AgentState.RUNNING:
            self._feed.down_ns = 0
        self._feed.pid = os.getpid()
        self._feed.changed_ns = realtime_ns()

    def stop(self, hurry: Callable[[], bool] | None = None, *, again: bool = False) -> None:
        """Stop the loop, deliver what waits, close ring and sockets; let the agents read the rest.

        Safe to call twice. It comes to its end whatever a signal's handler raises meanwhile
        (KeyboardInterrupt), and raises that then.

        Parameters
        ----------
        hurry : callable, optional
            Asked again and again: once it returns True, or a handler has raised, the agents are
            told to end with what they have.
        again : bool
            Another process will go on with the feed: its readers wait for that one, as behind a
            writer that was killed, where else they end.

        Raises
        ------
        Exception
            What had ended the loop, unless `join` or `failure` has told it.
        """

        def hurried() -> bool:
            return (
                self._interrupted
                or (hurry is not None and hurry())
                or (self._wish is not None and self._wish.is_hurried())
            )

        try:
            shielded(partial(self._stop, hurried, again), self._interrupt)
        finally:
            wish, self._wish = self._wish, None
            if wish is not None and threading.current_thread() is threading.main_thread():
                wish.restore()

    def _interrupt(self) -> None:
        self._interrupted = True

    def _stop(self, hurried: Callable[[], bool], again: bool) -> None:
        # The one place where the loop's thread is waited for. Only then is its memory let go of.
        engine, self._engine = self._engine, None
        runner, self._runner = self._runner, None
        # The error of a loop that was to be started again was told, and is no failure of the stop.
        waiting = self._feed.state is AgentState.WAITING
        try:
            try:
                if runner is not None:
                    runner.finish()
            except Exception as failure:
                if not waiting or failure is not _failure_of(runner):
                    raise
            finally:
                self._end_watch()
            # What ended it otherwise was noted (`note_failure`).
            if engine is not None and self._feed.state is not AgentState.FAILED:
                self._become(AgentState.ENDED)
        finally:
            failed = not waiting and _failure_of(runner) is not None
            if engine is not None:
                engine.close(failed, again)
            self._close_store(failed)
            if self._companions is not None:
                self._companions.stop(hurried)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until SIGINT, SIGTERM or SIGHUP comes, the loop fails, or the time is over.

        In the main thread these signals end the wait, quietly; elsewhere only `stop` does. After
        one has come, more of them do nothing until `stop` has returned, except that the agents
        are not waited for after one that comes a second later.
        """
        wish = Stop()
        if threading.current_thread() is threading.main_thread():
            wish.listen()
        try:
            waited_s = 0.0
            while not wish.is_set() and (timeout_s is None or waited_s < timeout_s):
                if self._runner is None or self._runner.join(0.1):
                    return
                waited_s += 0.1
        finally:
            if wish.is_set() and self._engine is not None:
                self._wish = wish
            else:
                wish.restore()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was asked of the host and not granted: one sentence each. Empty before `start`."""
        return self._notes

    def take_events(self) -> list[str]:
        """Return what happened to lines, and was found in a store, since the last call: a
        sentence each."""
        return [self._said.popleft() for _ in range(len(self._said))]

    @property
    def bypass(self) -> Bypass | None:
        """What there is of a preloaded network stack (`net.bypass.Bypass`); None before `start`."""
        return self._bypass

    def _find_bypass(self, engine: Engine) -> None:
        wanted = self.config.bypass
        found = self._bypass = inspect_bypass(wanted.stack)
        if found.stack != "none":
            engine.note_bypass(STACKS[found.stack].number, found.state)
        if found.missing and (wanted.strict or self.config.agent.strict):
            raise UdpfastError(f"bypass {found.text}")

    def counters(self) -> dict[str, dict[str, int]]:
        """Return the counters, as `udpfast.counters(name)` does; also after `stop`."""
        if self._counters is not None:  # whatever became of the file
            return self._counters.read()
        with CounterBlock.attach(self.directory / "counters") as block:
            return block.read()

    def address_counters(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return what came at each address of the lines that have several; as `counters`.

        Returns
        -------
        dict
            By line (`incremental.A`), address and name: `datagrams`, `heard_ns` (UNIX time; 0:
            never) and `silent` (1: nothing for `session.inactivity_timeout_ms`).
        """
        if self._counters is not None:
            return self._counters.read_addresses()
        with CounterBlock.attach(self.directory / "counters") as block:
            return block.read_addresses()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _read(config: Any) -> FeedConfig:
    if isinstance(config, (str, Path)):
        config = load_feed(config)
    elif isinstance(config, Mapping):
        config = parse_feed(config)
    if not isinstance(config, FeedConfig):
        raise TypeError(
            f"config must be a path, a mapping or a FeedConfig, was {type(config).__name__}"
        )
    return config


def _last_of(directory: Path) -> AgentEntry | None:
    # How the last process that ran this instance left its feed; None: nobody knows of one.
    with suppress(OSError, UdpfastError):
        return next((each for each in read_roster(directory) if each.name == "feed"), None)
    return None


def _describe_takeover(before: AgentEntry, unix_ns: int) -> str:
    how = f"failed ({before.failure})" if before.state is AgentState.FAILED else "was killed"
    away_s = max(unix_ns - before.looked_ns, 0) / 1e9
    return (
        f"takes over from process {before.pid}, which {how}; it last gave a sign of life "
        f"{away_s:,.1f} s ago: what came since then is lost, and in no counter"
    )


def _unclosed_ns(config: FeedConfig) -> int:
    # When a journal was last written whose recorder did not close it, UNIX ns; 0: there is none.
    # With the memory of a host nothing else is left of the process that did.
    if config.record.enabled and config.record.what != "raw":
        with suppress(OSError, UdpfastError):
            state = journal_state(journal_directory(config.record.directory or config.name))
            if state.index and not state.closed and not state.alive:
                return state.written_ns
    return 0


def _describe_unclosed(left_ns: int, unix_ns: int) -> str:
    return (
        "its journal was not closed, and no process before this one is known: it was killed, or "
        f"the host stopped. The journal ends {max(unix_ns - left_ns, 0) / 1e9:,.1f} s ago: what "
        "came since then is lost, and in no counter"
    )


def _failure_of(runner: AgentRunner | None) -> Exception | None:
    # What ended the loop of a runner; None: nothing did, or it never began.
    try:
        if runner is not None:
            runner.join(0.0)
    except Exception as failure:
        return failure
    return None


# Keywords that are refused are no part of what `help` shows.
_whole = inspect.signature(Subscriber.__init__)
Subscriber.__init__.__signature__ = _whole.replace(  # type: ignore[attr-defined]
    parameters=[each for each in _whole.parameters.values() if each.kind != each.VAR_KEYWORD]
)
