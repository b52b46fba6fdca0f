"""CME's templates by version, and those that nobody knows: the same books, or doubt."""

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from lab.conformance.books import SINGLE, Followed, follow, venue_config
from tests.agents.cme_books import ALL, check, config_of, truth_of
from tests.shared import shared
from udpfast.agents.market.cme_market import CmeMarket
from udpfast.core.layout import Kind
from udpfast.net.pcap import CapturedDatagram
from udpfast.payload import cme as cme_payload
from udpfast.payload.sbe.schema import Schema

#: Templates of before version 9, whose prices have seven decimals, and from version 13 on.
OLDER = {46: 32, 47: 43, 48: 42, 52: 38, 53: 44, 54: 27}
LONGER = {46: 64, 48: 65, 52: 69}
#: Where the price is in an entry, by the older template.
PRICE_AT = {32: 0, 42: 0, 38: 0, 43: 16, 44: 16}


def messages(datagram: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield template, root block and what follows it."""
    at = 12
    while at < len(datagram):
        size, block, template = struct.unpack_from("<HHH", datagram, at)
        yield template, datagram[at + 10 : at + 10 + block], datagram[at + 10 + block : at + size]
        at += size


def message(template: int, root: bytes, rest: bytes) -> bytes:
    head = struct.pack("<HHHHH", 10 + len(root) + len(rest), len(root), template, 1, 9)
    return head + root + rest


def first_group(rest: bytes, size: int, change: Callable[[bytes], bytes]) -> bytes:
    """Return what follows a root block, each entry of its first group changed to so many bytes."""
    block, count = struct.unpack_from("<HB", rest)
    entries = [change(rest[3 + n * block : 3 + (n + 1) * block]) for n in range(count)]
    assert all(len(entry) == size for entry in entries)
    return struct.pack("<HB", size, count) + b"".join(entries) + rest[3 + block * count :]


def older(template: int, root: bytes, rest: bytes) -> bytes:
    """Return a message as version 8 of the schema has it."""
    template = OLDER.get(template, template)
    if template in PRICE_AT:
        at = PRICE_AT[template]

        def scaled(entry: bytes) -> bytes:
            price = struct.unpack_from("<q", entry, at)[0] // 100
            return entry[:at] + struct.pack("<q", price) + entry[at + 8 :]

        rest = first_group(rest, struct.unpack_from("<H", rest)[0], scaled)
    return message(template, root, rest)


def longer(template: int, root: bytes, rest: bytes) -> bytes:
    """Return a message as version 13 of the schema has it, its quantities of 64 bits."""

    def book(entry: bytes) -> bytes:
        price, size, *others = struct.unpack("<qiiIiBBc5x", entry)
        return struct.pack("<qQiIiBBcx", price, size, *others)

    def trade(entry: bytes) -> bytes:
        price, size, security, link, orders, side, action, number = struct.unpack(
            "<qiiIiBBIxx", entry
        )
        return struct.pack("<qQiIiIBB6x", price, size, security, link, orders, number, side, action)

    def level(entry: bytes) -> bytes:
        price, size, orders, place, _, _, _, kind = struct.unpack("<qiibHBBc", entry)
        return struct.pack("<qQiBBc", price, size, orders, place, 255, kind)

    sizes = {46: (32, book), 48: (40, trade), 52: (23, level)}
    if template in sizes:
        rest = first_group(rest, *sizes[template])
    return message(LONGER.get(template, template), root, rest)


@dataclass(frozen=True)
class Day:
    """A market that has ended, and all that it sent: time, line and datagram."""

    market: CmeMarket
    sent: list[tuple[int, int, bytes]]


def day(seconds: float) -> Day:
    market = CmeMarket(3, rate_per_s=400, seconds=seconds)
    return Day(market, list(market))


@pytest.fixture(scope="module")
def short() -> Day:
    return day(0.2)


@pytest.fixture(scope="module")
def long() -> Day:
    return day(0.5)


@pytest.fixture(scope="module")
def trades(long: Day) -> Callable[[int], set[tuple[float, float]]]:
    """Return what returns the trades of the long day from a number on, as it was sent."""

    @cache
    def found(first: int) -> set[tuple[float, float]]:
        *_, (known, _) = follow(config_of(1), played(plain, long, first))
        return {(p, q) for rows in known.trades.values() for p, q in rows}

    return found


def played(
    version: Callable[[int, bytes, bytes], bytes], of: Day, first: int
) -> Iterator[tuple[tuple[int, int], CapturedDatagram]]:
    """Yield a day from a number on, on one line and its loops, as a version has it."""
    for at_ns, line, data in of.sent:
        if line or int.from_bytes(data[:4], "little") >= first:
            changed = data[:12] + b"".join(version(*each) for each in messages(data))
            place = (1, line - 1) if line else (0, 0)
            yield place, CapturedDatagram(at_ns, ("", 0), ("", 0), changed)


def plain(template: int, root: bytes, rest: bytes) -> bytes:
    """Return a message as it is."""
    return message(template, root, rest)


@pytest.mark.parametrize("first", [1, 40])  # then the snapshots are needed
@pytest.mark.parametrize("version", [plain, older, longer])
def test_other_versions_tell_the_same_books_and_trades(
    version: Callable[[int, bytes, bytes], bytes],
    first: int,
    long: Day,
    trades: Callable[[int], set[tuple[float, float]]],
) -> None:
    *_, (known, _) = follow(config_of(1), played(version, long, first))
    assert check(known, truth_of(long.market)) == ALL
    assert {(p, q) for rows in known.trades.values() for p, q in rows} == trades(first)
    assert len(trades(first)) > 20


#: Where the decoder finds a field (layout.pxd) -> where CME's schema of version 9 has it.
PLACES = {
    "CME_ENTRY_SIZE": ("MDIncrementalRefreshBook46.NoMDEntries", "MDEntrySize"),
    "CME_ENTRY_ID": ("MDIncrementalRefreshBook32.NoMDEntries", "SecurityID"),
    "CME_ENTRY_CHAIN": ("MDIncrementalRefreshTradeSummary42.NoMDEntries", "RptSeq"),
    "CME_ENTRY_LEVEL": ("MDIncrementalRefreshBook46.NoMDEntries", "MDPriceLevel"),
    "CME_ENTRY_ACTION": ("MDIncrementalRefreshTradeSummary48.NoMDEntries", "MDUpdateAction"),
    "CME_ENTRY_TYPE": ("MDIncrementalRefreshBook32.NoMDEntries", "MDEntryType"),
    "CME_TRADE_AGGRESSOR": ("MDIncrementalRefreshTradeSummary48.NoMDEntries", "AggressorSide"),
    "CME_TRADE_ID": ("MDIncrementalRefreshTradeSummary42.NoMDEntries", "MDTradeEntryID"),
    "CME_STATISTICS_ID": ("MDIncrementalRefreshSessionStatistics51.NoMDEntries", "SecurityID"),
    "CME_VOLUME_CHAIN": ("MDIncrementalRefreshVolume37.NoMDEntries", "RptSeq"),
    "CME_LIMITS_CHAIN": ("MDIncrementalRefreshLimitsBanding50.NoMDEntries", "RptSeq"),
    "CME_REFER_ENTRY": ("MDIncrementalRefreshBook46.NoOrderIDEntries", "ReferenceID"),
    "CME_REFER_ACTION": ("MDIncrementalRefreshBook32.NoOrderIDEntries", "OrderUpdateAction"),
    "CME_ORDER_PRICE": ("MDIncrementalRefreshOrderBook43.NoMDEntries", "MDEntryPx"),
    "CME_ORDER_QUANTITY": ("MDIncrementalRefreshOrderBook43.NoMDEntries", "MDDisplayQty"),
    "CME_ORDER_ID": ("MDIncrementalRefreshOrderBook43.NoMDEntries", "SecurityID"),
    "CME_ORDER_ACTION": ("MDIncrementalRefreshOrderBook47.NoMDEntries", "MDUpdateAction"),
    "CME_ORDER_TYPE": ("MDIncrementalRefreshOrderBook43.NoMDEntries", "MDEntryType"),
    "CME_ORDER_TYPE_53": ("SnapshotFullRefreshOrderBook44.NoMDEntries", "MDEntryType"),
    "CME_SNAPSHOT_ID": ("SnapshotFullRefreshOrderBook44", "SecurityID"),
    "CME_CHUNKS": ("SnapshotFullRefreshOrderBook44", "NoChunks"),
    "CME_CHUNK": ("SnapshotFullRefreshOrderBook53", "CurrentChunk"),
    "CME_LEVEL_PLACE": ("SnapshotFullRefresh52.NoMDEntries", "MDPriceLevel"),
    "CME_LEVEL_TYPE": ("SnapshotFullRefresh38.NoMDEntries", "MDEntryType"),
    "CME_SYMBOL": ("MDInstrumentDefinitionOption41", "Symbol"),
    "CME_DEFINED_ID": ("MDInstrumentDefinitionSpread56", "SecurityID"),
    "CME_ACTION": ("MDInstrumentDefinitionFuture54", "SecurityUpdateAction"),
    "CME_STATUS_STATE": ("SecurityStatus30", "SecurityTradingStatus"),
}


def test_layout_is_that_of_the_venues_schema() -> None:
    schema = Schema(shared("sbe", "schemas", "FixBinary.xml"))
    text = (Path(cme_payload.__file__).parent / "layout.pxd").read_text()
    ours = {name: int(value, 0) for name, value in re.findall(r"    (CME_\w+) = (\w+)", text)}
    theirs = {
        name: (schema.dtype(path).fields or {})[field][1] for name, (path, field) in PLACES.items()
    }
    assert {name: ours[name] for name in theirs} == theirs


#: Volume and statistics, in both widths: entries of (size, bytes in front of the instrument's id).
COUNTED = {37: (16, 4), 66: (24, 8), 51: (24, 8), 67: (32, 16), 49: (32, 12), 50: (32, 24)}


@pytest.mark.parametrize("template", COUNTED)
@pytest.mark.parametrize("goes_on", [True, False])
def test_what_touches_no_book_counts_in_its_chain(template: int, goes_on: bool, short: Day) -> None:
    datagrams = list(played(plain, short, 1))
    changes = [at for at, (place, _) in enumerate(datagrams) if place == (0, 0)]
    before = changes[len(changes) // 2]
    number = int.from_bytes(datagrams[before][1].payload[:4], "little")
    size, at = COUNTED[template]
    entry = bytearray(size)
    # One that says the next number of an instrument that has begun; or a later one.
    struct.pack_into("<iI", entry, at, 1000, 0)
    links = links_of(datagrams[: before + 1], 1000)
    struct.pack_into("<iI", entry, at, 1000, links + (1 if goes_on else 2))
    data = struct.pack("<IQ", number + 1, 0) + message(
        template, struct.pack("<QBxx", 1, 0x80), struct.pack("<HB", size, 1) + bytes(entry)
    )
    heard = [*datagrams[: before + 1], ((0, 0), CapturedDatagram(2**60, ("", 0), ("", 0), data))]
    *_, (known, _) = follow(config_of(1), heard)
    assert known.books["CME", "AMBER"].stale == (not goes_on)


def links_of(datagrams: list[tuple[tuple[int, int], CapturedDatagram]], instrument: int) -> int:
    """Return the last number of an instrument's chain."""
    last = 0
    for place, datagram in datagrams:
        for template, _, rest in messages(datagram.payload) if place == (0, 0) else ():
            if template in (46, 48):
                block, count = struct.unpack_from("<HB", rest)
                for n in range(count):
                    security, link = struct.unpack_from("<iI", rest, 3 + n * block + 12)
                    last = link if security == instrument else last
    return last


def test_template_of_which_no_book_is_made_leaves_books_sound(short: Day) -> None:
    templates = [12, 15, 16, 39, 59, 60, 61, 62, 68]
    behind = [message(template, b"", b"") for template in templates]
    assert dict(zip(templates, sound_behind(short, *behind), strict=True)) == dict.fromkeys(
        templates, ALL
    )


@pytest.mark.parametrize("template", [1, 36, 70, 999])
def test_template_that_nobody_knows_puts_every_book_in_doubt(template: int, short: Day) -> None:
    assert sound_behind(short, message(template, bytes(11), b"")) == [set()]


def sound_behind(of: Day, *messages: bytes) -> list[set[tuple[str, str]]]:
    """Return which books are sound behind each of some messages at the end of a day."""
    found = []
    number = max(int.from_bytes(data[:4], "little") for _, line, data in of.sent if not line)
    truth = truth_of(of.market)

    def all_of_it() -> Iterator[tuple[tuple[int, int], CapturedDatagram]]:
        yield from played(plain, of, 1)
        for at, one in enumerate(messages, 1):
            data = struct.pack("<IQ", number + at, 0) + one
            yield (0, 0), CapturedDatagram(2**60 + at, ("", 0), ("", 0), data)
            found.append(check(known, truth))  # asked for the next: it has taken this one

    for known, _ in follow(config_of(1), all_of_it()):  # noqa: B007
        pass
    return found


def definition(instrument: int, symbol: bytes, depth: int = 10) -> bytes:
    root = bytearray(59)
    root[5:6], root[35 : 35 + len(symbol)], root[55:59] = (
        b"A",
        symbol,
        struct.pack("<i", instrument),
    )
    return message(54, bytes(root), struct.pack("<HBHB3sb", 9, 0, 4, 1, b"GBX", depth))


def new_bid(instrument: int, link: int, place: int, price: int, time_ns: int = 1) -> bytes:
    entry = struct.pack("<qiiIiBBc5x", price * 10**9, 5, instrument, link, 1, place, 0, b"0")
    rest = struct.pack("<HB", 32, 1) + entry + struct.pack("<H5xB", 24, 0)
    return message(46, struct.pack("<QBxx", time_ns, 0x80), rest)


def told(*sent: bytes) -> Followed:
    datagrams = [
        (
            (0, 0),
            CapturedDatagram(n, ("", 0), ("", 0), struct.pack("<IQ", n, 0) + one),
        )
        for n, one in enumerate(sent, 1)
    ]
    *_, (known, _) = follow(config_of(1), datagrams)
    return known


def test_two_instruments_of_one_name_are_two_books() -> None:
    # The second goes by its number, and is counted: one book of both would be neither's.
    begun = (definition(7, b"ABC"), definition(8, b"XYZ"), new_bid(7, 1, 1, 100))
    known = told(*begun, new_bid(8, 1, 1, 50), definition(8, b"ABC"), new_bid(8, 2, 2, 49))
    assert known.books["CME", "ABC"].bids().tolist() == [[100.0, 5.0]]
    assert known.books["CME", "XYZ"].bids().tolist() == [[50.0, 5.0], [49.0, 5.0]]
    known = told(begun[0], begun[2], definition(8, b"ABC"), new_bid(8, 1, 1, 50))
    assert known.books["CME", "ABC"].bids().tolist() == [[100.0, 5.0]]
    assert known.books["CME", "8"].bids().tolist() == [[50.0, 5.0]]


def test_name_goes_to_who_has_it_once_the_other_has_another() -> None:
    clash = (definition(7, b"ABC"), new_bid(7, 1, 1, 100), definition(8, b"ABC"))
    known = told(
        *clash, new_bid(8, 1, 1, 50), definition(7, b"OLD"), definition(8, b"ABC"),
        new_bid(8, 2, 2, 49), new_bid(7, 2, 2, 99),
    )  # fmt: skip
    assert known.books["CME", "ABC"].bids().tolist() == [[50.0, 5.0], [49.0, 5.0]]
    assert known.books["CME", "OLD"].bids().tolist() == [[100.0, 5.0], [99.0, 5.0]]
    assert known.books["CME", "8"].stale


def test_instrument_keeps_its_name_whatever_another_name_begins_with() -> None:
    # Both are known before anything of the market is heard.
    sent = [
        ((1, 0), definition(7, b"ESZ6 C60")),
        ((1, 0), definition(8, b"ESZ6 C6000")),
        ((0, 0), new_bid(7, 1, 1, 100)),
        ((0, 0), new_bid(8, 1, 1, 50)),
    ]
    datagrams = [
        (place, CapturedDatagram(n, ("", 0), ("", 0), struct.pack("<IQ", n % 2 + 1, 0) + one))
        for n, (place, one) in enumerate(sent)
    ]
    *_, (known, _) = follow(config_of(1), datagrams)
    assert set(known.levels) == {("CME", "ESZ6 C60"), ("CME", "ESZ6 C6000")}


def test_names_that_change_for_ever_do_not_fill_their_table() -> None:
    names = [b"A%d" % (n % 100) for n in range(2_000)]
    renamed = [definition(7, name) for name in names]
    known = told(definition(7, b"ABC"), new_bid(7, 1, 1, 100), *renamed, new_bid(7, 2, 2, 99))
    sound = [name for (_, name), book in known.books.items() if not book.stale]
    assert sound == ["A99"]
    assert known.books["CME", "A99"].bids().tolist() == [[100.0, 5.0], [99.0, 5.0]]


def test_definitions_that_contradict_on_the_depth_are_a_doubt_until_a_snapshot() -> None:
    bids = [new_bid(7, n, n, 100 - n) for n in range(1, 5)]
    known = told(definition(7, b"ABC"), *bids, definition(7, b"ABC", 3), definition(7, b"ABC"))
    assert known.books["CME", "ABC"].stale


def test_snapshots_of_before_the_last_loss_are_left_out() -> None:
    # A loop that stands still, or goes back, heals nothing.
    of = day(0.3)
    datagrams = list(played(plain, of, 1))
    numbers = [int.from_bytes(one.payload[:4], "little") for at, one in datagrams if at == (0, 0)]
    lost = numbers[len(numbers) // 2]

    def heard() -> Iterator[tuple[tuple[int, int], CapturedDatagram]]:
        for place, one in datagrams:
            if place == (0, 0) and int.from_bytes(one.payload[:4], "little") == lost:
                continue
            if place in ((1, 1), (1, 2)) and last_of(one.payload) >= lost:
                continue
            yield place, one

    *_, (known, _) = follow(config_of(1), heard())
    assert known.gaps == 1
    assert not {what for what, _ in check(known, truth_of(of.market))} & {"orders"}


def book_snapshot(last: int, chain: int, time_ns: int, price: int) -> bytes:
    row = struct.pack("<qiibHBBc", price * 10**9, 5, 1, 1, 0xFFFF, 255, 0, b"0")
    root = struct.pack("<IIiIQ35x", last, 1, 7, chain, time_ns)
    return message(52, root, struct.pack("<HB", 22, 1) + row)


def times_of_books(*sent: tuple[tuple[int, int], int, bytes]) -> list[int]:
    """Return the exchange's time of each BOOK, of messages: place, number, bytes."""
    datagrams = [
        (place, CapturedDatagram(at * 10**9, ("", 0), ("", 0), struct.pack("<IQ", number, 0) + one))
        for at, (place, number, one) in enumerate(sent)
    ]
    return [
        int(record.update.header["exchange_time_utc"])
        for _, record in follow(config_of(1), datagrams)
        if record is not None and record.kind == Kind.BOOK
    ]


def test_book_that_a_snapshot_heals_has_the_time_of_the_snapshot() -> None:
    begun = (((0, 0), 1, definition(7, b"ABC")), ((0, 0), 2, new_bid(7, 1, 1, 100)))
    gap = ((0, 0), 40, definition(8, b"XYZ"))
    assert times_of_books(*begun)[-1] == 1
    assert times_of_books(*begun, gap, ((1, 1), 1, book_snapshot(39, 9, 77, 101)))[-1] == 77


def test_snapshot_that_a_sound_book_does_not_need_sets_its_time_not_back() -> None:
    begun = (((0, 0), 1, definition(7, b"ABC")), ((0, 0), 2, new_bid(7, 1, 1, 100, 50)))
    late = ((1, 1), 1, book_snapshot(2, 1, 20, 100))
    again = ((0, 0), 3, definition(7, b"ABC", 5))  # the book is told again
    times = times_of_books(*begun, late, again, ((0, 0), 4, new_bid(7, 2, 2, 99, 60)))
    assert times[-2:] == [50, 60]


def last_of(payload: bytes) -> int:
    """Return the last number that a snapshot contains."""
    (_, root, _), *_ = messages(payload)
    return int(struct.unpack_from("<I", root)[0])


def defined(symbol: bytes, tick: int, expires_ns: int) -> bytes:
    root = bytearray(107)
    struct.pack_into("<c6s", root, 5, b"A", b"")
    root[35:55], root[91:99] = symbol.ljust(20, b"\0"), struct.pack("<q", tick)
    struct.pack_into("<i", root, 55, 7)
    events = struct.pack("<HBBQ", 9, 1, 7, expires_ns)
    feeds = struct.pack("<HB3sb", 4, 1, b"GBX", 10)
    return message(54, bytes(root), events + feeds)


def test_definition_is_told_once_with_what_it_says_of_its_instrument() -> None:
    at_ns = 1_800_000_000_000_000_000
    said = (defined(b"ESZ6", 250_000_000, at_ns), defined(b"ESZ6", 500_000_000, at_ns))
    datagrams = [
        struct.pack("<IQ", number, 1) + one
        for number, one in enumerate((said[0], said[0], said[1], said[1]), 1)
    ]
    arrived = [
        ((0, 0), CapturedDatagram(1_700_000_000_000_000_000 + n, ("", 0), ("", 0), one))
        for n, one in enumerate(datagrams)
    ]
    rows = [
        record.data
        for _, record in follow(venue_config("cme_mdp3", "cme", 1, **SINGLE), arrived)
        if record is not None and record.kind == Kind.REFERENCE_DATA
    ]
    assert [row["tick_size"] for row in rows] == [0.25, 0.5]
    assert {row["expiry_datetime_utc"] for row in rows} == {1_800_000_000}
    assert {row["external_security_id"] for row in rows} == {7}


def status(instrument: int, state: int) -> bytes:
    root = bytearray(30)
    root[27] = state
    struct.pack_into("<i", root, 20, instrument)
    return message(30, bytes(root), b"")


def statuses(*sent: tuple[tuple[int, int], int, bytes]) -> list[tuple[str | None, int, int]]:
    """Return symbol, status and stream of each MARKET_STATUS, of messages: place, number, bytes."""
    datagrams = [
        (place, CapturedDatagram(at * 10**9, ("", 0), ("", 0), struct.pack("<IQ", number, 0) + one))
        for at, (place, number, one) in enumerate(sent)
    ]
    return [
        (record.symbol, int(record.data["trading_status"]), record.stream)
        for _, record in follow(config_of(1), datagrams)
        if record is not None and record.kind == Kind.MARKET_STATUS
    ]


@pytest.mark.parametrize("place", [(0, 0), (1, 2)], ids=["among the changes", "by its loop"])
def test_status_before_the_definition_is_told_again_under_the_name(place: tuple[int, int]) -> None:
    early = [((0, 0), 1, status(7, 17)), ((0, 0), 2, status(7, 2))]
    number = 1 if place[0] else 3
    named = [(place, number + n, definition(7, b"ABC")) for n in range(2)]
    *before, last = statuses(*early, *named)
    assert before == [("7", 5, last[2]), ("7", 7, last[2])]
    assert last[:2] == ("ABC", 7)
    assert statuses(*named) == []


def test_status_of_before_a_gap_is_not_told_under_the_name_that_comes_behind_it() -> None:
    early, named = ((0, 0), 1, status(7, 17)), definition(7, b"ABC")
    found = statuses(early, ((0, 0), 40, status(8, 17)), ((0, 0), 41, named))
    assert [symbol for symbol, _, _ in found] == ["7", "8"]
