"""Random markets for who keeps books: each journal as it is, and what `Books` makes of it at T."""

import random
from pathlib import Path
from typing import Any

from tests.export.market import Market, record
from udpfast.client.books import Books
from udpfast.client.reader import Reader
from udpfast.core.layout import GapReason, Kind, RecordFlag, SessionReason

BEGIN_NS = 1_795_219_200_000_000_000
STEP_NS = 1_000_000
NO_STREAM = 65_535
#: The object whose records pass no gate, and the symbols that they are of.
UNGATED, UNGATED_SYMBOLS = 4, ("U1", "U2")
NUMBERS = (0.0, -0.0, -5.0, 1e308, -1e308, float("inf"), -float("inf"), float("nan"), 5e-324)

Levels = list[tuple[float, float]]
Book = tuple[bool, Levels, Levels]
#: By feed, exchange and symbol: whether it is stale, bids, asks.
Known = dict[tuple[str, str, str], Book]


class BookMarket(Market):
    """A market that does whatever a feed may do to books.

    Parameters
    ----------
    directory : Path
    seed : int
    begin_ns : int
        When its first record is received.
    """

    def __init__(self, directory: Path, seed: int, begin_ns: int) -> None:
        super().__init__(directory, 1 << 20)
        self.chance = random.Random(seed)
        self.now_ns = begin_ns
        self.session = 1
        # Roq's, or a venue's, whose streams have sessions of their own.
        self.streams = (2, 3) if seed % 1_000_000 >= 261_129 else ()
        self.sessions = dict.fromkeys(self.streams, 1)
        self.last: dict[tuple[int, int], bool] = {}

    def put(self, kind: int, payload: bytes = b"", flags: int = 0, **fields: Any) -> None:
        """Append a record; some were received before the one that was published before them."""
        self.number += 1
        self.now_ns += STEP_NS
        received_ns = self.now_ns - self.chance.choice((0, 0, 0, 5)) * STEP_NS
        header = {"number": self.number, "session": self.session, "object": 1} | fields
        if self.streams and header.get("stream", 0) != NO_STREAM:
            header["stream"] = stream = self.streams[header["object"] % 2]
            header["session"] = self.sessions[stream]
        times = {"received_ns": received_ns, "published_ns": self.now_ns}
        self.ring.append(kind, payload, flags=flags, **times, **header)

    def run(self, events: int) -> None:
        """Append that many events, in good order and not."""
        if self.chance.random() < 0.8:
            self.begin()
        weights = {
            self.update: 60,
            self.message: 6,
            self.word: 8,
            self.gap: 2,
            self.lap: 0.7,
            self.begin: 1,
            self.restart: 0.3,
            self.slip: 0.4,
        }
        for _ in range(events):
            self.chance.choices(list(weights), list(weights.values()))[0]()

    def begin(self) -> None:
        """Begin a session as a feed does; most objects are said to be sound."""
        self.session += 1
        own = {"object": self.chance.randrange(2)} if self.streams else {}
        if self.streams:
            self.sessions[self.streams[own["object"]]] = self.session
        self.say_on(Kind.SESSION, own, {"new_id": self.session, "reason": SessionReason.NEW_ID})
        if self.chance.random() < 0.7:
            for number in range(1, 4):
                self.tell_state(Kind.RECOVERED, number, continues=0)

    def restart(self) -> None:
        self.say_on(Kind.RESTART, {"stream": NO_STREAM}, {"epoch": 2})

    def slip(self) -> None:
        """Go on in another session, whose SESSION is missing."""
        if self.chance.random() < 0.5:
            self.lap()
        self.session += 1
        if self.streams:
            self.sessions[self.chance.choice(self.streams)] = self.session

    def gap(self) -> None:
        payload: dict[str, int] = {"first": 1, "last": 3, "count": 3}
        payload["reason"] = self.chance.choice([*GapReason, 77])
        header = {"stream": self.chance.choice((0, 0, 1))}
        if self.streams:
            header["object"] = self.chance.randrange(2)
        self.say_on(Kind.GAP, header, payload)
        if self.chance.random() < 0.5:  # the chains go on: nothing that is held was lost
            for number in range(1, UNGATED + 1):
                self.tell_state(Kind.RECOVERED, number, continues=1)

    def lap(self) -> None:
        self.say_on(Kind.LAPPED, {"stream": NO_STREAM, "session": 0}, {"missed": 5})

    def word(self) -> None:
        kind = self.chance.choice((Kind.STALE, Kind.RECOVERED, Kind.RECOVERED))
        self.tell_state(kind, self.chance.randrange(1, 5), continues=self.chance.randrange(2))

    def tell_state(self, kind: Kind, number: int, continues: int) -> None:
        said = {"object": number, "continues": continues}
        header = {"object": number}
        if number == UNGATED:  # as a venue does: its symbol says whose state it is
            header["flags"] = int(RecordFlag.UNGATED)
            said["exchange_id"] = self.names.intern("binance-usdm", exchange=True)
            said["symbol_id"] = self.names.intern(self.chance.choice(UNGATED_SYMBOLS))
        self.say_on(kind, header, said)

    def say_on(self, kind: Kind, header: dict[str, int], payload: dict[str, int]) -> None:
        import numpy as np

        from udpfast.core.layout import CONTROL_DTYPES

        said = np.zeros((), CONTROL_DTYPES[kind])
        for name, value in payload.items():
            said[name] = value
        self.put(kind, said.tobytes(), **header)

    def message(self) -> None:
        """Append what is no update of a book: of an object with a book, or of another one."""
        flags = self.chance.choice((0, 0, int(RecordFlag.RELEASED), int(RecordFlag.UNGATED)))
        header = {"object": self.chance.randrange(1, 6), "flags": flags}
        header["stream"] = self.chance.choice((0, 0, 0, 1))
        if self.chance.random() < 0.5:
            self.put(Kind.MESSAGE, b"x", **header)
        else:
            self.tell(Kind.TRADES, [{"price": 1.0, "quantity": 1.0}], "S1", header)

    def update(self, *arguments: Any, **fields: Any) -> Any:
        """Append an update of a book; with arguments, make the layout of one (`Instance`)."""
        if arguments:
            return super().update(*arguments, **fields)
        number = self.chance.randrange(1, 5)
        symbol = f"S{number}"
        oddity = self.chance.random()
        if oddity < 0.01:
            symbol = f"S{self.chance.randrange(1, 5)}"  # renamed, or of two objects
        elif oddity < 0.015:
            symbol = ""
        flags = 0
        stream = 0
        kind = self.chance.random()
        if kind < 0.1:
            stream, flags = 1, int(RecordFlag.SNAPSHOT)
        elif kind < 0.15:
            flags = int(RecordFlag.SNAPSHOT)
        type_ = self.chance.choices((0, 1, 2, 3), (10, 2, 10, 0.3))[0]
        if self.chance.random() < 0.05:
            flags |= int(RecordFlag.RELEASED)
        if self.chance.random() < 0.05:
            flags |= int(RecordFlag.FIRST)
        if number == UNGATED:
            flags |= int(RecordFlag.UNGATED)
            symbol = self.chance.choice(UNGATED_SYMBOLS)
        sides = [[self.level(side) for _ in range(self.chance.choice((0, 1, 1, 2, 4)))]
                 for side in (-1, 1)]  # fmt: skip
        rows = [{"price": price, "quantity": quantity} for own in sides for price, quantity in own]
        header = {"object": number, "flags": flags, "stream": stream}
        self.tell(Kind.BOOK, rows, symbol, header, update_type=type_,
                  bid_count=len(sides[0]), ask_count=len(sides[1]))  # fmt: skip
        return None

    def level(self, side: int) -> tuple[float, float]:
        price = self.chance.randrange(-3, 4) + side / 2
        quantity = float(self.chance.choice((0, 1, 2, 3)))
        if self.chance.random() < 0.004:
            return self.chance.choice(NUMBERS), quantity
        if self.chance.random() < 0.004:
            return price, self.chance.choice(NUMBERS)
        return price, quantity


def make(directory: Path, name: str, seed: int, events: int, begin_ns: int = BEGIN_NS) -> Path:
    """Return the directory of a journal of such a market."""
    directory.mkdir(parents=True)
    market = BookMarket(directory / name, seed, begin_ns)
    market.run(events)
    record(market, directory / "journal")
    market.close()
    return directory / "journal"


def known_at(journal: Path, feed: str, at_ns: float) -> tuple[Known, int]:
    """Return what `Books` knows after the records received up to a time, and how many these are."""
    books = Books()
    count = 0
    with Reader(f"journal:{journal}") as reader:
        for each in reader:
            if each.received_ns <= at_ns:
                books.apply(each)
                count += 1
    found = {
        (feed, str(exchange), str(symbol)): (
            bool(book.stale),
            [(float(price), float(quantity)) for price, quantity in book.bids()],
            [(float(price), float(quantity)) for price, quantity in book.asks()],
        )
        for (exchange, symbol), book in books.items()
    }
    return found, count
