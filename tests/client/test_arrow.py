"""Batches in Arrow: through the capsules, in pyarrow, polars and pandas."""

import gc
import sys
from typing import Any

import numpy as np
import pytest

from tests.client.instance import Instance
from udpfast import Batch, FormatError, Kind, Reader
from udpfast.core.layout import (
    CONTROL_DTYPES,
    GapReason,
    ObjectStatus,
    ObjectWait,
    RecordFlag,
)
from udpfast.market.updates import (
    REFERENCE_DATA,
    ROW_DTYPES,
    TOP_OF_BOOK,
    TRADES,
    UPDATE_DTYPES,
)
from udpfast.market.words import CONTROL_WORDS, UPDATE_WORDS

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def batch(instance: Instance) -> Batch:
    """Return a copy of a batch with a record of each kind that has columns of its own."""
    instance.top(1.5, 2.5, "BTC")
    instance.book([(10.0, 1.0), (9.0, 2.0)], [(11.0, 3.0)], "ETH", snapshot=True)
    instance.append(Kind.GAP, bytes(CONTROL_DTYPES[Kind.GAP].itemsize))
    instance.append(Kind.MESSAGE, b"raw bytes")
    instance.top(3.5, 4.5, "ETH")
    instance.book([], [(11.0, 0.0)], "ETH")
    reference = instance.update(REFERENCE_DATA, "binance-usdm", "BTC", description="Bitcoin, perp")
    instance.append(Kind.REFERENCE_DATA, reference.tobytes())
    with Reader(instance.address, start="begin") as reader:
        return reader.poll().copy()


def _read(instance: Instance) -> Batch:
    with Reader(instance.address, start="begin") as reader:
        return reader.poll(timeout=0).copy()


def test_records_carry_headers_names_and_payloads(batch: Batch) -> None:
    table = pa.table(batch)
    table.validate(full=True)
    assert table.num_rows == len(batch) == 7
    assert table["kind"].to_pylist() == [Kind(kind).name for kind in batch.headers["kind"]]
    assert table["symbol"].to_pylist() == ["BTC", "ETH", None, None, "ETH", "ETH", "BTC"]
    assert table["exchange"].null_count == 2
    for name in ("index", "position", "number", "flags", "object"):
        assert table[name].to_pylist() == batch.headers[name].tolist()
    assert table["payload"].to_pylist() == [bytes(batch.payload(i)) for i in range(7)]
    received_ns = batch.headers["received_ns"]
    assert table["received_ns"].type == pa.int64()
    assert table["received_ns"].to_pylist() == received_ns.tolist()
    assert table["received_at"].type == pa.timestamp("us", "UTC")
    assert table["received_at"].cast(pa.int64()).to_pylist() == (received_ns // 1000).tolist()


def test_updates_of_one_kind_have_a_column_per_field(batch: Batch) -> None:
    table = pa.table(batch.table(Kind.TOP_OF_BOOK))
    table.validate(full=True)
    selected = batch.select(Kind.TOP_OF_BOOK)
    for name in ("bid_price", "bid_quantity", "ask_price", "ask_quantity", "present"):
        assert table[name].to_pylist() == selected[name].tolist()
    assert table["symbol"].to_pylist() == ["BTC", "ETH"]
    assert table["index"].to_pylist() == [0, 4]
    assert not [name for name in table.column_names if name.startswith("reserved")]
    assert table.column_names == batch.table(Kind.TOP_OF_BOOK).column_names


def test_rows_are_lists_of_structs(batch: Batch) -> None:
    rows = pa.table(batch.table(Kind.BOOK))["rows"].to_pylist()
    assert [[(row["price"], row["quantity"]) for row in levels] for levels in rows] == [
        [(10.0, 1.0), (9.0, 2.0), (11.0, 3.0)],
        [(11.0, 0.0)],
    ]


def test_texts_are_strings(batch: Batch) -> None:
    table = pa.table(batch.table(Kind.REFERENCE_DATA))
    table.validate(full=True)
    assert table["description"].to_pylist() == ["Bitcoin, perp"]
    assert table["quote_currency"].to_pylist() == [None]


def test_text_that_is_no_utf8_is_replaced(instance: Instance) -> None:
    cut = "é鍵".encode()[:-1]  # the last character is cut, as by a field that is too short
    reference = instance.update(REFERENCE_DATA, "binance-usdm", "BTC")
    reference["description"] = cut
    instance.append(Kind.REFERENCE_DATA, reference.tobytes())
    with Reader(instance.address, start="begin") as reader:
        table = pa.table(reader.poll().table(Kind.REFERENCE_DATA))
    table.validate(full=True)
    assert table["description"].to_pylist() == ["é\ufffd"]


def test_unit_of_every_time_is_in_its_name(instance: Instance) -> None:
    """In ns; `received_at` alone is a timestamp; days and seconds are those of the layout."""
    for kind in UPDATE_DTYPES:
        table = pa.table(_read(instance).table(kind))
        fields = list(table.schema)
        if kind in ROW_DTYPES and "rows" in table.column_names:
            fields += list(table.schema.field("rows").type.value_type)
        for field in fields:
            if field.name.endswith(("_ns", "_time", "_s")):
                assert field.type == pa.int64(), field
            assert not field.name.endswith("_utc"), field
            assert pa.types.is_timestamp(field.type) == (field.name == "received_at")
            assert not pa.types.is_unsigned_integer(field.type), field


def test_times_of_any_unit_are_right(instance: Instance) -> None:
    for seconds, day, exchange_ns in (
        (1_766_620_800, 20_447, 1_766_620_800_123_456_789),
        (0, 0, 0),
    ):
        update = instance.update(
            REFERENCE_DATA,
            "x",
            "A",
            expiry_datetime=seconds,
            issue_date=day,
            exchange_time_utc=exchange_ns,
        )
        instance.append(Kind.REFERENCE_DATA, update.tobytes())
    table = pa.table(_read(instance).table(Kind.REFERENCE_DATA))
    table.validate(full=True)
    assert table["expiry_datetime_s"].to_pylist() == [1_766_620_800, 0]
    assert table["issue_date"].to_pylist() == [20_447, 0]
    assert table["exchange_time_ns"].to_pylist() == [1_766_620_800_123_456_789, 0]
    pytest.importorskip("pandas")
    frame = _read(instance).to_pandas(Kind.REFERENCE_DATA)
    assert str(frame["received_at"].dtype) == "datetime64[us, UTC]"


#: Unusual names: empty, with separators, and equal once invalid UTF-8 is replaced.
NAMES = [b"", b"a,b", b'"q"', b"Z\xfcrich", b"Z\xf6rich", "Zürich".encode(), b"\xff", b" ", b"a\nb"]
PRICES = [0.0, -0.5, float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 5e-324]


def test_names_and_prices_of_the_world_come_through_every_frame(instance: Instance) -> None:
    names = [*NAMES, None]
    for number, name in enumerate(names):
        price = PRICES[number % len(PRICES)]
        update = instance.update(TOP_OF_BOOK, "x", name or "", bid_price=price, ask_price=-price)
        update["symbol_id"] *= name is not None
        instance.append(Kind.TOP_OF_BOOK, update.tobytes())
    batch = _read(instance)
    with Reader(instance.address, start="begin") as reader:
        symbols = [next(reader).symbol for _ in names]
    assert symbols[:3] == ["", "a,b", '"q"']
    assert symbols[3:7] == ["Z\\xfcrich", "Z\\xf6rich", "Zürich", "\\xff"]
    assert len(set(symbols)) == len(names)
    table = pa.table(batch.table(Kind.TOP_OF_BOOK))
    table.validate(full=True)
    assert table["symbol"].to_pylist() == symbols
    assert pa.table(batch)["symbol"].to_pylist() == symbols
    assert table.group_by("symbol").aggregate([("bid_price", "count")]).num_rows == len(names)
    prices = batch.select(Kind.TOP_OF_BOOK)["bid_price"]
    np.testing.assert_array_equal(table["bid_price"].to_numpy(), prices)
    pytest.importorskip("pandas")
    frame = batch.to_pandas("top_of_book")
    assert [each if isinstance(each, str) else None for each in frame["symbol"]] == symbols
    assert frame["symbol"].cat.categories.is_unique
    np.testing.assert_array_equal(frame["bid_price"], prices)
    assert len(batch.to_pandas()) == len(names)
    pytest.importorskip("polars")
    columns = batch.to_polars("top_of_book")
    assert columns["symbol"].to_list() == symbols
    np.testing.assert_array_equal(columns["bid_price"].to_numpy(), prices)


def test_two_ids_of_one_name_are_one_category(instance: Instance) -> None:
    for name in (b"\xff", b"\\xff"):  # the second is the displayed form of the first
        instance.append(Kind.TOP_OF_BOOK, instance.update(TOP_OF_BOOK, "x", name).tobytes())
    pytest.importorskip("pandas")
    assert _read(instance).to_pandas("top_of_book")["symbol"].tolist() == ["\\xff"] * 2


@pytest.mark.parametrize(
    ("module", "extra"), [("pandas", "pandas"), ("pyarrow", "pandas"), ("polars", "polars")]
)
def test_frame_without_its_package_names_the_extra(
    batch: Batch, monkeypatch: pytest.MonkeyPatch, module: str, extra: str
) -> None:
    pytest.importorskip(module)
    monkeypatch.setitem(sys.modules, module, None)
    make = batch.to_polars if module == "polars" else batch.to_pandas
    with pytest.raises(ImportError) as caught:
        make("top_of_book")
    assert str(caught.value) == f"{module} is not installed: pip install 'udpfast[{extra}]'"


def test_control_records_have_columns_too(batch: Batch) -> None:
    table = pa.table(batch.table(Kind.GAP))
    assert table.num_rows == 1
    assert {"first_number", "last_number", "lost", "reason"} <= set(table.column_names)


@pytest.mark.parametrize("kind", [None, Kind.TRADES, Kind.BOOK])
def test_nothing_is_a_table_without_rows(instance: Instance, kind: Kind | None) -> None:
    with Reader(instance.address) as reader:
        table = pa.table(reader.poll(timeout=0).table(kind))
    table.validate(full=True)
    assert table.num_rows == 0


def test_every_face_of_the_interface_is_accepted(batch: Batch) -> None:
    schema = pa.schema(batch)
    assert pa.record_batch(batch).schema == schema
    reader = pa.RecordBatchReader.from_stream(batch)
    assert reader.schema == schema
    assert [part.num_rows for part in reader] == [7]
    assert pa.array(batch.table(Kind.BOOK)).type.num_fields > 10


def test_table_outlives_its_batch_and_reader(instance: Instance) -> None:
    with Reader(instance.address, start="begin") as reader:
        for number in range(100):
            instance.top(float(number), 0.0)
        table = pa.table(reader.poll().table(Kind.TOP_OF_BOOK))
        for _ in range(100):
            instance.top(-1.0, 0.0)
        assert len(reader.poll()) == 100
    gc.collect()
    assert table["bid_price"].to_pylist() == [float(number) for number in range(100)]


def test_capsules_that_nobody_takes_are_released(batch: Batch) -> None:
    # Under the sanitizer a leak or a double release ends the process; here the tracked objects.
    def columns() -> int:
        gc.collect()
        return sum(type(thing).__name__ == "_Column" for thing in gc.get_objects())

    before = columns()
    for _ in range(3):
        batch.__arrow_c_array__()
        batch.__arrow_c_stream__()
        batch.__arrow_c_schema__()
    stream = pa.RecordBatchReader.from_stream(batch)
    assert columns() > before
    del stream
    assert columns() == before


def test_batch_of_before_is_refused(instance: Instance) -> None:
    with Reader(instance.address, start="begin") as reader:
        instance.top(1.0, 2.0)
        batch = reader.poll()
        reader.poll(timeout=0)
        with pytest.raises(ValueError, match="no longer valid"):
            pa.table(batch)


def test_rows_that_are_not_there_are_refused(instance: Instance) -> None:
    update = instance.update(TRADES, "binance-usdm", "BTC", row_count=3)
    instance.append(Kind.TRADES, update.tobytes())
    with Reader(instance.address, start="begin") as reader:
        batch = reader.poll()
        with pytest.raises(FormatError, match="too short"):
            batch.table(Kind.TRADES)


def test_counts_of_rows_that_only_add_up_are_refused(instance: Instance) -> None:
    for count in (1 << 31, 1 << 31):  # their sum is 0 in 32 bits
        trades = instance.update(TRADES, "binance-usdm", "BTC", row_count=count)
        instance.append(Kind.TRADES, trades.tobytes())
    with Reader(instance.address, start="begin") as reader:
        batch = reader.poll()
        with pytest.raises(FormatError, match=r"record 0: TRADES .* too short for its number of"):
            batch.table(Kind.TRADES)


def test_polars_takes_a_table(batch: Batch) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(batch.table(Kind.TOP_OF_BOOK))
    assert frame["bid_price"].to_list() == [1.5, 3.5]
    assert frame["symbol"].to_list() == ["BTC", "ETH"]
    assert polars.DataFrame(batch).height == 7


def test_pandas_takes_a_table(batch: Batch) -> None:
    pandas = pytest.importorskip("pandas")
    table: Any = batch.table(Kind.TOP_OF_BOOK)
    from_arrow = getattr(pandas.DataFrame, "from_arrow", None)  # since pandas 3.0
    frame = from_arrow(table) if from_arrow else pa.table(table).to_pandas()
    assert frame["ask_price"].tolist() == [2.5, 4.5]
    assert np.issubdtype(frame["bid_price"].dtype, np.floating)


def test_batch_becomes_a_frame_of_pandas_and_of_polars(instance: Instance) -> None:
    instance.top(1.0, 2.0, "BTC")
    instance.book([(1.0, 2.5)], [], "ETH", snapshot=True)
    with Reader(instance.address, start="begin") as reader:
        batch = reader.poll()
        pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        frame = batch.to_pandas("top_of_book")
        assert frame[["symbol", "bid_price"]].to_numpy().tolist() == [["BTC", 1.0]]
        pytest.importorskip("polars")
        books = batch.to_polars(Kind.BOOK)
        assert books["rows"][0][0]["quantity"] == 2.5
        assert len(batch.to_polars()) == len(batch.to_pandas()) == 2


def test_message_of_an_app_names_no_exchange_whatever_it_holds(instance: Instance) -> None:
    name_id = instance.names.intern("binance")
    instance.ring.append(Kind.BUS, name_id.to_bytes(4, "little") * 50, object=1)
    instance.ring.flush()
    with Reader(instance.address, start="oldest") as reader:
        table = pa.table(reader.poll(timeout=0))
        assert table["exchange"].to_pylist() == table["symbol"].to_pylist() == [None]
    with Reader(instance.address, start="oldest") as reader:
        assert next(reader).exchange is None


def _told(instance: Instance) -> Batch:
    """Return a trade of each side, and one without a side; a status; a gap; a recovery."""
    rows = np.zeros(3, ROW_DTYPES[Kind.TRADES])
    rows["side"] = 1, 2, 0
    trades = instance.update(TRADES, "binance-usdm", "BTC", row_count=3, update_type=2, present=2)
    instance.append(Kind.TRADES, trades.tobytes() + rows.tobytes())
    status = instance.update(
        UPDATE_DTYPES[Kind.MARKET_STATUS], "binance-usdm", "BTC", trading_status=7
    )
    instance.append(Kind.MARKET_STATUS, status.tobytes())
    gap = np.zeros((), CONTROL_DTYPES[Kind.GAP])
    gap["reason"] = GapReason.TIME
    instance.append(Kind.GAP, gap.tobytes())
    state = np.zeros((), CONTROL_DTYPES[Kind.RECOVERED])
    state["status"], state["waits"] = ObjectStatus.LIVE, ObjectWait.NONE
    instance.append(Kind.RECOVERED, state.tobytes())
    return _read(instance)


def test_enumerations_are_words(instance: Instance) -> None:
    batch = _told(instance)
    trades = pa.table(batch.table("trades"))
    trades.validate(full=True)
    assert trades["update_type"].to_pylist() == ["Incremental"]
    assert [row["side"] for row in trades["rows"].to_pylist()[0]] == ["Buy", "Sell", None]
    status = pa.table(batch.table("market_status"))
    assert status["trading_status"].to_pylist() == ["Halt"]
    assert status["update_type"].to_pylist() == [None]
    assert pa.table(batch.table("gap"))["reason"].to_pylist() == ["TIME"]
    recovered = pa.table(batch.table("recovered"))
    assert recovered["status"].to_pylist() == ["LIVE"]
    assert recovered["waits"].to_pylist() == ["NONE"]
    assert batch.select("trades")["update_type"].tolist() == [2]


def test_words_have_the_same_categories_in_each_table(instance: Instance) -> None:
    batch = _told(instance)
    frame = batch.to_pandas("trades")
    assert frame["update_type"].dtype == "category"
    assert list(frame["update_type"].cat.categories) == ["Snapshot", "Incremental", "Stale"]
    nothing = batch.to_pandas("top_of_book")
    assert list(nothing["update_type"].cat.categories) == ["Snapshot", "Incremental", "Stale"]
    polars = pytest.importorskip("polars")
    told = batch.to_polars("market_status")
    assert told["trading_status"].to_list() == ["Halt"]
    assert told["trading_status"].dtype in (polars.Categorical, polars.Enum)


def test_every_enumeration_of_an_update_or_a_control_record_is_words(instance: Instance) -> None:
    for kind, dtype in {**UPDATE_DTYPES, **CONTROL_DTYPES}.items():
        instance.append(kind, bytes(dtype.itemsize))
    batch = _read(instance)
    fields = {(kind, name) for kind in UPDATE_DTYPES for name in UPDATE_WORDS} | set(CONTROL_WORDS)
    for kind, name in fields:
        table = pa.table(batch.table(kind))
        if name in table.column_names:
            assert pa.types.is_dictionary(table.schema.field(name).type), (kind, name)
        if "rows" in table.column_names:
            rows = table.schema.field("rows").type.value_type
            if rows.get_field_index(name) >= 0:
                assert pa.types.is_dictionary(rows.field(name).type), (kind, name)


def test_number_without_a_word_is_shown_if_it_has_8_bits(instance: Instance) -> None:
    gap = np.zeros((), CONTROL_DTYPES[Kind.GAP])
    gap["reason"] = 0xFFFFFFFF
    instance.append(Kind.GAP, gap.tobytes())
    instance.append(Kind.TOP_OF_BOOK, instance.update(
        TOP_OF_BOOK, "binance-usdm", "BTC", update_type=255).tobytes())  # fmt: skip
    batch = _read(instance)
    assert pa.table(batch.table("gap"))["reason"].to_pylist() == [None]
    assert pa.table(batch.table("top_of_book"))["update_type"].to_pylist() == ["255"]


def test_every_row_says_its_feed_and_its_doubt(instance: Instance) -> None:
    instance.top(1.0, 2.0)
    top = instance.update(TOP_OF_BOOK, "binance-usdm", "BTC").tobytes()
    instance.append(Kind.TOP_OF_BOOK, top, flags=int(RecordFlag.DOUBT))
    with Reader(instance.address, start="begin") as reader:
        batch = reader.poll()
        copied = batch.copy()
        for each in (batch, copied):
            for kind in (None, Kind.TOP_OF_BOOK):
                table = pa.table(each.table(kind))
                assert table["feed"].to_pylist() == [instance.directory.name] * 2
                assert table["doubt"].to_pylist() == [False, True]
        reader.poll(timeout=0)
        assert pa.table(copied)["feed"].to_pylist() == [instance.directory.name] * 2


def test_message_of_an_app_has_a_table(instance: Instance) -> None:
    instance.ring.append(Kind.BUS, b"hello", object=7 << 16 | 3)
    instance.ring.flush()
    table = pa.table(_read_oldest(instance).table("bus"))
    table.validate(full=True)
    (row,) = table.to_pylist()
    assert (row["sender"], row["type"], row["size"], row["payload"]) == (3, 7, 5, b"hello")
    with pytest.raises(FormatError, match="fixed layout"):
        _read_oldest(instance).table(Kind.MESSAGE)


def _read_oldest(instance: Instance) -> Batch:
    with Reader(instance.address, start="oldest") as reader:
        return reader.poll(timeout=0).copy()
