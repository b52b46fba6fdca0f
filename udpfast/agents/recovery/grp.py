"""Cboe's gap request proxy: asked by TCP, it answers by multicast.

The connection is kept, so that a hole can be asked for at once. What answers comes on a group: with
the numbers that it has on the lines, perhaps before the server says that it will, perhaps in
pieces, and also because somebody else asked.

Source: Cboe, US Equities/Options Multicast Depth of Book (PITCH) 2.41.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from udpfast.agents.recovery.asked import DAY_NS, Request
from udpfast.agents.recovery.asking import Refusal, receive_datagrams
from udpfast.agents.recovery.cboe import (
    HEARTBEAT,
    HEARTBEAT_NS,
    LOGIN_RESPONSE,
    CboeStream,
    login_refusal,
    login_request,
    pack,
)
from udpfast.agents.recovery.connection import (
    READ_BYTES,
    ServerConnection,
    State,
)
from udpfast.config import Login, RetransmissionConfig
from udpfast.net.line import LineAddress, ReceiveOptions, open_receiver

__all__ = ["GrpAsking"]

_GAP_REQUEST, _GAP_RESPONSE = 0x03, 0x04
_REQUEST = struct.Struct("<BIH")
_RESPONSE = struct.Struct("<BIHc")
#: The server beats at least every five seconds.
_SILENT_NS = 15_000_000_000
#: A login that was refused is refused again; some venues count them.
_LOGIN_AGAIN_NS = 30_000_000_000
_RCVBUF_BYTES = 1 << 20
#: What is not sent now will not be sent a little later: the hole is lost by then.
_NEVER_NS = 60_000_000_000
#: Status -> its meaning, how long not to ask again, and whether for this request alone.
_STATUS = {
    b"O": ("the numbers are out of range", _NEVER_NS, True),
    b"C": ("too many messages at once", _NEVER_NS, True),
    b"I": ("no such unit", _NEVER_NS, True),
    b"U": ("the unit is not available", _NEVER_NS, True),
    b"S": ("the quota of this second is used up", 1_000_000_000, False),
    b"M": ("the quota of this minute is used up", 60_000_000_000, False),
    b"D": ("the quota of today is used up", DAY_NS, False),
}


class GrpRefusal(NamedTuple):
    """A request, or the login, that was refused."""

    request: Request | None
    pause_ns: int
    why: str


class GrpAsking(ServerConnection):
    """A connection with a gap request proxy.

    Parameters
    ----------
    table : RetransmissionConfig
    login : Login
    """

    def __init__(self, table: RetransmissionConfig, login: Login) -> None:
        super().__init__(table)
        self._login = login
        self._group, _ = open_receiver(
            LineAddress(table.answers, table.interface),
            ReceiveOptions(rcvbuf_bytes=_RCVBUF_BYTES, timestamps="none"),
        )
        self._stream = CboeStream()
        self._spoke_ns = 0
        self._refused: list[Refusal] = []

    def name_session(self, header: bytes, session: int) -> bool:
        """Take nothing: a unit has one session a day."""
        return True

    def ask(self, request: Request, now_ns: int) -> None:
        """Send one request."""
        assert self._socket is not None
        self._spoke_ns = now_ns
        self._socket.send(
            pack(_GAP_REQUEST, _REQUEST.pack(request.stream, request.first, request.count))
        )

    def receive(self) -> Iterator[bytes]:
        """Yield datagrams of the group."""
        return receive_datagrams(self._group)

    def refusals(self) -> list[Refusal]:
        """Return what was refused since the last call."""
        found, self._refused = self._refused, []
        return found

    def close(self) -> None:
        """Close both sockets."""
        self._hang_up(0)
        self._group.close()

    def _begin(self, now_ns: int) -> int:
        if not self._is_connected():
            return self._check_silence(now_ns)
        assert self._socket is not None
        self._stream = CboeStream()
        self._socket.send(login_request(self._login))
        self._spoke_ns = now_ns
        self._state = State.LOGS_IN
        return 1

    def _listen(self, now_ns: int) -> int:
        assert self._socket is not None
        if now_ns - self._spoke_ns >= HEARTBEAT_NS:
            self._spoke_ns = now_ns
            self._socket.send(HEARTBEAT)
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return self._check_silence(now_ns)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        self._moved_ns = now_ns
        for kind, body in self._stream.take(data):
            if kind == LOGIN_RESPONSE and self._state is State.LOGS_IN:
                self._take_login(body, now_ns)
            elif kind == _GAP_RESPONSE and len(body) >= _RESPONSE.size:
                self._take_response(body)
            if self._socket is None:
                break
        return 1

    def _take_login(self, body: bytes, now_ns: int) -> None:
        why = login_refusal(body)
        if not why:
            self._state = State.READY
            return
        self._refused.append(GrpRefusal(None, 0, f"it refused the login: {why}"))
        self._hang_up(now_ns + _LOGIN_AGAIN_NS)

    def _take_response(self, body: bytes) -> None:
        unit, first, count, status = _RESPONSE.unpack_from(body)
        if status == b"A":
            return
        why, pause_ns, alone = _STATUS.get(status, (f"status {status!r}", _NEVER_NS, True))
        request = Request(unit, first, count) if alone else None
        self._refused.append(GrpRefusal(request, pause_ns, f"it refused a request: {why}"))

    def _check_silence(self, now_ns: int) -> int:
        if now_ns - self._moved_ns >= _SILENT_NS:
            raise TimeoutError(f"nothing came for {_SILENT_NS // 1_000_000_000} s")
        return 0
