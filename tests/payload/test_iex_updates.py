"""IEX messages into updates: what each says of its object, and what a gap leaves of a book."""

import math
import struct

import pytest

from lab.fuzz_iex import fuzz_iex
from udpfast.core.layout import Kind, RecordFlag
from udpfast.market.book import OrderBook
from udpfast.market.found import Outcome
from udpfast.market.names import NameTable
from udpfast.market.updates import view_update
from udpfast.payload.iex.layouts import LAYOUTS
from udpfast.payload.iex.updates import IexDecoder

AT_NS = 1_493_149_012_263_502_175
MORE = 16
CHANGE = RecordFlag.UNGATED
WHOLE = RecordFlag.UNGATED | RecordFlag.SNAPSHOT
UNDEFINED, OPEN, PRE_OPEN, HALT = 0, 5, 2, 7


def begin(kind: str, flags: int, symbol: bytes = b"ZIEXT") -> bytes:
    return struct.pack("<cBq8s", kind.encode(), flags, AT_NS, symbol.ljust(8))


def level(side: str, price: int, size: int, flags: int = 1, symbol: bytes = b"ZIEXT") -> bytes:
    return begin(side, flags, symbol) + struct.pack("<Iq", size, price)


def quote(bid: int, bid_size: int, ask: int, ask_size: int) -> bytes:
    return begin("Q", 0) + struct.pack("<IqqI", bid_size, bid, ask, ask_size)


def trade(price: int, size: int, number: int) -> bytes:
    return begin("T", 0) + struct.pack("<Iqq", size, price, number)


def status(said: str, symbol: bytes = b"ZIEXT") -> bytes:
    return begin("H", ord(said), symbol) + b"NA  "


def halt(said: str) -> bytes:
    return begin("O", ord(said))


@pytest.fixture
def deep() -> IexDecoder:
    return IexDecoder(NameTable(capacity=8), deep=True)


@pytest.fixture
def tops() -> IexDecoder:
    return IexDecoder(NameTable(capacity=8), deep=False)


def test_quote_is_complete_and_has_the_times_of_both_clocks(tops: IexDecoder) -> None:
    found = tops.decode(quote(1_996_500, 9700, 1_997_000, 1000), number=7, sent_ns=AT_NS + 5)
    assert (found.kind, found.flags) == (Kind.TOP_OF_BOOK, WHOLE)
    assert found.object == found.symbol_id
    header = view_update(found.kind, found.payload).header
    names = ("bid_price", "bid_quantity", "ask_price", "ask_quantity")
    assert [header[name] for name in names] == [199.65, 9700, 199.7, 1000]
    assert header["exchange_time_utc"] == AT_NS
    assert header["sending_time_utc"] == AT_NS + 5
    assert header["exchange_sequence"] == 7
    assert (header["price_precision"], header["quantity_precision"]) == (5, 1)


def test_quote_without_a_side_has_no_price_there(tops: IexDecoder) -> None:
    found = tops.decode(quote(0, 0, 1_997_000, 1000))
    header = view_update(found.kind, found.payload).header
    assert math.isnan(header["bid_price"])
    assert (header["bid_quantity"], header["ask_price"]) == (0, 199.7)


@pytest.mark.parametrize("number", [0, 1, 9, 10, 5_445_851, 2**63 - 1, -1, -(2**63)])
def test_trade_is_an_event_with_its_number_as_text(deep: IexDecoder, number: int) -> None:
    found = deep.decode(trade(367_000, 390, number))
    assert (found.kind, found.flags) == (Kind.TRADES, CHANGE)
    assert found.object == found.symbol_id | 1 << 30
    (row,) = view_update(found.kind, found.payload).rows
    assert (row["price"], row["quantity"], row["side"]) == (36.7, 390, 0)
    assert row["trade_id"].decode() == str(number)


def test_worked_message_of_the_venue_is_a_level() -> None:
    decoder = IexDecoder(NameTable(capacity=8), deep=True)
    data = bytes.fromhex("3801ff62f0b34aacb8145a4945585420202090010000b00b030000000000")
    found = decoder.decode(data)
    update = view_update(found.kind, found.payload)
    assert update.bids[["price", "quantity"]].tolist() == [(19.96, 400)]
    assert (found.flags, len(update.asks)) == (CHANGE, 0)


def test_first_level_of_a_whole_session_is_the_book_and_others_change_it(deep: IexDecoder) -> None:
    deep.session(1)
    book = OrderBook()
    found = [
        deep.decode(level("8", 199_600, 400)),
        deep.decode(level("5", 199_700, 100, flags=0)),
        deep.decode(level("8", 199_500, 300)),
        deep.decode(level("8", 199_600, 0)),
    ]
    assert [one.flags for one in found] == [WHOLE, *[CHANGE] * 3]
    more = [int(view_update(one.kind, one.payload).header["present"]) & MORE for one in found]
    assert more == [0, MORE, 0, 0]
    for one in found:
        book.apply(one.payload)
    assert book.bids().tolist() == [[19.95, 300]]
    assert book.asks().tolist() == [[19.97, 100]]


def test_removal_in_an_empty_book_leaves_it_empty(deep: IexDecoder) -> None:
    deep.session(1)
    found = deep.decode(level("5", 199_600, 0))
    book = OrderBook()
    book.apply(found.payload)
    assert found.flags == WHOLE
    assert (book.levels, book.removals_unknown) == ((0, 0), 1)


@pytest.mark.parametrize(("first", "unseen"), [(2, 0), (1, 3), (0, 0), (500, 499)])
def test_session_that_was_not_seen_from_its_beginning_has_no_whole_book(
    deep: IexDecoder, first: int, unseen: int
) -> None:
    deep.session(first, unseen)
    assert deep.decode(level("8", 199_600, 400)).flags == CHANGE


def test_no_book_is_whole_behind_a_gap_until_the_next_session(deep: IexDecoder) -> None:
    deep.session(1)
    assert deep.decode(level("8", 1, 1)).flags == WHOLE
    deep.gap()
    assert deep.decode(level("8", 1, 1)).flags == CHANGE
    assert deep.decode(level("8", 1, 1, symbol=b"NEW")).flags == CHANGE
    deep.session(1)
    assert deep.decode(level("8", 1, 1)).flags == WHOLE
    assert deep.decode(level("8", 2, 1)).flags == CHANGE


def test_gap_of_another_stream_touches_nothing(deep: IexDecoder) -> None:
    deep.session(1, stream=2)
    deep.session(1, stream=3)
    deep.gap(stream=3)
    assert deep.decode(level("8", 1, 1), stream=2).flags == WHOLE
    assert deep.decode(level("8", 1, 1, symbol=b"B"), stream=3).flags == CHANGE


def test_book_that_two_streams_have_is_begun_by_one_alone(deep: IexDecoder) -> None:
    deep.session(1, stream=2)
    deep.session(1, stream=3)
    flags = [deep.decode(level("8", 1, 1), stream=stream).flags for stream in (2, 3, 2, 3)]
    assert flags == [WHOLE, *[CHANGE] * 3]


@pytest.mark.parametrize("stream", [64, 65_535])
def test_streams_beyond_the_table_are_never_whole(deep: IexDecoder, stream: int) -> None:
    deep.session(1, stream=stream)
    deep.gap(stream=stream)
    assert deep.decode(level("8", 1, 1), stream=stream).flags == CHANGE


def said(decoder: IexDecoder, data: bytes, stream: int = 0) -> int:
    found = decoder.decode(data, stream=stream)
    assert (found.kind, found.flags) == (Kind.MARKET_STATUS, WHOLE)
    assert found.object == found.symbol_id | 1 << 31
    return int(view_update(found.kind, found.payload).header["trading_status"])


def test_status_says_that_a_symbol_trades_once_both_were_heard(deep: IexDecoder) -> None:
    deep.session(1)
    assert said(deep, status("T")) == UNDEFINED
    assert said(deep, halt("N")) == OPEN
    assert said(deep, halt("O")) == HALT
    assert said(deep, status("P")) == HALT
    assert said(deep, halt("N")) == PRE_OPEN
    assert said(deep, status("?")) == UNDEFINED
    deep.gap()
    assert said(deep, status("T")) == UNDEFINED
    assert said(deep, status("H")) == HALT
    assert said(deep, halt("N")) == HALT


def test_one_halt_is_enough_to_say_so(deep: IexDecoder) -> None:
    deep.session(500)
    assert said(deep, halt("O")) == HALT
    assert said(deep, halt("N")) == UNDEFINED
    assert said(deep, status("H")) == HALT


@pytest.mark.parametrize("stream", [64, 65_535])
def test_statuses_of_streams_beyond_the_table_are_never_taken_together(
    deep: IexDecoder, stream: int
) -> None:
    deep.session(1, stream=stream)
    assert said(deep, halt("N"), stream) == UNDEFINED
    assert said(deep, status("T"), stream) == UNDEFINED
    assert said(deep, status("H"), stream) == HALT


def test_symbol_without_room_in_the_name_table_is_said_to_lack_a_name() -> None:
    decoder = IexDecoder(NameTable(capacity=2), deep=True)
    decoder.session(1)
    assert decoder.decode(level("8", 1, 1)).flags == WHOLE
    for data in (level("8", 1, 1, symbol=b"B"), status("T", b"B")):
        found = decoder.decode(data)
        assert found.symbol_id == 0
        assert found.flags == CHANGE | RecordFlag.TRUNCATED


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("books", [False, True])
def test_message_is_used_whole_or_refused(kind: str, books: bool) -> None:
    decoder = IexDecoder(NameTable(capacity=8), deep=books)
    size = LAYOUTS[kind].dtype.itemsize
    whole = kind.encode() + bytes(size - 1)
    for short in range(1, size):
        assert decoder.decode(whole[:short]).kind is Outcome.REFUSED
    updated = kind in ("THO85" if books else "THOQ")
    found = decoder.decode(whole)
    assert isinstance(found.kind, Kind) if updated else found.kind is Outcome.OPAQUE
    assert decoder.decode(whole + b"later")[:1] == found[:1]


def test_unknown_types_are_left_as_published_and_no_bytes_are_refused(deep: IexDecoder) -> None:
    assert deep.decode(b"z123").kind is Outcome.UNKNOWN
    assert deep.decode(b"").kind is Outcome.REFUSED


@pytest.mark.parametrize("room", [0, 95, 96, 127])
def test_update_without_room_is_not_written(deep: IexDecoder, room: int) -> None:
    deep.session(1)
    assert deep.decode(level("8", 1, 1), room=room).kind is Outcome.ROOM
    assert deep.decode(level("8", 1, 1), room=128).flags == WHOLE


def test_symbols_of_blanks_and_of_eight_characters_are_names() -> None:
    names = NameTable(capacity=8)
    decoder = IexDecoder(names, deep=True)
    found = [decoder.decode(level("8", 1, 1, symbol=one)) for one in (b"", b"ABCDEFGH", b"A B")]
    assert [names[one.symbol_id] for one in found] == ["", "ABCDEFGH", "A B"]
    assert {names[one.exchange_id] for one in found} == {"IEX"}


@pytest.mark.parametrize("seed", range(6))
def test_damaged_messages_are_what_a_slow_model_says(seed: int) -> None:
    found = fuzz_iex(seed, 2_000)
    assert found["book" if seed % 2 == 0 else "top_of_book"] > 50
