"""Batches as Arrow sees them: through the capsules, in pyarrow, polars and pandas."""

import gc
from typing import Any

import numpy as np
import pytest

from tests.client.instance import Instance
from udpfast import Batch, FormatError, Kind, Reader
from udpfast.core.layout import CONTROL_DTYPES
from udpfast.market.updates import REFERENCE_DATA, TRADES

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def batch(instance: Instance) -> Batch:
    """Return a batch of each sort of record that columns differ by, as a copy."""
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
    assert str(table["received_ns"].type) == "timestamp[ns, tz=UTC]"
    assert (
        table["received_ns"].cast(pa.int64()).to_pylist() == batch.headers["received_ns"].tolist()
    )


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
    assert table["quote_currency"].to_pylist() == [""]


def test_text_that_is_no_utf8_is_replaced(instance: Instance) -> None:
    cut = "é鍵".encode()[:-1]  # the last character is cut, as by a field that is too short
    reference = instance.update(REFERENCE_DATA, "binance-usdm", "BTC")
    reference["description"] = cut
    instance.append(Kind.REFERENCE_DATA, reference.tobytes())
    with Reader(instance.address, start="begin") as reader:
        table = pa.table(reader.poll().table(Kind.REFERENCE_DATA))
    table.validate(full=True)
    assert table["description"].to_pylist() == ["é\ufffd"]


def test_control_records_have_columns_too(batch: Batch) -> None:
    table = pa.table(batch.table(Kind.GAP))
    assert table.num_rows == 1
    assert {"first", "last", "reason"} <= set(table.column_names)


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
        with pytest.raises(ValueError, match="gone"):
            pa.table(batch)


def test_rows_that_are_not_there_are_refused(instance: Instance) -> None:
    update = instance.update(TRADES, "binance-usdm", "BTC", row_count=3)
    instance.append(Kind.TRADES, update.tobytes())
    with Reader(instance.address, start="begin") as reader:
        batch = reader.poll()
        with pytest.raises(FormatError, match="too short"):
            batch.table(Kind.TRADES)


def test_counts_of_rows_that_only_add_up_are_refused(instance: Instance) -> None:
    for count in (1 << 31, 1 << 31):  # which is 0 in 32 bits
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
