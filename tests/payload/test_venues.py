"""Feeds of venues: books of orders, by place and by price, and what losses leave of them."""

import random
import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.conformance import Report
from lab.conformance.books import Followed, check, follow, venue_config
from lab.framings import Sent, build
from tests.client.instance import small_image
from tests.payload.itch_market import ItchMarket
from tests.payload.order_market import DeepPlusMarket, OrderMarket, PitchMarket
from tests.shared import ROOT, shared
from udpfast.agents.feed.image_keeper import ImageKeeper
from udpfast.agents.feed.replayer import Replayer
from udpfast.client.reader import Reader
from udpfast.config.lines import PAYLOADS
from udpfast.core.layout import Kind, RecordFlag
from udpfast.monitor.limits import reached_limits, read_image
from udpfast.net.pcap import CAPTURED, CaptureBatch, CapturedDatagram

AT_NS = 1_700_000_000_000_000_000
#: Enough for these few messages.
SMALL = {"ring_bytes": 1 << 22, "names": 256, "window": 256, "orders_max": 1_000, "streams": 8}
SETS = ("itch_small", "pitch_2", "cme_1", "cme_2_reset")


def test_payloads_have_the_numbers_of_their_names() -> None:
    text = (ROOT / "udpfast/payload/traits.pxd").read_text()
    numbers = {name.lower(): int(at) for name, at in re.findall(r"PAYLOAD_(\w+) = (\d+)", text)}
    assert numbers == {name: number for number, name in enumerate(PAYLOADS)}


def followed(
    framing: str, payload: str, messages: Iterable[Sent], **books: Any
) -> tuple[Followed, list[Kind]]:
    """Return what a reader knows after some datagrams, and the kinds of the records."""
    datagrams = [
        ((0, 0), CapturedDatagram(AT_NS + i * 1_000_000, ("", 0), ("", 0), build(framing, one)))
        for i, one in enumerate(messages)
    ]
    told = list(follow(venue_config(framing, payload, 1, **(SMALL | books)), datagrams))
    kinds = [record.kind for _, record in told if record is not None]
    return told[-1][0], kinds


def followed_raw(
    payloads: Iterable[bytes], framing: str = "cme_mdp3", payload: str = "cme", **books: Any
) -> Followed:
    """Return what a reader knows after some datagrams, of CME by default."""
    datagrams = [
        ((0, 0), CapturedDatagram(AT_NS + i * 1_000_000, ("", 0), ("", 0), datagram))
        for i, datagram in enumerate(payloads)
    ]
    *_, (known, _) = follow(venue_config(framing, payload, 1, **(SMALL | books)), datagrams)
    return known


def sent(number: int, messages: tuple[bytes, ...]) -> Sent:
    return Sent(number, messages, session=b"0000000042")


def head(kind: str, locate: int = 7) -> bytes:
    return struct.pack(">cHH6s", kind.encode(), locate, 0, bytes(6))


def add(order: int, side: str, shares: int, price: int) -> bytes:
    return head("A") + struct.pack(">QcI8sI", order, side.encode(), shares, b"AAPL    ", price)


def less(kind: str, order: int, shares: int) -> bytes:
    return head(kind) + struct.pack(">QI", order, shares) + (bytes(8) if kind == "E" else b"")


def replace(old: int, new: int, shares: int, price: int) -> bytes:
    return head("U") + struct.pack(">QQII", old, new, shares, price)


NAME = ("NASDAQ", "AAPL")
ORDERS = (add(1, "B", 100, 1_000_000), add(2, "B", 50, 1_000_000), add(3, "S", 10, 1_000_100))


def test_levels_are_sums_of_orders_which_keep_their_queue() -> None:
    messages = (*ORDERS, less("X", 1, 40), replace(1, 4, 60, 1_000_000))
    known, _ = followed("moldudp64", "itch", [sent(1, messages)])
    assert not known.books[NAME].stale
    assert known.levels[NAME][0] == {100.0: (110.0, 2, 0)}
    assert known.levels[NAME][1] == {100.01: (10.0, 1, 0)}
    queue = sorted((row[3], order) for order, row in known.orders[NAME].items() if row[0] == 0)
    assert [order for _, order in queue] == ["2", "4"]
    assert known.tops[NAME] == (100.0, 110.0, 100.01, 10.0)


def test_orders_are_named_by_all_digits_of_their_numbers() -> None:
    seeded = random.Random(8)
    numbers = {0, 1, 9, 2**63, 2**64 - 1}
    for digits in range(1, 20):
        numbers |= {10**digits - 1, 10**digits, 10**digits + 1, seeded.randrange(10**digits)}
    messages = [add(number, "B", 1, 1_000_000) for number in sorted(numbers)]
    datagrams = [sent(1 + n, tuple(messages[n : n + 20])) for n in range(0, len(messages), 20)]
    known, _ = followed("moldudp64", "itch", datagrams)
    assert set(known.orders[NAME]) == {str(number) for number in numbers}


def test_execution_is_a_trade_of_the_taker() -> None:
    known, _ = followed("moldudp64", "itch", [sent(1, (*ORDERS, less("E", 3, 10)))])
    assert known.trades[NAME] == [(100.01, 10.0)]
    assert known.levels[NAME][1] == {}


def test_book_is_in_doubt_behind_a_gap() -> None:
    late = add(9, "S", 5, 1_000_200)
    known, kinds = followed(
        "moldudp64", "itch", [sent(1, ORDERS), sent(5, (late,)), sent(6, (late,))]
    )
    assert kinds.count(Kind.GAP) == 1
    assert known.books[NAME].stale
    assert Kind.STALE in kinds


def test_execution_of_an_order_that_nobody_knows_is_a_message() -> None:
    messages = [sent(1, ORDERS), sent(5, (less("E", 1, 10), less("E", 4, 5)))]
    known, kinds = followed("moldudp64", "itch", messages, carry="updates")
    assert known.trades[NAME] == [(100.0, 10.0)]
    assert kinds.count(Kind.TRADES) == 1
    assert kinds.count(Kind.MESSAGE) == 1


@pytest.mark.parametrize(
    ("venue", "share"), [(ItchMarket, 0.9), (PitchMarket, 0.3), (DeepPlusMarket, 0.95)]
)
def test_books_in_doubt_follow_orders_so_that_executions_have_prices(
    venue: type[OrderMarket], share: float
) -> None:
    for seed in range(4):
        market = venue(seed, 1_000)
        lost = {100, *random.Random(seed).sample(range(101, 1_000), 8)}
        known = followed_raw(
            [
                market.datagram(number, [message])
                for number, message in enumerate(market.messages, 1)
                if number not in lost
            ],
            market.framing,
            market.payload,
        )
        assert all(known.books[name].stale for name in known.trades)
        sound = [trade for trade in market.trades if trade[0] not in lost]
        for (_, stock), rows in known.trades.items():
            true = iter((price / 1e4, shares) for _, name, price, shares in sound if name == stock)
            assert all(row in true for row in rows)
        assert sum(map(len, known.trades.values())) >= share * len(sound)


def replay(replayer: Replayer, datagrams: Iterable[bytes]) -> None:
    """Have a feed take datagrams."""
    zero, headers = np.zeros(1, np.uint8), np.zeros(1, CAPTURED)
    for at, datagram in enumerate(datagrams):
        headers["timestamp_ns"], headers["size"] = AT_NS + at * 1_000_000, len(datagram)
        replayer.replay(CaptureBatch(headers, datagram), zero, zero, 0, 1)


def feed_counters(
    directory: Path, datagrams: Iterable[bytes], framing: str, payload: str, **books: Any
) -> dict[str, int]:
    """Return the feed's counters after some datagrams."""
    replayer = Replayer(venue_config(framing, payload, 1, **(SMALL | books)), directory)
    replay(replayer, datagrams)
    replayer.finish()
    counters = replayer.counters()["feed"]
    replayer.close()
    return counters


def names_full(directory: Path, *messages: bytes) -> int:
    """Return how often a feed of ITCH that joins in the middle lacked room for its names."""
    datagrams = [build("moldudp64", sent(5 + at, (one,))) for at, one in enumerate(messages)]
    return feed_counters(directory, datagrams, "moldudp64", "itch", names=16)["names_full"]


def executed_at(locate: int, price: int) -> bytes:
    return head("C", locate) + struct.pack(">QIQcI", locate, 10, locate, b"Y", price)


def test_name_that_nobody_told_is_none_that_had_no_room(tmp_path: Path) -> None:
    assert names_full(tmp_path, *[executed_at(n, 1_000_000) for n in range(1, 17)]) == 0


def test_trade_of_a_stock_that_nobody_named_was_not_cut(tmp_path: Path) -> None:
    replayer = Replayer(venue_config("moldudp64", "itch", 1, **SMALL), tmp_path)
    replay(replayer, [build("moldudp64", sent(5, (executed_at(7, 1_000_000),)))])
    replayer.finish()
    keeper = ImageKeeper(small_image(), tmp_path)
    keeper.on_start()
    keeper.work(10**12)
    with Reader(f"ring:{tmp_path}", start="begin") as reader:
        records = [next(reader) for _ in range(reader.lag)]
        trades = [record for record in records if record.kind is Kind.TRADES]
    assert [(trade.symbol, trade.flags & RecordFlag.TRUNCATED) for trade in trades] == [(None, 0)]
    image = read_image(tmp_path, 1)
    assert image is not None and image["values_refused"] == 0
    assert reached_limits(replayer.counters()["feed"], image) == {}
    keeper.on_stop()
    replayer.close()


def test_name_that_had_no_room_is_counted_with_each_record(tmp_path: Path) -> None:
    known = [head("R", n) + f"S{n:07}".encode() + bytes(20) for n in range(1, 17)]
    executed = [executed_at(n, 1_000_000) for n in (*range(1, 17), 16, 16)]
    # The exchange and fifteen stocks have a name, the sixteenth has none.
    assert names_full(tmp_path, *known, *executed) == 3


def test_what_an_instrument_without_room_says_is_a_message() -> None:
    # All of them go by one name, which leads to the book of the first. 256 find room.
    crowd = [add(n, "B", 1, 1_000_000) for n in range(300)]
    crowd = [one[:1] + struct.pack(">H", n) + one[3:] for n, one in enumerate(crowd, 1)]
    datagrams = [sent(1 + n, tuple(crowd[n : n + 20])) for n in range(0, len(crowd), 20)]
    _, kinds = followed("moldudp64", "itch", datagrams, carry="updates")
    assert kinds.count(Kind.MESSAGE) == 299


def test_order_that_is_not_there_puts_its_book_in_doubt() -> None:
    known, kinds = followed("moldudp64", "itch", [sent(1, (*ORDERS, less("X", 8, 1)))])
    assert known.books[NAME].stale
    assert kinds.count(Kind.STALE) == 2  # of levels, and of orders


def test_more_orders_than_there_is_room_for_are_a_doubt() -> None:
    many = [add(n, "B", 1, 1_000_000) for n in range(1, 1_002)]
    datagrams = [sent(1 + n, tuple(many[n : n + 20])) for n in range(0, len(many), 20)]
    known, _ = followed("moldudp64", "itch", datagrams, orders_max=1_000)
    assert known.books[NAME].stale


def pitch_adds(unit: int, first: int, count: int, symbol: bytes) -> bytes:
    """Return a datagram of new orders; the id of each is its number and unit."""
    body = b"".join(
        struct.pack("<BBIQcI6sQB", 34, 0x21, 0, 10 * n + unit, b"B", 1, symbol, 1_000_000, 1)
        for n in range(first, first + count)
    )
    return struct.pack("<HBBI", 8 + len(body), count, unit, first) + body


def pitch_less(unit: int, number: int, order: int) -> bytes:
    """Return a datagram that reduces an order by one."""
    return struct.pack("<HBBIBBIQI", 26, 1, unit, number, 18, 0x25, 0, 10 * order + unit, 1)


def test_orders_whose_end_was_lost_take_no_room_from_books_that_are_sound(tmp_path: Path) -> None:
    lost = [pitch_adds(1, first, 20, b"LOST  ") for first in range(3, 1_500, 20)]
    sound = [pitch_adds(2, first, 20, b"SOUND ") for first in range(1, 800, 20)]
    datagrams = [pitch_adds(1, 1, 1, b"LOST  "), *lost, *sound, pitch_less(1, 1_503, 3)]
    room: dict[str, Any] = {"orders_max": 1_000, "wait_us": 1_000}
    known = followed_raw(datagrams, "cboe_pitch", "pitch", **room)
    assert known.books["CBOE", "LOST"].stale
    assert not known.books["CBOE", "SOUND"].stale
    assert len(known.orders["CBOE", "SOUND"]) == 800
    # Each order that gave way is counted.
    counters = feed_counters(tmp_path, datagrams, "cboe_pitch", "pitch", **room)
    assert counters["books_full"] == 1_501 + 800 - 1_000


def test_full_table_puts_the_books_of_sound_orders_alone_in_doubt() -> None:
    datagrams = [
        *[pitch_adds(1, first, 20, b"FULL  ") for first in range(1, 981, 20)],
        *[pitch_adds(2, first, 20, b"OTHER ") for first in range(1, 41, 20)],
    ]
    known = followed_raw(datagrams, "cboe_pitch", "pitch", orders_max=1_000)
    assert not known.books["CBOE", "FULL"].stale
    assert known.books["CBOE", "OTHER"].stale


def test_depth_shows_the_best_levels_alone() -> None:
    bids = [add(n, "B", 1, 1_000_000 + n * 100) for n in range(1, 6)]
    gone = head("D") + struct.pack(">Q", 5)
    known, _ = followed("moldudp64", "itch", [sent(1, (*bids, gone))], depth=2)
    assert sorted(known.levels[NAME][0]) == [100.03, 100.04]
    assert known.tops[NAME][0] == 100.04


def cme(number: int, template: int, root: bytes, rest: bytes) -> bytes:
    head_of = struct.pack("<HHHHH", 10 + len(root) + len(rest), len(root), template, 1, 9)
    return struct.pack("<IQ", number, AT_NS) + head_of + root + rest


def definition(number: int, depth: int) -> bytes:
    root = bytearray(59)
    root[5:6], root[35:38], root[55:59] = b"A", b"ABC", struct.pack("<i", 7)
    return cme(number, 54, bytes(root), struct.pack("<HBHB3sb", 9, 0, 4, 1, b"GBX", depth))


def bid(number: int, chain: int, place: int, action: int = 0) -> bytes:
    root = struct.pack("<QBxx", AT_NS, 0x80)
    price = (100 - place) * 10**9
    entry = struct.pack("<qiiIiBBc5x", price, 5, 7, chain, 1, place, action, b"0")
    return cme(number, 46, root, struct.pack("<HB", 32, 1) + entry + struct.pack("<H5xB", 24, 0))


BIDS = tuple(bid(place, place, place) for place in range(1, 5))


@pytest.mark.parametrize("depth", [4, 5, 10, 12])
def test_book_by_place_waits_for_the_depth_that_its_definition_tells(depth: int) -> None:
    assert not followed_raw(BIDS).books
    known = followed_raw((*BIDS, definition(5, depth)))
    assert sorted(known.levels["CME", "ABC"][0]) == [96.0, 97.0, 98.0, 99.0]
    assert not known.books["CME", "ABC"].stale


def test_book_that_was_deeper_than_its_definition_is_not_sound() -> None:
    # The venue told no third one of the three that are left after the delete.
    gone = bid(5, 5, 1, action=2)
    for payloads in ((*BIDS, definition(5, 3)), (*BIDS, gone, definition(6, 3))):
        books = followed_raw(payloads).books
        assert all(book.stale for book in books.values())
    books = followed_raw((definition(1, 10), *(bid(n + 1, n, n) for n in range(1, 5)))).books
    assert [book.stale for book in books.values()] == [False]
    many = [bid(place, place, 1) for place in range(1, 12)]
    assert all(book.stale for book in followed_raw((*many, definition(12, 12))).books.values())


def test_depth_may_be_told_by_the_settings() -> None:
    known = followed_raw(BIDS, places=4)
    assert sorted(known.levels["CME", "7"][0]) == [96.0, 97.0, 98.0, 99.0]
    known = followed_raw(BIDS, places=3)
    assert known.books["CME", "7"].stale


@pytest.mark.parametrize("name", SETS)
def test_sets_of_truths_hold(name: str) -> None:
    report = Report()
    check(shared("venues", "books", name) / "truth.json", report)
    assert [line for line in report.lines if line.startswith("FAILED")] == []
    assert report.passed >= 2


def test_feed_that_does_not_heal_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(config: Any, datagrams: Iterable[Any]) -> Any:
        # To snapshots, but not to definitions.
        return follow(config, (one for one in datagrams if one[0][0] == 0 or one[0][1] == 0))

    monkeypatch.setattr("lab.conformance.books.follow", deaf)
    report = Report()
    check(shared("venues", "books", "cme_1") / "truth.json", report)
    assert [line.endswith("in doubt at the end") for line in report.lines].count(True) == 1
    assert report.failed == 1


def test_capture_that_differs_is_found(tmp_path: Path) -> None:
    folder = shared("venues", "books", "itch_small")
    truth = (folder / "truth.json").read_text()
    for file in folder.glob("clean.pcap.gz"):
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "truth.json").write_text(truth.replace('"orders": 54', '"orders": 53', 1))
    report = Report()
    check(tmp_path / "truth.json", report)
    assert report.failed == 1


def plus(kind: str, flags: str | int, *fields: int, layout: str = "") -> bytes:
    flag = ord(flags) if isinstance(flags, str) else flags
    return struct.pack("<cBq8s" + layout, kind.encode(), flag, AT_NS, b"ZIEXT   ", *fields)


def test_deep_plus_keeps_orders_and_clears_a_book() -> None:
    name = ("IEX", "ZIEXT")
    messages = (
        plus("a", "8", 11, 100, 199_600, layout="QIq"),
        plus("a", "8", 12, 200, 199_600, layout="QIq"),
        plus("M", 0, 11, 100, 199_600, layout="QIq"),
        plus("L", 0, 12, 50, 199_600, 7, layout="QIqq"),
    )
    head_of = {"stream": (0x8005, 1), "session": 77, "sent_ns": AT_NS}
    known, _ = followed("iex_tp", "iex_deep_plus", [Sent(1, messages, **head_of)])
    assert known.levels[name][0] == {19.96: (250.0, 2, 0)}
    queue = sorted((row[3], order) for order, row in known.orders[name].items())
    assert [order for _, order in queue] == ["12", "11"]  # what is changed goes to the end
    assert known.trades[name] == [(19.96, 50.0)]
    known, _ = followed("iex_tp", "iex_deep_plus", [Sent(1, (*messages, plus("C", 0)), **head_of)])
    assert not known.books[name].stale
    assert known.levels[name] == ({}, {})


def nyse(kind: int, layout: str, *fields: int | bytes) -> bytes:
    body = struct.pack("<" + layout, *fields)
    return struct.pack("<HH", 4 + len(body), kind) + body


def nyse_followed(*datagrams: tuple[int, tuple[bytes, ...]]) -> Followed:
    """Return what a reader knows after datagrams: the first number, and messages."""
    return followed_raw(
        (
            struct.pack("<HBBIII", 16 + sum(map(len, sent)), 11, len(sent), number, 1, 0)
            + b"".join(sent)
            for number, sent in datagrams
        ),
        "nyse_xdp",
        "nyse_integrated",
    )


def nyse_add(seq: int, order: int, side: bytes, price: int) -> bytes:
    return nyse(100, "IIIQIIc5sB", 0, 7, seq, order, price, 100, side, b"", 0)


NYSE_MAPPING = nyse(3, "I11sxHBcBcHII", 7, b"BRK A", 1, 1, b"N", 2, b"A", 100, 0, 0)
NYSE_NAME = ("NYSE", "BRK A")


def test_nyse_prices_have_the_decimals_of_their_symbol() -> None:
    before = nyse_add(1, 11, b"B", 52_012)
    assert nyse_followed((1, (before,))).levels == {}
    known = nyse_followed((1, (before, NYSE_MAPPING, nyse_add(2, 12, b"S", 52_013))))
    bids, asks = known.levels[NYSE_NAME]
    assert ([*bids], [*asks]) == ([520.12], [520.13])
    assert not known.books[NYSE_NAME].stale


def test_nyse_trade_has_a_price_once_its_decimals_are_known() -> None:
    fill = nyse(103, "IIIQIIIBBcccc", 0, 7, 2, 11, 5, 52_012, 40, 1, 0, *[b" "] * 4)
    messages = (nyse_add(1, 11, b"B", 52_012), fill)
    assert nyse_followed((1, messages)).trades == {}
    known = nyse_followed((1, (NYSE_MAPPING, *messages)))
    assert known.trades == {NYSE_NAME: [(520.12, 40.0)]}
    assert known.levels[NYSE_NAME][0] == {520.12: (60.0, 1, 0)}


def test_nyse_modification_keeps_its_place_at_its_price_and_a_replacement_does_not() -> None:
    messages = (
        *(NYSE_MAPPING, nyse_add(1, 11, b"B", 500), nyse_add(2, 12, b"B", 500)),
        nyse(101, "IIIQIIBBB", 0, 7, 3, 11, 500, 30, 0, 0, 0),
        nyse(104, "IIIQQIIBB", 0, 7, 4, 12, 13, 500, 20, 0, 0),
        nyse_add(5, 14, b"B", 500),
        nyse(102, "IIIQB", 0, 7, 6, 14, 0),
    )
    rows = nyse_followed((1, messages)).orders[NYSE_NAME]
    queue = sorted((row[3], order, row[2]) for order, row in rows.items())
    assert [row[1:] for row in queue] == [("11", 30.0), ("13", 20.0)]


def test_gap_that_a_symbol_of_nyse_does_not_number_did_not_hit_it() -> None:
    begin = (1, (NYSE_MAPPING, nyse_add(1, 11, b"B", 500)))
    known = nyse_followed(begin, (4, (nyse_add(2, 1, b"S", 600),)))
    assert not known.books[NYSE_NAME].stale
    assert len(known.orders[NYSE_NAME]) == 2
    hit = (4, (nyse_add(3, 1, b"S", 600),))
    assert nyse_followed(begin, hit).books[NYSE_NAME].stale


def nyse_clear(following: int) -> tuple[bytes, ...]:
    return nyse(32, "IIII", 0, 0, 7, following), nyse_add(following, 2, b"B", 500)


def test_clear_of_a_symbol_of_nyse_is_sound_at_the_beginning_alone() -> None:
    """The orders that the venue keeps come in a refresh, which is not taken."""
    known = nyse_followed((1, (NYSE_MAPPING, *nyse_clear(1))))
    assert not known.books[NYSE_NAME].stale
    assert list(known.orders[NYSE_NAME]) == ["2"]
    begin = (1, (NYSE_MAPPING, nyse_add(1, 11, b"B", 500)))
    for following in (1, 2, 5):
        assert nyse_followed(begin, (3, nyse_clear(following))).books[NYSE_NAME].stale
    hit = (4, (nyse_add(3, 1, b"S", 600),))
    assert nyse_followed(begin, hit, (5, nyse_clear(4))).books[NYSE_NAME].stale


def memx(template: int, layout: str, *fields: int | bytes) -> bytes:
    body = struct.pack(">QH" + layout, AT_NS, 9, *fields)
    return struct.pack(">HHBBH", 6 + len(body), len(body), template, 2, 0x103) + body


def memx_followed(*messages: bytes) -> Followed:
    head = struct.pack(">BBQQH", 2, 18, 1, 1, len(messages))
    return followed_raw([head + b"".join(messages)], "memx_memoir", "memx")


def test_memx_orders_are_reduced_in_their_place() -> None:
    name = ("MEMX", "AAPL")
    messages = (
        memx(1, "6s6sIBBq", b"AAPL", b"", 100, 0, 0, 10_000),
        memx(10, "QcIq", 11, b"B", 100, 20_000_000),
        memx(10, "QcIq", 12, b"B", 50, 20_000_000),
        memx(10, "QcIq", 13, b"S", 70, 20_010_000),
        memx(12, "QI", 11, 40),
        memx(13, "QQIq", 13, 5, 20, 20_010_000),
        memx(11, "Q", 12),
    )
    known = memx_followed(*messages)
    assert known.levels[name] == ({20.0: (60.0, 1, 0)}, {20.01: (50.0, 1, 0)})
    assert known.trades[name] == [(20.01, 20.0)]
    known = memx_followed(*messages, memx(18, ""))
    assert (known.levels[name], known.books[name].stale) == (({}, {}), False)


def put(seq: int, order: int, side: int, price: int, size: int, flags: int = 3) -> bytes:
    body = struct.pack("<BbiIhhqqqii", flags, side, 44, seq, 0, 0, AT_NS, order, price, size, 0)
    return struct.pack("<HHHHH", 10 + len(body), len(body), 20, 1201, 2) + body


def coinbase_followed(*messages: bytes) -> Followed:
    head = struct.pack("<qqHBBi", AT_NS, 1, 1, 1, len(messages), 0)
    return followed_raw([head + b"".join(messages)], "coinbase_derivatives", "coinbase")


def test_coinbase_is_known_from_the_first_number_of_its_chain() -> None:
    name = ("COINBASE", "44")
    rows = [put(1, 5, 1, 32_000_000_000, 3), put(2, 6, -1, 33_000_000_000, 4)]
    again = put(3, 5, 1, 32_000_000_000, 9)
    known = coinbase_followed(*rows, again)
    assert known.levels[name] == ({32.0: (9.0, 1, 0)}, {33.0: (4.0, 1, 0)})
    assert name not in coinbase_followed(again).levels
    known = coinbase_followed(put(3, 5, 1, 32_000_000_000, 9, flags=7))  # it clears before
    assert [[*side] for side in known.levels[name]] == [[32.0], []]
