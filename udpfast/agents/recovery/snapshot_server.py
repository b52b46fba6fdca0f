"""Asks a venue's snapshot server for all books, when the feed's are in doubt.

    WAITS --the feed lacks something--> LOADS --complete--> HOLDS --the feed is as far--> HANDS ON
      ^                                   |                   |                              |
      +-------- `pause_ms` after the last attempt, whatever became of it -------------------+

The loop goes on meanwhile, and keeps the changes of books that wait. Whatever the server sends, it
is the loop that decides whether a book is sound: this agent only leaves out what cannot help.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path

from udpfast.agents.recovery.asked import DAY_NS, Quota
from udpfast.agents.recovery.glimpse import GlimpseDialogue
from udpfast.agents.recovery.numbers import Numbers
from udpfast.agents.recovery.served import Dialogue, ServedBooks, SnapshotError
from udpfast.agents.recovery.snap import SnapDialogue
from udpfast.agents.recovery.spin import SpinDialogue
from udpfast.config import FeedConfig, Login, logins_of, read_login
from udpfast.core.agent import Agent, CallableAgent
from udpfast.core.log import say_warning
from udpfast.net.stream import begin_connection, is_connected
from udpfast.shm.answers import TALLIES, AnswersRegion, Wanted
from udpfast.wire.framing import Framing

__all__ = ["SnapshotServer", "build"]

_NAME = "snapshot_server"
_TALLY = {info.name: index for index, info in enumerate(TALLIES[_NAME])}
_HEARTBEAT_NS = 1_000_000_000
_READ_BYTES, _READS = 1 << 16, 16
#: Datagrams in one turn: more than the queue holds would only wait.
_HAND_ON = 256
#: What the loop lacks is written again soon after it took all of a snapshot.
_SETTLE_NS = 20_000_000
#: Protocol -> this end of a connection that speaks it.
_DIALOGUES: dict[str, Callable[[Login, ServedBooks], Dialogue]] = {
    "GLIMPSE": GlimpseDialogue,
    "spin": SpinDialogue,
    "SNAP": SnapDialogue,
}


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
        _, path, spoken = logins_of(config.wire, config.retransmission, self._table)[-1]
        self._login = read_login(path, spoken)
        self._dialogue_of = _DIALOGUES[spoken.name]
        facts = Framing(config.wire.framing).facts
        self._numbers = Numbers(facts.number_bits, skips_zero=facts.skips_zero)
        self._answers = AnswersRegion.attach(directory, _NAME)
        self._state = _State.WAITS
        self._socket: socket.socket | None = None
        self._server = ""
        self._wanted = Wanted(-1, 0, 0, 0, -1)
        self._dialogue: Dialogue | None = None
        self._number = -1  # of the snapshot at hand, as records have it
        self._datagrams: Iterator[bytes] = iter(())
        self._datagram = b""
        self._begin_at_ns: dict[int, int] = {}  # by stream
        self._quota = Quota(self._table.requests_per_day, DAY_NS, 2)
        self._is_held = False
        self._heard_ns = self._spoke_ns = self._since_ns = 0
        # Numbering and number of the last one, by stream.
        self._latest: dict[int, tuple[int, int]] = {}
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
            self._rest(now_ns + problem.pause_ns)
            self._give_up(problem.tally, str(problem))
        except OSError as problem:
            self._give_up("failures", f"{problem.strerror or problem}")
        return 1

    def _begin(self, now_ns: int) -> int:
        if self._answers.waiting:
            return 0
        wants = self._answers.wants()
        for wanted in wants.wanted if wants is not None else ():
            server = self._table.server_of(wanted.stream)
            if not server or now_ns < self._begin_at_ns.get(wanted.stream, 0):
                continue
            if not self._quota.left(now_ns):
                self._count("quota", not self._is_held)
                self._is_held = True
                return 0
            self._is_held = False
            self._quota.spend()
            self._open(wanted, server, now_ns)
            return 1
        return 0

    def _open(self, wanted: Wanted, server: str, now_ns: int) -> None:
        self._wanted, self._server = wanted, server
        self._rest(now_ns + self._table.pause_ms * 1_000_000)
        self._count("requests")
        self._dialogue = self._dialogue_of(self._login, ServedBooks(wanted, self._table.orders_max))
        self._heard_ns = self._since_ns = now_ns
        self._state = _State.CONNECTS
        self._socket = begin_connection(server, self._table.interface)

    def _rest(self, until_ns: int) -> None:
        # No attempt for this stream until then.
        stream = self._wanted.stream
        self._begin_at_ns[stream] = max(self._begin_at_ns.get(stream, 0), until_ns)

    def _connect(self, now_ns: int) -> int:
        assert self._socket is not None and self._dialogue is not None
        if not is_connected(self._socket, self._server):
            return self._check_silence(now_ns)
        self._socket.send(self._dialogue.begin())
        self._spoke_ns = now_ns
        self._state = _State.LOADS
        return 1

    def _load(self, now_ns: int) -> int:
        assert self._socket is not None and self._dialogue is not None
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
            messages = self._dialogue.messages
            say = self._dialogue.take(data)
            if say:
                self._socket.send(say)
            self._count("messages", self._dialogue.messages - messages)
            if self._dialogue.number >= 0:
                self._keep(now_ns)
                return 1
        return _READS

    def _keep_alive(self, now_ns: int) -> None:
        assert self._socket is not None and self._dialogue is not None
        if self._dialogue.heartbeat and now_ns - self._spoke_ns >= _HEARTBEAT_NS:
            self._spoke_ns = now_ns
            self._socket.send(self._dialogue.heartbeat)

    def _check_silence(self, now_ns: int) -> int:
        limit_ns = self._table.timeout_ms * 1_000_000
        if now_ns - self._heard_ns >= limit_ns:
            raise SnapshotError(f"nothing came for {self._table.timeout_ms} ms", "failures")
        assert self._dialogue is not None
        if not self._dialogue.begun and now_ns - self._since_ns >= limit_ns:
            raise SnapshotError(
                f"no snapshot as of {self._wanted.last} or later was offered in "
                f"{self._table.timeout_ms} ms",
                "too_old",
            )
        return 0

    def _keep(self, now_ns: int) -> None:
        # All of it came. A server that goes back tells of another day, or is not in order.
        assert self._dialogue is not None
        try:
            if self._socket is not None and self._dialogue.goodbye:
                self._socket.send(self._dialogue.goodbye)
        except OSError:
            pass  # it has closed the connection, as it may
        self._hang_up()
        wanted = self._wanted
        self._number = self._numbers.unwrapped(self._dialogue.number, wanted.number)
        numbering, number = self._latest.get(wanted.stream, (-1, -1))
        if numbering == wanted.numbering and self._number < number:
            self._give_up(
                "too_old",
                f"expected a snapshot as of {number} or later, found one as of {self._number}",
            )
            return
        self._latest[wanted.stream] = wanted.numbering, self._number
        self._since_ns = now_ns
        self._state = _State.HOLDS

    def _hold(self, now_ns: int) -> int:
        # A snapshot is taken as of a number that the feed has passed; with the changes behind it.
        assert self._dialogue is not None
        wants = self._answers.wants()
        if wants is None:
            return 0
        of = self._wanted.stream, self._wanted.numbering
        wanted = next((want for want in wants.wanted if (want.stream, want.numbering) == of), None)
        if wanted is None:
            self._state = _State.WAITS  # the feed's books are sound by now, or of another numbering
            return 0
        if self._number < wanted.last:
            self._give_up(
                "too_old",
                f"the snapshot is as of {self._number}, the feed needs {wanted.last}",
            )
            return 1
        if self._number > wanted.number:
            self._count("ahead", self._since_ns == now_ns)
            if now_ns - self._since_ns >= self._table.timeout_ms * 1_000_000:
                raise SnapshotError(
                    f"the snapshot is as of {self._number}, and the feed has only come "
                    f"to {wanted.number} in {self._table.timeout_ms} ms"
                )
            return 0
        self._datagrams = self._dialogue.books.datagrams(self._number)
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
        assert self._dialogue is not None
        self._state = _State.WAITS
        self._rest(now_ns + _SETTLE_NS)
        self._count("snapshots")
        self._count("orders", self._dialogue.books.count)
        self._dialogue = None
        self._answers.tell(_TALLY["silent"], 0)
        if self._said:
            self._said = ""
            self._warn("sent a snapshot again")

    def _give_up(self, tally: str, reason: str) -> None:
        self._hang_up()
        self._state = _State.WAITS
        self._dialogue = None
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
        say_warning(f"udpfast: {self._feed}: snapshot server {self._server}: {text}")

    def _count(self, name: str, more: int = 1) -> None:
        if more:
            self._answers.count(_TALLY[name], more)


def build(config: FeedConfig, directory: Path) -> Agent:
    """Return the agent that a feed's file asks for, for the instance in `directory`."""
    work = SnapshotServer(config, directory)
    return CallableAgent("udpfast books", work.work, work.close)
