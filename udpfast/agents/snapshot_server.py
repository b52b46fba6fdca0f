"""Asks a venue's snapshot server for all books, when the feed's are in doubt.

    WAITS --the feed lacks something--> LOADS --complete--> HOLDS --the feed is as far--> HANDS ON
      ^                                   |                   |                              |
      +-------- `pause_ms` after the last attempt, whatever became of it -------------------+

The loop goes on meanwhile, and keeps the changes of books that wait. Whatever the server sends, it
is the loop that decides whether a book is sound: this agent only leaves out what cannot help.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from udpfast.agents.glimpse import (
    HEARTBEAT,
    LOGOUT,
    GlimpseSnapshot,
    SnapshotError,
    login_request,
)
from udpfast.config import FeedConfig, read_login
from udpfast.core.agent import Agent, CallableAgent
from udpfast.core.log import say_warning
from udpfast.net.stream import begin_connection, check_connection
from udpfast.shm.answers import TALLIES, AnswersRegion

__all__ = ["SnapshotServer", "build"]

_NAME = "snapshot_server"
_TALLY = {info.name: index for index, info in enumerate(TALLIES[_NAME])}
#: What SoupBinTCP's logins have room for.
_USER_BYTES, _PASSWORD_BYTES = 6, 10
_HEARTBEAT_NS = 1_000_000_000
_READ_BYTES, _READS = 1 << 16, 16
#: Datagrams in one turn: more than the queue holds would only wait.
_HAND_ON = 256
#: What the loop lacks is written again soon after it took all of a snapshot.
_SETTLE_NS = 20_000_000


class _State(Enum):
    WAITS = "waits"
    CONNECTS = "connects"
    LOADS = "loads"
    HOLDS = "holds"
    HANDS_ON = "hands on"


class SnapshotServer:
    """The work of the agent, turn by turn.

    Parameters
    ----------
    config : FeedConfig
    directory : Path
        Of the instance.

    Raises
    ------
    ConfigError
        The login file is wrong.
    """

    def __init__(self, config: FeedConfig, directory: Path) -> None:
        self._table = config.snapshot_server
        self._feed = config.name
        self._login = read_login(
            self._table.login, user_bytes=_USER_BYTES, password_bytes=_PASSWORD_BYTES
        )
        self._answers = AnswersRegion.attach(directory, _NAME)
        self._state = _State.WAITS
        self._socket: socket.socket | None = None
        self._snapshot = GlimpseSnapshot(0)
        self._datagrams: Iterator[bytes] = iter(())
        self._datagram = b""
        self._session = -1
        self._begin_at_ns = 0
        self._heard_ns = self._spoke_ns = self._since_ns = 0
        self._latest = (-1, -1)  # session and number of the last snapshot
        self._said = ""

    def close(self) -> None:
        """Close the connection, and the region."""
        self._hang_up()
        self._answers.close()

    def work(self, now_ns: int) -> int | None:
        """Do what is next; return how much that was, None at the end."""
        if self._answers.over:
            return None
        try:
            match self._state:
                case _State.WAITS:
                    return self._begin(now_ns)
                case _State.CONNECTS:
                    return self._connect(now_ns)
                case _State.LOADS:
                    return self._load(now_ns)
                case _State.HOLDS:
                    return self._hold(now_ns)
                case _State.HANDS_ON:
                    return self._hand_on(now_ns)
        except SnapshotError as problem:
            self._give_up(problem.tally, str(problem))
        except OSError as problem:
            self._give_up("failures", f"{problem.strerror or problem}")
        return 1

    def _begin(self, now_ns: int) -> int:
        if now_ns < self._begin_at_ns or self._answers.waiting:
            return 0
        wants = self._answers.wants()
        if wants is None or not wants.wanted:
            return 0
        wanted = wants.wanted[0]
        self._session = wanted.session
        self._begin_at_ns = now_ns + self._table.pause_ms * 1_000_000
        self._count("requests")
        self._snapshot = GlimpseSnapshot(self._table.orders_max)
        self._heard_ns = now_ns
        self._state = _State.CONNECTS
        self._socket = begin_connection(self._table.server, self._table.interface)
        return 1

    def _connect(self, now_ns: int) -> int:
        assert self._socket is not None
        _, writable, _ = select.select([], [self._socket], [], 0)
        if not writable:
            return self._check_silence(now_ns)
        check_connection(self._socket, self._table.server)
        self._socket.send(login_request(self._login))
        self._spoke_ns = now_ns
        self._state = _State.LOADS
        return 1

    def _load(self, now_ns: int) -> int:
        assert self._socket is not None
        for count in range(_READS):
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                self._keep_alive(now_ns)
                return count or self._check_silence(now_ns)
            if not data:
                raise SnapshotError(
                    "the server closed the connection before the snapshot was complete", "failures"
                )
            self._heard_ns = now_ns
            messages = self._snapshot.messages
            self._snapshot.take(data)
            self._count("messages", self._snapshot.messages - messages)
            if self._snapshot.complete:
                self._keep(now_ns)
                return 1
        return _READS

    def _keep_alive(self, now_ns: int) -> None:
        if self._socket is not None and now_ns - self._spoke_ns >= _HEARTBEAT_NS:
            self._spoke_ns = now_ns
            self._socket.send(HEARTBEAT)

    def _check_silence(self, now_ns: int) -> int:
        if now_ns - self._heard_ns >= self._table.timeout_ms * 1_000_000:
            raise SnapshotError(f"nothing came for {self._table.timeout_ms} ms", "failures")
        return 0

    def _keep(self, now_ns: int) -> None:
        # All of it came. A server that goes back tells of another day, or is not in order.
        try:
            if self._socket is not None:
                self._socket.send(LOGOUT)
        except OSError:
            pass  # it has closed the connection, as it may
        self._hang_up()
        session, number = self._latest
        if session == self._session and self._snapshot.number < number:
            self._give_up(
                "too_old",
                f"expected a snapshot as of {number} or later, found one as of "
                f"{self._snapshot.number}",
            )
            return
        self._latest = self._session, self._snapshot.number
        self._since_ns = now_ns
        self._state = _State.HOLDS

    def _hold(self, now_ns: int) -> int:
        # A snapshot is taken as of a number that the feed has passed; with the changes behind it.
        wants = self._answers.wants()
        if wants is None:
            return 0
        wanted = next((want for want in wants.wanted if want.session == self._session), None)
        if wanted is None:
            self._state = _State.WAITS  # the feed's books are sound by now, or of another session
            return 0
        if self._snapshot.number < wanted.last:
            self._give_up(
                "too_old",
                f"the snapshot is as of {self._snapshot.number}, the feed needs {wanted.last}",
            )
            return 1
        if self._snapshot.number > wanted.number:
            self._count("ahead", self._since_ns == now_ns)
            if now_ns - self._since_ns >= self._table.timeout_ms * 1_000_000:
                raise SnapshotError(
                    f"the snapshot is as of {self._snapshot.number}, and the feed has only come "
                    f"to {wanted.number} in {self._table.timeout_ms} ms"
                )
            return 0
        self._datagrams = self._snapshot.datagrams()
        self._datagram = b""
        self._state = _State.HANDS_ON
        return 1

    def _hand_on(self, now_ns: int) -> int:
        for count in range(_HAND_ON):
            self._datagram = self._datagram or next(self._datagrams, b"")
            if not self._datagram:
                self._done(now_ns)
                return count + 1
            if not self._answers.put(self._datagram):
                self._count("full", count > 0)
                return count
            self._datagram = b""
        return _HAND_ON

    def _done(self, now_ns: int) -> None:
        self._state = _State.WAITS
        self._begin_at_ns = max(self._begin_at_ns, now_ns + _SETTLE_NS)
        self._count("snapshots")
        self._count("orders", self._snapshot.orders)
        self._snapshot = GlimpseSnapshot(0)
        self._answers.tell(_TALLY["silent"], 0)
        if self._said:
            self._said = ""
            self._warn("sent a snapshot again")

    def _give_up(self, tally: str, reason: str) -> None:
        self._hang_up()
        self._state = _State.WAITS
        self._snapshot = GlimpseSnapshot(0)
        self._count(tally)
        self._answers.tell(_TALLY["silent"], 1)
        if tally != self._said:  # once, however often it is tried again
            self._said = tally
            self._warn(f"{reason}; books in doubt stay so until another attempt succeeds")

    def _hang_up(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()

    def _warn(self, text: str) -> None:
        say_warning(f"udpfast: {self._feed}: snapshot server {self._table.server}: {text}")

    def _count(self, name: str, more: int = 1) -> None:
        if more:
            self._answers.count(_TALLY[name], more)


def build(config: FeedConfig, directory: Path) -> Agent:
    """Return the agent that a feed's file asks for, for the instance in `directory`."""
    work = SnapshotServer(config, directory)
    return CallableAgent("udpfast books", work.work, work.close)
