"""Relay a market between real processes, and judge every book at the far end by its position.

    udpfast lab relaychain --seeds 8
    udpfast lab relaychain --row cme --seeds 1

    this process               here                        this process          there
    a market  --lines A, B-->  udpfast run, udpfast relay  --lines A, B-->  udpfast run --> ring
              loss                                         loss, lag                        |
                                                                this process: Reader, Books <

What the market's book was at each of its numbers is known. An update carries that number to both
ends (`exchange_sequence`, of CME the time). Behind every record a book that says that it is sound
has to be what it was at the number that it was told of last: no mixture, nothing that never was,
and no older one than it was before. In the end both ends have to know the same. The seed draws the
market (Roq with snapshots, symbols that come later and sessions that begin anew; ITCH and PITCH by
order; CME by place, with its loops), the losses, bursts and lags of lines, a line or one of its
directions that carries nothing, when relay and far end begin, kills of the relay, and what its
lines may carry.
"""

from __future__ import annotations

import bisect
import heapq
import json
import os
import random
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from udpfast.agents.market.exchanges import VENUE_MARKETS
from udpfast.agents.market.market_event import BookChange, Instrument
from udpfast.agents.market.market_gateway import MarketGateway
from udpfast.agents.market.venue_market import SYMBOLS
from udpfast.cli.child import child_command
from udpfast.cli.scratch import scratch_directory
from udpfast.client.books import Books
from udpfast.client.counters import counters
from udpfast.client.reader import Reader
from udpfast.core.clock import monotonic_ns
from udpfast.core.layout import Channel, Kind
from udpfast.errors import NotReadyError
from udpfast.feed.transmitter import DatagramViews, Transmitter, datagrams_of
from udpfast.market.book import OrderBook
from udpfast.net.bad_network import BadNetwork, LineFaults
from udpfast.net.ports import free_port, free_ports
from udpfast.net.sender import DatagramSender

from .program import by_seeds

__all__ = ["MARKETS", "Plan", "check", "draw", "main", "run"]

MARKETS = ("roq", "itch", "pitch", "cme")
#: A process that does not begin or end, or books that do not become equal, for so long.
PATIENCE_S = 120.0
PAUSE_S = 0.0005
TURN_MAX_NS = 20_000_000
DATAGRAM_MAX = 1 << 16
INSTRUMENTS = 6
NEAR, FAR = "near", "far"
MID_CENTS = 100_000

Name = tuple[str, str]
Levels = tuple[frozenset[tuple[float, ...]], frozenset[tuple[float, ...]]]
#: (channel, line)
Line = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Plan:
    """What one chain is like.

    Attributes
    ----------
    market : str
        One of `MARKETS`.
    rate_per_s : float
        Updates, of a venue datagrams of one to five.
    turns : int
        Records at both ends from one event to the next.
    levels : int
        Of each side of a book of Roq, at its beginning: many make a snapshot of many datagrams.
    near_loss : float
        Of each line of the market. Where nothing heals what both lose, books stay in doubt.
    faults : dict of (channel, line) to LineFaults
        Of the relay's lines.
    bits_per_s : int
        What each line of the relay takes; 0: all.
    parity : int
        Of the relay's lines; 0: none.
    image : bool
        The feed keeps an image, with which a relay begins.
    relay_after, far_after : int
        Records of the feed until they are started.
    kills : int
        How often the relay is killed and started anew.
    restarts : bool
        The gateway of Roq restarts.
    """

    market: str = "roq"
    rate_per_s: float = 250.0
    turns: int = 300
    levels: int = 40
    near_loss: float = 0.01
    faults: dict[Line, LineFaults] = field(default_factory=dict)
    bits_per_s: int = 0
    parity: int = 0
    image: bool = True
    relay_after: int = 0
    far_after: int = 0
    kills: int = 0
    restarts: bool = False


class Truth:
    """What each book was, by the market's numbers."""

    def __init__(self) -> None:
        self.numbers: dict[Name, list[int]] = {}
        self.states: dict[Name, list[Levels]] = {}

    def note(self, name: Name, number: int, levels: Levels) -> None:
        """Say what a book is from this number on."""
        states = self.states.setdefault(name, [])
        if not states or states[-1] != levels:
            states.append(levels)
            self.numbers.setdefault(name, []).append(number)

    def at(self, name: Name, number: int) -> list[Levels]:
        """Return what a book was at a number: several, if that is of several events."""
        numbers = self.numbers.get(name, [])
        last = bisect.bisect_right(numbers, number)
        first = min(bisect.bisect_left(numbers, number), last - 1)
        return self.states[name][first:last] if last else []


class Wire:
    """Lines that lose and delay what is put on them."""

    def __init__(
        self, faults: dict[Line, LineFaults], seed: int, ports: dict[Line, int], stack: ExitStack
    ) -> None:
        self.network = BadNetwork(faults, seed)
        self.senders = {
            line: stack.enter_context(DatagramSender(f"127.0.0.1:{port}"))
            for line, port in ports.items()
        }
        self.waiting: list[tuple[int, int, Line, bytes]] = []
        self.count = 0

    def put(self, line: Line, datagrams: list[bytes], now_ns: int) -> None:
        """Put datagrams on a line."""
        for due_ns, datagram in self.network.pass_through(*line, datagrams, now_ns):
            self.count += 1  # keeps those of one time in order
            heapq.heappush(self.waiting, (due_ns, self.count, line, datagram))

    def turn(self, now_ns: int) -> None:
        """Deliver what is due."""
        while self.waiting and self.waiting[0][0] <= now_ns:
            _, _, line, datagram = heapq.heappop(self.waiting)
            self.senders[line].send([datagram])


class RoqMarket:
    """Books of levels by a Roq gateway; further symbols come while it runs."""

    roles: ClassVar = {"incremental": [(0, 0), (0, 1)], "snapshot": [(1, 0), (1, 1)]}

    def __init__(self, plan: Plan, seed: int, truth: Truth, wire: Wire) -> None:
        self.plan, self.truth, self.wire = plan, truth, wire
        self.chance = random.Random(seed)
        self.instruments = [Instrument("MADE", f"S{i}", 2, 0) for i in range(INSTRUMENTS)]
        # A round takes most of its interval: whoever begins, begins in the middle of a snapshot.
        transmitter = Transmitter(
            [Tap(wire, line) for line in self.roles["incremental"]],
            [Tap(wire, line) for line in self.roles["snapshot"]],
            heartbeat_interval_ns=50_000_000,
            snapshot_interval_ns=400_000_000,
            snapshot_rate_per_s=40 * plan.levels,
        )
        self.gateway = MarketGateway(transmitter, self.instruments)
        self.books: list[tuple[dict[int, int], dict[int, int]]] = []
        self.number = 0
        self.is_over = False

    def turn(self, at_s: float, now_ns: int) -> bool:
        """Publish what is due; return whether all is published."""
        if self.number == 0:
            self.gateway.announce(now_ns)
        while not self.is_over and self.number < int(at_s * self.plan.rate_per_s):
            self.number += 1
            self.change(now_ns)
        self.gateway.transmitter.do_work(now_ns)
        return self.is_over

    def restart(self) -> None:
        """Begin a new session."""
        self.gateway.restart(monotonic_ns())

    def end(self) -> None:
        """Publish no more changes."""
        self.is_over = True

    def change(self, now_ns: int) -> None:
        """Publish one change, or a whole book: of a new symbol, or instead of the old one."""
        is_new = len(self.books) < min(INSTRUMENTS, 2 + self.number // self.plan.turns)
        if is_new:
            self.books.append(({}, {}))
        at = len(self.books) - 1 if is_new else self.chance.randrange(len(self.books))
        whole = is_new or self.chance.random() < 0.005
        told = []
        for side, sign in zip(self.books[at], (-1, 1), strict=True):
            if whole:
                side.clear()
            rows = {}
            for _ in range(self.plan.levels if whole else self.chance.randint(1, 3)):
                price = MID_CENTS + sign * self.chance.randrange(1, 2 * self.plan.levels)
                rows[price] = 0 if not whole and self.chance.random() < 0.3 else self.number
            side.update(rows)
            for price in [price for price, quantity in rows.items() if not quantity]:
                del side[price]
            told.append(np.array([(price / 100, size) for price, size in rows.items()], float))
        change = BookChange(self.number, at, whole, told[0], told[1], self.number, self.number)
        self.gateway.publish(change, now_ns)
        bids, asks = (
            frozenset((price / 100, float(size)) for price, size in side.items())
            for side in self.books[at]
        )
        named = self.instruments[at]
        self.truth.note((named.exchange, named.symbol), self.number, (bids, asks))


class Tap:
    """A line of a transmitter that leads to a wire."""

    unreachable = 0
    trouble = ""

    def __init__(self, wire: Wire, line: Line) -> None:
        self.wire, self.line, self.carried = wire, line, 0

    def send(self, views: DatagramViews) -> int:
        """Take all of it."""
        self.wire.put(self.line, datagrams_of(views), monotonic_ns())
        self.carried += len(views[2])
        return len(views[2])


class VenueMarket:
    """A simulated exchange; what its books are is noted with every message."""

    def __init__(self, plan: Plan, seed: int, truth: Truth, wire: Wire) -> None:
        self.plan, self.wire = plan, wire
        self.exchange = VENUE_MARKETS[plan.market](seed, rate_per_s=plan.rate_per_s)
        for symbol in SYMBOLS:
            truth.note((self.exchange.exchange, symbol), 0, (frozenset(), frozenset()))
        self.watched(truth)
        self.roles = roles_of(plan.market)
        self.lines = [line for lines in self.roles.values() for line in lines]
        self.datagrams = iter(self.exchange)
        self.next: tuple[int, int, bytes] | None = next(self.datagrams)

    def watched(self, truth: Truth) -> None:
        """Have each message noted: by its number, or by the time of its datagram."""
        exchange: Any = self.exchange
        by_time = position_of(exchange.payload) == "exchange_time_utc"
        datagram = exchange.datagram
        steps: list[tuple[str, Levels]] = []

        def watched(verb: Callable[..., bytes]) -> Callable[..., bytes]:
            def told(symbol: str, *what: Any) -> bytes:
                steps.append((symbol, self.levels(symbol)))
                return verb(symbol, *what)

            return told

        for name in ("add", "execute", "reduce", "delete", "replace"):
            setattr(exchange, name, watched(getattr(exchange, name)))

        def watched_datagram(unit: int, messages: list[bytes]) -> bytes:
            if by_time:
                numbers = [exchange._time()] * len(steps)
            else:
                number = exchange._next[unit] if len(exchange.units()) > 1 else exchange._next
                numbers = list(range(number, number + len(steps)))
            for number, (symbol, levels) in zip(numbers, steps, strict=True):
                truth.note((exchange.exchange, symbol), number, levels)
            steps.clear()
            return bytes(datagram(unit, messages))

        exchange.datagram = watched_datagram

    def levels(self, symbol: str) -> Levels:
        """Return a book as readers are told of it."""
        sides = []
        for bid in (True, False):
            prices: Counter[int] = Counter()
            for order in self.exchange.side(symbol, bid):
                prices[order.price] += order.shares
            best = list(prices.items())[: self.exchange.depth or None]
            sides.append(frozenset((price / 10_000, float(shares)) for price, shares in best))
        return sides[0], sides[1]

    def turn(self, at_s: float, now_ns: int) -> bool:
        """Publish what is due; return whether all is published."""
        while self.next is not None and self.next[0] <= at_s * 1e9:
            _, loop, data = self.next
            for line in self.roles["streams"] if loop == 0 else [self.lines[loop + 1]]:
                self.wire.put(line, [data], now_ns)
            self.next = next(self.datagrams, None)
        return self.next is None

    def end(self) -> None:
        """Let the market close."""
        self.exchange.end()


def position_of(market: str) -> str:
    """Return which field of an update says where its market was.

    CME's snapshots have numbers of their own; all of its datagrams are of different times.
    """
    return "exchange_time_utc" if market == "cme" else "exchange_sequence"


def roles_of(market: str) -> dict[str, list[Line]]:
    """Return the lines of a market's feed by their tables."""
    if market == "roq":
        return RoqMarket.roles
    roles = {"streams": [(0, 0), (0, 1)]}
    for at, role in enumerate(VENUE_MARKETS[market].loops):
        roles.setdefault(role, []).append((1, at))
    return roles


class Judge:
    """A reader of a feed, that compares every book with the truth."""

    def __init__(self, name: str, market: str, truth: Truth, found: Counter[str]) -> None:
        self.name, self.truth, self.found = name, truth, found
        self.position = position_of(market)
        self.reader: Reader | None = None
        self.books = Books()
        self.numbers: dict[Name, int] = {}
        self.sound: dict[Name, int] = {}  # the number of each that was sound a record ago
        self.newest: dict[Name, int] = {}
        self.records = 0

    def turn(self) -> None:
        """Read on, and look behind each record."""
        if self.reader is None:
            try:
                self.reader = Reader(f"ring:{self.name}", start="begin")
            except (FileNotFoundError, NotReadyError):
                return
        while self.reader.lag:
            record = next(self.reader)
            self.books.apply(record)
            self.records += 1
            self.found[f"{self.name} {record.kind.name}"] += 1
            name: Name | None = None
            if record.kind == Kind.BOOK:
                name = (record.exchange or "", record.symbol or "")
                self.numbers[name] = int(record.update.header[self.position])
            self.look(name, f"{record.kind.name} {record.index}")

    def look(self, told: Name | None, record: str) -> None:
        """Check each book that the record was of, or that it made sound."""
        for key, book in self.books.items():
            name = (key[0] or "", key[1] or "")
            if book.stale:
                self.sound.pop(name, None)
                continue
            number = self.numbers.get(name, 0)
            if name != told and name in self.sound:
                continue
            self.sound[name] = number
            levels = levels_of(book)
            known = self.truth.at(name, number)
            if levels not in known:
                raise AssertionError(
                    f"{self.name}: {name} is sound behind {record} at number {number}: "
                    f"{differences(levels, known)}"
                )
            if number < self.newest.get(name, 0):
                raise AssertionError(
                    f"{self.name}: {name} is sound behind {record} at number {number}, and was so "
                    f"at {self.newest[name]} before"
                )
            self.newest[name] = number
            self.found[f"{self.name} compared"] += 1

    def knows(self, name: Name) -> Levels | None:
        """Return a book that is sound."""
        book = self.books.get(name)
        return None if book is None or book.stale else levels_of(book)

    def close(self) -> None:
        """Let go of it."""
        if self.reader is not None:
            self.reader.close()


def levels_of(book: OrderBook) -> Levels:
    """Return all levels of a book."""
    bids, asks = (frozenset(map(tuple, side.tolist())) for side in (book.bids(), book.asks()))
    return bids, asks


def differences(levels: Levels, known: list[Levels]) -> str:
    """Say in a few words how a book differs from what it should be."""
    if not known:
        return "nothing was ever said of it"
    wrong = [(sorted(a - b)[:3], sorted(b - a)[:3]) for a, b in zip(levels, known[-1], strict=True)]
    return f"found and not there, there and not found, of bids and asks: {wrong}"


class Chain:
    """All processes of a chain, and what happens to them."""

    def __init__(self, plan: Plan, seed: int, directory: Path, stack: ExitStack) -> None:
        self.plan, self.directory, self.stack = plan, directory, stack
        self.environment = os.environ | {"UDPFAST_SHM": str(directory / "shm")}
        self.log = stack.enter_context((directory / "log").open("w"))
        self.found: Counter[str] = Counter()
        self.truth = Truth()
        self.roles = roles_of(plan.market)
        ports = {line: free_port() for lines in self.roles.values() for line in lines}
        (directory / "near.toml").write_text(self.near_settings(ports))
        near_faults = {line: LineFaults(loss=plan.near_loss) for line in ports}
        self.near_wire = Wire(near_faults, seed, ports, stack)
        kind = RoqMarket if plan.market == "roq" else VenueMarket
        self.market = kind(plan, seed, self.truth, self.near_wire)
        self.sockets = {}
        for line in range(2):
            for channel, opened in enumerate(neighbours(stack)):
                self.sockets[channel, line] = opened
        far_ports = {line: free_port() for line in self.sockets}
        self.far_wire = Wire(plan.faults, seed + 1, far_ports, stack)
        self.far_settings(far_ports)
        self.judges = [Judge(name, plan.market, self.truth, self.found) for name in (NEAR, FAR)]
        for judge in self.judges:
            stack.callback(judge.close)
        self.relay: subprocess.Popen[str] | None = None
        self.far: subprocess.Popen[str] | None = None

    def near_settings(self, ports: dict[Line, int]) -> str:
        """Return the file of the feed that receives the market."""
        parts = [f'name = "{NEAR}"', "ring.capacity_bytes = 16_777_216", 'agent.idle = "sleep"']
        parts += [f"image.enabled = {str(self.plan.image).lower()}"]
        if self.plan.market != "roq":
            market = VENUE_MARKETS[self.plan.market]
            parts += [f'wire.framing = "{market.framing}"', f'wire.payload = "{market.payload}"']
        for role, lines in self.roles.items():
            for line in lines:
                parts += [f"[[{role}.lines]]", f'name = "L{line[0]}{line[1]}"']
                parts += [f'address = "127.0.0.1:{ports[line]}"']
        return "\n".join(parts) + "\n"

    def far_settings(self, ports: dict[Line, int]) -> None:
        """Write the file of the far end, as the relay prints it, behind the lossy lines."""
        words = child_command(*self.relay_words(), "--print-far")
        text = subprocess.run(
            words, env=self.environment, check=True, capture_output=True, text=True
        ).stdout
        for line, opened in self.sockets.items():
            text = text.replace(f':{opened.getsockname()[1]}"', f':{ports[line]}"')
        text = text.replace(f'name = "{NEAR}-far"', f'name = "{FAR}"\nagent.idle = "sleep"', 1)
        (self.directory / "far.toml").write_text(text)

    def relay_words(self) -> list[str]:
        """Return the relay's command."""
        names = ("microwave", "fibre")
        lines = [
            f"{name}=127.0.0.1:{self.sockets[0, line].getsockname()[1]}"
            for line, name in enumerate(names)
        ]
        words = ["relay", NEAR, "--lines", ",".join(lines), "--idle", "sleep", "--json"]
        words += ["--snapshot-ms", "300", "--snapshot-rate", str(40 * self.plan.levels)]
        for option, value in (("--budget", self.plan.bits_per_s), ("--parity", self.plan.parity)):
            if value:
                words += [option, ",".join(f"{name}={value}" for name in names)]
        return words

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a process that ends with the chain."""
        process = subprocess.Popen(
            child_command(*words),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self.stack.enter_context(process)
        self.stack.callback(process.kill)
        return process

    def run(self) -> Counter[str]:
        """Run the market and what happens meanwhile; wait until both ends know the same."""
        plan, (near, far) = self.plan, self.judges
        feed = self.start("run", str(self.directory / "near.toml"), "--quiet")
        self.await_loop(feed)
        self.at_s, self.now_ns = 0.0, monotonic_ns()
        starts = {self.open_relay: plan.relay_after, self.open_far: plan.far_after}
        for start in sorted(starts, key=lambda start: starts[start]):
            while near.records < starts[start]:
                self.step()
            start()
        self.until(lambda: far.reader is not None, "the far end")
        self.go_on()
        if plan.restarts and isinstance(self.market, RoqMarket):
            self.market.restart()
            self.go_on()
        for _ in range(plan.kills):
            self.kill_relay()
            self.go_on()
        self.market.end()
        self.until(lambda: self.is_over and self.differs() is None, "the end", self.differs)
        self.count_relay()
        self.found["lost by the market's lines"] += self.near_wire.network.lost
        self.found["lost by the relay's lines"] += self.far_wire.network.lost
        return self.found

    def go_on(self) -> None:
        """Let both ends read so many records; the far end none, if all is in doubt here."""
        wanted = [judge.records + self.plan.turns for judge in self.judges]

        def has_read() -> bool:
            near, far = (
                judge.records >= each for judge, each in zip(self.judges, wanted, strict=True)
            )
            return near and (far or not self.judges[0].sound)

        self.until(has_read, "records at both ends")

    def until(
        self, holds: Callable[[], bool], what: str, problem: Callable[[], str | None] | None = None
    ) -> None:
        """Run all until something holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            self.step()
            if time.monotonic() > deadline:
                raise AssertionError(f"waited in vain for {what}: {problem and problem()}")

    def step(self) -> None:
        """Move on; on a host that is too busy the market is slower."""
        before_ns, self.now_ns = self.now_ns, monotonic_ns()
        self.at_s += min(self.now_ns - before_ns, TURN_MAX_NS) / 1e9
        self.is_over = self.turn(self.at_s, self.now_ns)
        time.sleep(PAUSE_S)

    def turn(self, at_s: float, now_ns: int) -> bool:
        """Move all that is due; return whether the market is over."""
        is_over = self.market.turn(at_s, now_ns)
        self.near_wire.turn(now_ns)
        for line, opened in self.sockets.items():
            self.far_wire.put(line, list(received(opened)), now_ns)
        self.far_wire.turn(now_ns)
        for judge in self.judges:
            judge.turn()
        return is_over and not self.near_wire.waiting

    def differs(self) -> str | None:
        """Return what the ends do not know alike; None: nothing."""
        near, far = self.judges
        for name, states in self.truth.states.items():
            here, there = near.knows(name), far.knows(name)
            if here is None and self.plan.near_loss and self.plan.market in ("itch", "pitch"):
                continue
            if here != states[-1]:
                return f"{name} is {differences(here, states[-1:]) if here else 'in doubt'} here"
            if there != here:
                return f"{name} is {differences(there, [here]) if there else 'in doubt'} there"
        return None

    def open_relay(self) -> None:
        """Start the relay."""
        self.relay = self.start(*self.relay_words())

    def kill_relay(self) -> None:
        """Kill it, and start another one."""
        assert self.relay is not None
        self.relay.kill()
        self.relay.wait()
        self.found["kills"] += 1
        self.open_relay()

    def open_far(self) -> None:
        """Start the far end."""
        self.far = self.start("run", str(self.directory / "far.toml"), "--quiet")

    def await_loop(self, process: subprocess.Popen[str]) -> None:
        """Wait until the feed receives."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if counters(NEAR)["feed"]["cycles"]:
                    return
            except (FileNotFoundError, NotReadyError):
                pass
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("the feed did not begin to receive")
            time.sleep(0.01)

    def count_relay(self) -> None:
        """End the relay, and take what it counted."""
        assert self.relay is not None
        self.relay.send_signal(signal.SIGTERM)
        told, _ = self.relay.communicate(timeout=PATIENCE_S)
        counts = json.loads(told)["relay"]
        for key in ("records", "updates", "whole", "snapshots", "conflated", "late", "behind"):
            self.found[f"relay {key}"] += counts[key]


def neighbours(stack: ExitStack) -> Iterator[socket.socket]:
    """Yield sockets at two ports that follow each other, as a relay's line wants them."""
    first, second = free_ports(2)
    while second != first + 1:
        first, second = second, free_port()
    for port in (first, second):
        opened = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        opened.bind(("127.0.0.1", port))
        opened.setblocking(False)
        yield opened


def received(opened: socket.socket) -> Iterator[bytes]:
    """Yield the datagrams that wait."""
    while True:
        try:
            yield opened.recv(DATAGRAM_MAX)
        except BlockingIOError:
            return


def draw(seed: int, market: str | None = None) -> Plan:
    """Return the plan of a seed."""
    rng = random.Random(f"{seed} chain")
    market = market or MARKETS[seed % len(MARKETS)]
    loss, burst = rng.choice((0.01, 0.01, 0.05)), rng.choice((0.0, 8.0))
    lags_ns = rng.choice(((0, 0), (2_000_000, 20_000_000)))
    faults = {
        (int(channel), line): LineFaults(
            loss=loss, burst_mean=burst, delay_ns=lags_ns[line], jitter_ns=lags_ns[line] // 10
        )
        for channel in Channel
        for line in range(2)
    }
    for line in rng.choice(((), (), ((0, 0),), ((1, 1),), ((0, 1), (1, 1)))):
        faults[line] = LineFaults(loss=1.0)
    bits_per_s = rng.choice((0, 0, 400_000))
    return Plan(
        market=market,
        levels=40 if bits_per_s else rng.choice((40, 300)),
        near_loss=rng.choice((0.0, 0.01, 0.05) if market in ("roq", "cme") else (0.0, 0.01)),
        faults=faults,
        bits_per_s=bits_per_s,
        parity=rng.choice((0, 0, 8)),
        image=rng.random() < 0.7,
        relay_after=rng.choice((0, 200, 333)),
        far_after=rng.choice((0, 0, 450)),
        kills=rng.choice((0, 1, 2)),
        restarts=rng.random() < 0.3,
    )


def run(plan: Plan, seed: int) -> Counter[str]:
    """Run a chain."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(scratch_directory("udpfast-relaychain-")))
        before = os.environ.get("UDPFAST_SHM")
        os.environ["UDPFAST_SHM"] = str(directory / "shm")
        try:
            return Chain(plan, seed, directory, stack).run()
        finally:
            os.environ.pop("UDPFAST_SHM")
            if before is not None:
                os.environ["UDPFAST_SHM"] = before


def check(seed: int, row: str | None = None) -> dict[str, int]:
    """Run the chain of a seed, of one market."""
    return dict(run(draw(seed, row), seed))


main = by_seeds(__name__, check, 8, MARKETS)
