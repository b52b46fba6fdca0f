"""A venue's feed in tables: instruments from definitions, and rows while books were in doubt."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

from tests.export.test_export import table_of
from tests.shared import shared
from udpfast.cli.main import cli
from udpfast.export.exporter import Exporter


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an export of an ITCH market with messages that both lines lost."""
    folder = tmp_path_factory.mktemp("venue")
    capture = shared("venues", "books", "itch_small") / "feed.pcap.gz"
    journal = folder / "journal"
    to = f"journal:{journal}"
    result = CliRunner().invoke(cli, ["replay", str(capture), "--payload", "itch", "--to", to])
    assert result.exit_code == 0, result.output
    root = folder / "export"
    list(Exporter(journal, root, tables=("instruments", "levels", "trades", "tops")).run())
    return root


def test_instruments_are_what_definitions_said(root: Path) -> None:
    rows = table_of(root, "instruments").to_pylist()
    assert {row["exchange"] for row in rows} == {"NASDAQ"}
    assert len({row["symbol"] for row in rows}) == len(rows) > 5
    assert all(row["description"] == str(row["external_security_id"]) for row in rows)
    assert all(row["received_ns"] and row["feed"] for row in rows)


@pytest.mark.parametrize("table", ["levels", "trades", "tops"])
def test_rows_say_whether_their_book_was_in_doubt(root: Path, table: str) -> None:
    rows: pa.Table = table_of(root, table)
    assert rows.schema.field("doubt").type == pa.bool_()
    in_doubt = pc.sum(rows["doubt"].cast(pa.int64())).as_py()
    # After the loss there are no records of books, but there are of trades.
    assert (in_doubt > 0) == (table == "trades")
    assert in_doubt < rows.num_rows
