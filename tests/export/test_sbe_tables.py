"""SBE messages in a journal as typed tables: exported, and directly from the journal."""

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.export.market import Market, record
from tests.payload.sbe.schemas import ORDER, ORDERS_MESSAGES, ORDERS_TYPES, write_schema
from udpfast.cli.export import export
from udpfast.core.layout import FRAME, Kind
from udpfast.errors import ConfigError, FormatError
from udpfast.export.exporter import Exporter
from udpfast.export.manifest import read_entries
from udpfast.export.sbe_tables import SbeTables
from udpfast.export.scan import Condition, Scan
from udpfast.payload.sbe.schema import Schema

MESSAGES = 40


def fill(market: Market, schema: Schema) -> None:
    """Append orders, records of another kind between them, and a damaged one."""
    raw = schema.encode("Order", ORDER)
    for i in range(MESSAGES):
        payload = raw if i != 7 else raw[:-1]
        market.put(Kind.MESSAGE, bytes(FRAME.itemsize) + payload, stream=i % 2)
        market.say(Kind.GAP, first=1, last=2, count=2)


@pytest.fixture(scope="module")
def schema_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a schema."""
    folder = tmp_path_factory.mktemp("schema")
    return write_schema(folder / "orders.xml", ORDERS_TYPES, ORDERS_MESSAGES)


@pytest.fixture(scope="module")
def orders(schema_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a journal of orders."""
    folder = tmp_path_factory.mktemp("orders")
    market = Market(folder / "feed")
    fill(market, Schema(schema_path))
    record(market, folder / "journal")
    market.close()
    return folder / "journal"


def exported(root: Path, name: str) -> list[dict[str, object]]:
    """Return the rows of an exported table, in their order."""
    files = sorted((root / "sbe" / name).rglob("*.parquet"))
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    return sorted(rows, key=lambda row: (row["position"], row["row"]))


def test_messages_and_groups_become_tables(orders: Path, schema_path: Path, tmp_path: Path) -> None:
    exporter = Exporter(orders, tmp_path, tables=("gaps",), sbe=SbeTables(schema_path))
    assert [done.written for done in exporter.run()] == [True]
    assert [done.written for done in exporter.run()] == [] or exporter.unfinished == 0
    rows = exported(tmp_path, "Order")
    assert len(rows) == MESSAGES - 1
    assert rows[0]["limit"] == Decimal("17.560")
    assert rows[0]["id"] == -(2**63)
    assert rows[0]["flags"] == ["PostOnly"]
    fills = exported(tmp_path, "Order.fills")
    assert [(row["row"], row["parent"], row["quantity"]) for row in fills[:3]] == [
        (0, 0, 5),
        (1, 0, 6),
        (0, 0, 5),
    ]
    parties = exported(tmp_path, "Order.fills.parties")
    assert [(row["parent"], row["name"]) for row in parties[:2]] == [(0, "a"), (0, "ü")]
    (entry,) = read_entries(tmp_path)
    assert entry.damaged == 1
    assert entry.rows()["sbe/Order"] == MESSAGES - 1
    assert entry.rows()["gaps"] == MESSAGES
    again = Exporter(orders, tmp_path, tables=("gaps",), sbe=SbeTables(schema_path))
    assert [done.written for done in again.run()] == [False]


def test_another_schema_writes_its_tables_anew(
    orders: Path, schema_path: Path, tmp_path: Path
) -> None:
    root = tmp_path / "export"
    list(Exporter(orders, root, tables=("gaps",), sbe=SbeTables(schema_path)).run())
    text = schema_path.read_text().replace('name="symbol"', 'name="instrument"')
    other = tmp_path / "other.xml"
    other.write_text(text)
    (done,) = Exporter(orders, root, tables=("gaps",), sbe=SbeTables(other)).run()
    assert done.written
    assert exported(root, "Order")[0]["instrument"] == "BTC"


def scanned(scan: Scan) -> pa.Table:
    """Return all rows of a scan."""
    batches = [batch for piece in scan.pieces() for batch in scan.batches(piece)]
    return pa.Table.from_batches(batches, scan.arrow_schema().empty_table().schema)


def test_scan_of_a_journal_is_its_export(orders: Path, schema_path: Path, tmp_path: Path) -> None:
    list(Exporter(orders, tmp_path, tables=(), sbe=SbeTables(schema_path)).run())
    for name in ("Order", "Order.fills", "Order.fills.parties"):
        scan = Scan(str(orders), name, schema=str(schema_path), skip_damage=True)
        rows = scanned(scan).drop_columns(["date", "stream", "session"]).to_pylist()
        rows.sort(key=lambda row: (row["position"], row["row"]))
        assert rows == exported(tmp_path, name)


def test_damaged_payload_is_an_error_unless_skipped(orders: Path, schema_path: Path) -> None:
    scan = Scan(str(orders), "Order", schema=str(schema_path))
    with pytest.raises(FormatError, match=r"record at \d+: expected a message of .*, found: data"):
        scanned(scan)


def test_conditions_choose_records(orders: Path, schema_path: Path) -> None:
    scan = Scan(str(orders), "Order", schema=str(schema_path), skip_damage=True)
    first = scanned(scan)["position"][0].as_py()
    only = Scan(
        str(orders),
        "Order",
        schema=str(schema_path),
        skip_damage=True,
        conditions=(Condition("position", first, first),),
    )
    assert scanned(only).num_rows == 1


def test_names_that_are_taken_get_a_bar_behind_them(tmp_path: Path) -> None:
    fields = "".join(
        f'<field name="{name}" id="1" type="uint8"/>'
        for name in ("Position", "DATE", "x", "X", "x_")
    )
    path = write_schema(tmp_path / "a.xml", "", f'<message name="M" id="1">{fields}</message>')
    names = SbeTables(path).arrow_schema("M", partitions=True).names
    assert names[6:11] == ["Position_", "DATE_", "x", "X_", "x__"]
    assert len({name.lower() for name in names}) == len(names)


def test_wrong_questions_are_refused(orders: Path, schema_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"table .*Order, Order\.fills, .*'X'"):
        Scan(str(orders), "X", schema=str(schema_path))
    with pytest.raises(ConfigError, match="framing must be one of"):
        Scan(str(orders), "Order", schema=str(schema_path), framing="none")


def test_command_says_what_is_damaged(orders: Path, schema_path: Path, tmp_path: Path) -> None:
    arguments = [str(orders), str(tmp_path / "out"), "--schema", str(schema_path)]
    done = CliRunner().invoke(export, [*arguments, "--table", "gaps"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "are not valid SBE messages" in done.output
    assert "sbe/Order.fills" in done.output
