"""Asks a MoldUDP64 request server for messages that no line brought, and hands on what it sends.

    the loop: holes -> (shm/answers) -> requests by UDP -> answers -> (shm/answers) -> the loop

An answer is an ordinary datagram of the feed: its windows take it as one line more. Whatever the
server does, holes are lost when their time is over, as without it.
"""

from __future__ import annotations

import struct
from collections import deque
from pathlib import Path

from udpfast.agents.asked import Asked, Request, Settings
from udpfast.config import FeedConfig
from udpfast.core.agent import Agent, CallableAgent
from udpfast.core.log import say_warning
from udpfast.errors import FormatError
from udpfast.net.line import open_sender
from udpfast.shm.answers import TALLIES, AnswersRegion
from udpfast.wire.framing import Framing

__all__ = ["Retransmission", "build"]

_NAME = "retransmission"
_TALLY = {info.name: index for index, info in enumerate(TALLIES[_NAME])}
#: Answers that are taken from the socket in one turn.
_BATCH = 64
#: Answers that may wait for room; the server was asked for them, so they are few.
_WAITING_MAX = 1024
_DATAGRAM_MAX = 65_535
_SESSION_BYTES = 10


class Retransmission:
    """The work of the agent, turn by turn.

    Parameters
    ----------
    config : FeedConfig
    directory : Path
        Of the instance.
    """

    def __init__(self, config: FeedConfig, directory: Path) -> None:
        table = config.retransmission
        self._feed = config.name
        self._server = table.server
        self._framing = Framing(config.wire.framing)
        self._asked = Asked(
            Settings(table.retry_us * 1_000, table.requests_per_s, table.messages_max)
        )
        self._socket, _ = open_sender(table.server, table.interface)
        try:
            self._answers = AnswersRegion.attach(directory, _NAME)
        except BaseException:
            self._socket.close()
            raise
        self._waiting: deque[bytes] = deque()
        self._session = (-1, b"")
        self._was_silent = False

    def close(self) -> None:
        """Close socket and region."""
        self._socket.close()
        self._answers.close()

    def work(self, now_ns: int) -> int | None:
        """Take what came, ask for what is missing; return how much that was, None at the end."""
        if self._answers.over:
            return None
        done = self._receive(now_ns)
        self._hand_on()
        done += self._ask(now_ns)
        self._tell()
        return done

    def _receive(self, now_ns: int) -> int:
        for count in range(_BATCH):
            try:
                data = self._socket.recv(_DATAGRAM_MAX)
            except BlockingIOError:
                return count
            except OSError:  # its host says that nobody listens there
                self._count("failures")
                return count
            self._take(data, now_ns)
        return _BATCH

    def _take(self, data: bytes, now_ns: int) -> None:
        try:
            units = self._framing.units(data)
        except FormatError:
            units = []
        if len(units) != 1 or units[0].session != self._session[0] or not units[0].count:
            self._count("strange")
            return
        unit = units[0]
        if not self._asked.answer(unit.stream, unit.number, unit.count, now_ns):
            self._count("strange")
            return
        self._count("answers")
        self._count("messages", unit.count)
        if len(self._waiting) < _WAITING_MAX:
            self._waiting.append(data)

    def _hand_on(self) -> None:
        while self._waiting:
            if not self._answers.put(self._waiting[0]):
                self._count("full")
                return
            self._waiting.popleft()

    def _ask(self, now_ns: int) -> int:
        wants = self._answers.wants()
        if wants is None or not wants.wanted:
            return 0
        session = wants.wanted[0].session
        if session != self._session[0]:
            text = self._session_of(wants.header, session)
            if not text:
                self._count("unasked")
                return 0
            self._session = session, text
            self._asked.begin(session)
        holes = [
            (want.stream, want.first, want.last) for want in wants.wanted if want.session == session
        ]
        repeated, held_back = self._asked.repeated, self._asked.held_back
        requests = self._asked.look(holes, now_ns)
        for request in requests:
            self._send(request)
        self._count("requests", len(requests))
        self._count("repeated", self._asked.repeated - repeated)
        self._count("quota", self._asked.held_back - held_back)
        return len(requests)

    def _session_of(self, header: bytes, session: int) -> bytes:
        # The session's own characters, if the latest datagram was of it.
        text = header[:_SESSION_BYTES]
        try:
            units = self._framing.units(text + bytes(_SESSION_BYTES))
        except FormatError:
            return b""
        return text if units and units[0].session == session else b""

    def _send(self, request: Request) -> None:
        try:
            self._socket.send(self._session[1] + struct.pack(">QH", request.first, request.count))
        except OSError:  # no route, no room: as if it were lost
            self._count("failures")

    def _tell(self) -> None:
        silent = self._asked.silent
        if silent == self._was_silent:
            return
        self._was_silent = silent
        self._answers.tell(_TALLY["silent"], silent)
        if silent:
            say_warning(
                f"udpfast: {self._feed}: retransmission server {self._server} has answered none of "
                f"the last {self._asked.unanswered} requests; what is missing becomes a gap"
            )
        else:
            say_warning(
                f"udpfast: {self._feed}: retransmission server {self._server} answers again"
            )

    def _count(self, name: str, more: int = 1) -> None:
        if more:
            self._answers.count(_TALLY[name], more)


def build(config: FeedConfig, directory: Path) -> Agent:
    """Return the agent that a feed's file asks for, for the instance in `directory`."""
    work = Retransmission(config, directory)
    return CallableAgent("udpfast asks", work.work, work.close)
