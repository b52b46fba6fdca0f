"""Links between two daemons that cut, delay, split or falsify what passes through them."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time

__all__ = ["BadLink", "LyingLink"]

#: Share of the cuts that neither end is told of: bytes simply stop arriving.
SILENT = 0.02
#: Share of the links that carry one byte at a time.
SLOW = 0.2
#: The most seconds after a cut during which nobody can connect; most cuts have almost none.
OUTAGE_S = 5.0


class BadLink:
    """Takes the place of a host towards one other host: TCP for copies, UDP for messages.

    Parameters
    ----------
    address : str
        Address at which the link listens in place of the host.
    target : str
        Address of the real host.
    client : str
        Address of the host that connects, by which the target recognizes it.
    port : int
    seed : int

    Attributes
    ----------
    bad : bool
        True: cut links. Set it to False to carry everything unchanged.
    cuts : int
        Number of links that were cut.
    """

    def __init__(self, address: str, target: str, client: str, port: int, seed: int) -> None:
        self.bad = True
        self.cuts = 0
        self._target, self._client = (target, port), (client, 0)
        self._rng = random.Random(seed)
        self._closed = threading.Event()
        self._open_s = 0.0
        self._server = socket.create_server((address, port), reuse_port=False)
        self._udp = socket.socket(type=socket.SOCK_DGRAM)
        self._udp.bind((address, port))
        for each in (self._accept, self._forward):
            threading.Thread(target=each, daemon=True).start()

    def close(self) -> None:
        """Close all sockets, so that nothing passes any more."""
        self._closed.set()
        for each in (self._server, self._udp):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _forward(self) -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as out:
            out.bind(self._client)
            while not self._closed.is_set():
                try:
                    data = self._udp.recv(4096)
                except OSError:
                    return
                with contextlib.suppress(OSError):
                    out.sendto(data, self._target)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            if self.bad and time.monotonic() < self._open_s:
                near.close()
                continue
            try:
                far = socket.create_connection(self._target, 1.0, self._client)
            except OSError:
                near.close()
                continue
            self._carry(near, far, self._rng.getrandbits(64))

    def _carry(self, near: socket.socket, far: socket.socket, seed: int) -> None:
        _Carried(self, near, far, seed)

    def was_cut(self, outage_s: float) -> None:
        """Count a link that was cut; nobody can connect for `outage_s` seconds."""
        self.cuts += 1
        self._open_s = time.monotonic() + outage_s


class _Carried:
    """One link, with a thread for each direction."""

    def __init__(self, link: BadLink, near: socket.socket, far: socket.socket, seed: int) -> None:
        rng = random.Random(seed)
        self._link = link
        self._ends = near, far
        self._slow = rng.random() < SLOW
        # The cut may fall within the handshake, a frame's header or runs of records.
        self._left = int(2 ** rng.uniform(0, 13 if self._slow else 19))
        self._silent = rng.random() < SILENT
        self._reset = rng.random() < 0.5
        self._outage_s = OUTAGE_S * rng.random() if rng.random() < 0.01 else 0.05 * rng.random()
        self._delay_s = rng.choice((0, 0, 0.0001, 0.002))
        self._lock = threading.Lock()
        self._over = False
        for end in self._ends:
            end.settimeout(None)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while True:
                slow = self._slow and self._link.bad
                data = source.recv(1 if slow else 65536)
                if not data:
                    break
                if self._delay_s and self._link.bad:
                    time.sleep(self._delay_s)
                with self._lock:
                    room, self._left = self._left, max(self._left - len(data), 0)
                if self._link.bad and room < len(data):
                    target.sendall(data[:room])
                    self._cut()
                    return
                target.sendall(data)
        except OSError:
            pass
        self._end()

    def _cut(self) -> None:
        with self._lock:
            if self._over:
                return
            self._over = True
        self._link.was_cut(self._outage_s)
        if not self._silent:  # otherwise both ends notice it themselves, and close
            self._shut(reset=self._reset)

    def _end(self) -> None:
        with self._lock:
            self._over = True
        self._shut(reset=False)

    def _shut(self, *, reset: bool) -> None:
        # A reset loses bytes that were sent but not read yet. It wakes reading threads as well.
        for end in self._ends:
            with contextlib.suppress(OSError):
                if reset:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)
            end.close()


class LyingLink(BadLink):
    """Cuts nothing, but falsifies bytes once in each link, and carries the rest unchanged.

    Attributes
    ----------
    cuts : int
        Number of links with falsified bytes.
    """

    def _carry(self, near: socket.socket, far: socket.socket, seed: int) -> None:
        _Lied(self, near, far, seed)


class _Lied(_Carried):
    def __init__(self, link: BadLink, near: socket.socket, far: socket.socket, seed: int) -> None:
        self._tells = random.Random(seed)
        self._told = False
        super().__init__(link, near, far, seed)

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        before = b""
        try:
            while data := source.recv(65536):
                target.sendall(self._lie(data, before) if self._is_due(data) else data)
                before = data
        except OSError:
            pass
        self._end()

    def _is_due(self, data: bytes) -> bool:
        with self._lock:
            room, self._left = self._left, max(self._left - len(data), 0)
            if self._told or not self._link.bad or room >= len(data):
                return False
            self._told = True
            self._link.cuts += 1
            return True

    def _lie(self, data: bytes, before: bytes) -> bytes:
        at = self._tells.randrange(len(data))
        match self._tells.randrange(5):
            case 0:  # a flipped bit
                return data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]
            case 1:
                return data[:at] + self._tells.randbytes(20 + at) + data[at:]
            case 2:  # bytes twice
                return (before or data) + data
            case 3:  # bytes in another order
                return data[at:] + data[:at] if at else data[::-1]
            case _:  # fewer bytes
                return data[:at]
