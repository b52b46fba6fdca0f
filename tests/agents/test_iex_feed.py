"""A feed of IEX messages: updates in the ring, books from them, and doubt behind losses."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.shared import shared
from udpfast.agents.replayer import Replayer
from udpfast.cli.replay import replay_datagrams
from udpfast.client.books import Books
from udpfast.client.reader import Reader
from udpfast.config import parse_feed
from udpfast.core.layout import Kind, RecordFlag
from udpfast.errors import ConfigError
from udpfast.net.pcap import CAPTURED, CaptureBatch

DEEP, TOPS = 0x8004, 0x8003
AT_NS = 1_493_149_012_263_502_175


def level(side: str, price: int, size: int, symbol: bytes = b"ZIEXT") -> bytes:
    return struct.pack("<cBq8sIq", side.encode(), 1, AT_NS, symbol.ljust(8), size, price)


def quote(bid: int, ask: int) -> bytes:
    return struct.pack("<cBq8sIqqI", b"Q", 0, AT_NS, b"ZIEXT   ", 100, bid, ask, 100)


def trade(price: int) -> bytes:
    return struct.pack("<cBq8sIqq", b"T", 0, AT_NS, b"ZIEXT   ", 10, price, 7)


class Feed:
    """An engine, the datagrams that go into it, and who reads its ring."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        tables = {
            "name": "iex",
            "wire": {"framing": "iex_tp", "payload": "iex_deep"} | settings.pop("wire", {}),
            "streams": {"lines": [{"name": "A", "address": "127.0.0.1:9001"}]},
        }
        self.replayer = Replayer(parse_feed(tables | settings), directory)
        self.reader = Reader(f"ring:{directory}", start="begin")
        self.books = Books(self.reader)
        self.number, self.offset, self.sent = 1, 0, AT_NS
        self.records: list[Any] = []

    def send(self, *messages: bytes, protocol: int = DEEP, lose: bool = False) -> None:
        """Send one datagram, unless the network loses it; take what it makes."""
        body = b"".join(struct.pack("<H", len(one)) + one for one in messages)
        head = (1, 0, protocol, 1, 77, len(body), len(messages), self.offset, self.number)
        self.sent += 1_000_000
        datagram = struct.pack("<BBHIIHHqqq", *head, self.sent) + body
        self.number += len(messages)
        self.offset += len(body)
        if not lose:
            headers = np.zeros(1, CAPTURED)
            headers["timestamp_ns"], headers["size"] = self.sent, len(datagram)
            zero = np.zeros(1, np.uint8)
            self.replayer.replay(CaptureBatch(headers, datagram), zero, zero, 0, 1)
        self.take()

    def take(self) -> None:
        """Take what is in the ring."""
        batch = self.reader.poll(timeout=0)
        for header in batch.headers:
            flags = RecordFlag(int(header["flags"]))
            if header["kind"] == Kind.CONNECTION:
                continue
            self.records.append((Kind(int(header["kind"])), flags, int(header["number"])))
        self.books.apply_batch(batch)

    def restart(self) -> None:
        """Begin to number from 1, as a sender does that starts again."""
        self.number, self.offset = 1, 0

    def book(self) -> tuple[list[list[float]], list[list[float]], bool]:
        """Return the levels of both sides, and whether they are in doubt."""
        book = self.books["IEX", "ZIEXT"]
        return book.bids().tolist(), book.asks().tolist(), book.stale

    def counter(self, name: str) -> int:
        """Return a counter of the feed."""
        return self.replayer.counters()["feed"][name]


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path)


def test_levels_are_books_and_trades_are_trades(feed: Feed) -> None:
    feed.send(level("8", 199_600, 400), level("5", 199_700, 100))
    feed.send(trade(199_700), b"S" + bytes(9), level("8", 199_500, 300))
    assert feed.book() == ([[19.96, 400], [19.95, 300]], [[19.97, 100]], False)
    assert [one[0] for one in feed.records] == [
        *(Kind.SESSION, Kind.BOOK, Kind.BOOK, Kind.TRADES, Kind.MESSAGE, Kind.BOOK)
    ]
    assert [one[2] for one in feed.records[1:]] == [1, 2, 3, 4, 5]
    assert feed.records[1][1] == RecordFlag.SNAPSHOT | RecordFlag.UNGATED
    assert feed.counter("updates") == 4
    assert feed.counter("types_opaque") == 1


def test_book_is_in_doubt_behind_a_loss_until_the_sender_begins_anew(feed: Feed) -> None:
    feed.send(level("8", 199_600, 400))
    feed.send(level("8", 199_500, 100), lose=True)
    feed.send(level("5", 199_700, 100))
    for _ in range(10):  # the hole is waited for
        feed.send()
    assert Kind.GAP in [one[0] for one in feed.records]
    assert feed.book()[2]
    feed.send(level("8", 199_600, 0))
    assert feed.book()[2]
    feed.restart()
    feed.send(level("5", 200_000, 7))  # alone it proves no new beginning
    feed.send(level("5", 200_100, 8))
    assert feed.book() == ([], [[20.0, 7], [20.01, 8]], False)


def test_book_of_who_joins_in_mid_session_stays_in_doubt(feed: Feed) -> None:
    feed.number, feed.offset = 500, 9_000
    feed.send(level("8", 199_600, 400))
    feed.send(level("8", 199_500, 400))
    assert feed.book()[2]


def test_level_that_is_cut_short_puts_all_books_in_doubt(feed: Feed) -> None:
    feed.send(level("8", 199_600, 400))
    feed.send(level("8", 199_500, 400)[:-1])
    assert feed.counter("decode_refused") == 1
    assert [one[0] for one in feed.records[-2:]] == [Kind.GAP, Kind.MESSAGE]
    assert feed.book()[2]
    feed.send(level("8", 199_500, 400, b"OTHER"))
    assert feed.books["IEX", "OTHER"].stale


def test_quote_is_the_end_of_doubt(tmp_path: Path) -> None:
    feed = Feed(tmp_path, wire={"payload": "iex_tops"}, window={"lost_packet_wait_us": 1})
    feed.send(quote(1, 2), protocol=TOPS)
    feed.send(quote(1, 2), protocol=TOPS, lose=True)
    feed.send(quote(2, 3), level("8", 1, 1), protocol=TOPS)
    feed.send(protocol=TOPS)
    kinds = [one[0] for one in feed.records]
    assert kinds.count(Kind.TOP_OF_BOOK) == 2
    assert kinds[-1] is Kind.MESSAGE  # TOPS has no levels
    whole = RecordFlag.SNAPSHOT | RecordFlag.UNGATED
    assert {one[1] for one in feed.records if one[0] is Kind.TOP_OF_BOOK} == {whole}


@pytest.mark.parametrize(
    ("carry", "kinds"),
    [
        ("updates", [Kind.BOOK]),
        ("messages", [Kind.MESSAGE]),
        ("both", [Kind.BOOK, Kind.MESSAGE]),
    ],
)
def test_ring_carries_updates_messages_or_both(
    tmp_path: Path, carry: str, kinds: list[Kind]
) -> None:
    feed = Feed(tmp_path, ring={"carry": carry})
    feed.send(level("8", 199_600, 400))
    assert [one[0] for one in feed.records[1:]] == kinds


@pytest.mark.parametrize("payload", ["none", "auto"])
def test_payload_none_publishes_all_messages_as_they_came(tmp_path: Path, payload: str) -> None:
    feed = Feed(tmp_path, wire={"payload": payload})
    feed.send(level("8", 199_600, 400), b"z")
    assert [one[0] for one in feed.records[1:]] == [Kind.MESSAGE, Kind.MESSAGE]


@pytest.mark.parametrize(
    "wire",
    [
        {"payload": "iex_deep"},
        {"payload": "none"},
        {"payload": "roq", "framing": "iex_tp"},
        {"payload": "iex_deep", "framing": "cme_mdp3"},
        {"payload": "iex_tops", "framing": "moldudp64"},
    ],
)
def test_payload_that_does_not_go_with_the_framing_is_refused(wire: dict[str, str]) -> None:
    lines = [{"name": "A", "address": "127.0.0.1:9001"}]
    where = "streams" if "framing" in wire else "incremental"
    expected = r"wire\.payload: expected (roq|none|none or .*) with wire\.framing"
    with pytest.raises(ConfigError, match=expected):
        parse_feed({"name": "iex", "wire": wire, where: {"lines": lines}})


@pytest.mark.slow
def test_final_books_of_a_capture_are_those_expected() -> None:
    document = json.loads(shared("venues", "expected.json").read_text())
    (case,) = (one for one in document["files"] if one["framing"] == "iex_tp")
    path = shared("data", "pcap", case["file"])
    result = replay_datagrams(path, framing="iex_tp", payload="iex_deep")
    assert result["ledger"].adds_up
    (flow,) = case["flows"]
    symbols = flow["segments"][-1]["symbols"]
    assert result["kinds"]["TRADES"] == flow["totals_over_all_runs"]["trades"]
    assert result["kinds"]["BOOK"] == flow["totals_over_all_runs"]["level_updates"]
    for symbol, expected in symbols.items():
        found = result["books"][f"IEX:{symbol}"]
        assert not found["stale"]
        for side in ("bids", "asks"):
            levels = [[float(price), float(size)] for price, size in expected["book"][side]]
            assert [list(level) for level in found[side]] == levels
