"""How servers are asked that answer by UDP: MoldUDP64's request servers, and IEX's gap fill.

An answer is an ordinary datagram of the feed, sent to who asked. Nothing is said where a server
refuses, so nothing is known then.

Sources: Nasdaq, MoldUDP64 1.00; IEX, IEX Transport Specification.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Protocol

from udpfast.agents.recovery.asked import Request
from udpfast.config import RetransmissionConfig
from udpfast.errors import FormatError
from udpfast.net.line import open_sender
from udpfast.wire.framing import Framing

__all__ = ["Asking", "IexAsking", "MoldAsking", "Refusal", "iex_request", "receive_datagrams"]

_DATAGRAM_MAX = 65_535
#: Answers that are taken from a socket in one turn.
_BATCH = 64


class Refusal(Protocol):
    """What a server said instead of an answer."""

    @property
    def request(self) -> Request | None:
        """What it was asked for; None: it refuses whatever it is asked for."""

    @property
    def pause_ns(self) -> int:
        """How long not to ask again."""

    @property
    def why(self) -> str:
        """In words."""


class Asking(Protocol):
    """A connection with a server, of whatever protocol. Nothing of it blocks."""

    def keep(self, now_ns: int) -> int:
        """Do what a connection needs; return how much that was."""

    @property
    def ready(self) -> bool:
        """Whether it can be asked."""

    def name_session(self, header: bytes, session: int) -> bool:
        """Take what requests have to repeat from a header; False: it is of another session."""

    def ask(self, request: Request, now_ns: int) -> None:
        """Send one request; raise `OSError` if it cannot be sent."""

    def receive(self) -> Iterator[bytes]:
        """Yield what came that may be answers; raise `OSError` where that is a failure."""

    def refusals(self) -> list[Refusal]:
        """Return what was refused since the last call."""

    def close(self) -> None:
        """Let go of the sockets."""


def receive_datagrams(sock: socket.socket) -> Iterator[bytes]:
    """Yield what lies in a socket, up to a turn's worth."""
    for _ in range(_BATCH):
        try:
            data = sock.recv(_DATAGRAM_MAX)
        except BlockingIOError:
            return
        yield data


class UdpAsking:
    """What both have in common.

    Parameters
    ----------
    table : RetransmissionConfig
    framing : str
    """

    ready = True

    def __init__(self, table: RetransmissionConfig, framing: str) -> None:
        self.framing = Framing(framing)
        self.socket, _ = open_sender(table.server, table.interface)

    def keep(self, now_ns: int) -> int:
        """Do nothing: there is no connection."""
        return 0

    def receive(self) -> Iterator[bytes]:
        """Yield datagrams of the server."""
        return receive_datagrams(self.socket)

    def refusals(self) -> list[Refusal]:
        """Return none: such a server refuses by silence."""
        return []

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


class MoldAsking(UdpAsking):
    """A request is MoldUDP64's header by itself: session, first number, count."""

    _SESSION_BYTES = 10

    def __init__(self, table: RetransmissionConfig, framing: str) -> None:
        super().__init__(table, framing)
        self._session = b""

    def name_session(self, header: bytes, session: int) -> bool:
        """Keep the session's own characters, if the header is of it."""
        text = header[: self._SESSION_BYTES]
        try:
            units = self.framing.units(text + bytes(self._SESSION_BYTES))
        except FormatError:
            return False
        if not units or units[0].session != session:
            return False
        self._session = text
        return True

    def ask(self, request: Request, now_ns: int) -> None:
        """Send one request."""
        self.socket.send(self._session + struct.pack(">QH", request.first, request.count))


class IexAsking(UdpAsking):
    """A request names protocol, channel and session, and one range of numbers."""

    def __init__(self, table: RetransmissionConfig, framing: str) -> None:
        super().__init__(table, framing)
        self._session = 0

    def name_session(self, header: bytes, session: int) -> bool:
        """Keep the session: a request names it by its number alone."""
        self._session = session
        return True

    def ask(self, request: Request, now_ns: int) -> None:
        """Send one request."""
        self.socket.send(iex_request(request, self._session))


_IEX_REQUEST = struct.Struct("<BBHIIIqq")
_IEX_VERSION, _IEX_BY_NUMBER = 1, 1


def iex_request(request: Request, session: int) -> bytes:
    """Return a request for one range of numbers; a stream is protocol and channel."""
    protocol, channel = divmod(request.stream, 1 << 16)
    last = request.first + request.count - 1
    return _IEX_REQUEST.pack(
        _IEX_VERSION, _IEX_BY_NUMBER, protocol, channel, session, 1, request.first, last
    )
