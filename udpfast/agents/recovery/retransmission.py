"""Asks a venue's server for messages that no line brought, and hands on what it sends.

    the loop: holes -> (shm/answers) -> requests -> answers -> (shm/answers) -> the loop

An answer is an ordinary datagram of the feed: its windows take it as one line more. Whatever the
server does, holes are lost when their time is over, as without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path

from udpfast.agents.recovery.asked import Asked, Settings
from udpfast.agents.recovery.asking import Asking, IexAsking, MoldAsking
from udpfast.agents.recovery.grp import GrpAsking
from udpfast.agents.recovery.iex_tcp import IexTcpAsking
from udpfast.agents.recovery.numbers import Numbers
from udpfast.config import FeedConfig, Login, RetransmissionConfig, logins_of, read_login
from udpfast.core.agent import Agent, CallableAgent
from udpfast.core.log import say_warning
from udpfast.errors import FormatError
from udpfast.shm.answers import TALLIES, AnswersRegion, Wants
from udpfast.wire.framing import Framing

__all__ = ["Retransmission", "build"]

_NAME = "retransmission"
_TALLY = {info.name: index for index, info in enumerate(TALLIES[_NAME])}
#: Answers that may wait for room; the server was asked for them, so they are few.
_WAITING_MAX = 1024

#: A server without a connection for so long is silent: to reconnect takes less.
_UNREADY_NS = 5_000_000_000

_ASKING: dict[str, Callable[[RetransmissionConfig, Login], Asking]] = {
    "moldudp64": lambda table, login: MoldAsking(table, "moldudp64"),
    "iex_tp": lambda table, login: IexTcpAsking(table) if table.tcp else IexAsking(table, "iex_tp"),
    "cboe_pitch": GrpAsking,
}


class Retransmission:
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
        table = config.retransmission
        self._feed = config.name
        self._server = table.server
        self._framing = Framing(config.wire.framing)
        facts = self._framing.facts
        self._numbers = Numbers(facts.number_bits, skips_zero=facts.skips_zero)
        self._is_group = bool(table.answers)  # others' answers come, too
        self._asked = Asked(
            Settings(
                table.retry_us * 1_000,
                table.requests_per_s,
                table.messages_max,
                table.requests_per_min,
                table.requests_per_day,
                in_pieces=config.wire.framing != "moldudp64",
            )
        )
        _, path, spoken = logins_of(config.wire, table, config.snapshot_server)[0]
        self._asking = _ASKING[config.wire.framing](table, read_login(path, spoken))
        try:
            self._answers = AnswersRegion.attach(directory, _NAME)
        except BaseException:
            self._asking.close()
            raise
        self._waiting: deque[bytes] = deque()
        self._session = -1
        self._holes: list[tuple[int, int, int]] = []
        self._said: set[str] = set()
        self._was_silent = False
        self._ready_ns = 0  # when it could be asked last

    def close(self) -> None:
        """Close sockets and region."""
        self._asking.close()
        self._answers.close()

    def work(self, now_ns: int) -> int | None:
        """Take what came, ask for what is missing; return how much that was, None at the end."""
        if self._answers.over:
            return None
        done = self._keep(now_ns)
        done += self._receive(now_ns)
        self._hand_on()
        done += self._ask(now_ns)
        self._tell(now_ns)
        return done

    def _keep(self, now_ns: int) -> int:
        try:
            done = self._asking.keep(now_ns)
        except (OSError, FormatError) as problem:
            self._count("failures")
            self._say_once(f"the connection failed: {problem}")
            done = 1
        if self._asking.ready:
            self._said = {why for why in self._said if not why.startswith("the connection")}
        for refusal in self._asking.refusals():
            self._count("refusals")
            self._say_once(refusal.why)
            if refusal.request is not None:
                stream, first, count = refusal.request
                near = next((hole[1] for hole in self._holes if hole[0] == stream), first)
                first = self._numbers.unwrapped(first, near)
                self._asked.refuse(stream, first, count, now_ns, refusal.pause_ns)
            else:
                self._asked.pause(now_ns + refusal.pause_ns)
        return done

    def _receive(self, now_ns: int) -> int:
        count = 0
        try:
            for data in self._asking.receive():
                count += 1
                self._take(data, now_ns)
        except OSError:  # its host says that nobody listens there
            self._count("failures")
        return count

    def _take(self, data: bytes, now_ns: int) -> None:
        try:
            units = self._framing.units(data)
        except FormatError:
            units = []
        if len(units) != 1 or not (self._is_group or units[0].session == self._session):
            self._count("strange")
            return
        unit = units[0]
        if not unit.count:
            # A heartbeat: usual on a group, but no answer of a server that was asked itself.
            self._count("strange", not self._is_group)
            return
        near = next((first for stream, first, _ in self._holes if stream == unit.stream), 0)
        number = self._numbers.unwrapped(unit.number, near) if near else unit.number
        missing = self._is_missing(unit.stream, number, unit.count)
        if self._asked.answer(unit.stream, number, unit.count, now_ns):
            self._count("answers" if missing else "late")
            self._count("messages", unit.count if missing else 0)
        elif not self._is_group:
            self._count("strange")
            return
        else:
            self._count("others")
            if not missing:
                return
        if len(self._waiting) < _WAITING_MAX:
            self._waiting.append(data)
        else:
            self._count("dropped")

    def _is_missing(self, stream: int, first: int, count: int) -> bool:
        return any(
            stream == hole[0] and first <= hole[2] and hole[1] < first + count
            for hole in self._holes
        )

    def _hand_on(self) -> None:
        while self._waiting:
            if not self._answers.put(self._waiting[0]):
                self._count("full")
                return
            self._waiting.popleft()

    def _ask(self, now_ns: int) -> int:
        wants = self._answers.wants()
        if wants is None:
            return 0
        self._holes = self._missing(wants)
        if not self._holes or not self._asking.ready:
            return 0
        repeated, held_back = self._asked.repeated, self._asked.held_back
        requests = self._asked.look(self._holes, now_ns)
        for request in requests:
            try:
                first = self._numbers.published(request.first)
                self._asking.ask(request._replace(first=first), now_ns)
            except OSError:  # no route, no room: as if it were lost
                self._count("failures")
        self._count("requests", len(requests))
        self._count("repeated", self._asked.repeated - repeated)
        self._count("quota", self._asked.held_back - held_back)
        return len(requests)

    def _missing(self, wants: Wants) -> list[tuple[int, int, int]]:
        # The holes of one session, the first that has any: a request names its session.
        if not wants.wanted:
            return []
        session = wants.wanted[0].session
        if session != self._session:
            if not self._asking.name_session(wants.header, session):
                self._count("unasked")
                return []
            self._session = session
        missing = [want for want in wants.wanted if want.session == session]
        begun = [self._asked.begin(want.stream, want.numbering) for want in missing]
        if any(begun):
            # What waits may be of numbers that have begun anew: it must not fill holes of these.
            self._count("dropped", len(self._waiting))
            self._waiting.clear()
        return [(want.stream, want.first, want.last) for want in missing]

    def _tell(self, now_ns: int) -> None:
        if self._asking.ready or not self._ready_ns:
            self._ready_ns = now_ns
        silent = self._asked.silent or now_ns - self._ready_ns >= _UNREADY_NS
        if silent == self._was_silent:
            return
        self._was_silent = silent
        self._answers.tell(_TALLY["silent"], silent)
        if not silent:
            self._said.clear()
            self._warn("answers again")
        elif self._asked.silent:
            self._warn(
                f"has answered none of the last {self._asked.unanswered} requests; what is missing "
                "becomes a gap"
            )
        else:
            self._warn("cannot be asked now; what is missing becomes a gap")

    def _say_once(self, why: str) -> None:
        # Each reason once, however often the attempt is repeated.
        if why not in self._said:
            self._said.add(why)
            self._warn(why)

    def _warn(self, text: str) -> None:
        say_warning(f"udpfast: {self._feed}: retransmission server {self._server}: {text}")

    def _count(self, name: str, more: int = 1) -> None:
        if more:
            self._answers.count(_TALLY[name], more)


def build(config: FeedConfig, directory: Path) -> Agent:
    """Return the agent that a feed's file asks for, for the instance in `directory`."""
    work = Retransmission(config, directory)
    return CallableAgent("udpfast asks", work.work, work.close)
