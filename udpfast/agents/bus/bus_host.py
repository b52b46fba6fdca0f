"""A host's part in its bus: the sockets, disk and clock around the nodes of its stores.

One thread carries bytes and runs the nodes; another one per store keeps its disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import select
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from udpfast.agents.bus.bus_feed import BusFeed
from udpfast.agents.bus.bus_sockets import NO_FAULTS, BadPath, BusSockets, Cores
from udpfast.agents.bus.store_disk import StoreDisk
from udpfast.archive.bus_files import (
    describe_composite,
    describe_store,
    read_description,
    read_wish,
    shared_directory,
    take_wish,
)
from udpfast.bus.absence import GONE_NS, Absence, News
from udpfast.bus.merger import Merger
from udpfast.bus.node import Node
from udpfast.bus.outbox import Outbox
from udpfast.bus.outbox_sender import OutboxSender
from udpfast.bus.sequencer import SequencerVerdict
from udpfast.config import load_feed
from udpfast.config.bus import BusConfig, StoreConfig
from udpfast.core.clock import monotonic_ns, realtime_ns
from udpfast.errors import ConfigError, UdpfastError, sentence
from udpfast.shm.files import replace_file
from udpfast.shm.instance import journal_directory
from udpfast.shm.trust import find_group

__all__ = ["BusHost"]

#: Time between two checks for what changes rarely: outboxes, requests to promote, old segments.
LOOK_S = 0.1
#: epoll waits in whole milliseconds: this is the shortest wait.
WAIT_S = 0.001
#: Time for which the host leaves a store alone after it failed, before it tries again.
REST_NS = 100_000_000
#: A failure that does not return within this time is over; a later one is reported again.
OVER_NS = 10_000_000_000


class _Part:
    """One store on this host."""

    def __init__(
        self,
        host: str,
        name: str,
        config: BusConfig,
        directory: Path | None,
        bad: BadPath,
        quarantine: bool,
        cores: Cores,
        insist: bool,
    ) -> None:
        self.name = name
        self.settings = settings = config.logs[name]
        self.merger: Merger | None = None  # if the store is a composite's order log ...
        self.inputs: tuple[str, ...] = ()  # ... its inputs
        path = journal_directory(directory / name if directory is not None else name, create=True)
        _check_copy(path, name, host, settings)
        self.disk = StoreDisk(path, name, host, settings, create=False, group=config.access.group)
        self.log, self.store, self.directory = self.disk.log, self.disk.store, self.disk.directory
        self._wish = ""
        if take_wish(path):
            self.store.said.append("ignored a request from before this start to promote this host")
        self.feed: BusFeed | None = None
        self.sockets = BusSockets(self.disk, config, bad, cores)
        self.sockets.node = self.node = Node(
            self.store, [other for other in settings.hosts if other != host], self.sockets, _draw,
            source=settings.source(host), quarantine=quarantine or settings.quarantine,
        )  # fmt: skip
        self.outboxes: dict[str, tuple[OutboxSender, int]] = {}
        self._refused: set[str] = set()
        self._look_ns = 0
        self._source = Absence(monotonic_ns(), realtime_ns())
        self._copies: dict[str, Absence] = {}
        self._boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        self._intact: bool | None = None  # the contents of the file `bus.boot`
        self._failed_ns = -OVER_NS
        self._rest_ns = 0
        if settings.feed and settings.sequencer == host:
            self.feed = BusFeed(load_feed(settings.feed), self.disk)
        self._begin(insist)

    def _begin(self, insist: bool) -> None:
        path = self.directory / "bus.boot"
        same = path.exists() and path.read_bytes() == self._boot.encode()
        self.node.start(
            monotonic_ns(), realtime_ns(),
            named=self.settings.sequencer == self.store.host,
            intact=(same and self.log.damaged_at < 0) or not self.store.was_writer,
            feeds=self.feed is not None, insist=insist,
        )  # fmt: skip
        self._note_boot()

    def _note_boot(self) -> None:
        # The file `bus.boot` says from which boot on this host has everything that it wrote.
        if self._intact == self.node.intact:
            return
        self._intact = self.node.intact
        path = self.directory / "bus.boot"
        if self._intact:
            replace_file(path, self._boot.encode())
        else:
            path.unlink(missing_ok=True)

    def start_feed(self) -> None:
        """Start the feed that writes this store, if there is one and this host has the store."""
        if self.feed is not None and self.node.written_by_feed and not self.feed.started:
            self.disk.written_by_feed = True
            self.feed.start()

    # --- the loop's turn ------------------------------------------------------------------------

    def turn(self) -> None:
        """Do what is due. A failure is reported and retried; the other stores are not affected."""
        now_ns = monotonic_ns()
        if now_ns >= self._look_ns:
            self._look_ns = now_ns + int(LOOK_S * 1e9)
            self._try(self._look, now_ns)
        if now_ns < self._rest_ns:
            time.sleep(WAIT_S)  # unread input at its sockets would make the loop spin
        elif not self._try(self._carry, now_ns):
            self._rest_ns = now_ns + REST_NS

    def _try(self, what: Callable[[int], None], now_ns: int) -> bool:
        try:
            what(now_ns)
        except (OSError, UdpfastError) as problem:
            self._failed_ns = now_ns
            said = sentence(problem)
            if said != self.disk.failing:
                self.disk.failing = said
                self.store.said.append(f"{said}; keeps trying")
            return False
        if self.disk.failing and now_ns >= self._failed_ns + OVER_NS:
            self.disk.failing = ""
        return True

    def _carry(self, _: int) -> None:
        # Read input, and run the node.
        self.sockets.read()
        now_ns, unix_ns = monotonic_ns(), realtime_ns()
        self.node.work(now_ns, unix_ns)
        self._note_boot()
        if self.merger is not None:
            self.merger.work(now_ns, unix_ns)
        self.sockets.write(now_ns)
        self.disk.tell(self.node.stream_comes)

    def _look(self, now_ns: int) -> None:
        # Check what changes rarely: outboxes, an operator's request, old segments.
        folder = shared_directory(self.directory)
        for path in folder.glob("*.outbox"):
            outbox_sender, fd = self.outboxes.get(path.name, (None, -1))
            if outbox_sender is not None and not _is_of(fd, path):  # another outbox took its name
                self.node.watch.remove(outbox_sender)
                del self.outboxes[path.name]
                os.close(fd)
            if path.name not in self.outboxes:
                self._take(path, now_ns)
        for outbox_sender, fd in self.outboxes.values():
            outbox_sender.alive = not _lockable(fd)
        wish = read_wish(self.directory)
        if wish:
            self._grant(wish, now_ns)
        self.start_feed()
        if self.feed is not None:
            self.feed.look(now_ns)
        self.disk.remove_old()
        self._note_hosts(now_ns, realtime_ns())
        describe_store(self.directory, self.description())

    def _note_hosts(self, now_ns: int, unix_ns: int) -> None:
        # Report hosts that are gone or back, and how many records they lack.
        node, said = self.node, self.store.said
        # Other reasons for not following are reported elsewhere.
        known = (
            node.stream_comes
            or node.copying.stop_reason
            or node.why_not_writing
            or node.copying.left
            or node.promotion is not None
        )
        news = self._source.look(bool(known), now_ns, unix_ns)
        source = self.store.writer_host or "the host that writes the store"
        if news is News.GONE:
            said.append(
                f"nothing has come from {source} for {GONE_NS // 10**9} s: this copy ends at "
                f"{self.store.end}; if {source} stays away, choose a writer with `udpfast bus "
                "promote`"
            )
        elif news is News.BACK:
            lacks = max((node.copying.source_end or 0) - self.store.end, 0)
            said.append(
                f"the stream arrives again after {self._source.away_ns / 1e9:,.0f} s: {lacks:,} "
                "bytes to copy"
            )
        for host, copy in self.disk.consumers().items():
            absence = self._copies.setdefault(host, Absence(now_ns, unix_ns))
            news = absence.look(bool(copy["connected"]), now_ns, unix_ns)
            if news is News.GONE:
                said.append(f"{host} has not copied for {GONE_NS // 10**9} s")
            elif news is News.BACK:
                said.append(
                    f"{host} copies again after {absence.away_ns / 1e9:,.0f} s: it lacks "
                    f"{copy.get('lag_records', 0):,} records"
                )

    def _grant(self, wish: str, now_ns: int) -> None:
        self._wish, self.node.outcome = wish, ()
        # Describe it before taking the request: whoever finds the request gone then knows by whom.
        describe_store(self.directory, self.description())
        if not take_wish(self.directory):
            return
        if self.settings.feed and (self.feed is None or self.node.written_by_feed):
            self.node.report_promotion("not promoted: this store is written by a feed")
        else:
            self.node.promote(now_ns)

    def _take(self, path: Path, now_ns: int) -> None:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as problem:  # for example root's: this user must not read it
            if path.name not in self._refused:
                self._refused.add(path.name)
                self.store.said.append(
                    f"cannot open an outbox, so its messages are not sent: {problem}"
                )
            return
        try:
            memory = mmap.mmap(fd, os.fstat(fd).st_size)
            outbox_sender = OutboxSender(
                Outbox(memory), self.store, now_ns, resend_ns=self.settings.resend_ms * 1_000_000
            )
        except ValueError as problem:  # an app gives an outbox its name only when it is complete
            os.close(fd)
            if path.name not in self._refused:
                self._refused.add(path.name)
                self.store.said.append(f"ignored {path}, which is not a valid outbox: {problem}")
            return
        self.outboxes[path.name] = outbox_sender, fd
        self.node.add(outbox_sender)

    def description(self) -> dict[str, object]:
        """Return the state of this store for `bus stat`."""
        node = self.node
        sequencer = node.sequencer
        return {
            **self.disk.description(),
            "following": node.stream_comes,
            "source_end": node.copying.source_end if node.stream_comes else None,
            "source_gone_ns": self._source.since_ns,
            "source_left": node.copying.left,
            "wish": self._wish,
            "outcome": node.outcome,
            "waits": node.why_not_writing or self._lacks(),
            "stopped": node.copying.stop_reason or node.copying.failures.reason,
            "reconnects": node.copying.reconnects,
            "damaged": node.copying.damaged,
            "quarantined": node.copying.quarantined,
            "unauthentic": self.sockets.unauthentic,
            "verdicts": {} if sequencer is None else {
                verdict.name.lower(): sequencer.verdicts[verdict] for verdict in SequencerVerdict
            },
            "received": 0 if sequencer is None else sequencer.received,
            "held": 0 if sequencer is None else sequencer.held,
            "clock_steps": 0 if sequencer is None else sequencer.clock_steps,
            "feed": None if self.feed is None else self.feed.description(),
        }  # fmt: skip

    def _lacks(self) -> str:
        # Return why the composite does not advance although its inputs do; empty: it does.
        at = [] if self.merger is None else self.merger.lacks(monotonic_ns())
        if not at:
            return ""
        names = ", ".join(self.inputs[each] for each in at)
        return (
            f"the order log has taken records of {names} that this host lacks: it waits for them; "
            "if no host has them any more, promote a writer of that store to continue the order"
        )

    def end(self) -> None:
        """End everything in good order."""
        self.sockets.say_goodbye()
        self.sockets.drop_links()
        self.disk.end(self.description())
        self.sockets.close_all()


class BusHost:
    """Run one host's part of a bus.

    Parameters
    ----------
    config : BusConfig
    host : str
        Name of this host in `config`.
    directory : path or None
        Directory with a folder for each store; None: where journals are by default.
    bad : BadPath
        Faults between hosts, for demos and tests.
    quarantine : bool
        Set aside records that the writer does not have, whatever the file says.
    begin : collection of str
        Stores that this host begins, if it has nothing, without the hosts that cannot be reached.
    say : callable, optional
        Called with each line about what happens to the stores.

    Raises
    ------
    ConfigError, OSError, RegionError, WriterExistsError
        A port is in use, or a store cannot be written.
    """

    def __init__(
        self,
        config: BusConfig,
        host: str,
        directory: Path | None = None,
        *,
        bad: BadPath = NO_FAULTS,
        quarantine: bool = False,
        begin: Collection[str] = (),
        say: Callable[[str], object] | None = None,
    ) -> None:
        for name in begin:
            if name not in config.logs or config.logs[name].sequencer != host:
                named = [each for each, store in config.logs.items() if store.sequencer == host]
                raise ConfigError(
                    f"--begin: expected a store whose sequencer is {host} "
                    f"({', '.join(named) or 'there is none'}), found {name!r}"
                )
        self._say = say
        if config.access.group:
            find_group(config.access.group)
        cores = Cores(config.links.cores.get(host, ()))
        self.parts = [
            _Part(host, name, config, directory, bad, quarantine, cores, name in begin)
            for name, store in config.logs.items() if host in store.hosts
        ]  # fmt: skip
        by_name = {part.name: part for part in self.parts}
        for name, composite in config.composites.items():
            if name in by_name:
                part = by_name[name]
                part.inputs = tuple(composite.inputs)
                part.merger = Merger(part.node, [by_name[each].node for each in part.inputs])
                describe_composite(part.directory, [by_name[each].directory
                                                    for each in composite.inputs])  # fmt: skip
        self._stopped = False
        self._ending = threading.Event()  # set by `run`: a signal handler must not take its lock

    def stop(self) -> None:
        """Make `run` return. A signal handler may call this at any moment."""
        self._stopped = True

    def run(
        self,
        *,
        spin: bool = False,
        ready: Callable[[], None] | None = None,
        alive: Callable[[int], None] | None = None,
    ) -> None:
        """Work until `stop`.

        Parameters
        ----------
        spin : bool
            Never sleep.
        ready : callable, optional
            Called when the work begins and the feeds receive.
        alive : callable, optional
            Called in every turn, with the monotonic clock in ns.
        """
        keepers = [threading.Thread(target=part.disk.keep, args=(self._ending,), daemon=True)
                   for part in self.parts]  # fmt: skip
        for keeper in keepers:
            keeper.start()
        try:
            for part in self.parts:
                part.start_feed()
            if ready is not None:
                ready()
            self._work(spin, alive)
        finally:
            self._ending.set()
            for part in self.parts:
                if part.feed is not None:
                    part.feed.stop()
            for keeper in keepers:
                keeper.join()
            with contextlib.ExitStack() as ends:  # each one, even if others fail
                for part in self.parts:
                    ends.callback(part.end)

    def _work(self, spin: bool, alive: Callable[[int], None] | None) -> None:
        parts = select.epoll()
        for part in self.parts:
            parts.register(part.sockets.poll.fileno(), select.EPOLLIN)
        while not self._stopped:
            if not spin:
                # Apps ring the bell meanwhile. Whatever comes without a descriptor may wait this
                # long.
                due = [part.node.watch.begin_sleep() for part in self.parts]
                parts.poll(0 if any(due) else WAIT_S)
                for part in self.parts:
                    part.node.watch.wake()
            for part in self.parts:
                part.turn()
                for line in part.disk.take_said():
                    if self._say is not None:
                        self._say(f"{part.name}: {line}")
            if alive is not None:
                alive(monotonic_ns())


def _check_copy(path: Path, name: str, host: str, settings: StoreConfig) -> None:
    # A host may continue only its own copy of this store.
    try:
        before = read_description(path)
        store, owner = before["store"], before["host"]
    except (FileNotFoundError, ValueError, KeyError):
        return
    if store != name or (owner != host and owner in settings.hosts):
        raise ConfigError(
            f"{path}: expected {host}'s copy of {name}, found {owner}'s copy of {store}: choose "
            "another --directory"
        )


def _draw() -> int:
    return int.from_bytes(os.urandom(8), "little") >> 1


def _is_of(fd: int, path: Path) -> bool:
    # Return whether the open file is the one that has the name now.
    own = os.fstat(fd)
    try:
        there = path.stat()
    except FileNotFoundError:
        return True
    return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)


def _lockable(fd: int) -> bool:
    # Return whether nobody holds an outbox's lock, which means that its app is gone.
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(fd, fcntl.LOCK_UN)
    return True
