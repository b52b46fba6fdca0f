"""Books of venues by a feed, from a capture to a reader, against sets of truths (`book-truth`).

A set is a folder: `truth.json` and captures of one market. `clean` has everything, `feed` lost some
of it on both lines, `recovered` has what was asked for again. Everything goes through a feed, and
what a reader makes of its records is compared: at each checkpoint every order in its queue and
every level; with losses, after each message, every book that says that it is sound. At the end all
books have to be sound of which nothing is missing, or that a snapshot behind the last loss healed.
"""

import bisect
import hashlib
import json
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.conformance import Report
from lab.program import memory
from udpfast.agents.feed.replayer import Replayer
from udpfast.client.books import Books
from udpfast.client.reader import Reader
from udpfast.config import FeedConfig, parse_feed
from udpfast.core.layout import Kind
from udpfast.monitor.ledger import ledger_of
from udpfast.net.pcap import CAPTURED, CaptureBatch, CapturedDatagram, CaptureReader

__all__ = ["SINGLE", "Followed", "Line", "check", "follow", "read_set", "venue_config"]

#: Payload and exchange of each framing that the sets have.
VENUES = {
    "moldudp64": ("itch", "NASDAQ"),
    "cboe_pitch": ("pitch", "CBOE"),
    "cme_mdp3": ("cme", "CME"),
}
#: Streams of a market that has few: a window as wide as a set's takes 11 MB for each. A set has one
#: for each of its units beside them; a capture may have any number.
FEW_STREAMS = 8
_SNAPSHOT, _UNGATED = 1, 32
_OBJECT_ORDERS = 0x20000000
_DELETE = 3
_CME_LEVELS, _CME_ORDERS = 52, 53
#: Longer than any set: what is asked for again comes late.
_PATIENCE_US = 60_000_000
_IMPLIED = " implied"

#: (channel, line), by which address and port lead there.
Line = tuple[int, int]
Name = tuple[str, str]


def venue_config(
    framing: str,
    payload: str,
    lines: int,
    loops: int = 0,
    wait_us: int = 20_000,
    *,
    ring_bytes: int = 1 << 26,
    names: int = 1 << 15,
    window: int = 1 << 16,
    streams: int = 64,
    carry: str = "both",
    **books: Any,
) -> FeedConfig:
    """Return the settings of a feed that has so many lines of streams, and of loops.

    Of these the first one brings definitions, the others snapshots.
    """
    tables: dict[str, Any] = {
        "name": "truth",
        "wire": {"framing": framing, "payload": payload, "streams_max": streams},
        "streams": {
            "lines": [{"name": f"L{i}", "address": f"127.0.0.1:{9001 + i}"} for i in range(lines)]
        },
        "window": {"size": window, "lost_packet_wait_us": wait_us},
        "ring": {"carry": carry, "capacity_bytes": ring_bytes, "names": names},
        "books": {"orders": True, "orders_max": 50_000} | books,
    }
    if loops:
        looped = [{"name": f"S{i}", "address": f"127.0.0.1:{9101 + i}"} for i in range(loops)]
        tables["definitions"] = {"lines": looped[:1]}
        tables["recovery"] = {"lines": looped[1:]}
    return parse_feed(tables)


#: Settings of `venue_config` for one datagram or message: the memory for more takes half a second.
SINGLE = {"window": 64, "ring_bytes": 1 << 22, "names": 256, "streams": FEW_STREAMS}


@dataclass(slots=True)
class Followed:
    """What a reader knows of all books of a feed.

    Attributes
    ----------
    levels : dict
        (exchange, symbol) -> of each side, price -> (quantity, number of orders, place).
    orders : dict
        (exchange, symbol) -> order id -> (side, price, quantity, priority).
    doubted : set
        Names whose orders are in doubt.
    trades : dict
        (exchange, symbol) -> rows of (price, quantity).
    tops : dict
        (exchange, symbol) -> the last TOP_OF_BOOK: bid price, quantity, ask price, quantity.
    gaps : int
        Records of GAP.
    """

    books: Books
    levels: dict[Name, tuple[dict[float, Any], dict[float, Any]]] = field(default_factory=dict)
    orders: dict[Name, dict[str, tuple[int, float, float, int]]] = field(default_factory=dict)
    doubted: set[Name] = field(default_factory=set)
    trades: dict[Name, list[tuple[float, float]]] = field(default_factory=dict)
    tops: dict[Name, tuple[float, ...]] = field(default_factory=dict)
    statuses: dict[Name, int] = field(default_factory=dict)
    gaps: int = 0
    touched: set[Name] = field(default_factory=set)
    _streams: dict[Name, int] = field(default_factory=dict)

    def take(self, record: Any) -> None:
        """Take the next record."""
        kind = record.kind
        self.books.apply(record)
        if kind in (Kind.GAP, Kind.SESSION):
            self.gaps += kind == Kind.GAP
            self.doubted |= {
                name for name, stream in self._streams.items() if stream == record.stream
            }
        elif kind in (Kind.STALE, Kind.RECOVERED):
            self._say(record)
        elif kind >= Kind.BOOK:
            self._update(record, (record.exchange, record.symbol))

    def _say(self, record: Any) -> None:
        if not record.object & _OBJECT_ORDERS:
            return
        name = (record.exchange, record.symbol)
        if record.kind == Kind.STALE:
            self.doubted.add(name)
        elif record.data["continues"]:
            self.doubted.discard(name)

    def _update(self, record: Any, name: Name) -> None:
        update = record.update
        whole = bool(int(record.flags) & _SNAPSHOT)
        header, rows = update.header, update.rows
        if record.kind == Kind.BOOK:
            self.touched.add(name)
            sides = self.levels.setdefault(name, ({}, {}))
            if whole:
                sides[0].clear()
                sides[1].clear()
            for number, row in enumerate(rows.tolist()):
                side = sides[number >= int(header["bid_count"])]
                price, quantity, _, place, orders = row[:5]
                if quantity:
                    side[price] = (quantity, orders, place)
                else:
                    side.pop(price, None)
        elif record.kind == Kind.ORDERS:
            self.touched.add(name)
            book = self.orders.setdefault(name, {})
            self._streams[name] = record.stream
            if whole:
                book.clear()
                self.doubted.discard(name)
            for row in rows:
                number = row["order_id"].decode()
                if row["action"] == _DELETE:
                    book.pop(number, None)
                else:
                    book[number] = (
                        int(row["side"]) - 1,
                        float(row["price"]),
                        float(row["quantity"]),
                        int(row["priority"]),
                    )
        elif record.kind == Kind.TRADES:
            self.trades.setdefault(name, []).extend(
                (float(row["price"]), float(row["quantity"])) for row in rows
            )
        elif record.kind == Kind.TOP_OF_BOOK:
            self.tops[name] = tuple(
                float(header[key])
                for key in ("bid_price", "bid_quantity", "ask_price", "ask_quantity")
            )
        elif record.kind == Kind.MARKET_STATUS:
            self.statuses[name] = int(header["trading_status"])


@dataclass(slots=True)
class _Feed:
    replayer: Replayer
    reader: Reader
    # These two are of the datagram that is sent: made once, as there are many.
    header: NDArray[Any] = field(default_factory=lambda: np.zeros(1, CAPTURED))
    line: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((2, 1), np.uint8))

    def send(self, datagram: CapturedDatagram, line: Line) -> None:
        self.header["timestamp_ns"] = datagram.timestamp_ns
        self.header["size"] = len(datagram.payload)
        self.line[:, 0] = line
        batch, (channel, place) = CaptureBatch(self.header, datagram.payload), self.line
        self.replayer.replay(batch, channel, place, 0, 1)

    def records(self) -> Iterator[Any]:
        while self.reader.lag:
            yield next(self.reader)


def follow(
    config: FeedConfig, datagrams: Iterable[tuple[Line, CapturedDatagram]]
) -> Iterator[tuple[Followed, Any]]:
    """Yield what a reader knows before each record, and that record; None behind the last.

    Raises
    ------
    AssertionError
        The sums of the feed's counters differ in the end.
    """
    with tempfile.TemporaryDirectory(dir=memory()) as directory:
        instance = Path(directory, "feed")
        instance.mkdir()
        replayer = Replayer(config, instance)
        with Reader(f"ring:{instance}", start="begin") as reader:
            feed, followed = _Feed(replayer, reader), Followed(Books())
            for line, datagram in datagrams:
                feed.send(datagram, line)
                for record in feed.records():
                    yield followed, record
                    followed.take(record)
            replayer.finish()
            for record in feed.records():
                yield followed, record
                followed.take(record)
            yield followed, None
        ledger = ledger_of(replayer.counters())
        replayer.close()
        if not ledger.adds_up:
            unequal = [one for one in ledger.sums if not one.equal]
            raise AssertionError(f"the sums differ: {unequal}")


def text(value: float) -> str:
    """Return a price or quantity as its shortest decimal without exponent."""
    plain = format(Decimal(repr(value)), "f")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def digest(lines: Iterable[str]) -> str:
    """Return the sha256 of lines."""
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def book_lines(
    followed: Followed, exchange: str, symbols: set[str] | None = None
) -> tuple[list[str], list[str]]:
    """Return the lines of all orders, in their queues, and of all levels, as truths have them."""
    orders, levels = [], []
    for symbol in _sorted(followed.levels, exchange, symbols):
        for number, side in enumerate("BS"):
            sign = -1 if side == "B" else 1
            rows = sorted(followed.levels[exchange, symbol][number].items(), key=_by_price(sign))
            levels += [f"{symbol},{side},{text(p)},{q:.0f},{n}" for p, (q, n, _) in rows]
    for symbol in _sorted(followed.orders, exchange, symbols):
        resting = followed.orders[exchange, symbol]
        for number, side in enumerate("BS"):
            sign = -1 if side == "B" else 1
            queue = sorted(
                (sign * price, priority, int(order), quantity)
                for order, (of, price, quantity, priority) in resting.items()
                if of == number
            )
            orders += [f"{symbol},{side},{text(sign * p)},{o},{q:.0f}" for p, _, o, q in queue]
    return orders, levels


def _sorted(names: Iterable[Name], exchange: str, symbols: set[str] | None) -> list[str]:
    found = {symbol for of, symbol in names if of == exchange}
    return sorted(found if symbols is None else found & symbols)


def _by_price(sign: int) -> Callable[[tuple[float, Any]], float]:
    return lambda row: sign * row[0]


def place_lines(followed: Followed, exchange: str) -> list[str]:
    """Return the lines of levels by place, implied ones too."""
    lines = []
    names = {name[1] for name in followed.levels}
    for symbol in sorted(names):
        for of, kinds in ((exchange, "01"), (exchange + _IMPLIED, "EF")):
            for number, kind in enumerate(kinds):
                sign = 1 if number else -1
                rows = sorted(
                    followed.levels.get((of, symbol), ({}, {}))[number].items(), key=_by_price(sign)
                )
                lines += [
                    f"{symbol},{kind},{place},{text(price)},{quantity:.0f},{orders or ''}"
                    for place, (price, (quantity, orders, _)) in enumerate(rows, 1)
                ]
    return lines


def check(path: Path, report: Report) -> None:
    """Run one set: the folder of its `truth.json`."""
    truth = json.loads(path.read_text(encoding="utf-8"))
    folder = path.parent
    clean = None
    for capture in ("clean", "recovered", "feed"):
        file = folder / f"{capture}.pcap.gz"
        if not file.exists():
            continue
        run = _Run(truth, file)
        name = f"{folder.name}/{capture}"
        run.clean = clean
        report.case(name, run.follow, capture)
        if capture == "clean":
            clean = run.history
        report.note(f"{name}: {run.said()}")


def read_set(
    folder: Path, capture: str, **books: Any
) -> tuple[FeedConfig, list[tuple[Line, CapturedDatagram]]]:
    """Return the settings of a feed for a set, and the datagrams of one of its captures."""
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    run = _Run(truth, folder / f"{capture}.pcap.gz")
    config = run.config(20_000, **books)
    return config, list(run.datagrams(capture))


_NOTHING: Any = (({}, {}), {})


class _Run:
    # One capture of a set, through a feed.
    def __init__(self, truth: dict[str, Any], path: Path) -> None:
        self.truth, self.path = truth, path
        self.payload, self.exchange = VENUES[truth["framing"]]
        feeds = truth.get("feeds") or truth["lines"]
        self.lines: dict[tuple[str, int], Line] = {}
        loops = 0
        for name, address in feeds.items():
            host, _, port = address.rpartition(":")
            snapshots = name in ("N", "S", "SMBO")
            self.lines[host, int(port)] = (int(snapshots), loops if snapshots else self.streams())
            loops += snapshots
        self.loops = loops
        asked = truth.get("request_server", ":0").rpartition(":")
        self.asked = (asked[0], int(asked[2]))
        self.history: dict[Name, list[tuple[int, Any]]] = {}
        self.clean: dict[Name, list[tuple[int, Any]]] | None = None
        self.lossy = False
        self.joined: set[int] = set()  # units whose first number was not seen first
        self.delivered: dict[int, list[tuple[int, int]]] = {}  # unit -> (time, number)
        self.gap_ns = 0  # when the last one was told
        self.reached: set[str] = set()
        self.live = self.compared = self.wanted = 0
        self.silent: set[str] = set()  # of which no message came

    def streams(self) -> int:
        return sum(channel == 0 for channel, _ in self.lines.values())

    def config(self, wait_us: int, **books: Any) -> FeedConfig:
        streams = FEW_STREAMS + len(self.truth.get("units", ()))
        of = (self.truth["framing"], self.payload, self.streams() + 1, self.loops, wait_us)
        return venue_config(*of, **({"streams": streams} | books))

    def said(self) -> str:
        text = (
            f"{len(self.reached)} checkpoints reached, {self.compared:,} sound books compared; "
            f"at the end {self.live} levels or orders are sound, {self.wanted} have to be"
        )
        if self.joined:
            units = ", ".join(str(unit) for unit in sorted(self.joined))
            text += f"; unit {units}: its first number did not come first, so it is in doubt"
        if self.silent:
            text += f"; no book, as never active: {', '.join(sorted(self.silent))}"
        return text

    def datagrams(self, capture: str) -> Iterator[tuple[Line, CapturedDatagram]]:
        answers = (0, self.streams())
        if capture == "clean" and self.loops:
            # It has no definitions of its own.
            with CaptureReader(self.path.with_name("feed.pcap.gz")) as reader:
                for datagram in reader:
                    if self.lines.get(datagram.destination, (0, 0)) == (1, 0):
                        yield (1, 0), datagram
        with CaptureReader(self.path) as reader:
            for datagram in reader:
                if datagram.destination == self.asked:
                    continue
                yield self.lines.get(datagram.destination, answers), datagram

    def follow(self, capture: str) -> str | None:
        """Return where the feed differs from the truth, or None."""
        config = self.config(20_000 if capture == "feed" else _PATIENCE_US)
        checks = self._checkpoints()
        units: dict[int, int] = {}
        for followed, record in follow(config, self.datagrams(capture)):
            if record is None:
                return self._end(followed, capture)
            if record.kind == Kind.SESSION:
                self._begin(units, record)
            elif record.kind == Kind.GAP:
                self.lossy = True
                self.gap_ns = record.received_ns
            elif record.kind == Kind.MESSAGE and record.number:
                unit = units[record.stream]
                self.delivered.setdefault(unit, []).append((record.received_ns, record.number))
                problem = self._settle(followed, unit, checks, record.number)
                if problem:
                    return problem
        return "no end"

    def _begin(self, units: dict[int, int], record: Any) -> None:
        # Which unit of the truth a stream is, and whether it began with its first number.
        session = record.data
        unit = int(session["stream"]) if "units" in self.truth else 0
        units[record.stream] = unit
        first = self._first(unit)
        if int(session["first_number"]) != first or "first_packet" in self.truth:
            self.lossy = True
            self.joined.add(unit)

    def _first(self, unit: int) -> int:
        if "units" in self.truth:
            return int(self.truth["units"][str(unit)]["first_sequence"])
        return int(self.truth.get("first_packet", 1))

    def _checkpoints(self) -> dict[int, dict[int, dict[str, Any]]]:
        # The checkpoints of each unit, by the number of its last message.
        checks: dict[int, dict[int, dict[str, Any]]] = {}
        for one in self.truth["checkpoints"]:
            unit = one.get("unit", 0)
            number = next(iter(one.values()))  # the first thing that it says
            if "nth" in one:
                number = self._first(unit) + one["nth"] - 1
            checks.setdefault(unit, {})[number] = one
        return checks

    def _settle(
        self,
        followed: Followed,
        unit: int,
        checks: dict[int, dict[int, dict[str, Any]]],
        number: int,
    ) -> str | None:
        # A message is told behind its updates.
        checkpoint = checks[unit].get(number)
        problem = self._sound(followed, unit, number)
        if problem is None and checkpoint is not None:
            problem = self._compare(followed, checkpoint)
        return problem

    def _symbols(self, checkpoint: dict[str, Any]) -> set[str]:
        if "unit" in checkpoint:
            return set(self.truth["units"][str(checkpoint["unit"])]["symbols"])
        return set(self.truth.get("symbols", self.truth.get("instruments", ())))

    def _compare(
        self, followed: Followed, checkpoint: dict[str, Any], healed: bool = False
    ) -> str | None:
        # Healed: whatever is not known never was anything.
        symbols = self._symbols(checkpoint)
        names = {name for name in (*followed.levels, *followed.orders) if name[1] in symbols}
        doubted = {
            name
            for name in names
            if (name in followed.levels and followed.books[name].stale)
            or (name in followed.orders and name in followed.doubted)
        }
        known = {name[1] for name in names}
        if self.lossy and (doubted or (known < symbols and not healed)):
            return None
        if doubted:
            return f"checkpoint {_where(checkpoint)}: in doubt without a loss: {sorted(doubted)}"
        problem = _queues_differ(followed, {name for name in names if name in followed.orders})
        if problem:
            return f"checkpoint {_where(checkpoint)}: {problem}"
        orders, levels = book_lines(followed, self.exchange, symbols)
        found = {
            "orders": len(orders),
            "levels": len({line.rpartition(",")[0].rpartition(",")[0] for line in orders}),
            "orders_sha256": digest(orders),
        }
        if self.exchange != "CME":
            found["levels"] = len(levels)
            found["levels_sha256"] = digest(levels)
        elif "by_price_sha256" in checkpoint:
            places = place_lines(followed, self.exchange)
            found["by_price_lines"] = len(places)
            found["by_price_sha256"] = digest(places)
        for key, value in found.items():
            if key in checkpoint and checkpoint[key] != value:
                where = _where(checkpoint)
                return f"checkpoint {where}: {key}: expected {checkpoint[key]}, found {value}"
        self.reached.add(str(_where(checkpoint)))
        return None

    def _sound(self, followed: Followed, unit: int, number: int) -> str | None:
        # Every book that says that it is sound is the one of the capture without losses.
        touched = {name for name in followed.touched if self._unit_of(name[1]) == unit}
        followed.touched -= touched
        for name in touched:
            if self.clean is None:
                self.history.setdefault(name, []).append((number, _copy(followed, name)))
        if self.clean is None:
            return None
        for name, history in self.clean.items():
            if name not in followed.levels or self._unit_of(name[1]) != unit:
                continue
            place = bisect.bisect_right(history, number, key=lambda row: row[0]) - 1
            levels, orders = history[place][1] if place >= 0 else _NOTHING
            if not followed.books[name].stale:
                self.compared += 1
                if _plain(followed.levels[name]) != levels:
                    return f"{number}: {name} says that it is sound, and is not"
            if name in followed.orders and name not in followed.doubted:
                self.compared += 1
                mine = {key: row[:3] for key, row in followed.orders[name].items()}
                if mine != orders:
                    return f"{number}: orders of {name} say that they are sound, and are not"
        return None

    def _unit_of(self, symbol: str) -> int:
        for unit, of in self.truth.get("units", {}).items():
            if symbol in of["symbols"]:
                return int(unit)
        return 0

    def _end(self, followed: Followed, capture: str) -> str | None:
        self.live = sum(not book.stale for book in followed.books.values())
        self.live += len(followed.orders.keys() - followed.doubted)
        names = {name for _, name in (*followed.levels, *followed.orders)}
        if not self.joined and capture != "feed":
            self.silent = self._symbols({}) - names
        if capture == "clean" and self.lossy:
            return "losses where there are none"
        return self._whole(followed, capture) or self._tape(followed)

    def _whole(self, followed: Followed, capture: str) -> str | None:
        # What has to be sound is, and all that is has what the last checkpoint says.
        wanted = self._wanted(capture)
        self.wanted = len(wanted)
        for symbol, orders in sorted(wanted):
            name = (self.exchange, symbol)
            if orders:
                sound = name in followed.orders and name not in followed.doubted
            else:
                sound = name in followed.levels and not followed.books[name].stale
            if not sound:
                return f"{name}: {'orders' if orders else 'levels'} in doubt at the end"
        for unit, checks in self._checkpoints().items():
            number = self._last(unit)
            problem = self._sound(followed, unit, number) if self.clean is not None else None
            if not problem and number >= max(checks):
                healed = any(self._unit_of(symbol) == unit for symbol, _ in wanted)
                problem = self._compare(followed, checks[max(checks)], healed)
            if problem:
                return f"at the end: {problem}"
        return None

    def _last(self, unit: int) -> int:
        # What was lost behind it, nobody can know of.
        return self.delivered[unit][-1][1] if unit in self.delivered else 0

    def _wanted(self, capture: str) -> set[tuple[str, bool]]:
        # (symbol, whether of its orders): of which nothing is missing at the end.
        if capture == "feed":
            return self._healed() if self.loops else set()
        names = self.clean if self.clean is not None else self.history
        return {
            (symbol, orders)
            for exchange, symbol in names
            if exchange == self.exchange and self._unit_of(symbol) not in self.joined
            for orders in (False, True)
        }

    def _healed(self) -> set[tuple[str, bool]]:
        # All of whose snapshot came behind the last loss that was told, as of the last datagram
        # that no line brought, or of a later one that was delivered by then.
        lost = max((last for _, last in self.truth["network"]["never_received"]), default=0)
        names = {one["security_id"]: name for name, one in self.truth["instruments"].items()}
        parts: dict[tuple[int, int], set[int]] = {}
        healed = set()
        for (channel, _), datagram in self.datagrams("feed"):
            place = bisect.bisect_right(self.delivered[0], (datagram.timestamp_ns, 1 << 64))
            known = self.delivered[0][place - 1][1] if place else 0
            for template, root in _sbe_messages(datagram.payload) if channel else ():
                as_of, _, security = struct.unpack_from("<IIi", root)
                if datagram.timestamp_ns <= self.gap_ns or not lost <= as_of <= known:
                    continue
                if template == _CME_LEVELS:
                    healed.add((names[security], False))
                elif template == _CME_ORDERS:
                    count, part = struct.unpack_from("<II", root, 12)
                    came = parts.setdefault((security, as_of), set())
                    came.add(part)
                    if len(came) == count:
                        healed.add((names[security], True))
        return healed

    def _tape(self, followed: Followed) -> str | None:
        # All trades, where nothing is missing, the end least of all.
        ends = {unit: max(checks) for unit, checks in self._checkpoints().items()}
        if self.lossy or any(self._last(unit) < end for unit, end in ends.items()):
            return None
        expect = self.truth.get("tape") or self.truth["trades"]
        rows = [row for rows in followed.trades.values() for row in rows]
        product = sum(
            (Decimal(repr(price)) * Decimal(int(quantity)) for price, quantity in rows), Decimal()
        )
        found = [len(rows), sum(int(quantity) for _, quantity in rows), text_of(product)]
        wanted = [expect["count"], expect["size"], expect["price_x_size"]]
        return None if found == wanted else f"tape: expected {wanted}, found {found}"


def _queues_differ(followed: Followed, names: set[Name]) -> str | None:
    # Why the queues that a strategy has are not those of the records.
    for name in sorted(names):
        queues = followed.books.orders(*name)
        rows = [*queues.bids().tolist(), *queues.asks().tolist()]
        mine = {row[3].decode(): (row[4] - 1, *row[:3]) for row in rows}
        if queues.stale != (name in followed.doubted) or mine != followed.orders[name]:
            return f"orders of {name}: {queues!r} of {len(followed.orders[name])}"
    return None


def _sbe_messages(payload: bytes) -> Iterator[tuple[int, bytes]]:
    # (template, root block and groups) of a datagram of CME.
    at = 12
    while at < len(payload):
        size, _, template = struct.unpack_from("<HHH", payload, at)
        yield template, payload[at + 10 : at + size]
        at += size


def _where(checkpoint: dict[str, Any]) -> dict[str, int]:
    return {key: value for key, value in checkpoint.items() if isinstance(value, int)}


def _copy(followed: Followed, name: Name) -> Any:
    orders = {key: row[:3] for key, row in followed.orders.get(name, {}).items()}
    return _plain(followed.levels.get(name, ({}, {}))), orders


def _plain(sides: Any) -> Any:
    # Without places: what moves a level to another place does not touch it.
    return tuple({price: row[:2] for price, row in side.items()} for side in sides)


def text_of(value: Decimal) -> str:
    """Return a sum as its shortest decimal."""
    plain = format(value, "f")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain
