"""A venue's feed in tables: instruments from definitions, and rows while books were in doubt."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

from tests.export.capture import append, open_raw
from tests.export.test_export import table_of
from tests.shared import shared
from udpfast.archive.feed_settings import write_feed
from udpfast.cli.main import cli
from udpfast.cli.spark import Losses, export_journal
from udpfast.config import parse_feed
from udpfast.export.exporter import Exporter
from udpfast.log.segment import segment_path


def journal_of(folder: Path) -> Path:
    """Return the journal of an ITCH market with messages that both lines lost."""
    capture = shared("venues", "books", "itch_small") / "feed.pcap.gz"
    journal = folder / "journal"
    to = f"journal:{journal}"
    result = CliRunner().invoke(cli, ["replay", str(capture), "--payload", "itch", "--to", to])
    assert result.exit_code == 0, result.output
    return journal


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the journal, which nobody changes."""
    return journal_of(tmp_path_factory.mktemp("venue"))


@pytest.fixture(scope="module")
def root(recorded: Path) -> Path:
    """Return the journal's export."""
    root = recorded.parent / "export"
    list(Exporter(recorded, root, tables=("instruments", "levels", "trades", "tops")).run())
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


@pytest.fixture
def both(recorded: Path, tmp_path: Path) -> Path:
    """Return a venue's journal with a raw capture beside its records: `record.what` = `both`."""
    journal = Path(shutil.copytree(recorded, tmp_path / "journal"))
    with open_raw(journal) as raw:
        append(raw, [(1, 10, 10)])
    lines = [{"name": "A", "address": "127.0.0.1:9001"}]
    wire = {"framing": "moldudp64", "payload": "itch"}
    config = parse_feed({"name": "itch", "wire": wire, "streams": {"lines": lines}})
    write_feed(config, journal / "raw")
    return journal


@pytest.mark.parametrize("tables", [(), ("--table", "races", "--table", "trades")])
def test_races_are_left_out_of_what_cannot_make_them(
    both: Path, tmp_path: Path, tables: tuple[str, ...]
) -> None:
    found = CliRunner().invoke(cli, ["export", str(both), str(tmp_path / "out"), *tables])
    assert found.exit_code == 0, found.output
    assert found.stderr.count("moldudp64") == 1
    assert "races  " not in found.stdout  # the totals
    assert "segments: 1," in found.stdout
    assert table_of(tmp_path / "out", "trades").num_rows > 0
    assert table_of(tmp_path / "out", "races").num_rows == 0


def test_damage_is_reported_where_races_are_left_out(both: Path, tmp_path: Path) -> None:
    path = segment_path(both, 1)
    content = bytearray(path.read_bytes())
    content[len(content.rstrip(b"\0")) - 100] ^= 1
    path.write_bytes(content)
    found = CliRunner().invoke(cli, ["export", str(both), str(tmp_path / "out")])
    assert found.exit_code == 1, found.output
    assert "is damaged: " in found.stderr
    assert "segments: 1," in found.stdout


def test_spark_exports_a_journal_without_races(
    both: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export_journal(both, tmp_path / "out", Losses()) == 1
    assert "moldudp64" in capsys.readouterr().err
