"""IEX's gap fill over TCP: requests as by UDP, answered by segments one behind the other.

On one connection ranges have to rise and may not overlap: the server ends it otherwise. TCP loses
nothing, so what was asked for on a connection is not asked for again while that lives. What lies
before it, or did not come, is asked for on the next one.

Source: IEX Transport Specification; IEX Trading Alert 2016-059.
"""

from __future__ import annotations

from collections.abc import Iterator

from udpfast.agents.recovery.asked import Request
from udpfast.agents.recovery.asking import Refusal, iex_request
from udpfast.agents.recovery.connection import (
    READ_BYTES,
    RECONNECT_NS,
    ServerConnection,
    State,
)
from udpfast.config import RetransmissionConfig
from udpfast.errors import FormatError

__all__ = ["IexTcpAsking"]

_HEADER_BYTES = 40
_VERSION = 1
#: An answer begins at once, and goes on: TCP itself sends again what is lost within this.
_STALLED_NS = 500_000_000
_CONNECTS_NS = 15_000_000_000
#: Requests that may wait for a connection of their own; more holes than that are asked for later.
_LATER_MAX = 64


class IexTcpAsking(ServerConnection):
    """A connection with a gap fill server.

    Parameters
    ----------
    table : RetransmissionConfig
    """

    def __init__(self, table: RetransmissionConfig) -> None:
        super().__init__(table)
        self._session = 0
        self._rest = b""
        self._segments: list[bytes] = []
        # What this connection was asked for: stream, first, last; and messages still to come.
        self._asked: list[tuple[int, int, int]] = []
        self._awaited = 0
        self._later: list[Request] = []

    def name_session(self, header: bytes, session: int) -> bool:
        """Keep the session: a request names it by its number alone."""
        self._session = session
        return True

    def ask(self, request: Request, now_ns: int) -> None:
        """Send one request, or keep it for the next connection."""
        first, last = request.first, request.first + request.count - 1
        if any(request.stream == one and a <= first and last <= b for one, a, b in self._asked):
            return  # it is under way
        if self._asked and first <= max(b for _, _, b in self._asked):
            if len(self._later) < _LATER_MAX and request not in self._later:
                self._later.append(request)
            return
        self._send(request, now_ns)

    def receive(self) -> Iterator[bytes]:
        """Yield segments, each as a datagram has it."""
        found, self._segments = self._segments, []
        yield from found

    def refusals(self) -> list[Refusal]:
        """Return none: such a server refuses by closing the connection."""
        return []

    def close(self) -> None:
        """Close the socket."""
        self._hang_up(0)

    def _begin(self, now_ns: int) -> int:
        if not self._is_connected():
            if now_ns - self._moved_ns >= _CONNECTS_NS:
                raise TimeoutError(f"no connection for {_CONNECTS_NS // 1_000_000_000} s")
            return 0
        self._state = State.READY
        later, self._later = sorted(self._later, key=lambda one: one.first), []
        for request in later:
            self.ask(request, now_ns)
        return 1

    def _listen(self, now_ns: int) -> int:
        assert self._socket is not None
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return self._check(now_ns)
        if not data and self._awaited > 0:
            raise ConnectionResetError(
                "the server closed the connection, which is how it refuses a request"
            )
        if not data:
            self._hang_up(now_ns + RECONNECT_NS)
            return 1
        self._moved_ns = now_ns
        self._take(data)
        return 1

    def _check(self, now_ns: int) -> int:
        # Whether all has come that was asked for, and what is left needs another connection.
        if self._awaited > 0 and now_ns - self._moved_ns >= _STALLED_NS:
            raise TimeoutError(f"it sent nothing of what it was asked for in {_STALLED_NS / 1e9} s")
        if self._later and self._awaited <= 0:
            self._hang_up(now_ns)
            return 1
        return 0

    def _send(self, request: Request, now_ns: int) -> None:
        assert self._socket is not None
        self._socket.send(iex_request(request, self._session))
        self._asked.append((request.stream, request.first, request.first + request.count - 1))
        self._awaited += request.count
        self._moved_ns = now_ns

    def _take(self, data: bytes) -> None:
        # Whole segments, however the bytes were cut.
        data = self._rest + data
        at = 0
        while len(data) - at >= _HEADER_BYTES:
            if data[at] != _VERSION:
                raise FormatError(f"expected segments of IEX-TP {_VERSION}, found {data[at]}")
            end = at + _HEADER_BYTES + int.from_bytes(data[at + 12 : at + 14], "little")
            if end > len(data):
                break
            self._segments.append(data[at:end])
            self._awaited -= int.from_bytes(data[at + 14 : at + 16], "little")
            at = end
        self._rest = data[at:]

    def _hang_up(self, begin_at_ns: int) -> None:
        super()._hang_up(begin_at_ns)
        self._rest = b""
        self._asked.clear()
        self._awaited = 0
