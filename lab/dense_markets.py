"""Markets of any density through a gateway whose lines, snapshots and messages are hindered.

    udpfast lab dense-markets --seeds 1000 --seed 1

Each seed draws a market (1 to 50,000 levels, one or many instruments, any change), what is refused
on the way (a snapshot at any step, a message, a line in any order), and checks that the gateway
goes on, that what it says is missing is exact, and that the books of a subscriber equal the levels
of the market that are nearest the touch. A seed that fails prints the command that repeats it.
"""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from udpfast.agents.market.market_encoding import Encoded, MarketEncoder
from udpfast.agents.market.market_event import BookChange, Instrument, Quote, Trade
from udpfast.agents.market.market_gateway import BOOK_TYPE, MarketGateway
from udpfast.feed.transmitter import DatagramViews, Transmitter, datagrams_of
from udpfast.payload.roq.fitted_book import FittedBook, levels_that_fit

from .program import by_seeds

__all__ = ["check_book", "check_gateway", "main"]

Levels = npt.NDArray[np.float64]
Side = dict[float, float]
Book = tuple[Side, Side]

#: The most levels of a side that a seed of `check_book` deals with.
SMALL = 40

_MS = 1_000_000
_HEARTBEAT_NS = 50 * _MS
_ROUND_NS = 20 * _MS


class RefusedError(ValueError):
    """What a seed has an encoder refuse."""


def check_seed(seed: int) -> dict[str, int]:
    """Check the gateway's book alone, then a gateway; return what there was to check."""
    check_book(seed)
    return check_gateway(seed)


def check_gateway(seed: int) -> dict[str, int]:
    """Play a random market through a gateway; raise AssertionError at the first thing wrong."""
    return _Play(seed).run()


class _Line:
    """A line that carries, has no way, or fails."""

    def __init__(self) -> None:
        self.state = "carries"
        self.arrived: list[bytes] = []
        self.unreachable = 0
        self.trouble = "no way"

    @property
    def carried(self) -> int:
        return len(self.arrived)

    def send(self, datagrams: DatagramViews) -> int:
        found = datagrams_of(datagrams)
        if self.state == "fails":
            raise ConnectionError("the line fails")
        if self.state == "carries":
            self.arrived += found
        else:
            self.unreachable += len(found)
        return len(found)


class _Encoder(MarketEncoder):
    """Encodes books so that they are read back fast, once they have shown that they fit."""

    def __init__(self, instruments: list[Instrument], chance: random.Random) -> None:
        super().__init__(instruments)
        self.chance = chance
        self.refusing = 0.0
        self.refused = 0

    def book(self, event: BookChange, created_ns: int) -> Encoded:
        if self.chance.random() < self.refusing:
            self.refused += 1
            raise RefusedError("so the seed wants it")
        super().book(event, created_ns)
        head = struct.pack("<QIII", 0, event.snapshot, len(event.bids), len(event.asks))
        return Encoded(head + event.bids.tobytes() + event.asks.tobytes(), 0)


def _decode(payload: bytes) -> tuple[bool, list[list[Any]]]:
    _, snapshot, bids, asks = struct.unpack_from("<QIII", payload)
    rows = np.frombuffer(payload, np.float64, 2 * (bids + asks), 20).reshape(-1, 2).tolist()
    return bool(snapshot), [rows[:bids], rows[bids:]]


class _Play:
    """One seed: a market, a gateway on lines that come and go, and what is known of both."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = chance = random.Random(seed)
        count = chance.choice((1, 1, 2, 5, 60))
        self.density = int((25_000 if count == 1 else 5_000 // count) ** chance.random())
        self.levels_max = chance.choice((None, None, 7, 100))
        instruments = [Instrument("venue", f"S{index}", 2, 2) for index in range(count)]
        self.room = self.levels_max or levels_that_fit("venue", "S00")
        self.books: list[Book] = [({}, {}) for _ in instruments]
        self.channels = [[_Line() for _ in range(chance.randint(1, 3))] for _ in range(2)]
        self.transmitter = Transmitter(
            *self.channels,
            session_id=7,
            heartbeat_interval_ns=_HEARTBEAT_NS,
            snapshot_interval_ns=_ROUND_NS,
            snapshot_rate_per_s=10_000_000,
        )
        self.encoder = _Encoder(instruments, chance)
        self.gateway = MarketGateway(self.transmitter, instruments, self.encoder, self.levels_max)
        self.now_ns = 0
        self.wrong = 0  # events that are no messages
        self.lost = False  # a message left on no line
        self.silent = [False, False]
        self.sent = [0, 0]

    def run(self) -> dict[str, int]:
        chance = self.chance
        self.gateway.announce(0)
        self._turn()  # before a line fails: what it carried is no silence
        for step in range(chance.choice((20, 60))):
            self.encoder.refusing = chance.choice((0.0, 0.0, 0.3))
            for line in (line for lines in self.channels for line in lines):
                if chance.random() < 0.1:
                    line.state = chance.choice(("carries", "carries", "is down", "fails"))
            for _ in range(chance.randint(0, 4)):
                self._publish(step)
            if chance.random() < 0.03:
                self.gateway.restart(self.now_ns)
            self._turn()
        self._settle()
        return {
            "events refused": self.gateway.refused,
            "snapshots refused": self.transmitter.cycle.refused,
            "dense books": len(self.gateway.left_out),
            "messages": self.gateway.messages,
        }

    def _publish(self, step: int) -> None:
        chance, now_ns = self.chance, self.now_ns
        index, kind = chance.randrange(len(self.books)), chance.random()
        wrong = chance.random() < 0.1
        self.wrong += wrong
        if kind < 0.1:
            sequence = 1 << 65 if wrong else 1
            self.gateway.publish(Quote(now_ns, index, 1.0, 1.0, 2.0, 1.0, 0, sequence), now_ns)
            return
        if kind < 0.2:
            trade_id, exchange_ns = "x" * chance.choice((0, 20, 400)), 1 << 65 if wrong else 0
            self.gateway.publish(Trade(now_ns, index, 1, 1.0, 1.0, trade_id, exchange_ns), now_ns)
            return
        snapshot = step == 0 or chance.random() < 0.1
        rows = [
            [
                (sign * chance.randint(1, 2 * self.density) / 4, chance.choice((0.0, 1.0, 2.0)))
                for _ in range(self.density if snapshot else chance.choice((0, 1, 3, 40)))
            ]
            for sign in (-1, 1)
        ]
        bids, asks = (_levels(side) for side in rows)
        if wrong:
            asks = np.array([[chance.choice((np.nan, np.inf)), 1.0]])
        else:
            _apply(self.books[index], rows, snapshot)
        self.gateway.publish(BookChange(now_ns, index, snapshot, bids, asks, 0, step), now_ns)

    def _turn(self) -> None:
        transmitter = self.transmitter
        transmitter.do_work(self.now_ns)
        assert transmitter.publication.heartbeat_due_ns() > self.now_ns
        for channel, lines in enumerate(self.channels):
            sent = transmitter.publication.counters(channel)["datagrams"]
            if sent > self.sent[channel]:
                self.sent[channel] = sent
                self.silent[channel] = all(line.state != "carries" for line in lines)
        self.lost |= self.silent[0]
        names = ("incremental", "snapshot")
        assert transmitter.silent == tuple(
            name for name, silent in zip(names, self.silent, strict=True) if silent
        )
        refused = self.gateway.refused + transmitter.cycle.refused
        assert refused == self.encoder.refused + self.wrong
        self.now_ns += self.chance.choice((1, 10, 60)) * _MS

    def _settle(self) -> None:
        self.encoder.refusing = 0.0
        for line in (line for lines in self.channels for line in lines):
            line.state = "carries"
        nothing = np.zeros((0, 2))
        for index in range(len(self.books)):
            self.gateway.publish(
                BookChange(self.now_ns, index, False, nothing, nothing, 0, 0), self.now_ns
            )
        arrived = len(self.channels[1][0].arrived)
        rounds = self.transmitter.cycle.rounds
        while self.transmitter.cycle.rounds < rounds + 3:
            self._turn()
        expected = [nearest(book, self.room) for book in self.books]
        assert {
            name: (_pairs(book["bids"]), _pairs(book["asks"]))
            for name, book in self.gateway.books().items()
        } == {f"venue:S{index}": book for index, book in enumerate(expected)}
        # A joiner, by the snapshots; and who was there from the beginning, if nothing was lost.
        ids = self.gateway.object_ids
        session = self.transmitter.publication.session_id
        taken = _read_books(self.channels[1][0].arrived[arrived:], session)
        assert [taken[object_id] for object_id in ids] == expected
        if not self.lost:
            came = [each for line in self.channels[0] for each in line.arrived]
            followed = _read_books(came, session)
            assert [followed[object_id] for object_id in ids] == expected


def _read_books(datagrams: list[bytes], session: int) -> dict[int, Book]:
    """Put messages together, whichever line brought them; return a session's books."""
    messages: dict[int, dict[int, bytes]] = {}
    for datagram in datagrams:
        head = struct.unpack_from("<BBBBHHI", datagram)
        _, fragment, _, object_type, _, session_id, seqno = head
        if object_type == BOOK_TYPE and session_id == session:
            messages.setdefault(seqno, {})[fragment] = datagram
    books: dict[int, Book] = defaultdict(lambda: ({}, {}))
    for _, fragments in sorted(messages.items()):
        last = fragments[max(fragments)]
        if len(fragments) == last[2] + 1:  # else its other fragments came before
            payload = b"".join(fragments[index][16:] for index in sorted(fragments))
            snapshot, rows = _decode(payload)
            _apply(books[struct.unpack_from("<H", last, 4)[0]], rows, snapshot)
    return books


def check_book(seed: int) -> None:
    """Play a random market against a `FittedBook`; raise AssertionError where it differs."""
    chance = random.Random(seed)
    levels_max = chance.choice((1, 2, 3, 5, 10, 31))
    reach = chance.choice((3, SMALL, 2 * SMALL))
    book = FittedBook(levels_max)
    market: Book = ({}, {})
    published: Book = ({}, {})
    for _ in range(150):
        snapshot = chance.random() < 0.02
        rows = [_draw_rows(chance, reach) for _ in range(2)]
        message = book.apply(*(_levels(side) for side in rows), snapshot=snapshot)
        _apply(market, rows, snapshot)
        if message is not None:
            assert len(message.bids) + len(message.asks) <= levels_max
            sides = (message.bids.tolist(), message.asks.tolist())
            _apply(published, sides, message.snapshot)
        expected = nearest(market, levels_max)
        assert published == expected, f"seed {seed}"
        whole = book.whole()
        assert [*whole.bids.tolist()] == [[*row] for row in expected[0].items()]
        assert [*whole.asks.tolist()] == [[*row] for row in expected[1].items()]
        beyond = sum(map(len, market)) - sum(map(len, expected))
        assert book.left_out.levels == beyond
        assert book.left_out.levels_most >= beyond


def nearest(market: Book, levels_max: int) -> Book:
    """Return the levels nearest the touch, best first: half of them each, or what is there."""
    bids = sorted(market[0].items(), reverse=True)
    asks = sorted(market[1].items())
    of_bids = levels_max // 2
    of_asks = levels_max - of_bids
    if len(bids) < of_bids:
        of_asks = levels_max - len(bids)
    elif len(asks) < of_asks:
        of_bids = levels_max - len(asks)
    return dict(bids[:of_bids]), dict(asks[:of_asks])


def _draw_rows(chance: random.Random, reach: int) -> list[tuple[float, float]]:
    count = chance.choice((0, 0, 1, 1, 2, 3, 8, 100 if chance.random() < 0.1 else 4))
    return [
        (chance.randint(-reach, reach) / 4, float(max(0, chance.randint(-3, 5))))
        for _ in range(count)
    ]


def _pairs(rows: list[list[float]]) -> Side:
    return {row[0]: row[1] for row in rows}


def _levels(rows: list[tuple[float, float]]) -> Levels:
    return np.array(rows, np.float64).reshape(-1, 2)


def _apply(book: Book, rows: Iterable[Iterable[tuple[float, float]]], snapshot: bool) -> None:
    for side, levels in zip(book, rows, strict=True):
        if snapshot:
            side.clear()
        for price, quantity in levels:
            if quantity:
                side[price] = quantity
            else:
                side.pop(price, None)


main = by_seeds(__name__, check_seed, 100)
