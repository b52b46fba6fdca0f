"""Request servers of venues on the loopback, that answer as they are told: late, in part, never.

    with mold_server(session, answer) as address: ...

`answer(stream, first, count)` says what becomes of a request: a list of `Answer`, or a refusal.
Every server runs in a thread and ends with its `with`.
"""

from __future__ import annotations

import heapq
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

__all__ = [
    "Answer",
    "GrpServer",
    "RequestServer",
    "Said",
    "grp_server",
    "iex_server",
    "iex_tcp_server",
    "mold_server",
]

_TURN_S = 0.01
_UNIT = struct.Struct("<HBBI")


class Answer(NamedTuple):
    """A datagram, and how long after the request it is sent."""

    data: bytes
    after_s: float = 0.0


#: Answers to a request; of Cboe's also the status that refuses it.
Said = list[Answer] | bytes
Reply = Callable[[int, int, int], Said]


class RequestServer:
    """What all have in common: a thread, and answers that wait for their time.

    Attributes
    ----------
    address : str
        "ip:port" that is asked.
    requests : list of (stream, first, count)
        All that were read.
    """

    def __init__(self, reply: Reply, asked: socket.socket) -> None:
        self.requests: list[tuple[int, int, int]] = []
        self.address = "{}:{}".format(*asked.getsockname())
        self._reply, self._asked = reply, asked
        self._due: list[tuple[float, int, bytes, object]] = []
        self._count = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="request server")

    def __enter__(self) -> RequestServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._asked.close()

    def _run(self) -> None:
        while not self._over.is_set():
            readable, _, _ = select.select(self._watched(), [], [], _TURN_S)
            for sock in readable:
                with suppress(ConnectionError):  # who asked has gone
                    self._read(sock)
            while self._due and self._due[0][0] <= time.monotonic():
                _, _, data, client = heapq.heappop(self._due)
                self._send(data, client)

    def _watched(self) -> list[socket.socket]:
        return [self._asked]

    def _read(self, sock: socket.socket) -> None:
        raise NotImplementedError

    def _send(self, data: bytes, client: Any) -> None:
        raise NotImplementedError

    def _plan(self, answers: list[Answer], client: object) -> None:
        for answer in answers:
            self._count += 1
            due_s = time.monotonic() + answer.after_s
            heapq.heappush(self._due, (due_s, self._count, answer.data, client))


class _UdpServer(RequestServer):
    # Answers go to who asked.
    def __init__(self, reply: Reply, parse: Callable[[bytes], tuple[int, int, int] | None]) -> None:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        super().__init__(reply, sock)
        self._parse = parse

    def _read(self, sock: socket.socket) -> None:
        data, client = sock.recvfrom(2048)
        asked = self._parse(data)
        if asked is None:
            return  # such a server says nothing to what it does not know
        self.requests.append(asked)
        said = self._reply(*asked)
        assert isinstance(said, list)
        self._plan(said, client)

    def _send(self, data: bytes, client: Any) -> None:
        self._asked.sendto(data, client)


@contextmanager
def mold_server(session: bytes, reply: Reply) -> Iterator[RequestServer]:
    """Run a MoldUDP64 request server for one session."""

    def parse(data: bytes) -> tuple[int, int, int] | None:
        if len(data) != 20 or data[:10] != session:
            return None
        first, count = struct.unpack(">QH", data[10:])
        return 0, first, count

    with _UdpServer(reply, parse) as server:
        yield server


@contextmanager
def iex_server(protocol: int, channel: int, session: int, reply: Reply) -> Iterator[RequestServer]:
    """Run an IEX gap fill server; it answers the first range of a request by numbers."""

    def parse(data: bytes) -> tuple[int, int, int] | None:
        head = struct.unpack_from("<BBHIII", data) if len(data) >= 32 else None
        if head is None or head[:5] != (1, 1, protocol, channel, session) or not head[5]:
            return None
        first, last = struct.unpack_from("<qq", data, 16)
        return protocol << 16 | channel, first, last - first + 1

    with _UdpServer(reply, parse) as server:
        yield server


_IEX_REQUEST = struct.Struct("<BBHIIIqq")


class IexTcpServer(RequestServer):
    """IEX's gap fill over TCP: a connection ends with the first range that does not rise.

    Attributes
    ----------
    connections : int
        All that were accepted.
    """

    def __init__(self, protocol: int, channel: int, session: int, reply: Reply) -> None:
        super().__init__(reply, socket.create_server(("127.0.0.1", 0)))
        self.connections = 0
        self._named = (1, 1, protocol, channel, session)
        self._clients: dict[socket.socket, tuple[bytes, int]] = {}

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for client in self._clients:
            client.close()

    def _watched(self) -> list[socket.socket]:
        return [self._asked, *self._clients]

    def _read(self, sock: socket.socket) -> None:
        if sock is self._asked:
            client, _ = sock.accept()
            self.connections += 1
            self._clients[client] = (b"", 0)
            return
        try:
            data = sock.recv(4096)
        except ConnectionError:
            data = b""
        rest, last = self._clients[sock]
        rest += data
        while data and len(rest) >= _IEX_REQUEST.size:
            *named, ranges, first, end = _IEX_REQUEST.unpack_from(rest)
            valid = tuple(named) == self._named and ranges == 1 and first > last
            stream = named[2] << 16 | named[3]
            self.requests.append((stream, first, end - first + 1))
            said = self._reply(stream, first, end - first + 1)
            if isinstance(said, bytes) or not valid:
                data = b""
                break
            self._plan(said, sock)
            rest, last = rest[_IEX_REQUEST.size :], end
        if data:
            self._clients[sock] = (rest, last)
        else:
            del self._clients[sock]
            sock.close()

    def _send(self, data: bytes, client: Any) -> None:
        if client in self._clients:
            client.sendall(data)


@contextmanager
def iex_tcp_server(
    protocol: int, channel: int, session: int, reply: Reply
) -> Iterator[IexTcpServer]:
    """Run an IEX gap fill server for TCP; a reply of bytes closes the connection."""
    with IexTcpServer(protocol, channel, session, reply) as server:
        assert isinstance(server, IexTcpServer)
        yield server


class GrpServer(RequestServer):
    """Cboe's gap request proxy: asked by TCP, its answers go to a group.

    Attributes
    ----------
    logins : list of bytes
        Session, user and password of each, as they came.
    """

    def __init__(self, reply: Reply, group: str, login_status: bytes = b"A") -> None:
        super().__init__(reply, socket.create_server(("127.0.0.1", 0)))
        host, port = group.rsplit(":", 1)
        self.logins: list[bytes] = []
        self._group = (host, int(port))
        self._login_status = login_status
        self._out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._clients: dict[socket.socket, bytes] = {}
        self._dropped = threading.Event()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._drop()
        self._out.close()

    def drop(self) -> None:
        """Close all connections, in the server's own time."""
        self._dropped.set()

    def _drop(self) -> None:
        while self._clients:
            client, _ = self._clients.popitem()
            client.close()

    def send(self, data: bytes) -> None:
        """Send a datagram to the group, as for somebody else."""
        self._out.sendto(data, self._group)

    def _watched(self) -> list[socket.socket]:
        if self._dropped.is_set():
            self._dropped.clear()
            self._drop()
        return [self._asked, *self._clients]

    def _read(self, sock: socket.socket) -> None:
        if sock is self._asked:
            client, _ = sock.accept()
            self._clients[client] = b""
            return
        try:
            data = sock.recv(4096)
        except ConnectionError:
            data = b""
        if not data:
            self._clients.pop(sock, None)
            sock.close()
            return
        rest = self._clients[sock] + data
        while len(rest) >= _UNIT.size:
            size, count, _, _ = _UNIT.unpack_from(rest)
            if len(rest) < size:
                break
            for kind, body in _messages(rest[_UNIT.size : size], count):
                self._take(sock, kind, body)
            if not count:
                sock.sendall(_UNIT.pack(_UNIT.size, 0, 0, 0))  # a beat for a beat
            rest = rest[size:]
        if sock in self._clients:
            self._clients[sock] = rest

    def _take(self, client: socket.socket, kind: int, body: bytes) -> None:
        if kind == 1:
            self.logins.append(body)
            client.sendall(_message(2, self._login_status))
        elif kind == 3:
            unit, first, count = struct.unpack("<BIH", body)
            self.requests.append((unit, first, count))
            said = self._reply(unit, first, count)
            status = said if isinstance(said, bytes) else b"A"
            client.sendall(_message(4, body + status))
            if isinstance(said, list):
                self._plan(said, None)

    def _send(self, data: bytes, client: Any) -> None:
        self.send(data)


@contextmanager
def grp_server(reply: Reply, group: str, login_status: bytes = b"A") -> Iterator[GrpServer]:
    """Run a gap request proxy; a reply of one byte is the status of a refusal."""
    server = GrpServer(reply, group, login_status)
    with server:
        yield server


def _message(kind: int, body: bytes) -> bytes:
    message = bytes((2 + len(body), kind)) + body
    return _UNIT.pack(_UNIT.size + len(message), 1, 0, 0) + message


def _messages(data: bytes, count: int) -> Iterator[tuple[int, bytes]]:
    at = 0
    for _ in range(count):
        yield data[at + 1], data[at + 2 : at + data[at]]
        at += data[at]
