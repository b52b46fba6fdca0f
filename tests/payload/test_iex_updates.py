"""IEX messages into updates: what each says of its object, and what a gap leaves of a book."""

import math
import struct
from pathlib import Path
from typing import Any

import pytest

from lab.fuzz_venues import fuzz_venues
from tests.iex_feed import AT_NS, DEEP, TOPS, Feed, level, quote
from udpfast.core.layout import Kind, RecordFlag
from udpfast.payload.iex.layouts import LAYOUTS

MORE = 16
CHANGE = RecordFlag.UNGATED
WHOLE = RecordFlag.UNGATED | RecordFlag.SNAPSHOT
UNDEFINED, OPEN, PRE_OPEN, HALT = 0, 5, 2, 7


def begin(kind: str, flags: int, symbol: bytes = b"ZIEXT") -> bytes:
    return struct.pack("<cBq8s", kind.encode(), flags, AT_NS, symbol.ljust(8))


def more_level(side: str, price: int, size: int) -> bytes:
    return begin(side, 0) + struct.pack("<Iq", size, price)


def trade(price: int, size: int, number: int) -> bytes:
    return begin("T", 0) + struct.pack("<Iqq", size, price, number)


def status(said: str) -> bytes:
    return begin("H", ord(said)) + b"NA  "


def halt(said: str) -> bytes:
    return begin("O", ord(said))


@pytest.fixture
def deep(tmp_path: Path) -> Feed:
    return Feed(tmp_path, books={"top": False}, window={"lost_packet_wait_us": 1})


@pytest.fixture
def tops(tmp_path: Path) -> Feed:
    wire = {"payload": "iex_tops"}
    return Feed(tmp_path, wire=wire, window={"lost_packet_wait_us": 1})


def said(feed: Feed, data: bytes, protocol: int = DEEP) -> tuple[Any, Any]:
    """Return the record and the update of one message."""
    before = len(feed.updates)
    feed.send(data, protocol=protocol)
    ((record, update),) = feed.updates[before:]
    return record, update


def lose(feed: Feed) -> None:
    """Lose a message, and let the feed know."""
    feed.send(status("T"), lose=True)
    for _ in range(3):
        feed.send()
    assert feed.records[-1][0] is Kind.GAP


def test_quote_is_complete_and_has_the_times_of_both_clocks(tops: Feed) -> None:
    record, update = said(tops, quote(1_996_500, 1_997_000), TOPS)
    assert (record.kind, RecordFlag(record.flags)) == (Kind.TOP_OF_BOOK, WHOLE)
    header = update.header
    names = ("bid_price", "bid_quantity", "ask_price", "ask_quantity")
    assert [header[name] for name in names] == [199.65, 100, 199.7, 100]
    assert header["exchange_time_utc"] == AT_NS
    assert header["sending_time_utc"] == tops.sent
    assert header["exchange_sequence"] == 1
    assert (header["price_precision"], header["quantity_precision"]) == (5, 1)


def test_quote_without_a_side_has_no_price_there(tops: Feed) -> None:
    nothing = begin("Q", 0) + struct.pack("<IqqI", 0, 0, 1_997_000, 1000)
    _, update = said(tops, nothing, TOPS)
    assert math.isnan(update.header["bid_price"])
    assert (update.header["bid_quantity"], update.header["ask_price"]) == (0, 199.7)


def test_same_quote_is_told_again(tops: Feed) -> None:
    for _ in range(3):
        said(tops, quote(1, 2), TOPS)


@pytest.mark.parametrize("number", [1, 9, 10, 5_445_851, 2**63 - 1])
def test_trade_is_an_event_with_its_number_as_text(deep: Feed, number: int) -> None:
    record, update = said(deep, trade(367_000, 390, number))
    assert (record.kind, RecordFlag(record.flags)) == (Kind.TRADES, CHANGE)
    assert record.object & 1 << 30
    (row,) = update.rows
    assert (row["price"], row["quantity"], row["side"]) == (36.7, 390, 0)
    assert row["trade_id"].decode() == str(number)


def test_worked_message_of_the_venue_is_a_level(deep: Feed) -> None:
    data = bytes.fromhex("3801ff62f0b34aacb8145a4945585420202090010000b00b030000000000")
    _, update = said(deep, data)
    assert update.bids[["price", "quantity"]].tolist() == [(19.96, 400)]
    assert len(update.asks) == 0


def test_first_level_of_a_whole_session_is_the_book_and_others_change_it(deep: Feed) -> None:
    messages = [
        level("8", 199_600, 400),
        more_level("5", 199_700, 100),
        level("8", 199_500, 300),
        level("8", 199_600, 0),
    ]
    found = [said(deep, one) for one in messages]
    assert [RecordFlag(record.flags) for record, _ in found] == [WHOLE, *[CHANGE] * 3]
    assert [int(update.header["present"]) & MORE for _, update in found] == [0, MORE, 0, 0]
    assert deep.book() == ([[19.95, 300]], [[19.97, 100]], False)


def test_best_prices_are_told_when_their_event_is_complete(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.send(more_level("8", 199_600, 400), more_level("5", 199_500, 100))
    assert Kind.TOP_OF_BOOK not in [record.kind for record, _ in feed.updates]
    feed.send(level("8", 199_600, 0))
    tops = [update for record, update in feed.updates if record.kind is Kind.TOP_OF_BOOK]
    assert [(one.header["bid_quantity"], one.header["ask_price"]) for one in tops] == [(0, 19.95)]


def test_status_before_the_first_level_begins_no_book(deep: Feed) -> None:
    record, _ = said(deep, status("T"))
    assert record.kind is Kind.MARKET_STATUS
    record, _ = said(deep, level("8", 199_600, 400))
    assert RecordFlag(record.flags) == WHOLE


def test_removal_in_an_empty_book_is_told_and_leaves_it_empty(deep: Feed) -> None:
    record, update = said(deep, level("5", 199_600, 0))
    assert RecordFlag(record.flags) == WHOLE
    assert update.asks[["price", "quantity"]].tolist() == [(19.96, 0)]
    assert deep.book() == ([], [], False)


def test_levels_behind_a_gap_are_told_and_stay_in_doubt(deep: Feed) -> None:
    said(deep, level("8", 199_600, 400))
    lose(deep)
    for price in (199_500, 199_400):
        record, update = said(deep, level("8", price, 100))
        assert RecordFlag(record.flags) == CHANGE | RecordFlag.DOUBT
        assert len(update.bids) == 1
    record, _ = said(deep, level("5", 199_900, 0))  # of a level that nobody saw
    assert RecordFlag(record.flags) == CHANGE | RecordFlag.DOUBT
    assert deep.book() == ([[19.96, 400], [19.95, 100], [19.94, 100]], [], True)
    record, _ = said(deep, level("8", 1, 1, b"NEW"))
    assert RecordFlag(record.flags) == CHANGE | RecordFlag.DOUBT
    assert deep.books["IEX", "NEW"].stale


def test_status_says_that_a_symbol_trades_once_both_were_heard(deep: Feed) -> None:
    def trading(data: bytes) -> int:
        record, update = said(deep, data)
        assert (record.kind, RecordFlag(record.flags)) == (Kind.MARKET_STATUS, WHOLE)
        assert record.object & 1 << 31
        return int(update.header["trading_status"])

    assert trading(status("T")) == UNDEFINED
    assert trading(halt("N")) == OPEN
    assert trading(halt("O")) == HALT
    assert trading(status("P")) == HALT
    assert trading(halt("N")) == PRE_OPEN
    assert trading(status("?")) == UNDEFINED
    lose(deep)
    assert trading(status("T")) == UNDEFINED
    assert trading(status("H")) == HALT
    assert trading(halt("N")) == HALT


def test_gap_of_one_protocol_leaves_books_of_another_alone(tmp_path: Path) -> None:
    feed = Feed(tmp_path, window={"lost_packet_wait_us": 1})
    feed.send(level("8", 199_600, 400))
    # TOPS comes on the same lines, in a stream of its own.
    numbers = feed.number, feed.offset
    feed.number, feed.offset = 1, 0
    feed.send(quote(1, 2), level("8", 1, 1), protocol=TOPS)
    feed.send(quote(1, 3), protocol=TOPS, lose=True)
    for _ in range(3):
        feed.send(quote(1, 4), protocol=TOPS)
    assert Kind.GAP in [one[0] for one in feed.records]
    feed.number, feed.offset = numbers
    assert feed.book() == ([[19.96, 400]], [], False)
    feed.send(level("8", 199_500, 100))
    assert feed.book() == ([[19.96, 400], [19.95, 100]], [], False)
    assert {record.stream for record, _ in feed.updates} == {feed.updates[0][0].stream}


@pytest.mark.parametrize("payload", ["iex_deep", "iex_tops"])
def test_messages_are_used_whole_or_refused(tmp_path: Path, payload: str) -> None:
    protocol = DEEP if payload == "iex_deep" else TOPS
    feed = Feed(tmp_path, wire={"payload": payload}, books={"top": False})
    for count, kind in enumerate(LAYOUTS, 1):
        rest = bytearray(LAYOUTS[kind].dtype.itemsize - 1)
        rest[9:17] = b"ZIEXT   "[: len(rest) - 9]
        whole = kind.encode() + bytes(rest)
        before = len(feed.records)
        feed.send(whole, whole + b"later", protocol=protocol)
        kinds = [one[0] for one in feed.records[before:] if one[0] is not Kind.SESSION]
        updated = kind in ("THO85" if payload == "iex_deep" else "THOQ")
        assert len(kinds) == 2
        assert (Kind.MESSAGE not in kinds) == updated, kind
        feed.send(whole[:-1], protocol=protocol)
        assert feed.counter("decode_refused") == count


def test_unknown_types_are_left_as_published(deep: Feed) -> None:
    deep.send(b"z123")
    assert deep.records[-1][0] is Kind.MESSAGE
    assert deep.counter("types_unknown") == 1


def test_symbol_without_room_in_the_name_table_is_said_to_lack_a_name(tmp_path: Path) -> None:
    feed = Feed(tmp_path, ring={"names": 16}, books={"top": False})
    feed.send(*[level("8", 1, 1, f"NAME{number}".encode()) for number in range(15)])
    assert feed.counter("names_full") == 0
    feed.send(trade(1, 1, 1))
    assert feed.records[-1][1] == CHANGE | RecordFlag.TRUNCATED
    feed.send(level("8", 1, 1))
    assert feed.records[-1][0] is Kind.MESSAGE  # no book of it is told
    assert feed.counter("names_full") > 0


def test_symbols_of_eight_characters_are_names(deep: Feed) -> None:
    found = [said(deep, level("8", 1, 1, symbol))[0] for symbol in (b"ABCDEFGH", b"A B")]
    assert [record.symbol for record in found] == ["ABCDEFGH", "A B"]
    assert {record.exchange for record in found} == {"IEX"}


@pytest.mark.parametrize("seed", range(2))
def test_messages_of_no_venue_are_read_within_their_ends(seed: int) -> None:
    found = fuzz_venues(seed, 3_000)
    assert min(found.values()) > 0
