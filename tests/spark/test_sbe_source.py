"""SBE messages of a journal through the data source, without a session."""

import pytest

pytest.importorskip("pyspark")

from tests.export.market import Market, record
from tests.payload.sbe.schemas import ORDER, ORDERS_MESSAGES, ORDERS_TYPES, write_schema
from udpfast.core.layout import FRAME, Kind
from udpfast.errors import ConfigError
from udpfast.payload.sbe.schema import Schema
from udpfast.spark.source import UdpfastSource


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the options that read a journal of ten orders."""
    folder = tmp_path_factory.mktemp("orders")
    path = write_schema(folder / "orders.xml", ORDERS_TYPES, ORDERS_MESSAGES)
    market = Market(folder / "feed")
    raw = Schema(path).encode("Order", ORDER)
    for _ in range(10):
        market.put(Kind.MESSAGE, bytes(FRAME.itemsize) + raw)
    record(market, folder / "journal")
    market.close()
    return {"path": str(folder / "journal"), "schema": str(path)}


def test_tables_are_those_of_the_schema(options: dict[str, str]) -> None:
    found = {}
    for table in ("Order", "Order.fills", "Order.fills.parties"):
        source = UdpfastSource({**options, "table": table})
        schema = source.schema()
        reader = source.reader(schema)
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        assert all(batch.schema.names == schema.names for batch in batches)
        found[table] = sum(batch.num_rows for batch in batches)
    assert found == {"Order": 10, "Order.fills": 20, "Order.fills.parties": 20}


def test_types_are_those_that_spark_has(options: dict[str, str]) -> None:
    schema = UdpfastSource({**options, "table": "Order"}).schema()
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    assert types == {
        "feed": "string",
        **dict.fromkeys(("position", "index", "received_ns", "published_ns"), "bigint"),
        "row": "int",
        "id": "bigint",
        "side": "string",
        "flags": "array<string>",
        "symbol": "string",
        "limit": "decimal(19,3)",
        "ratio": "double",
        "venue": "string",
        "memo": "string",
        "key": "binary",
        "date": "date",
        "stream": "int",
        "session": "string",
    }


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"table": "Orders"}, r"table must be one of Order, Order\.fills, .*, was 'Orders'"),
        ({}, r"table must be one of Order, .*, was ''"),
        ({"table": "Order", "framing": "roq"}, "framing must be one of b3_umdf, cme_mdp3"),
    ],
)
def test_wrong_options_are_refused(
    options: dict[str, str], more: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        UdpfastSource({**options, **more}).schema()


def test_framing_without_a_schema_is_refused(options: dict[str, str]) -> None:
    given = {"path": options["path"], "framing": "cme_mdp3"}
    with pytest.raises(ConfigError, match=r"framing .*schema"):
        UdpfastSource(given).schema()
