"""Relay a venue's books over lossy lines and compare what readers know at both ends.

    udpfast lab relaycheck --seeds 20

A set of venue captures (below `UDPFAST_SHARED`, venues/books) goes through a feed, a relay, two
lines that lose datagrams each by itself, and another feed. The relay is killed and started again,
stands still until the ring has lapped it, and loses its feed, at moments drawn from the seed; some
lines are too thin for what the venue says. After
each record at the far end, a book that is sound there has to be one that was sound here a moment
ago. In the end, when nothing is lost any more, both ends have to know the same: every book, every
top, and what is in doubt. All in one process, with time as a number.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from udpfast.agents.feed.image_keeper import ImageKeeper
from udpfast.agents.feed.replayer import Replayer
from udpfast.agents.relay.relay import Relay
from udpfast.cli.scratch import scratch_directory
from udpfast.client.books import Books
from udpfast.client.reader import Reader
from udpfast.config import FeedConfig, ImageConfig, RelayConfig, RelayLine, parse_feed
from udpfast.core.layout import Kind
from udpfast.feed.repair import ParitySender
from udpfast.net.bad_network import BadNetwork, LineFaults
from udpfast.net.pcap import CAPTURED, CaptureBatch
from udpfast.shm.relay_counts import RELAY_VERDICTS

from .conformance.books import Followed, Line, read_set
from .program import by_seeds

__all__ = ["World", "check", "main"]

SETS = ("itch_small", "pitch_2", "cme_1", "cme_2_reset", "itch_1")
#: So long ago a book that is sound at the far end was sound here: a hole waits 5 ms, and until a
#: heartbeat shows it; steps of the clock are no longer than the last number.
LAG_NS = 500_000_000
#: A relay that is not heard for so long is silent, and a heartbeat comes three times as often.
SILENT_NS = 300_000_000
#: The same, of what a thin line holds back for so long, or carries for so long.
LATE_NS = 200_000_000
THIN_LAG_NS = LAG_NS + LATE_NS + 1_500_000_000
STEP_NS = 20_000_000
QUIET_NS = 4_000_000_000
PARITY_DEPTH = 4
THIN_QUIET_NS = 40_000_000_000
START_NS = 1_000_000_000
#: Turns between two versions of the image: its own pace is of another clock.
IMAGE_TURNS = 20

#: It is of a session that nobody has begun.
NOTHING = bytes([2]) + bytes(15)

Name = tuple[str, str]
#: Where the exchange was when it said so: its number, and its time.
Position = tuple[int, int]


@dataclass(slots=True)
class Faults:
    """What happens to one world.

    Attributes
    ----------
    loss, burst : float
        Part of a line's datagrams that is lost, and how many in a row.
    kills, stalls, restarts : int
        How often the relay is killed, stands still until it is lapped, and the feed starts anew.
    image : bool
        The feed keeps an image, with which a relay goes on.
    bits_per_s : int
        What each line takes; 0: all.
    parity : int
        Datagrams that one parity covers; 0: there is none.
    """

    loss: float = 0.01
    burst: float = 0.0
    kills: int = 0
    stalls: int = 0
    restarts: int = 0
    image: bool = False
    bits_per_s: int = 0
    parity: int = 0


class End:
    """A feed, and what a reader of it knows."""

    def __init__(self, config: FeedConfig, directory: Path) -> None:
        self.config, self.directory = config, directory
        directory.mkdir(mode=0o700, exist_ok=True)
        self.replayer = Replayer(config, directory)
        self.reader = Reader(f"ring:{directory}", start="begin")
        self.followed = Followed(Books())

    def send(self, datagram: bytes, line: Line, now_ns: int) -> Iterator[Any]:
        """Take a datagram; yield each record that follows, behind what a reader makes of it."""
        headers = np.zeros(1, CAPTURED)
        headers["timestamp_ns"], headers["size"] = now_ns, len(datagram)
        channel, place = (np.full(1, value, np.uint8) for value in line)
        self.replayer.replay(CaptureBatch(headers, datagram), channel, place, 0, 1)
        yield from self.records()

    def records(self) -> Iterator[Any]:
        """Yield the records that are there, behind what a reader makes of each."""
        while self.reader.lag:
            record = next(self.reader)
            self.followed.take(record)
            yield record

    def sound(self, name: Name) -> Any:
        """Return a book's levels, None if it is in doubt or unknown."""
        book = self.followed.books.get(name)
        if book is None or book.stale:
            return None
        return plain(self.followed.levels[name])

    def close(self) -> None:
        """Let go of it."""
        self.reader.close()
        self.replayer.close()


class World:
    """Both ends and what lies between."""

    def __init__(
        self, directory: Path, config: FeedConfig, faults: Faults, seed: int, **settings: Any
    ) -> None:
        self.directory, self.config, self.faults = directory, config, faults
        self.settings = replace(
            RelayConfig(),
            lines=(RelayLine("thin", "127.0.0.1:1", bits_per_s=faults.bits_per_s),),
            late_ms=LATE_NS // 1_000_000,
            **settings,
        )
        self.lag_ns = THIN_LAG_NS if faults.bits_per_s else LAG_NS
        self.network = BadNetwork(LineFaults(loss=faults.loss, burst_mean=faults.burst), seed)
        self.now_ns = START_NS
        self.history: dict[Name, list[tuple[int, Any]]] = {}
        self.positions: dict[Name, dict[Position, list[Any]]] = {}
        self.found: Counter[str] = Counter()
        self.keeper: ImageKeeper | None = None
        self.lost: set[Name] = set()
        self.turns = 0
        self.open_near()
        session = {"inactivity_timeout_ms": SILENT_NS // 1_000_000, "doubt_when_silent": True}
        tables = {"session": session, "window": {"parity": faults.parity > 0}}
        self.far = End(far_config(**tables), directory / "far")
        self.parity = (
            [ParitySender(faults.parity, PARITY_DEPTH) for _ in range(2)] if faults.parity else []
        )

    def open_near(self) -> None:
        """Start the feed here, and its agents."""
        self.near = End(self.config, self.directory / "near")
        if self.faults.image:
            self.keeper = ImageKeeper(ImageConfig(interval_ms=0), self.near.directory)
            self.keeper.on_start()
        self.open_relay()

    def open_relay(self) -> None:
        """Start the relay."""
        self.relay = Relay(self.settings, self.near.directory, keep=True)
        self.relay.on_start()

    def kill_relay(self) -> None:
        """Leave what a killed process leaves, and start another one."""
        self.relay.counts.close()
        self.found["kills"] += 1
        self.open_relay()
        self.begin()

    def begin(self) -> None:
        """Give a relay its first turn: it knows from then on when it stood still."""
        self.relay.work(self.now_ns)
        self.deliver()

    def restart_near(self) -> None:
        """Stop the feed in good order, and start it again."""
        self.near.replayer.finish()
        for record in self.near.records():
            self.note(record)
        self.near.close()
        self.turn(relaying=True)
        if self.keeper is not None:
            self.keeper.work(self.now_ns)
            self.keeper.on_stop()
        self.relay.on_stop()
        self.deliver()
        # What its last reader knew is of no use: nothing is sound here until it is told anew.
        for name in self.history:
            self.history[name].append((self.now_ns, None))
        self.found["restarts"] += 1
        self.open_near()
        self.begin()

    def step(self, line: Line, payload: bytes, after_ns: int, relaying: bool = True) -> None:
        """Take a datagram of the venue, and let everything run until nothing is left to do."""
        self.now_ns += min(max(after_ns, 0), STEP_NS)
        for record in self.near.send(payload, line, self.now_ns):
            self.note(record)
        self.turn(relaying)

    def turn(self, relaying: bool = True) -> None:
        """Let the relay and the far end run."""
        if self.keeper is not None:
            while self.keeper.work(self.now_ns) > 0:
                pass
            self.turns += 1
            if self.turns % IMAGE_TURNS == 0:
                self.keeper.publish()
        while relaying and self.relay.work(self.now_ns) > 0:
            pass
        if relaying:
            self.deliver()
        else:
            self.pass_time()
        for name in self.far.followed.levels:
            self.judge(name)

    def quiet(self) -> None:
        """Let time pass until all that was lost is healed."""
        self.network = BadNetwork(LineFaults(), 0)
        end_ns = self.now_ns + (THIN_QUIET_NS if self.faults.bits_per_s else QUIET_NS)
        while self.now_ns < end_ns:
            self.now_ns += STEP_NS
            self.turn()

    def deliver(self) -> None:
        """Bring what the relay sent over both lines to the far end."""
        for channel, kept in enumerate(self.relay.feed.kept):
            datagrams = list(kept)
            kept.clear()
            for line in range(2):
                leaving = self.with_parity(datagrams, line) if channel == 0 else datagrams
                for _, datagram in self.network.pass_through(channel, line, leaving, self.now_ns):
                    for record in self.far.send(datagram, (channel, line), self.now_ns):
                        self.found[f"far {record.kind.name}"] += 1
                        if record.kind >= Kind.BOOK and record.exchange:
                            self.judge((record.exchange, record.symbol))
                        if record.kind == Kind.BOOK:
                            self.judge_position(record)

    def pass_time(self) -> None:
        """Let the far end see that it hears nothing: by a datagram that says nothing."""
        for record in self.far.send(NOTHING, (1, 0), self.now_ns):
            self.found[f"silent {record.kind.name}"] += 1

    def with_parity(self, datagrams: list[bytes], line: int) -> list[bytes]:
        """Return what leaves by a line: the datagrams, and their parity among them."""
        if not self.parity:
            return datagrams
        leaving = []
        for datagram in datagrams:
            leaving.append(datagram)
            parity = self.parity[line].add(datagram)
            if parity is not None:
                leaving.append(parity)
        return leaving + self.parity[line].rest()

    def note(self, record: Any) -> None:
        """Remember which books are sound here since when."""
        self.found[f"near {record.kind.name}"] += 1
        if record.kind == Kind.BOOK:
            name = (record.exchange, record.symbol)
            states = self.positions.setdefault(name, {}).setdefault(position(record), [])
            states.append(plain(self.near.followed.levels[name]))
        if record.kind >= Kind.BOOK:
            names = [(record.exchange, record.symbol)]
        else:
            names = list(self.near.followed.levels)
        for name in names:
            if name not in self.near.followed.levels:
                continue
            told = self.history.setdefault(name, [])
            sound = self.near.sound(name)
            if not told or told[-1][1] != sound:
                told.append((self.now_ns, sound))

    def judge(self, name: Name) -> None:
        """Check that a book that is sound at the far end was so here a moment ago."""
        there = self.far.sound(name)
        if there is None:
            return
        # While the relay stands still the far end hears nothing, not even heartbeats, and has to
        # know that. When it goes on, nothing is sound there that was so meanwhile.
        since_ns = self.now_ns - self.lag_ns
        told = self.history.get(name, [])
        for at in range(len(told) - 1, -1, -1):
            if told[at][1] == there:
                self.found["compared"] += 1
                return
            if told[at][0] < since_ns:
                break
        raise AssertionError(
            f"{name} is sound at the far end at {self.now_ns}, and is not what it was here: "
            f"there {text(there)}, here {[(when, text(what)) for when, what in told[-3:]]}"
        )

    def judge_position(self, record: Any) -> None:
        """Check that a book that is sound behind a record is what it was here at its position."""
        name = (record.exchange, record.symbol)
        there = self.far.sound(name)
        if there is None:
            return
        here = self.positions.get(name, {}).get(position(record), [])
        if there not in here:
            raise AssertionError(
                f"{name} is sound at the far end at {position(record)}, and was not that here: "
                f"there {text(there)}, here {[text(each) for each in here]}"
            )
        self.found["compared by position"] += 1

    def compare(self) -> None:
        """Check that both ends know the same."""
        near, far = self.near, self.far
        counts = self.relay.read_counts()["relay"]
        self.found += Counter({key: counts[key] for key in ("delayed", "conflated", "late")})
        for line, tallies in far.replayer.counters().items():
            if "." in line:
                self.found["repaired"] += tallies["repaired"]
                assert tallies["parity_refused"] == 0, (line, tallies)
        verdicts = sum(counts[key] for key in RELAY_VERDICTS)
        if verdicts != counts["records"]:
            raise AssertionError(f"verdicts of {verdicts} records, of {counts['records']}")
        for name in near.followed.levels:
            here, there = near.sound(name), far.sound(name)
            if name in self.lost and there is None:
                continue  # known here to a reader that was there from the beginning
            if here != there:
                raise AssertionError(
                    f"in the end {name} is {text(here)} here and {text(there)} there"
                )
            self.found["sound" if here is not None else "doubted"] += 1
            top = near.followed.tops.get(name)
            if here is not None and top is not None:
                known = far.followed.tops.get(name)
                assert np.array_equal(top, known or (), equal_nan=True), (name, top, known)

    def close(self) -> None:
        """Let go of everything."""
        if self.keeper is not None:
            self.keeper.on_stop()
        self.relay.on_stop()
        self.near.close()
        self.far.close()


def far_config(**tables: Any) -> FeedConfig:
    """Return the settings of the feed at the far end."""
    return parse_feed(
        {
            "name": "far",
            "ring": {"capacity_bytes": 1 << 26},
            **{
                channel: {
                    "lines": [
                        {"name": name, "address": f"127.0.0.1:{9001 + 100 * i + j}"}
                        for j, name in enumerate(("microwave", "fibre"))
                    ]
                }
                for i, channel in enumerate(("incremental", "snapshot"))
            },
            **tables,
        }
    )


def position(record: Any) -> Position:
    """Return where the exchange was, as an update has it."""
    header = record.update.header
    return int(header["exchange_sequence"]), int(header["exchange_time_utc"])


def plain(sides: Any) -> Any:
    """Return a book's levels without their places."""
    return tuple(frozenset((price, row[:2]) for price, row in side.items()) for side in sides)


def text(levels: Any) -> str:
    """Return a book in a few words."""
    if levels is None:
        return "in doubt"
    return str([sorted(side)[-3:] for side in levels])


def check(seed: int) -> dict[str, int]:
    """Run one world, drawn from the seed."""
    rng = random.Random(seed)
    shared = os.environ.get("UDPFAST_SHARED") or "../shared"
    name = rng.choice(SETS)
    faults = Faults(
        loss=rng.choice((0.0, 0.01, 0.05, 0.2)),
        burst=rng.choice((0.0, 0.0, 8.0)),
        kills=rng.choice((0, 0, 1, 3)),
        stalls=rng.choice((0, 0, 1, 2)),
        restarts=rng.choice((0, 0, 1)),
        image=rng.random() < 0.6,
        bits_per_s=rng.choice((0, 0, 200_000, 1_000_000)),
        parity=rng.choice((0, 4, 16)),
    )
    folder = Path(shared, "venues", "books", name)
    capture = rng.choice(("clean", "feed"))
    found = run(folder, capture, faults, seed)
    return dict(found)


def run(folder: Path, capture: str, faults: Faults, seed: int) -> Counter[str]:
    """Run a set of captures through both ends."""
    config, datagrams = read_set(folder, capture, orders=False)
    ring_bytes = 1 << 20 if faults.stalls else 1 << 24
    config = replace(config, ring=replace(config.ring, carry="updates", capacity_bytes=ring_bytes))
    rng = random.Random(f"{seed} events")
    moments = rng.sample(range(len(datagrams) // 10, len(datagrams)), 6)
    kills = set(moments[: faults.kills])
    restarts = set(moments[3 : 3 + faults.restarts])
    stalls = moments[4 : 4 + faults.stalls]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(scratch_directory("udpfast-relaycheck-")))
        world = World(directory, config, faults, seed)
        stack.callback(world.close)
        before_ns = datagrams[0][1].timestamp_ns
        for at, (line, sent) in enumerate(datagrams):
            stalled = any(first <= at < first + len(datagrams) // 2 for first in stalls)
            if at in kills:
                world.kill_relay()
            if at in restarts:
                world.restart_near()
            after_ns = sent.timestamp_ns - before_ns
            before_ns = sent.timestamp_ns
            world.step(line, sent.payload, after_ns, relaying=not stalled)
        world.quiet()
        if not faults.image and (faults.kills or faults.stalls):
            world.lost = set(world.near.followed.levels)
        world.compare()
        world.found["relayed datagrams"] += sum(
            world.relay.feed.publication.counters(channel)["datagrams"] for channel in (0, 1)
        )
        return world.found


main = by_seeds(__name__, check, 20)
