"""A feed of IEX messages: updates in the ring, books from them, and doubt behind losses."""

import json
from pathlib import Path

import pytest

from tests.iex_feed import TOPS, Feed, level, quote, trade
from tests.shared import shared
from udpfast.cli.replay_datagrams import Description, replay_datagrams
from udpfast.config import parse_feed
from udpfast.core.layout import Kind, RecordFlag
from udpfast.errors import ConfigError


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path)


def test_levels_are_books_and_trades_are_trades(feed: Feed) -> None:
    feed.send(level("8", 199_600, 400), level("5", 199_700, 100))
    feed.send(trade(199_700), b"S" + bytes(9), level("8", 199_500, 300))
    assert feed.book() == ([[19.96, 400], [19.95, 300]], [[19.97, 100]], False)
    assert [one[0] for one in feed.records] == [
        *(Kind.SESSION, Kind.BOOK, Kind.TOP_OF_BOOK, Kind.BOOK, Kind.TOP_OF_BOOK, Kind.TRADES),
        *(Kind.MESSAGE, Kind.BOOK),  # the last level is not the best
    ]
    assert [one[2] for one in feed.records[1:]] == [1, 1, 2, 2, 3, 4, 5]
    assert feed.records[1][1] == RecordFlag.SNAPSHOT | RecordFlag.UNGATED
    assert feed.counter("updates") == 6
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
    feed = Feed(tmp_path, ring={"carry": carry}, books={"top": False})
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
    result = replay_datagrams(path, Description(framing="iex_tp", payload="iex_deep"))
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
