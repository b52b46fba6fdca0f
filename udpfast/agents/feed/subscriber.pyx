"""The subscriber: one feed, one thread, one core, one ring."""

import inspect
import os
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from errno import EPERM
from functools import partial
from pathlib import Path

import cython

from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.agents.feed.engine cimport Engine
from udpfast.core.agent cimport Agent, AgentRunner
from udpfast.core.atomics cimport counter_add, load_acquire, store_release
from udpfast.core.check cimport unlikely
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.counter cimport (
    FEED_BATCHES,
    FEED_BYPASS_STACK,
    FEED_BYPASS_STATE,
    FEED_CYCLE_LONGEST_NS,
    FEED_CYCLES,
    FEED_CYCLES_SLOW,
    LINE_KERNEL_DROPS,
    LINE_RECEIVE_ERRORS,
    LINE_REOPENED,
)
from udpfast.core.oserr cimport check
from udpfast.net.datagram cimport (
    DatagramBatch,
    DatagramReceiver,
    datagram_drops_read,
    datagram_receive,
)
from udpfast.net.poller cimport epoll_event, poller_add, poller_open, poller_wait
from udpfast.net.xdp cimport XdpReceiver
from udpfast.net.xdp_ring cimport xdp_stamp
from udpfast.shm.histogram cimport histogram_record

from udpfast.agents.feed.feed_store import FeedStore
from udpfast.agents.feed.line_watch import LineWatch, WatchedInterface, WatchedLine
from udpfast.agents.feed.lines import (
    receive_options,
    received_addresses,
    xdp_lines,
    xdp_options,
)
from udpfast.agents.feed.companions import Companions
from udpfast.agents.feed.companion_run import describe_failure
from udpfast.archive.bus_files import note_store
from udpfast.archive.feed_settings import write_feed
from udpfast.config import FeedConfig, load_feed, parse_feed
from udpfast.core.stop import Stop
from udpfast.core.worker import shielded
from udpfast.errors import ConfigError, UdpfastError, unexpected_keyword
from udpfast.net.bypass import STACKS, inspect_bypass, open_first_socket
from udpfast.net.xdp_host import group_lines
from udpfast.shm.counters import CounterBlock
from udpfast.shm.instance import admit_group, instance_directory
from udpfast.shm.roster import AgentEntry, AgentState
from udpfast.shm.trust import find_group

__all__ = ["Subscriber"]

cdef enum:
    # Holes are looked at this often, not at every turn: fine against a wait of milliseconds.
    EXPIRE_INTERVAL_NS = 50_000
    # Holes wait by a clock that stands while a line has more to read, but for so many turns (a
    # line that is never read to its end shall not stop it for ever).
    BACKLOG_TURNS_MAX = 512
    # What lies in the sockets when the loop is stopped is read in so many turns: a full 64 MiB of
    # small datagrams, and as much again.
    LAST_TURNS = 4096
    # Without stamps nobody tells the drops of a full queue, with them the next datagram does: all
    # are asked this often. When each line was heard is told as often.
    DROPS_INTERVAL_NS = 100_000_000
    # Every n-th batch is timed to its end: one more clock read, spread thin.
    SAMPLE_BATCHES = 16
    # Addresses of all lines (SOCKETS_MAX of config/parse.py), or with AF_XDP the queues of all
    # interfaces.
    BATCHES_MAX = 512
    # So many sockets are asked one after the other, each turn: an empty recv costs 0.3 us. Of more,
    # epoll tells which have something, for as much as one or two of them cost.
    SOCKETS_ASKED = 4
    READY_MAX = 64               # sockets that one turn hears of

#: What happened to lines, for whoever asks; without one, the last of it is kept.
EVENTS_MAX = 100


@cython.final
cdef class FeedLoop(Agent):
    """The duty cycle of a feed: receive from every line, hand on, let time pass.

    Parameters
    ----------
    engine : Engine
        Where datagrams go.
    config : FeedConfig
        Which lines to open; sockets are opened in the agent's own thread (preloaded stacks
        want that).
    ready : callable, optional
        Called when they are, before the first datagram is looked at.
    """

    cdef Engine engine
    cdef object config
    cdef object ready
    cdef readonly list receivers
    cdef readonly str first_failure    # of a preloaded stack's first call; empty: none
    # NULL: let go of, since its interface is gone. From then on it is the watch's, which puts
    # another one there.
    cdef DatagramBatch* batches[BATCHES_MAX]
    cdef int batch_count
    cdef int poller                    # an epoll; -1: all sockets are asked at every turn
    cdef epoll_event heard[READY_MAX]
    cdef int let_go_error
    cdef list interfaces               # with AF_XDP, of each receiver: its lines, its batches
    cdef object lines_lock             # of who opens and closes receivers
    cdef bint lines_closed
    # All that had come by then was read. Holes wait by this clock: after the loop was held up,
    # what fills them may lie in the sockets.
    cdef int64_t read_until_ns
    cdef int backlog_turns
    cdef int64_t expire_at_ns
    cdef int64_t drops_at_ns
    cdef int drops_next                # the batch whose drops are asked for then
    cdef int64_t note_at_ns            # when it is told next when lines were heard
    cdef uint32_t sample

    def __init__(self, Engine engine, config, ready=None):
        super().__init__(f"udpfast {config.name}"[:15])
        self.engine = engine
        self.config = config
        self.ready = ready
        self.receivers = []
        self.poller = -1
        self.interfaces = []
        self.lines_lock = threading.Lock()
        self.first_failure = ""

    def on_start(self) -> None:
        """Open the sockets of all lines, or none."""
        try:
            if self.config.bypass.stack != "none":
                self.first_failure = open_first_socket(self.config.bypass.stack)
            self._open_lines()
            if self.ready is not None:
                self.ready()
        except BaseException:
            self._close_lines()
            raise

    def _open_lines(self):
        cdef DatagramReceiver receiver
        if self.config.receive.path == "xdp":
            return self._open_interfaces()
        options = receive_options(self.config)
        addresses = received_addresses(self.config)
        # A socket that polls its driver has to be asked itself; epoll asks none.
        if len(addresses) > SOCKETS_ASKED and not self.config.receive.busy_poll_us:
            self.poller = check(poller_open(), "open an epoll", self.config.name)
        for each in addresses:
            # One after the other: the first one's slots do for all of them.
            receiver = DatagramReceiver(
                each.where, options, each.channel, each.line, self.config.receive.batch,
                each.address, self.receivers[0] if self.receivers else None)
            self.receivers.append(receiver)
            self._insist(receiver)
            self.batches[self.batch_count] = &receiver.batch
            if self.poller >= 0:
                receiver.replaced = partial(self._poll, receiver, self.batch_count)
                receiver.replaced()
            self.batch_count += 1

    def _poll(self, DatagramReceiver receiver, int place):
        # Another socket under the same descriptor is another one to the kernel.
        check(poller_add(self.poller, receiver.batch.fd, <uint32_t>place), "watch a socket",
              self.config.name)

    def _open_interfaces(self):
        for _, lines in group_lines(xdp_lines(self.config)):
            self.interfaces.append((lines, []))
            self.receivers.append(None)
            self._open_interface(len(self.receivers) - 1)

    def _open_interface(self, int index):
        cdef XdpReceiver receiver
        cdef int n
        lines, places = self.interfaces[index]
        receiver = XdpReceiver(lines, xdp_options(self.config), self.config.receive.batch)
        self.receivers[index] = receiver
        try:
            self._insist(receiver)
            receiver.count_into(&self.engine.counters)
            if self.batch_count + receiver.queue_count - len(places) > BATCHES_MAX:
                raise ConfigError(
                    f"xdp.queues: expected at most {BATCHES_MAX} queues on all interfaces "
                    f"together, {receiver.address} has {receiver.queue_count}")
        except BaseException:
            receiver.close()
            raise
        for n in range(receiver.queue_count):
            if n == len(places):
                places.append(self.batch_count)
                self.batch_count += 1
            # Orders what is behind the pointer before it; read by the loop's next turn.
            store_release(<uint64_t*>&self.batches[<int>places[n]], <uint64_t>receiver.batch(n))

    def has_let_go(self, int index) -> bool:
        """Whether the loop polls no queue of an interface any more, because it is gone."""
        return all([
            load_acquire(<uint64_t*>&self.batches[<int>place]) == 0
            for place in self.interfaces[index][1]])

    def reopen_interface(self, int index) -> bool:
        """Receive from an interface again that is gone; False: the loop still polls, or is over.

        Raises
        ------
        ConfigError, OSError
            It cannot be opened, or is not there yet; try again.
        """
        with self.lines_lock:
            if self.lines_closed or not self.has_let_go(index):
                return False
            self.receivers[index].close()
            self._open_interface(index)
            for item in self.interfaces[index][0]:
                self.count_reopened(item.channel, item.index)
            return True

    def on_stop(self) -> None:
        """Take what has come by now, deliver what waits, report the holes, close the sockets."""
        cdef int i, turns = 0
        # A sender that never pauses does not keep the loop here.
        with nogil:
            while turns < LAST_TURNS and self.do_work(clock_monotonic_ns()) > 0:
                turns += 1
        for i in range(self.batch_count):
            self._read_drops(i)
        self.engine.finish(clock_monotonic_ns(), clock_realtime_ns())
        self._close_lines()

    def _close_lines(self):
        with self.lines_lock:
            self.lines_closed = True
            self.batch_count = 0
            for receiver in self.receivers:
                if receiver is not None:
                    receiver.close()
            if self.poller >= 0:
                os.close(self.poller)
                self.poller = -1

    def count_reopened(self, channel: int, line: int) -> None:
        """Count a socket that was opened anew. Only one thread may call this."""
        counter_add(&self.engine.counters.line[channel][line][LINE_REOPENED], 1)

    def _insist(self, receiver):
        # With `agent.strict` an option that was not granted ends the start.
        for result in receiver.results:
            if self.config.agent.strict and result.reason:
                raise PermissionError(
                    EPERM, f"{result.name}: asked for {result.asked}, got {result.got}: "
                           f"{result.reason}")

    cdef int do_work(self, int64_t now_ns) noexcept nogil:
        cdef DatagramBatch* batch
        cdef int64_t unix_ns
        cdef int n, i, count, total = 0, failed = 0, error = 0
        cdef int asked = self.batch_count
        cdef bint backlog = False
        if unlikely(self.read_until_ns == 0):
            self.read_until_ns = now_ns
        if self.poller >= 0:
            asked = poller_wait(self.poller, self.heard, READY_MAX)
            if unlikely(asked < 0):
                return asked
            backlog = asked == READY_MAX
        for n in range(asked):
            i = n if self.poller < 0 else <int>self.heard[n].place
            batch = <DatagramBatch*>load_acquire(<uint64_t*>&self.batches[i])
            if unlikely(batch is NULL):
                failed += 1
                error = self.let_go_error
                continue
            if asked > SOCKETS_ASKED and self.poller >= 0:
                batch.backlog = 1    # a busy moment: take all that waits in one call
            count = datagram_receive(batch)
            backlog |= batch.full
            if unlikely(count < 0):
                # One line's trouble (its interface went down) is not the other lines'.
                counter_add(&self._line(batch)[LINE_RECEIVE_ERRORS], 1)
                failed += 1
                error = count
                if batch.xdp is not NULL:
                    # Its interface is gone, and no call will ever succeed. Orders all use of the
                    # batch before the watch, in has_let_go, sees that it may close it.
                    self.let_go_error = error
                    store_release(<uint64_t*>&self.batches[i], 0)
            elif count > 0:
                total += count
                # The one clock read of this batch: what came was there before it.
                unix_ns = clock_realtime_ns()
                if batch.xdp is not NULL:
                    xdp_stamp(batch.items, count, unix_ns - clock_monotonic_ns())
                self.engine.accept(batch.items, count, self.read_until_ns, unix_ns)
                self._note_batch(batch, unix_ns)
        if self.engine.asks:
            total += self.engine.take_answers(self.read_until_ns)
        if unlikely(failed and failed == self.batch_count):
            return error
        self.backlog_turns = self.backlog_turns + 1 if backlog else 0
        if not backlog or self.backlog_turns > BACKLOG_TURNS_MAX:
            self.read_until_ns = now_ns
        if now_ns >= self.expire_at_ns:
            self.expire_at_ns = now_ns + EXPIRE_INTERVAL_NS
            self.engine.expire(self.read_until_ns, clock_realtime_ns())
        if now_ns >= self.drops_at_ns:
            self._look_around(now_ns)
        return total if total else backlog  # it is not idle that read frames for no line

    cdef void _look_around(self, int64_t now_ns) noexcept nogil:
        # One socket at a time, so that many of them make no long turn.
        self.drops_at_ns = now_ns + DROPS_INTERVAL_NS // max(self.batch_count, 1)
        if self.drops_next >= self.batch_count:
            self.drops_next = 0
        if self.drops_next < self.batch_count:
            self._read_drops(self.drops_next)
        self.drops_next += 1
        if now_ns >= self.note_at_ns:
            self.note_at_ns = now_ns + DROPS_INTERVAL_NS
            self.engine.note_lines(now_ns, clock_realtime_ns() - now_ns)

    cdef void _read_drops(self, int i) noexcept nogil:
        if load_acquire(<uint64_t*>&self.batches[i]):
            datagram_drops_read(self.batches[i])
            self._note_drops(self.batches[i])

    cdef void _note_batch(self, DatagramBatch* batch, int64_t unix_ns) noexcept nogil:
        counter_add(&self.engine.counters.feed[FEED_BATCHES], 1)
        self._note_drops(batch)
        self.sample += 1
        if self.sample % SAMPLE_BATCHES == 0:
            histogram_record(self.engine.loop_to_ring, clock_realtime_ns() - unix_ns)

    cdef void _note_drops(self, DatagramBatch* batch) noexcept nogil:
        if batch.xdp is not NULL:  # whose lines' counters have several writers, all below
            return
        counter_add(&self._line(batch)[LINE_KERNEL_DROPS],
                    <int64_t>(batch.kernel_drops - batch.drops_counted))
        batch.drops_counted = batch.kernel_drops

    cdef int64_t* _line(self, DatagramBatch* batch) noexcept nogil:
        # The counters of the line that a batch belongs to.
        return self.engine.counters.line[batch.items[0].channel][batch.items[0].line]


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

    def __init__(self, config, disk=None, **unknown):
        if unknown:
            raise unexpected_keyword(Subscriber, unknown)
        if isinstance(config, (str, Path)):
            config = load_feed(config)
        elif isinstance(config, Mapping):
            config = parse_feed(config)
        if not isinstance(config, FeedConfig):
            raise TypeError(f"config must be a path, a mapping or a FeedConfig, "
                            f"was {type(config).__name__}")
        self.config = config
        if config.access.group:
            find_group(config.access.group)
        # Who may read it is changed with the rest, by a start that is not refused.
        self.directory = instance_directory(config.name, create=True, group=None)
        self._disk = disk
        self._store = None
        self._engine = None
        self._counters = None
        self._loop = None
        self._runner = None
        self._companions = None
        self._watch = None
        self._wish = None
        self._interrupted = False
        self._said = deque(maxlen=EVENTS_MAX)
        self._feed = AgentEntry("feed")
        self._notes = ()
        self._bypass = None

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
        except BaseException:
            # A loop that ran on would hold the instance, and nobody could end it.
            with suppress(Exception):
                self.stop()
            raise

    def _start(self):
        cdef Engine engine
        if self.config.output == "store" and self._disk is None:
            self._store = FeedStore(self.config)
            self._said.extend(self._store.disk.store.said)
        self._companions, self._interrupted = None, False
        self._counters = None
        self._engine = engine = Engine(
            self.config, self.directory, publish=False,
            disk=self._disk if self._store is None else self._store.disk)
        missing = engine.missing_pages()
        if self.config.agent.strict and missing:
            raise PermissionError(EPERM, missing[0])
        self._companions = Companions(
            self.config, self.directory, self._look,
            lambda: self.counters()["feed"]["records"])
        self._start_loop(engine, partial(self._take_over, engine))
        self._notes = self._find_notes()
        self._companions.start()

    def _take_over(self, Engine engine):
        # The lines are open, all memory is taken: readers find the new writer from here on.
        self._find_bypass(engine)
        admit_group(self.directory, self.config.access.group)
        write_feed(self.config, self.directory)
        engine.publish(clock_realtime_ns())
        self._counters = CounterBlock.attach(self.directory / "counters")
        disk = engine.output.disk
        note_store(self.directory, None if disk is None else disk.directory)

    def _close_store(self, failed):
        store, self._store = self._store, None
        if store is not None:
            store.close(failed=failed)

    def _start_loop(self, Engine engine, ready=None):
        cdef AgentRunner runner
        agent = self.config.agent
        self._loop = FeedLoop(engine, self.config, ready)
        runner = AgentRunner(
            self._loop, core=agent.core, idle=agent.idle,
            fifo_priority=agent.fifo_priority or None, lock_memory=agent.lock_memory,
            strict=agent.strict)
        runner.count_into(
            &engine.counters.feed[FEED_CYCLES], &engine.counters.feed[FEED_CYCLE_LONGEST_NS],
            &engine.counters.feed[FEED_CYCLES_SLOW])
        runner.start()
        self._runner = runner
        self._become(AgentState.RUNNING)
        self._watch_lines()

    def _watch_lines(self):
        # A loop that ended by itself has left its watch, which knows only closed sockets.
        self._end_watch()
        self._watch = LineWatch(
            self._find_interfaces() if self.config.receive.path == "xdp" else self._find_lines(),
            self._said)

    def _find_interfaces(self):
        return [WatchedLine(receiver.address, WatchedInterface(self._loop, index), lambda: None)
                for index, receiver in enumerate(self._loop.receivers)]

    def _find_lines(self):
        return [
            WatchedLine(
                each.shown, receiver,
                partial(self._loop.count_reopened, each.channel, each.line))
            for each, receiver in zip(
                received_addresses(self.config), self._loop.receivers, strict=True)]

    def _end_watch(self):
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
        if self._engine is None or not self.ended:
            raise RuntimeError(f"{self.name}: the feed's loop must have ended first")
        (<Engine>self._engine).expire(now_ns, clock_realtime_ns())

    def note_failure(self, failure: BaseException, again: bool) -> None:
        """Have tools know what ended the loop, and whether it will be started again."""
        self._feed.failure = describe_failure(failure)
        self._feed.down_ns = self._feed.down_ns or clock_realtime_ns()
        self._feed.down_records = self.counters()["feed"]["records"]
        self._become(AgentState.WAITING if again else AgentState.FAILED)

    @property
    def ended(self) -> bool:
        """Whether the loop has ended, by itself or by `stop`."""
        return self._find_end()[0]

    @property
    def failure(self):
        """The exception that ended the loop; None if it runs, or was stopped."""
        return self._find_end()[1]

    def _find_end(self):
        failure = _failure_of(self._runner)
        return self._runner is None or failure is not None or self._runner.join(0.0), failure

    @property
    def agents(self):
        """How the feed and each agent beside it are: `AgentEntry` of `shm.roster`."""
        return [self._look()] if self._companions is None else self._companions.entries

    def _look(self):
        if self._runner is not None:
            self._feed.cycles = self._runner.cycles
        return self._feed

    def _become(self, state):
        self._feed.state = state
        if state is AgentState.RUNNING:
            self._feed.down_ns = 0
        self._feed.pid = os.getpid()
        self._feed.changed_ns = clock_realtime_ns()

    def stop(self, hurry=None) -> None:
        """Stop the loop, deliver what waits, close ring and sockets; let the agents read the rest.

        Safe to call twice. It comes to its end whatever a signal's handler raises meanwhile
        (KeyboardInterrupt), and raises that then.

        Parameters
        ----------
        hurry : callable, optional
            Asked again and again: once it returns True, or a handler has raised, the agents are
            told to end with what they have.

        Raises
        ------
        Exception
            What had ended the loop, unless `join` or `failure` has told it.
        """
        def hurried():
            return self._interrupted or (hurry is not None and hurry()) or (
                self._wish is not None and self._wish.is_hurried())

        try:
            shielded(partial(self._stop, hurried), self._interrupt)
        finally:
            wish, self._wish = self._wish, None
            if wish is not None and threading.current_thread() is threading.main_thread():
                wish.restore()

    def _interrupt(self):
        self._interrupted = True

    def _stop(self, hurried):
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
            if engine is not None:
                self._become(AgentState.ENDED)
        finally:
            failed = not waiting and _failure_of(runner) is not None
            if engine is not None:
                engine.close(failed)
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
    def bypass(self):
        """What there is of a preloaded network stack (`net.bypass.Bypass`); None before `start`."""
        return self._bypass

    def _find_bypass(self, Engine engine):
        wanted = self.config.bypass
        found = self._bypass = inspect_bypass(wanted.stack)
        if found.stack != "none":
            counter_add(&engine.counters.feed[FEED_BYPASS_STACK], STACKS[found.stack].number)
            counter_add(&engine.counters.feed[FEED_BYPASS_STATE], found.state)
        if found.missing and (wanted.strict or self.config.agent.strict):
            raise UdpfastError(f"bypass {found.text}")

    def _find_notes(self):
        notes = [f"{grant.asked} was denied: {grant.reason}"
                 for grant in self._runner.grants if not grant.granted]
        # With AF_XDP a receiver is an interface, which its address names; else it is a line.
        lines = [each.name for each in received_addresses(self.config)]
        for index, receiver in enumerate(self._loop.receivers):
            by_interface = isinstance(receiver, XdpReceiver)
            where = receiver.address if by_interface else lines[index]
            notes += [
                f"{where}: {result.name}: asked for {result.asked}, got {result.got}: "
                f"{result.reason}" for result in receiver.results if result.reason]
            if by_interface:
                notes += [f"{where}: {each}" for each in receiver.fallbacks]
        notes += self._engine.missing_pages()
        if self._bypass.missing:
            notes.append(f"bypass {self._bypass.text}")
        if self._loop.first_failure:
            notes.append(f"bypass {self._bypass.stack}: its first call failed: "
                         f"{self._loop.first_failure}")
        return tuple(notes)

    def counters(self) -> dict:
        """Return the counters, as `udpfast.counters(name)` does; also after `stop`."""
        if self._counters is not None:  # whatever became of the file
            return self._counters.read()
        with CounterBlock.attach(self.directory / "counters") as block:
            return block.read()

    def address_counters(self) -> dict:
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

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()


def _failure_of(runner):
    # What ended the loop of a runner; None: nothing did, or it never began.
    try:
        if runner is not None:
            runner.join(0.0)
    except Exception as failure:
        return failure
    return None


# Keywords that are refused are no part of what `help` shows.
_whole = inspect.signature(Subscriber.__init__)
Subscriber.__init__.__signature__ = _whole.replace(
    parameters=[each for each in _whole.parameters.values() if each.kind != each.VAR_KEYWORD]
)
