"""Captures of venues, decoded: what traded, what the books were, every line of it by a hash.

Every value of an IEX capture is compared, DEEP or TOPS, but for `own_checks`, which say what the
expectation's author found of the market, and for what is kept of each symbol's quotes, all of which
the digest of quotes compares. Other venues' captures go through a feed (venue_books).
"""

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.conformance.venue_books import check_case, check_single
from udpfast.net.pcap import CaptureReader
from udpfast.payload.iex.decode import DecodedIex, decode_iex
from udpfast.payload.iex.layouts import PRICE_DECIMALS
from udpfast.wire.framing import Framing, NumberedMessage, ParsedUnit

from . import Report, difference, fit
from .books import SINGLE
from .iex_updates import IexUpdates, scaled

__all__ = ["check"]

_ADMIN = "SDHOPEA"
_DEEP = "0x8004"
#: Names whose values are of symbols and types: one that is not expected is a difference.
_WHOLE = ("messages", "symbols", "digests", "system_events")
_TRADING = "T"  # a status that the expectation leaves out


def check(path: Path, report: Report) -> None:
    """Run one `venue-expected` document; the captures lie in `data/pcap` beside its folder."""
    document = json.loads(path.read_text(encoding="utf-8"))
    folder = report.captures or path.parent.parent / "data" / "pcap"
    for case in document["files"]:
        if case["framing"] != "iex_tp":
            if check_case(folder / case["file"], case, report):
                continue
            report.note(f"not run: {case['file']}: {case['framing']} is not decoded")
            continue
        _capture(folder / case["file"], case, report)
    for name, lines in document.get("lines_of_singles", {}).get("instruments", {}).items():
        if "/iex_tp/" in name:
            report.case(f"{path.name} {name}", _single, folder / name, lines)
        elif "/cme_mdp3/" in name:
            report.case(f"{path.name} {name}", check_single, folder / name, lines)
            report.not_compared(f"{path.name} {name}", {kind for _, kind, _ in lines} - {"trades"})
        else:
            report.note(f"not run: {path.name}: {name} is of another venue")


@dataclass(slots=True)
class _Run:
    # What the sender sent from one start to the next.
    units: list[tuple[int, ParsedUnit]] = field(default_factory=list)
    messages: list[NumberedMessage] = field(default_factory=list)


@dataclass(slots=True)
class _Read:
    # What a capture has: runs, who sent where, how many datagrams, and where it breaks off.
    runs: list[_Run] = field(default_factory=list)
    between: set[tuple[str, str]] = field(default_factory=set)
    datagrams: int = 0
    cut: list[int] = field(default_factory=list)


def _read(path: Path) -> _Read:
    framing, read = Framing("iex_tp"), _Read()
    with CaptureReader(path) as reader:
        for frame, datagram in enumerate(reader):
            read.datagrams += 1
            to = f"{datagram.destination[0]}:{datagram.destination[1]}"
            read.between.add((datagram.source[0], to))
            (unit,) = framing.units(datagram.payload)
            begins = unit.number == 1 and unit.detail == 0
            if not read.runs or (begins and read.runs[-1].messages):
                read.runs.append(_Run())
            read.runs[-1].units.append((frame, unit))
            read.runs[-1].messages += framing.messages(datagram.payload)
        read.cut = [reader.counts["frames"] - 1] if reader.damage else []
    return read


def _capture(path: Path, case: dict[str, Any], report: Report) -> None:
    if len(case["flows"]) != 1:
        report.note(f"not run: {case['file']}: expected one flow, found {len(case['flows'])}")
        return
    flow = case["flows"][0]
    read = _read(path)
    data = path.read_bytes()
    plain = gzip.decompress(data) if path.suffix == ".gz" else data
    sha256 = hashlib.sha256(plain).hexdigest()
    left = {"own_checks, what the author found of the market"}
    report.case(f"{case['file']} sha256", difference, case.get("capture_sha256", sha256), sha256)
    found = [_segment(run) for run in read.runs]
    segments = [_without_quotes(segment, left) for segment in flow.get("segments", ())]
    for number, (expect, said) in enumerate(zip(segments, found, strict=False), 1):
        report.case(f"{case['file']} run {number}", _fitted, expect, said, left)
    for number, (expect, run) in enumerate(zip(segments, read.runs, strict=False), 1):
        report.case(f"{case['file']} run {number}, updates", _updates, expect, run.messages, left)
    said = {
        "flow": " ".join(sorted(destination for _, destination in read.between)),
        "src": " ".join(sorted({source for source, _ in read.between})),
        "datagrams": read.datagrams,
        "runs": len(read.runs),
        "messages": dict(sum((Counter(one["messages"]) for one in found), Counter())),
        "totals_over_all_runs": _sums(read.runs, found),
    }
    expect = {key: value for key, value in flow.items() if key != "segments"}
    report.case(f"{case['file']} all runs", _fitted, expect, said, left)
    report.case(f"{case['file']} end", difference, case.get("cut_off_frames", read.cut), read.cut)
    if "segments" not in flow:
        left.add("segments, which it does not say")
    report.not_compared(case["file"], left)


def _sums(runs: list[_Run], found: list[dict[str, Any]]) -> dict[str, Any]:
    # The totals of all runs together.
    sums = [segment["totals"] for segment in found]
    totals: dict[str, Any] = {
        key: sum(one[key] for one in sums) for key in ("trades", "breaks", "quotes")
    }
    totals["level_updates"] = sum(one["level_updates"] for one in sums)
    totals["trade_size"] = str(sum(int(one["trade_size"]) for one in sums))
    totals["trade_price_x_size"] = _decimal(sum(_scaled(run) for run in runs))
    return totals


def _fitted(expect: Any, found: Any, left: set[str]) -> str | None:
    return difference(expect, fit(expect, found, left, counts={}, whole=_WHOLE))


def _without_quotes(segment: dict[str, Any], left: set[str]) -> dict[str, Any]:
    # What is kept of a symbol's quotes is the author's choice; the digest has them all.
    symbols = segment.get("symbols", {})
    if not any("quotes" in one for one in symbols.values()):
        return segment
    left.add("quotes of each symbol, other than by the digest of all")
    plain = {
        symbol: {key: value for key, value in one.items() if key != "quotes"}
        for symbol, one in symbols.items()
    }
    return segment | {"symbols": plain}


def _scaled(run: _Run) -> int:
    trades = decode_iex(run.messages).tables.get("T", ())
    return sum(int(one["price"]) * int(one["size"]) for one in trades)


def _decimal(scaled: int) -> str:
    # Without an exponent and without zeros at the end.
    sign = "-" if scaled < 0 else ""
    whole, part = divmod(abs(scaled), 10**PRICE_DECIMALS)
    return f"{sign}{whole}.{part:0{PRICE_DECIMALS}}".rstrip("0").rstrip(".")


def _segment(run: _Run) -> dict[str, Any]:
    decoded = decode_iex(run.messages)
    if decoded.unknown or decoded.short:
        raise ValueError(f"unknown {decoded.unknown}, too short {decoded.short}")
    symbols = _symbols(decoded)
    (first_frame, first), (last_frame, last) = run.units[0], run.units[-1]
    trades = decoded.tables.get("T", ())
    traded = [one["trades"] for one in symbols.values() if "trades" in one]
    levels = [one["levels"] for one in symbols.values() if "levels" in one]
    books = [one["book"] for one in symbols.values() if "book" in one]
    quoted, silent, zeros = _quoted(decoded)
    digests = {
        kind: {"lines": len(lines), "sha256": _digest(lines)}
        for kind, lines in _lines(decoded).items()
        if lines
    }
    return {
        "protocol": f"0x{first.stream >> 16:04x}",
        "channel": first.stream & 0xFFFF,
        "session": first.session,
        "first_frame": first_frame,
        "last_frame": last_frame,
        "first_seq": first.number,
        "next_seq": last.number + last.count,
        "first_send_time": first.sent_ns,
        "last_send_time": last.sent_ns,
        "stream_bytes": sum(unit.size for _, unit in run.units),
        "units": len(run.units),
        "heartbeats": sum(not unit.count for _, unit in run.units),
        "messages": {kind: len(table) for kind, table in decoded.tables.items()},
        "symbols_seen": len(
            {
                symbol
                for table in decoded.tables.values()
                if "symbol" in (table.dtype.names or ())
                for symbol in table["symbol"].tolist()
            }
        ),
        "system_events": [
            [chr(one["flags"]), int(one["time_ns"])] for one in decoded.tables.get("S", ())
        ],
        "totals": {
            "symbols_with_trades": len(traded),
            "symbols_with_quotes": len(quoted),
            "symbols_with_zero_quotes_only": silent,
            "zero_quotes_of_these": zeros,
            "trades": sum(one["count"] for one in traded),
            "breaks": len(decoded.tables.get("B", ())),
            "quotes": len(decoded.tables.get("Q", ())),
            "level_updates": sum(one["updates"] for one in levels),
            **(_level_totals(levels, books) if levels else {}),
            "trade_size": str(sum(int(one["size"]) for one in trades)),
            "trade_price_x_size": _decimal(_scaled(run)),
        },
        "digests": digests,
        "symbols": symbols,
    }


def _quoted(decoded: DecodedIex) -> tuple[set[str], int, int]:
    # Symbols with a quote that has a side; how many have none, and how many quotes these have.
    counts: Counter[str] = Counter()
    quoted: set[str] = set()
    for one in decoded.tables.get("Q", ()):
        symbol = _symbol(one)
        counts[symbol] += 1
        if any(int(one[f"{side}_{what}"]) for side in ("bid", "ask") for what in ("price", "size")):
            quoted.add(symbol)
    silent = counts.keys() - quoted
    return quoted, len(silent), sum(counts[symbol] for symbol in silent)


def _level_totals(levels: list[dict[str, int]], books: list[dict[str, Any]]) -> dict[str, int]:
    sizes = [len(book["bids"]) + len(book["asks"]) for book in books]
    summed = (
        *("top_changes", "crossed_at_event_end", "locked_at_event_end"),
        *("removals_of_unknown_levels", "events_left_open"),
    )
    return {
        "levels_in_final_books": sum(sizes),
        "symbols_with_levels": len(levels),
        **{name: sum(one[name] for one in levels) for name in summed},
        "final_books_not_empty": sum(size > 0 for size in sizes),
    }


def _updates(expect: dict[str, Any], messages: list[NumberedMessage], left: set[str]) -> str | None:
    # The same by the way that a feed goes. Breaks and the flags of trades are in no update.
    updates = IexUpdates(messages, deep=expect.get("protocol", _DEEP) == _DEEP)
    tables: dict[str, Any] = dict(updates.decoded.tables)
    symbols = {symbol: dict(one) for symbol, one in expect.get("symbols", {}).items()}
    halts = {_symbol(one): chr(one["flags"]) for one in decode_iex(messages).tables.get("O", ())}
    for symbol, one in symbols.items():
        one.pop("breaks", None)
        if halts.get(symbol) == "O":
            one["status"] = "H"  # an update says whether the symbol trades
        if "trades" in one:
            ends = {end: [*one["trades"][end][:-1], 0] for end in ("first", "last")}
            one["trades"] = one["trades"] | ends
    found = _symbols(updates.decoded)
    for symbol, book in updates.books.items():
        found[symbol]["book"] = {"bids": _side(book.bids()), "asks": _side(book.asks())}
        counts = found[symbol]["levels"]
        if book.removals_unknown != counts["removals_of_unknown_levels"]:
            return f"{symbol}: the book counts {book.removals_unknown} removals of unknown levels"
    fills = tables.get("T", [])
    totals = {
        "trades": len(fills),
        "trade_size": str(sum(one["size"] for one in fills)),
        "trade_price_x_size": _decimal(sum(one["size"] * one["price"] for one in fills)),
        "level_updates": sum(len(tables.get(kind, [])) for kind in "85"),
    }
    lines = _level_lines(updates.decoded)
    digests = {"levels": {"lines": len(lines), "sha256": _digest(lines)}} if lines else {}
    said: dict[str, Any] = {"totals": totals, "symbols": found, "digests": digests}
    told = {name: expect.get(name, {}) for name in ("totals", "digests")}
    wanted: dict[str, Any] = {
        name: {key: values[key] for key in said[name] if key in values}
        for name, values in told.items()
    }
    if "symbols" in expect:
        wanted["symbols"] = symbols
    whole = ("symbols",)
    return difference(wanted, fit(wanted, said, left, counts={}, whole=whole))


def _side(levels: Any) -> list[list[str]]:
    # A book's price and size, the best first.
    return [[_decimal(scaled(price)), str(int(size))] for price, size in levels.tolist()]


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("".join(line + "\n" for line in lines).encode()).hexdigest()


def _symbol(one: Any) -> str:
    return str(one["symbol"].decode().rstrip())


def _symbols(decoded: DecodedIex) -> dict[str, dict[str, Any]]:
    # Those with trades, levels or quotes, and what is known of each at the end.
    found: dict[str, dict[str, Any]] = {}
    for kind, name in (("T", "trades"), ("B", "breaks")):
        by_symbol: dict[str, list[Any]] = {}
        for one in decoded.tables.get(kind, ()):
            by_symbol.setdefault(_symbol(one), []).append(one)
        for symbol, fills in by_symbol.items():
            found.setdefault(symbol, {})[name] = {
                "count": len(fills),
                "size": str(sum(int(one["size"]) for one in fills)),
                "price_x_size": _decimal(
                    sum(int(one["price"]) * int(one["size"]) for one in fills)
                ),
                "first": _fill(fills[0]),
                "last": _fill(fills[-1]),
            }
    books: dict[str, _Book] = {}
    for side, one in _ordered(decoded, "85"):
        books.setdefault(_symbol(one), _Book()).change(side == "8", one)
    for symbol, book in books.items():
        found.setdefault(symbol, {}).update(book.found())
    for symbol in _quoted(decoded)[0]:
        found.setdefault(symbol, {})
    statuses = {_symbol(one): chr(one["flags"]) for one in decoded.tables.get("H", ())}
    for symbol, one in found.items():
        if statuses.get(symbol, _TRADING) != _TRADING:
            one["status"] = statuses[symbol]
    return dict(sorted(found.items()))


def _fill(one: Any) -> list[Any]:
    price, size = _decimal(int(one["price"])), str(one["size"])
    return [int(one["time_ns"]), price, size, str(one["trade_id"]), int(one["flags"])]


def _ordered(decoded: DecodedIex, kinds: str) -> Iterator[tuple[str, Any]]:
    # The messages of some types in the order of their numbers.
    found = [(kind, one) for kind in kinds for one in decoded.tables.get(kind, ())]
    yield from sorted(found, key=lambda entry: int(entry[1]["number"]))


class _Book:
    # Levels by price, and what happened to them.
    def __init__(self) -> None:
        self.sides: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self.counts = dict.fromkeys(
            (
                *("updates", "removals", "removals_of_unknown_levels", "in_transition"),
                *("event_ends", "top_changes", "crossed_at_event_end", "locked_at_event_end"),
                "events_left_open",
            ),
            0,
        )
        self.top: tuple[Any, ...] = (None, None)
        self.open_ns: int | None = None

    def change(self, buy: bool, one: Any) -> None:
        side, price, size = self.sides[not buy], int(one["price"]), int(one["size"])
        counts, at_ns = self.counts, int(one["time_ns"])
        if self.open_ns is not None and self.open_ns != at_ns:
            counts["events_left_open"] += 1
        self.open_ns = None
        counts["updates"] += 1
        if size:
            side[price] = size
        else:
            counts["removals"] += 1
            counts["removals_of_unknown_levels"] += side.pop(price, None) is None
        if not one["flags"] & 1:
            counts["in_transition"] += 1
            self.open_ns = at_ns
            return
        counts["event_ends"] += 1
        bids, asks = self.sides
        top = (max(bids.items(), default=None), min(asks.items(), default=None))
        counts["top_changes"] += top != self.top
        self.top = top
        if top[0] and top[1]:
            counts["crossed_at_event_end"] += top[0][0] > top[1][0]
            counts["locked_at_event_end"] += top[0][0] == top[1][0]

    def found(self) -> dict[str, Any]:
        bids, asks = self.sides
        return {
            "levels": {**self.counts, "event_open_at_end": self.open_ns is not None},
            "book": {
                "bids": [[_decimal(price), str(bids[price])] for price in sorted(bids)[::-1]],
                "asks": [[_decimal(price), str(asks[price])] for price in sorted(asks)],
            },
        }


def _lines(decoded: DecodedIex) -> dict[str, list[str]]:
    # Every message as a line of text, by kind.
    lines: dict[str, list[str]] = {
        "trades": [_row(one, _fill_cells(one)) for _, one in _ordered(decoded, "T")],
        "breaks": [_row(one, _fill_cells(one)) for _, one in _ordered(decoded, "B")],
        "quotes": [_row(one, _quote_cells(one)) for _, one in _ordered(decoded, "Q")],
        "levels": _level_lines(decoded),
        "admin": [_admin_row(kind, one) for kind, one in _ordered(decoded, _ADMIN)],
    }
    return lines


def _level_lines(decoded: DecodedIex) -> list[str]:
    return [
        _row(one, ("B" if kind == "8" else "S", *_level_cells(one)))
        for kind, one in _ordered(decoded, "85")
    ]


def _row(one: Any, cells: Iterable[Any]) -> str:
    return ",".join(map(str, (one["number"], _symbol(one), one["time_ns"], *cells)))


def _fill_cells(one: Any) -> tuple[Any, ...]:
    return _decimal(int(one["price"])), one["size"], one["trade_id"], one["flags"]


def _level_cells(one: Any) -> tuple[Any, ...]:
    return _decimal(int(one["price"])), one["size"], one["flags"]


def _quote_cells(one: Any) -> tuple[Any, ...]:
    bid, ask = _decimal(int(one["bid_price"])), _decimal(int(one["ask_price"]))
    return bid, one["bid_size"], ask, one["ask_size"], one["flags"]


def _admin_row(kind: str, one: Any) -> str:
    flags = one["flags"] if kind in "PD" else chr(one["flags"])
    symbol = "" if kind == "S" else _symbol(one)
    cells: list[Any] = [one["number"], kind, one["time_ns"], symbol, flags]
    if kind == "H":
        cells.append(one["reason"].decode().rstrip())
    elif kind == "P":
        cells.append(one["detail"])
    elif kind in "OE":
        cells.append("")
    elif kind == "D":
        cells += one["round_lot"], _decimal(int(one["price"])), one["luld_tier"]
    elif kind == "A":
        for name in one.dtype.names[5:]:
            value = one[name]
            if isinstance(value, bytes):
                value = value.decode()
            cells.append(_decimal(int(value)) if one.dtype[name] == "<i8" else value)
    return ",".join(map(str, cells))


def _single(path: Path, expect: list[list[Any]]) -> str | None:
    framing = Framing("iex_tp")
    found: list[list[Any]] = []
    updates: list[list[Any]] = []
    with CaptureReader(path) as reader:
        for frame, datagram in enumerate(reader):
            for message in framing.messages(datagram.payload):
                for kind, lines in _lines(decode_iex([message])).items():
                    found += [[frame, kind, line] for line in lines]
                updates += _update_lines(frame, message, path.name.startswith("Deep"))
    # An update has all of a quote but its flags.
    wanted = [
        [frame, kind, line.rpartition(",")[0] if kind == "quotes" else line]
        for frame, kind, line in expect
        if kind in ("quotes", "levels")
    ]
    return difference(expect, found) or difference(wanted, updates, "updates")


def _update_lines(frame: int, message: NumberedMessage, deep: bool) -> list[list[Any]]:
    decoded = IexUpdates([message], deep, **SINGLE).decoded
    quotes = [_row(one, _quote_cells(one)[:-1]) for _, one in _ordered(decoded, "Q")]
    return [
        *([frame, "quotes", line] for line in quotes),
        *([frame, "levels", line] for line in _level_lines(decoded)),
    ]
