"""The sockets of one store on this host: links to other hosts, and datagrams.

Both protocols of a store use its port: TCP for copies, UDP for messages. Input goes to the store's
node, for which this is the `Carrier`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import select
import socket
import time
from pathlib import Path

from msgspec import Struct, field

from udpfast.agents.bus.link_thread import ReceiverThread, SenderThread, link_thread
from udpfast.agents.bus.store_disk import StoreDisk
from udpfast.archive.bus_files import bell_path, shared_directory
from udpfast.bus.link_receiver import LinkReceiver
from udpfast.bus.link_seal import LinkSeal
from udpfast.bus.link_sender import LinkSender
from udpfast.bus.node import Node
from udpfast.bus.seal import NONCE_SIZE, DatagramSeal, UnauthenticError
from udpfast.bus.wire import SendFlag
from udpfast.config.bus import BusConfig, bus_keys
from udpfast.core.agent import AgentRunner
from udpfast.core.clock import monotonic_ns, realtime_ns
from udpfast.errors import ConfigError

__all__ = ["NO_FAULTS", "BadPath", "BusSockets", "Cores"]

#: Bytes that a link buffers for its socket before the node has to wait.
LINK_ROOM = 1 << 18
READ_BYTES = 1 << 18
#: Most datagrams that are read before the links get their turn.
DATAGRAMS = 512
#: How long a closing link may take to send its goodbye, and how often the sockets check whether it
#: has. A copy manages without the goodbye.
GOODBYE_NS, GOODBYE_S = 100_000_000, 0.001


class _Link(Struct):
    key: int
    socket: socket.socket
    connecting: bool = False
    closing: bool = False
    unsent: bytearray = field(default_factory=bytearray)
    seal: LinkSeal | None = None
    proven: bytearray = field(default_factory=bytearray)  # authentic, not yet handed on
    events: int = 0
    thread: SenderThread | ReceiverThread | None = None  # that carries its bytes
    runner: AgentRunner | None = None  # that runs `thread`
    core: int | None = None


class Cores:
    """The cores of this host for the threads of its links."""

    def __init__(self, cores: tuple[int, ...]) -> None:
        self._taken = dict.fromkeys(cores, 0)

    def take(self) -> int | None:
        """Return the core with the fewest threads; None: threads are not pinned."""
        core = min(self._taken, key=lambda each: self._taken[each], default=None)
        if core is not None:
            self._taken[core] += 1
        return core

    def give(self, core: int | None) -> None:
        """Return a core that `take` returned."""
        if core is not None:
            self._taken[core] -= 1


class BadPath(Struct, frozen=True):
    """Faults between hosts, for demos and tests.

    Attributes
    ----------
    lose, twice : float
        Share of the datagrams that are lost, and share that arrive twice.
    cut_s : float
        Mean time after which one of a store's links is cut; 0: never.
    """

    lose: float = 0.0
    twice: float = 0.0
    cut_s: float = 0.0

    def copies(self) -> int:
        """Return how often the next datagram arrives: 0, 1 or 2 times."""
        if random.random() < self.lose:
            return 0
        return 1 + (random.random() < self.twice)

    def next_cut_ns(self, now_ns: int) -> int:
        """Return when to cut the next link, monotonic ns."""
        return now_ns + int(random.expovariate(1 / self.cut_s) * 1e9)


NO_FAULTS = BadPath()


class BusSockets:
    """One store's sockets: the `Carrier` of its node.

    Parameters
    ----------
    disk : StoreDisk
        The store.
    config : BusConfig
        Settings of the bus.
    bad : BadPath
        Faults between hosts.
    cores : Cores
        Cores for the threads of the links.

    Attributes
    ----------
    node : Node
        The store's node. The owner sets it before the first turn.
    poll : select.epoll
        Contains every descriptor to wait for.
    unauthentic : int
        Number of inputs that were not sealed with a key of this host.

    Raises
    ------
    ConfigError
        The store's port is in use.
    """

    node: Node

    def __init__(self, disk: StoreDisk, config: BusConfig, bad: BadPath, cores: Cores) -> None:
        self.config = config
        self.settings = config.logs[disk.name]
        self.disk, self.store = disk, disk.store
        self.bad = bad
        self.poll = select.epoll()
        self.unauthentic = 0
        self._cores = cores
        self._keys = bus_keys(config)
        self._seal = DatagramSeal(self._keys, realtime_ns()) if self._keys else None
        self._address = config.hosts[disk.store.host]
        self._links: dict[int, _Link] = {}
        self._by_fd: dict[int, _Link] = {}
        self._failed: list[int] = []
        self._count = 0
        self._cut_ns = 0
        self._listen()
        self._bell = _open_bell(shared_directory(disk.directory))
        self.poll.register(self._bell, select.EPOLLIN)
        self._end = self.store.end

    def _listen(self) -> None:
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        where = (self._address, self.settings.port)
        self._server = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._udp = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        try:
            self._server.bind(where)
            self._udp.bind(where)
        except OSError as problem:
            self._server.close()
            self._udp.close()
            raise ConfigError(
                f"stores.{self.disk.name}.port: expected a free port, found {where[1]} of "
                f"{where[0]} in use: {problem.strerror}"
            ) from None
        self._server.listen(64)
        for each in (self._server, self._udp):
            self.poll.register(each.fileno(), select.EPOLLIN)

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
        self._links[link.key] = self._by_fd[sock.fileno()] = link
        self.poll.register(sock.fileno(), link.events)
        return link

    def connect(self, host: str) -> int:
        """See `Carrier`."""
        sock = socket.socket(self._server.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        with contextlib.suppress(OSError):
            sock.bind((self._address, 0))
        code = sock.connect_ex((self.config.hosts[host], self.settings.port))
        link = self._add(sock, connecting=True)
        if code not in (0, errno.EINPROGRESS):
            self._failed.append(link.key)
        return link.key

    def send(self, link: int, data: bytes) -> None:
        """See `Carrier`."""
        found = self._links.get(link)
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
        found = self._links.get(link)
        return LINK_ROOM - len(found.unsent) if found is not None else 0

    def close(self, link: int) -> None:
        """See `Carrier`."""
        found = self._links.get(link)
        if found is not None:
            found.closing = True
            if found.connecting or not found.unsent:
                self._drop(found)

    def _drop(self, link: _Link) -> None:
        self._links.pop(link.key, None)
        if self._by_fd.pop(link.socket.fileno(), None) is not None:
            self.poll.unregister(link.socket.fileno())
        if link.runner is not None:
            link.runner.stop()
            link.runner.join()
            self._cores.give(link.core)
        link.socket.close()

    def carry(self, link: int, end: LinkSender | LinkReceiver) -> bool:
        """See `Carrier`."""
        found = self._links.get(link)
        if found is None or found.unsent or found.proven or found.closing:
            return False
        if found.seal is not None and not found.seal.ready:
            return False
        fd = found.socket.fileno()
        # If readers wait for copies, ACKs wake the loop.
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
        """See `Carrier`. If the socket refuses a datagram, its messages are sent again later."""
        self._send_datagram(data, (self.config.hosts[host], self.settings.port))

    def _send_datagram(self, data: bytes, where: tuple[str, int]) -> None:
        if self._seal is not None:
            data = self._seal.wrap(data, where[0])
        with contextlib.suppress(OSError):
            self._udp.sendto(data, where)

    # --- turns ----------------------------------------------------------------------------------

    def read(self) -> None:
        """Hand received bytes to the node."""
        for fd, events in self.poll.poll(0):
            now_ns = monotonic_ns()
            if fd == self._server.fileno():
                self._accept(now_ns)
            elif fd == self._udp.fileno():
                self._datagrams()
            elif fd == self._bell:
                os.read(fd, 1 << 16)
            else:
                link = self._by_fd.get(fd)
                if link is not None:
                    self._carry(link, events, now_ns)
        self._wake_links()  # at once, for the records that datagrams brought

    def write(self, now_ns: int) -> None:
        """Send the node's output, and tell it which links have broken."""
        if self.bad.cut_s and now_ns >= self._cut_ns:
            self._cut_ns = self.bad.next_cut_ns(now_ns)
            self._failed += random.sample(list(self._links), min(len(self._links), 1))
        for key in self._failed:
            link = self._links.get(key)
            if link is not None:
                self._drop(link)
                self.node.broken(key, now_ns)
        self._failed.clear()
        self._wake_links()
        for link in list(self._links.values()):
            if link.thread is not None:
                self._attend(link, link.thread, now_ns)
                continue
            if link.proven:
                self._hand_on(link, now_ns)
            if link.unsent:
                self._flush(link)
            elif not link.connecting:
                self._watch(link)

    def _wake_links(self) -> None:
        # There are new records, and the threads of links may be waiting for their sockets only.
        if self.store.end == self._end:
            return
        self._end = self.store.end
        for link in self._links.values():
            if link.thread is not None:
                link.thread.wake()

    def _attend(self, link: _Link, thread: SenderThread | ReceiverThread, now_ns: int) -> None:
        if thread.broken:
            if thread.forged:
                self._note_forged(
                    "a piece of its data was not sealed with a key of this host, for this place"
                )
            self._failed.append(link.key)
        elif isinstance(thread, SenderThread):
            odd = thread.odd()
            if odd:
                self.node.received(link.key, odd, now_ns)

    def _accept(self, now_ns: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, (address, *_) = self._server.accept()
                if address not in self.config.hosts.values():
                    sock.close()
                    continue
                self.node.accepted(self._add(sock, connecting=False).key, now_ns)

    def _datagrams(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(DATAGRAMS):
                data, sender = self._udp.recvfrom(2048)
                if sender[0] not in self.config.hosts.values():
                    continue
                if self._seal is not None:
                    try:
                        data = self._seal.unwrap(data, sender[0], self._address)
                    except UnauthenticError:
                        self._note_unauthentic()
                        continue
                if len(data) > 5 and data[5] == SendFlag.REFUSED:
                    for outbox_sender in self.node.watch.outbox_senders:
                        outbox_sender.told(data)
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
            if link.key in self._links:
                self._flush(link)
            return
        if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            self._read(link, now_ns)
        if events & select.EPOLLOUT and link.key in self._links:
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
        # Send what waited for the other end's random bytes.
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

    # --- the end --------------------------------------------------------------------------------

    def say_goodbye(self) -> None:
        """Tell the copies that this host is being stopped, if their sockets take it in time."""
        self.node.stop()
        until_ns = monotonic_ns() + GOODBYE_NS
        while monotonic_ns() < until_ns:
            left = False
            for link in list(self._links.values()):
                if link.thread is not None:
                    link.thread.wake()
                    left |= link.thread.speaking
                elif not link.connecting:
                    self._flush(link)
                    left |= bool(link.unsent)
            if not left:
                return
            time.sleep(GOODBYE_S)

    def drop_links(self) -> None:
        """End all links."""
        for link in list(self._links.values()):
            self._drop(link)

    def close_all(self) -> None:
        """Close the sockets."""
        self._server.close()
        self._udp.close()
        os.close(self._bell)
        self.poll.close()


def _open_bell(folder: Path) -> int:
    # Open the FIFO with which apps wake the daemon. It is open for writing too, so that reading it
    # never finds its end.
    path = bell_path(folder)
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
