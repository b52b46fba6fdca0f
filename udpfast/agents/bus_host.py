"""A host's part in its bus: sockets, disk and clock around the nodes of its stores.

One thread carries bytes and lets the nodes work; another keeps the disk. Both protocols of a store
have its port: TCP for copies, UDP for messages.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import random
import select
import socket
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from udpfast.agents.bus_feed import BusFeed
from udpfast.agents.link_thread import ConsumerThread, SourceThread, link_thread
from udpfast.agents.store_disk import StoreDisk
from udpfast.archive.bus_files import (
    bell_path,
    describe_composite,
    describe_store,
    read_description,
    read_wish,
    replace_file,
    shared_directory,
    take_wish,
)
from udpfast.bus.absence import GONE_NS, Absence, News
from udpfast.bus.link_seal import LinkSeal
from udpfast.bus.merger import Merger
from udpfast.bus.node import Node
from udpfast.bus.outbox import Courier, Outbox
from udpfast.bus.replication import Consumer, Source
from udpfast.bus.seal import NONCE_SIZE, DatagramSeal, UnauthenticError
from udpfast.bus.sequencer import SequencerVerdict
from udpfast.bus.wire import SendFlag
from udpfast.config import load_feed
from udpfast.config.bus import BusConfig, StoreConfig, bus_keys
from udpfast.core.agent import AgentRunner
from udpfast.core.clock import monotonic_ns, realtime_ns
from udpfast.errors import ConfigError, UdpfastError, sentence
from udpfast.shm.instance import journal_directory
from udpfast.shm.trust import find_group

__all__ = ["BusHost"]

#: Bytes that a link holds for its socket before the node is told to wait.
LINK_ROOM = 1 << 18
READ_BYTES = 1 << 18
#: Datagrams that are read before other things get their turn.
DATAGRAMS = 512
LOOK_S = 0.1
#: Lines of what was said.
SAID_KEPT = 100
#: The shortest that epoll waits.
WAIT_S = 0.001
#: So long a goodbye may take, which a copy does not need.
GOODBYE_NS = 100_000_000
#: A store that failed is not tried again for so long.
REST_NS = 100_000_000
#: What failed, and did not fail again for so long, is over: it is said again.
OVER_NS = 10_000_000_000


@dataclass
class _Link:
    key: int
    socket: socket.socket
    connecting: bool = False
    closing: bool = False
    unsent: bytearray = field(default_factory=bytearray)
    seal: LinkSeal | None = None
    proven: bytearray = field(default_factory=bytearray)  # received, and not yet the node's
    events: int = 0
    thread: SourceThread | ConsumerThread | None = None  # that carries its bytes ...
    runner: AgentRunner | None = None  # ... and runs here
    core: int | None = None


class _Cores:
    """The cores that this host has for the threads of its links."""

    def __init__(self, cores: tuple[int, ...]) -> None:
        self._taken = dict.fromkeys(cores, 0)

    def take(self) -> int | None:
        """Return one that has the fewest threads; None: they are not pinned."""
        core = min(self._taken, key=lambda each: self._taken[each], default=None)
        if core is not None:
            self._taken[core] += 1
        return core

    def give(self, core: int | None) -> None:
        """Take one back."""
        if core is not None:
            self._taken[core] -= 1


class _Part:
    """One store on this host. It is its node's `Carrier`."""

    def __init__(
        self,
        host: str,
        name: str,
        config: BusConfig,
        directory: Path | None,
        bad: BadPath,
        quarantine: bool,
        cores: _Cores,
        insist: bool,
    ) -> None:
        self.name = name
        self.config = config
        self.settings = settings = config.logs[name]
        self.merger: Merger | None = None  # of a composite's order log
        self.bad = bad
        path = journal_directory(directory / name if directory is not None else name, create=True)
        _check_copy(path, name, host, settings)
        self.disk = StoreDisk(path, name, host, settings, create=False, group=config.access.group)
        self.log, self.store, self.directory = self.disk.log, self.disk.store, self.disk.directory
        self._wish = ""
        if take_wish(path):
            self.store.said.append("ignored a request from before this start to promote this host")
        self.feed: BusFeed | None = None
        self.node = Node(
            self.store, [other for other in settings.hosts if other != host], self, _draw,
            source=settings.source(host), quarantine=quarantine or settings.quarantine,
        )  # fmt: skip
        self._cores = cores
        self._keys = bus_keys(config)
        self._seal = DatagramSeal(self._keys, realtime_ns()) if self._keys else None
        self.unauthentic = 0
        self.links: dict[int, _Link] = {}
        self.outboxes: dict[str, tuple[Courier, int]] = {}
        self._refused: set[str] = set()
        self._said = 0
        self.poll = select.epoll()
        self._address = config.hosts[host]
        self._by_fd: dict[int, _Link] = {}
        self._failed: list[int] = []
        self._count = 0
        self._look_ns = self._cut_ns = 0
        self._source = Absence(monotonic_ns(), realtime_ns())
        self._copies: dict[str, Absence] = {}
        self._boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        self._intact: bool | None = None  # as the file `bus.boot` says
        self._failed_ns = -OVER_NS
        self._listen()
        if settings.feed and settings.sequencer == host:
            self.feed = BusFeed(load_feed(settings.feed), self.disk)
        self._begin(insist)
        self._bell = _open_bell(shared_directory(self.directory))
        self.poll.register(self._bell, select.EPOLLIN)
        self._end = self.store.end

    def _listen(self) -> None:
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        where = (self._address, self.settings.port)
        self.server = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self.server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.udp = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        try:
            self.server.bind(where)
            self.udp.bind(where)
        except OSError as problem:
            raise ConfigError(
                f"stores.{self.name}.port: expected a free port, found {self.settings.port} of "
                f"{self._address} in use: {problem.strerror}"
            ) from None
        self.server.listen(64)
        for each in (self.server, self.udp):
            self.poll.register(each.fileno(), select.EPOLLIN)

    def _begin(self, insist: bool) -> None:
        path = self.directory / "bus.boot"
        same = path.exists() and path.read_bytes() == self._boot.encode()
        self.node.start(
            monotonic_ns(), realtime_ns(),
            named=self.settings.sequencer == self.store.host,
            intact=(same and self.log.damaged_at < 0) or not self.store.led,
            feeds=self.feed is not None, insist=insist,
        )  # fmt: skip
        self._note_boot()

    def _note_boot(self) -> None:
        # Since when this host has had all that it wrote: said by the file until the next reboot.
        if self._intact == self.node.intact:
            return
        self._intact = self.node.intact
        path = self.directory / "bus.boot"
        if self._intact:
            replace_file(path, self._boot.encode())
        else:
            path.unlink(missing_ok=True)

    def start_feed(self) -> None:
        """Have the feed receive that writes this store, if there is one and it may by now."""
        if self.feed is not None and self.node.fed and not self.feed.started:
            self.disk.fed = True
            self.feed.start()

    # --- Carrier --------------------------------------------------------------------------------

    def _add(self, sock: socket.socket, *, connecting: bool) -> _Link:
        self._count += 1
        link = _Link(self._count, sock, connecting)
        link.events = select.EPOLLOUT if connecting else select.EPOLLIN
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000)
        if self._keys:
            link.seal = LinkSeal(self._keys, os.urandom(NONCE_SIZE), began=connecting)
            link.unsent += link.seal.wrap(b"")
        self.links[link.key] = self._by_fd[sock.fileno()] = link
        self.poll.register(sock.fileno(), link.events)
        return link

    def connect(self, host: str) -> int:
        """See `Carrier`."""
        sock = socket.socket(self.server.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        with contextlib.suppress(OSError):
            sock.bind((self._address, 0))
        code = sock.connect_ex((self.config.hosts[host], self.settings.port))
        link = self._add(sock, connecting=True)
        if code not in (0, errno.EINPROGRESS):
            self._failed.append(link.key)
        return link.key

    def send(self, link: int, data: bytes) -> None:
        """See `Carrier`."""
        found = self.links.get(link)
        if found is not None and data:
            idle = not found.unsent
            found.unsent += data if found.seal is None else found.seal.wrap(data)
            if idle:
                self._flush(found)

    def _flush(self, link: _Link) -> None:
        if link.connecting:
            return
        try:
            while link.unsent:
                sent = link.socket.send(link.unsent)
                del link.unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._failed.append(link.key)
            return
        self._watch(link)
        if link.closing and not link.unsent:
            self._drop(link)

    def _watch(self, link: _Link) -> None:
        events = 0
        if not link.closing and self.node.room(link.key):
            events |= select.EPOLLIN
        if link.unsent or link.connecting:
            events |= select.EPOLLOUT
        if events != link.events:
            link.events = events
            self.poll.modify(link.socket.fileno(), events)

    def room(self, link: int) -> int:
        """See `Carrier`."""
        found = self.links.get(link)
        return LINK_ROOM - len(found.unsent) if found is not None else 0

    def close(self, link: int) -> None:
        """See `Carrier`."""
        found = self.links.get(link)
        if found is not None:
            found.closing = True
            if found.connecting or not found.unsent:
                self._drop(found)

    def _drop(self, link: _Link) -> None:
        self.links.pop(link.key, None)
        if self._by_fd.pop(link.socket.fileno(), None) is not None:
            self.poll.unregister(link.socket.fileno())
        if link.runner is not None:
            link.runner.stop()
            link.runner.join()
            self._cores.give(link.core)
        link.socket.close()

    def carry(self, link: int, end: Source | Consumer) -> bool:
        """See `Carrier`."""
        found = self.links.get(link)
        if found is None or found.unsent or found.proven or found.closing:
            return False
        if found.seal is not None and not found.seal.ready:
            return False
        fd = found.socket.fileno()
        # Where readers wait for copies, the loop is woken by what these say.
        acks = self._bell if self.settings.gate else -1
        found.thread = thread = link_thread(
            end, fd, self.config.links.idle, acks=acks, seal=found.seal,
            wake=None if self.settings.gate else self.disk.wake,
        )  # fmt: skip
        del self._by_fd[fd]
        self.poll.unregister(fd)
        found.core = self._cores.take()
        found.runner = AgentRunner(thread, core=found.core, idle=thread.idle)
        found.runner.start()
        for grant in found.runner.grants:
            if not grant.granted:
                self.store.said.append(
                    f"the thread of a link could not get {grant.asked}: {grant.reason}"
                )
        return True

    def datagram(self, host: str, data: bytes) -> None:
        """See `Carrier`. What the socket does not take is lost, and sent again."""
        self._send_datagram(data, (self.config.hosts[host], self.settings.port))

    def _send_datagram(self, data: bytes, where: tuple[str, int]) -> None:
        if self._seal is not None:
            data = self._seal.wrap(data, where[0])
        with contextlib.suppress(OSError):
            self.udp.sendto(data, where)

    # --- the loop's turn ------------------------------------------------------------------------

    def turn(self) -> None:
        """Do what is due. What fails, is said, and tried again; other stores go on."""
        now_ns = monotonic_ns()
        if now_ns < self._failed_ns + REST_NS:
            time.sleep(WAIT_S)  # what waits at its sockets would have the loop spin
            return
        try:
            self._turn()
        except (OSError, UdpfastError) as problem:
            self._failed_ns = now_ns
            said = sentence(problem)
            if said != self.disk.failing:
                self.disk.failing = said
                self.store.said.append(f"{said}; tries on")
        else:
            if self.disk.failing and now_ns >= self._failed_ns + OVER_NS:
                self.disk.failing = ""

    def _turn(self) -> None:
        # Read what arrived, and let the node work.
        for fd, events in self.poll.poll(0):
            now_ns = monotonic_ns()
            if fd == self.server.fileno():
                self._accept(now_ns)
            elif fd == self.udp.fileno():
                self._datagrams()
            elif fd == self._bell:
                os.read(fd, 1 << 16)
            else:
                link = self._by_fd.get(fd)
                if link is not None:
                    self._carry(link, events, now_ns)
        self._wake_links()  # at once, for what datagrams brought
        now_ns, unix_ns = monotonic_ns(), realtime_ns()
        if now_ns >= self._look_ns:
            self._look_ns = now_ns + int(LOOK_S * 1e9)
            self._look(now_ns)
        self.node.work(now_ns, unix_ns)
        self._note_boot()
        if self.merger is not None:
            self.merger.work(now_ns, unix_ns)
        if self.bad.cut_s and now_ns >= self._cut_ns:
            self._cut_ns = self.bad.next_cut_ns(now_ns)
            self._failed += random.sample(list(self.links), min(len(self.links), 1))
        for key in self._failed:
            link = self.links.get(key)
            if link is not None:
                self._drop(link)
                self.node.broken(key, now_ns)
        self._failed.clear()
        self._wake_links()
        for link in list(self.links.values()):
            if link.thread is not None:
                self._attend(link, link.thread, now_ns)
                continue
            if link.proven:
                self._hand_on(link, now_ns)
            if link.unsent:
                self._flush(link)
            elif not link.connecting:
                self._watch(link)
        self.disk.tell(self.node.following)

    def _wake_links(self) -> None:
        # Their threads may wait for sockets alone, and there are new records.
        if self.store.end == self._end:
            return
        self._end = self.store.end
        for link in self.links.values():
            if link.thread is not None:
                link.thread.wake()

    def _attend(self, link: _Link, thread: SourceThread | ConsumerThread, now_ns: int) -> None:
        if thread.broken:
            if thread.forged:
                self._note_forged(
                    "a piece of its data was not sealed with a key of this host, for this place"
                )
            self._failed.append(link.key)
        elif isinstance(thread, SourceThread):
            odd = thread.odd()
            if odd:
                self.node.received(link.key, odd, now_ns)

    def _accept(self, now_ns: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, (address, *_) = self.server.accept()
                if address not in self.config.hosts.values():
                    sock.close()
                    continue
                self.node.accepted(self._add(sock, connecting=False).key, now_ns)

    def _datagrams(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(DATAGRAMS):
                data, sender = self.udp.recvfrom(2048)
                if sender[0] not in self.config.hosts.values():
                    continue
                if self._seal is not None:
                    try:
                        data = self._seal.unwrap(data, sender[0], self._address)
                    except UnauthenticError:
                        self._note_unauthentic()
                        continue
                if len(data) > 5 and data[5] == SendFlag.REFUSED:
                    for courier in self.node.watch.couriers:
                        courier.told(data)
                    continue
                for _ in range(self.bad.copies()):
                    told = self.node.datagram(data, monotonic_ns(), realtime_ns())
                    if told:
                        self._send_datagram(told, sender)

    def _note_unauthentic(self) -> None:
        self.unauthentic += 1
        if self.node.sequencer is not None:
            self.node.sequencer.refuse_unauthentic()

    def _carry(self, link: _Link, events: int, now_ns: int) -> None:
        if link.connecting:
            link.connecting = False
            if link.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._failed.append(link.key)
                return
            self.node.opened(link.key, now_ns)
            if link.key in self.links:
                self._flush(link)
            return
        if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            self._read(link, now_ns)
        if events & select.EPOLLOUT and link.key in self.links:
            self._flush(link)

    def _read(self, link: _Link, now_ns: int) -> None:
        try:
            room = self.node.room(link.key) - len(link.proven)
            data = link.socket.recv(min(room, READ_BYTES)) if room > 0 else None
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data and link.seal is None:
            self.node.received(link.key, data, now_ns)
        elif data:
            self._prove(link, data, now_ns)
        elif data is not None:
            self._failed.append(link.key)

    def _prove(self, link: _Link, data: bytes, now_ns: int) -> None:
        assert link.seal is not None
        try:
            link.proven += link.seal.unwrap(data)
        except UnauthenticError as problem:
            self._note_forged(str(problem))
            self._failed.append(link.key)
            return
        # What waited for the other end's random bytes.
        link.unsent += link.seal.wrap(b"")
        self._hand_on(link, now_ns)

    def _note_forged(self, problem: str) -> None:
        self.unauthentic += 1
        self.store.said.append(f"closed a link: {problem}")

    def _hand_on(self, link: _Link, now_ns: int) -> None:
        room = self.node.room(link.key)
        if room and link.proven:
            data = bytes(link.proven[:room])
            del link.proven[:room]
            self.node.received(link.key, data, now_ns)

    def _look(self, now_ns: int) -> None:
        # For what comes and goes seldom: outboxes, an operator's wish, old segments.
        folder = shared_directory(self.directory)
        for path in folder.glob("*.outbox"):
            courier, fd = self.outboxes.get(path.name, (None, -1))
            if courier is not None and not _is_of(fd, path):  # one that was over made way
                self.node.watch.remove(courier)
                del self.outboxes[path.name]
                os.close(fd)
            if path.name not in self.outboxes:
                self._take(path, now_ns)
        for courier, fd in self.outboxes.values():
            courier.alive = not _lockable(fd)
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
        # Say who is gone, and who is back, with what is missing.
        node, said = self.node, self.store.said
        # What else keeps it from following says so itself.
        known = (
            node.following or node.stopped or node.waits or node.left or node.promotion is not None
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
            lacks = max(node.consumer.source_end - self.store.end, 0) if node.consumer else 0
            said.append(
                f"the stream comes again after {self._source.away_ns / 1e9:,.0f} s: {lacks:,} "
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
        # Said before it is taken: who finds it taken already knows by whom.
        describe_store(self.directory, self.description())
        if not take_wish(self.directory):
            return
        if self.settings.feed and (self.feed is None or self.node.fed):
            self.node.end_promotion("not promoted: this store is written by a feed")
        else:
            self.node.promote(now_ns)

    def take_said(self) -> list[str]:
        """Return what was said since the last call; of all that was, the last lines are kept."""
        said = self.store.said
        found = said[self._said :]
        if found:
            del said[:-SAID_KEPT]
            self._said = len(said)
        return found

    def _take(self, path: Path, now_ns: int) -> None:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as problem:  # root's, say: this user brings nothing of it anywhere
            if path.name not in self._refused:
                self._refused.add(path.name)
                self.store.said.append(
                    f"cannot open an outbox, so its messages are not sent: {problem}"
                )
            return
        try:
            memory = mmap.mmap(fd, os.fstat(fd).st_size)
            courier = Courier(
                Outbox(memory), self.store, now_ns, resend_ns=self.settings.resend_ms * 1_000_000
            )
        except ValueError as problem:  # whole when it has its name
            os.close(fd)
            if path.name not in self._refused:
                self._refused.add(path.name)
                self.store.said.append(f"ignored {path}, which is not a valid outbox: {problem}")
            return
        self.outboxes[path.name] = courier, fd
        self.node.add(courier)

    def description(self) -> dict[str, object]:
        """Return what `bus stat` shows of this store."""
        node = self.node
        sequencer = node.sequencer
        return {
            **self.disk.description(),
            "following": node.following,
            "source_end": node.consumer.source_end if node.following and node.consumer else None,
            "source_gone_ns": self._source.since_ns,
            "source_left": self.node.left,
            "wish": self._wish,
            "outcome": node.outcome,
            "waits": node.waits,
            "stopped": node.stopped or node.failures.reason,
            "reconnects": node.reconnects,
            "damaged": node.damaged,
            "quarantined": node.quarantined,
            "unauthentic": self.unauthentic,
            "verdicts": {} if sequencer is None else {
                verdict.name.lower(): sequencer.verdicts[verdict] for verdict in SequencerVerdict
            },
            "received": 0 if sequencer is None else sequencer.received,
            "held": 0 if sequencer is None else sequencer.held,
            "clock_steps": 0 if sequencer is None else sequencer.clock_steps,
            "feed": None if self.feed is None else self.feed.description(),
        }  # fmt: skip

    def end(self) -> None:
        """End everything in good order."""
        self._say_goodbye()
        for link in list(self.links.values()):
            self._drop(link)
        self.disk.end(self.node.following, self.description())
        self.server.close()
        self.udp.close()
        os.close(self._bell)
        self.poll.close()

    def _say_goodbye(self) -> None:
        # To who copies from here, as far as their sockets take it soon.
        self.node.stop()
        until_ns = monotonic_ns() + GOODBYE_NS
        while monotonic_ns() < until_ns:
            left = False
            for link in list(self.links.values()):
                if link.thread is not None:
                    link.thread.wake()
                    left |= link.thread.speaking
                elif not link.connecting:
                    self._flush(link)
                    left |= bool(link.unsent)
            if not left:
                return
            time.sleep(WAIT_S)


@dataclass(frozen=True)
class BadPath:
    """What demos and tests do to what goes between hosts.

    Attributes
    ----------
    lose, twice : float
        Shares of the datagrams that are lost, and that come twice.
    cut_s : float
        On average one of a store's links is cut after so long; 0: none is.
    """

    lose: float = 0.0
    twice: float = 0.0
    cut_s: float = 0.0

    def copies(self) -> int:
        """Return how often the next datagram arrives."""
        if random.random() < self.lose:
            return 0
        return 1 + (random.random() < self.twice)

    def next_cut_ns(self, now_ns: int) -> int:
        """Return when the next link is cut, monotonic."""
        return now_ns + int(random.expovariate(1 / self.cut_s) * 1e9)


NO_FAULTS = BadPath()


class BusHost:
    """Runs one host's part of a bus.

    Parameters
    ----------
    config : BusConfig
    host : str
        Which of its hosts this one is.
    directory : path or None
        Each store has a folder of its name in it; None: where journals lie.
    bad : BadPath
        What goes wrong between hosts: for demos and tests.
    quarantine : bool
        Set records aside that the writer does not have, whatever the file says.
    begin : collection of str
        Stores that this host begins, if it has nothing, without those hosts that cannot be reached.
    say : callable, optional
        Is told what happens to stores, a line at a time.

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
        cores = _Cores(config.links.cores.get(host, ()))
        self.parts = [
            _Part(host, name, config, directory, bad, quarantine, cores, name in begin)
            for name, store in config.logs.items() if host in store.hosts
        ]  # fmt: skip
        by_name = {part.name: part for part in self.parts}
        for name, composite in config.composites.items():
            if name in by_name:
                part = by_name[name]
                part.merger = Merger(part.node, [by_name[each].node for each in composite.inputs])
                describe_composite(part.directory, [by_name[each].directory
                                                    for each in composite.inputs])  # fmt: skip
        self._stopped = False
        self._ending = threading.Event()  # its lock is no place for a signal's handler

    def stop(self) -> None:
        """Have `run` return; a signal's handler may call this at any moment."""
        self._stopped = True

    def run(
        self,
        *,
        spin: bool = False,
        ready: Callable[[], None] | None = None,
        alive: Callable[[], None] | None = None,
        alive_ns: int = 1_000_000_000,
    ) -> None:
        """Work until `stop`.

        Parameters
        ----------
        spin : bool
            Never sleep.
        ready : callable, optional
            Called when the work begins; feeds receive that have their store.
        alive : callable, optional
            Called every `alive_ns`, as long as the work goes on.
        alive_ns : int
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
            self._work(spin, alive, alive_ns)
        finally:
            self._ending.set()
            for part in self.parts:
                if part.feed is not None:
                    part.feed.stop()
            for keeper in keepers:
                keeper.join()
            with contextlib.ExitStack() as ends:  # each, whatever becomes of the others
                for part in self.parts:
                    ends.callback(part.end)

    def _work(self, spin: bool, alive: Callable[[], None] | None, alive_ns: int) -> None:
        due_ns = 0
        parts = select.epoll()
        for part in self.parts:
            parts.register(part.poll.fileno(), select.EPOLLIN)
        while not self._stopped:
            if not spin:
                # Apps ring meanwhile. All else that comes without a descriptor may wait so long.
                due = [part.node.watch.doze() for part in self.parts]
                parts.poll(0 if any(due) else WAIT_S)
                for part in self.parts:
                    part.node.watch.wake()
            for part in self.parts:
                part.turn()
                for line in part.take_said():
                    if self._say is not None:
                        self._say(f"{part.name}: {line}")
            if alive is not None and monotonic_ns() >= due_ns:
                due_ns = monotonic_ns() + alive_ns
                alive()


def _open_bell(folder: Path) -> int:
    # What apps ring while the daemon sleeps. To write, too: so it has an end that is never closed.
    path = bell_path(folder)
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _check_copy(path: Path, name: str, host: str, settings: StoreConfig) -> None:
    # Each host goes on where its own copy ends: with another's, or another store, it would not.
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
    # Whether this is the file that has the name now.
    own = os.fstat(fd)
    try:
        there = path.stat()
    except FileNotFoundError:
        return True
    return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)


def _lockable(fd: int) -> bool:
    # Whether nobody holds an outbox's lock: its app is gone.
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(fd, fcntl.LOCK_UN)
    return True
