"""Encoders: what they write decodes to what was given, and the official runtime reads it."""

import math
import struct

import flatbuffers
import numpy as np
import pytest
from flatbuffers import number_types as types
from flatbuffers.table import Table
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.payload.roq import golden
from udpfast.core.layout import Kind
from udpfast.errors import FormatError, RangeError
from udpfast.market.names import NameTable
from udpfast.market.updates import LEVEL, ROW_DTYPES, TRADE, UPDATE_DTYPES, view_update
from udpfast.payload.roq import encode
from udpfast.payload.roq.decode import decode
from udpfast.payload.roq.encode import SourceInfo
from udpfast.payload.roq.event import MESSAGE_NAMES, encode_event, event_to_dict, update_to_dict
from udpfast.payload.roq.flatbuffer import verify

SOURCE = SourceInfo(11, 12, 13, 14, 15)
NAMES = st.one_of(st.none(), st.text(max_size=20))
FLOATS = st.floats(width=64, allow_nan=False)
TIMES = st.integers(-(1 << 63), (1 << 63) - 1)
BYTES = st.integers(0, 255)


def decoded(payload) -> dict:
    names = NameTable()
    result = decode(payload, names)
    return update_to_dict(result.kind, result.payload, names)


def columns(dtype: np.dtype) -> st.SearchStrategy[dict]:
    """Return values for the number fields of a struct, often their defaults."""
    values = {}
    for name, (type_, _) in dtype.fields.items():
        if name in ("present", "row_count", "bid_count", "ask_count", "reserved", "reserved2"):
            continue
        if type_.kind == "f":
            values[name] = st.one_of(st.just(0.0), st.just(math.nan), FLOATS)
        elif type_.kind in "ui" and not name.endswith("_id"):
            info = np.iinfo(type_)
            values[name] = st.one_of(st.just(0), st.integers(int(info.min), int(info.max)))
    return st.fixed_dictionaries(values)


@st.composite
def updates(draw, kind: Kind) -> tuple[bytes, NameTable]:
    """Return a random update of one kind, laid out as decode does."""
    names = NameTable(capacity=8)
    header = np.zeros(1, UPDATE_DTYPES[kind])
    for name, value in draw(columns(UPDATE_DTYPES[kind])).items():
        header[name] = value
    if kind is not Kind.BOOK:
        header["max_depth"] = 0
    if kind is Kind.TRADES:
        header["update_type"] = 0
    for name in ("exchange", "symbol"):
        text = draw(NAMES)
        header[f"{name}_id"] = 0 if text is None else names.intern(text)
    header["stream_id"] = draw(st.integers(0, 65535))
    present = draw(st.integers(0, 15))
    keep = {Kind.BOOK: 7, Kind.TRADES: 3, Kind.TOP_OF_BOOK: 9}[kind]
    header["present"] = present & keep
    if not present & 1:
        for field in ("seqno", "send_time_utc", "create_time_utc", "send_time", "create_time"):
            header[f"source_{field}"] = 0
    if kind is Kind.TOP_OF_BOOK and not present & 8:
        for side in ("bid", "ask"):
            header[f"{side}_price"], header[f"{side}_quantity"] = math.nan, 0
    if kind is Kind.TOP_OF_BOOK:
        return header.tobytes(), names
    counts = [draw(st.integers(0, 6)) if present & bit else 0 for bit in (2, 4)]
    if kind is Kind.BOOK:
        header["bid_count"], header["ask_count"] = counts
    else:
        counts[1] = 0
    rows = np.zeros(sum(counts), ROW_DTYPES[kind])
    header["row_count"] = len(rows)
    for row in rows:
        for name, value in draw(columns(ROW_DTYPES[kind])).items():
            row[name] = value
        if kind is Kind.TRADES:
            for bit, name in enumerate(("trade_id", "taker_order_id", "maker_order_id")):
                text = draw(st.one_of(st.none(), st.text("aé9", max_size=12)))
                row[name] = (text or "").encode()
                row["present"] |= 0 if text is None else 1 << bit
    return header.tobytes() + rows.tobytes(), names


@settings(max_examples=30, deadline=None)
@pytest.mark.parametrize("kind", [Kind.BOOK, Kind.TOP_OF_BOOK, Kind.TRADES])
@given(st.data())
def test_update_encoded_and_decoded_is_the_same_bytes(kind, data):
    update, names = data.draw(updates(kind))
    payload = encode.encode_update(kind, update, names)
    assert verify(payload)[1] == 0
    result = decode(payload, names)
    assert result.kind is kind
    expected, found = view_update(kind, update), view_update(kind, result.payload)
    # NaN of any bits is NaN; all else is compared as bytes.
    for before, after in ((expected.header, found.header), (expected.rows, found.rows)):
        for name in before.dtype.names:
            np.testing.assert_array_equal(after[name], before[name], err_msg=name)


def test_every_golden_update_encoded_again_decodes_to_the_same_bytes():
    names = NameTable()
    seen = set()
    for case in golden.payloads() + golden.random_payloads():
        result = decode(bytes.fromhex(case["hex"]), names)
        if result.kind > 0 and not result.truncated:
            seen.add(result.kind)
            payload = encode.encode_update(result.kind, result.payload, names)
            again = decode(payload, names, support_mask=(1 << 64) - 1)
            assert (again.kind, again.payload) == (result.kind, result.payload) or (
                result.kind is Kind.GATEWAY_STATUS
            )
    assert seen == set(MESSAGE_NAMES)


def test_update_that_no_event_carries_is_refused(monkeypatch):
    monkeypatch.delitem(MESSAGE_NAMES, Kind.MARKET_STATUS)
    update = bytes(UPDATE_DTYPES[Kind.MARKET_STATUS].itemsize)
    with pytest.raises(FormatError, match="no event of the schema carries MARKET_STATUS"):
        encode.encode_update(Kind.MARKET_STATUS, update, NameTable())


LEVELS = [(101.5, 2.0), (101.0, 0.0)]


def test_book_of_tuples_arrays_and_rows_encode_alike():
    rows = np.zeros(2, LEVEL)
    rows["price"], rows["quantity"] = [101.5, 101.0], [2.0, 0.0]
    forms = [LEVELS, np.array(LEVELS), np.array(LEVELS)[::-1][::-1], rows]
    payloads = [encode.encode_book("e", "s", bids=form) for form in forms]
    assert all(payload == payloads[0] for payload in payloads)
    value = decoded(payloads[0])["value"]
    assert [(level["price"], level["quantity"]) for level in value["bids"]] == LEVELS
    assert value["asks"] is None


def test_book_fields_reach_the_decoder():
    payload = encode.encode_book(
        "e", b"s", bids=[], asks=[(1, 2)], update_type=1, stream_id=2, exchange_time_utc=-3,
        exchange_sequence=4, sending_time_utc=5, price_precision=6, quantity_precision=7,
        max_depth=8, source=SOURCE,
    )  # fmt: skip
    event = decoded(payload)
    value = event["value"]
    assert event["source_info"] == SOURCE._asdict()
    assert value["bids"] == []
    assert value["asks"][0]["quantity"] == 2
    assert [value[name] for name in (
        "exchange", "symbol", "update_type", "stream_id", "exchange_time_utc",
        "exchange_sequence", "sending_time_utc", "price_precision", "quantity_precision",
        "max_depth")] == ["e", "s", 1, 2, -3, 4, 5, 6, 7, 8]  # fmt: skip


def test_top_of_book_and_trades_reach_the_decoder():
    value = decoded(encode.encode_top_of_book(None, "s", 1.5, 2, ask_quantity=3))["value"]
    assert value["layer"] == {
        "bid_price": 1.5, "bid_quantity": 2.0, "ask_price": "nan", "ask_quantity": 3.0,
    }  # fmt: skip
    assert value["exchange"] is None
    trades = [(1, 5.0, 6.0, "id", None, b""), (2, 7.0, 8.0)]
    value = decoded(encode.encode_trades("e", "s", trades))["value"]
    assert [tuple(trade.values()) for trade in value["trades"]] == [
        (1, 5.0, 6.0, "id", None, ""), (2, 7.0, 8.0, None, None, None),
    ]  # fmt: skip
    rows = np.zeros(2, TRADE)
    rows["side"], rows["price"], rows["quantity"] = [1, 2], [5, 7], [6, 8]
    rows["trade_id"], rows["present"] = [b"id", b""], [1, 0]
    rows["present"][0] |= 4
    assert encode.encode_trades("e", "s", rows) == encode.encode_trades("e", "s", trades)


def test_official_runtime_reads_what_we_write():
    payload = encode.encode_book("exchange", "symbol", bids=LEVELS, source=SOURCE, max_depth=9)
    root = flatbuffers.encode.Get(flatbuffers.packer.uoffset, payload, 0)
    event = Table(payload, root)
    assert event.Get(types.Uint8Flags, root + event.Offset(6)) == 16
    source = Table(payload, event.Indirect(root + event.Offset(4)))
    assert source.Get(types.Uint64Flags, source.Pos + source.Offset(6)) == 12
    book = Table(payload, event.Indirect(root + event.Offset(8)))
    assert book.String(book.Pos + book.Offset(6)) == b"exchange"
    assert book.Get(types.Uint16Flags, book.Pos + book.Offset(24)) == 9
    bids = book.Vector(book.Offset(10))
    assert book.VectorLen(book.Offset(10)) == 2
    level = Table(payload, book.Indirect(bids))
    assert level.Get(types.Float64Flags, level.Pos + level.Offset(4)) == 101.5
    assert book.Offset(12) == 0


def test_payload_aligns_every_number_as_the_format_asks():
    payload = encode.encode_book("e", "s", bids=LEVELS, exchange_time_utc=1 << 40)
    assert len(payload) % 8 == 0
    for value in (101.5, 101.0, 2.0):
        assert payload.index(struct.pack("<d", value)) % 8 == 0
    assert payload.index(struct.pack("<q", 1 << 40)) % 8 == 0


def test_payload_is_hardly_larger_than_that_of_flatc():
    """The stamps have fixed places and are always there: 40 bytes. All else is as compact."""
    names = NameTable()
    sizes = []
    for case in golden.payloads():
        result = decode(bytes.fromhex(case["hex"]), names)
        fast = result.kind in (Kind.BOOK, Kind.TRADES, Kind.TOP_OF_BOOK)
        if fast and case["expect"]["source_info"] is not None:
            ours = encode.encode_update(result.kind, result.payload, names)
            sizes.append((case["length"], len(ours)))
    assert len(sizes) > 8
    assert all(ours <= theirs + 40 for theirs, ours in sizes), sizes


def test_stamp_sets_both_send_times_of_any_encoder():
    for payload in (
        encode.encode_trades("e", "s", [], source=SOURCE),
        bytearray(encode_event(decoded(encode.encode_trades("e", "s", [], source=SOURCE)))),
    ):
        assert encode.stamp(payload, 1 << 63, 7)
        found = event_to_dict(payload)["source_info"]
        assert found == {**SOURCE._asdict(), "send_time_utc": 1 << 63, "send_time": 7}


def test_stamp_without_fields_leaves_the_payload_alone():
    payload = encode.encode_top_of_book("e", "s", source=None)
    before = bytes(payload)
    assert event_to_dict(payload)["source_info"] is None
    assert not encode.stamp(payload, 1, 2)
    assert payload == before
    with pytest.raises(FormatError):
        encode.stamp(bytearray(20), 1, 2)


def test_wrong_shapes_ids_and_sizes_are_refused():
    with pytest.raises(ValueError, match=r"\(n, 2\)"):
        encode.encode_book("e", "s", bids=np.zeros((3, 3)))
    with pytest.raises(ValueError, match="at most 40 bytes"):
        encode.encode_trades("e", "s", [(1, 1.0, 1.0, "x" * 41)])
    with pytest.raises(ValueError, match="131072"):
        encode.encode_book("e", "s", bids=np.ones((6000, 2)))
    with pytest.raises(ValueError, match="message of the schema"):
        encode_event({"value_name": "Nothing", "value": {}})
    with pytest.raises(ValueError, match="no field 'colour'"):
        encode_event({"value_name": "TopOfBook", "value": {"colour": 1}})


def test_update_whose_counts_disagree_is_refused():
    header = np.zeros(1, UPDATE_DTYPES[Kind.BOOK])
    header["bid_count"] = 5
    with pytest.raises(FormatError, match="row_count"):
        encode.encode_update(Kind.BOOK, header.tobytes(), NameTable())


U8, U16, U64 = (0, 2**8 - 1), (0, 2**16 - 1), (0, 2**64 - 1)
I64 = (-(2**63), 2**63 - 1)
COMMON = {
    "stream_id": U16,
    "exchange_time_utc": I64,
    "exchange_sequence": U64,
    "sending_time_utc": I64,
    "price_precision": U8,
    "quantity_precision": U8,
}


@pytest.mark.parametrize(
    ("encoder", "bounds"),
    [
        (
            lambda **k: encode.encode_book("e", "s", **k),
            COMMON | {"update_type": U8, "max_depth": U16},
        ),
        (lambda **k: encode.encode_top_of_book("e", "s", **k), COMMON | {"update_type": U8}),
        (lambda **k: encode.encode_trades("e", "s", [], **k), COMMON),
    ],
    ids=["book", "top of book", "trades"],
)
def test_number_beyond_its_field_is_a_range_error_and_at_its_edge_is_kept(encoder, bounds):
    for name, (low, high) in bounds.items():
        for edge in (low, high):
            assert decoded(encoder(**{name: edge}))["value"][name] == edge
        for beyond in (low - 1, high + 1, 1 << 80):
            with pytest.raises(RangeError, match=f"{name} must be {low} to {high}, was {beyond}"):
                encoder(**{name: beyond})


def test_number_of_a_row_a_stamp_or_any_event_beyond_its_field_is_a_range_error():
    with pytest.raises(RangeError, match="side must be 0 to 255, was 256"):
        encode.encode_trades("e", "s", [(256, 1.0, 1.0)])
    with pytest.raises(RangeError, match="send_time_utc must be 0 to"):
        encode.encode_book("e", "s", source=encode.SourceInfo(send_time_utc=-1))
    with pytest.raises(RangeError, match=r"MarketStatus.stream_id must be 0 to 65535, was 70000"):
        encode_event({"value_name": "MarketStatus", "value": {"stream_id": 70_000}})
    wide = np.zeros(1, [("price", "f8"), ("quantity", "f8"), ("number_of_orders", "i8")])
    with pytest.raises(ValueError, match="dtype LEVEL"):
        encode.encode_book("e", "s", bids=wide)
