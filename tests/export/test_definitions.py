"""An export of a time has the definitions that were in force when it begins."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.export.market import BEGIN_NS, STEP_NS, Market, record
from tests.export.test_export import rows_of
from udpfast.cli.main import cli
from udpfast.core.layout import Kind
from udpfast.export.exporter import Exporter
from udpfast.export.rows import JournalRows
from udpfast.export.wanted import Wanted

#: Records of each of the quiet stretches that fill segments.
QUIET = 1_500
TABLES = ("messages", "tops", "instruments")


def define(market: Market, symbol: str, tick: float) -> None:
    market.tell(Kind.REFERENCE_DATA, [{"min_price": 0.0, "tick_size": tick}], symbol,
                tick_size=tick, security_type=2)  # fmt: skip


def quote(market: Market, symbol: str, count: int = 1) -> None:
    for _ in range(count):
        market.tell(Kind.TOP_OF_BOOK, (), symbol, bid_price=1.0)


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Return a journal of several segments, and a time in its middle."""
    directory = tmp_path_factory.mktemp("defined")
    market = Market(directory / "feed", 1 << 22)
    define(market, "OLD", 1.0)  # in force, from the first segment
    define(market, "TWICE", 1.0)
    define(market, "SILENT", 1.0)
    quote(market, "OLD", QUIET)
    define(market, "TWICE", 2.0)  # replaced before the time
    quote(market, "TWICE", QUIET)
    start_ns = BEGIN_NS + market.number * STEP_NS + STEP_NS // 2
    quote(market, "OLD")
    define(market, "LATE", 3.0)  # defined within the time, before its first quote
    quote(market, "LATE", QUIET)
    quote(market, "TWICE")
    quote(market, "UNKNOWN")  # never defined
    define(market, "OLD", 4.0)  # changes within the time
    quote(market, "OLD", QUIET)
    record(market, directory / "journal")
    market.close()
    return directory / "journal", start_ns


def definitions(rows: list[dict[str, Any]]) -> list[tuple[str, float]]:
    return [(row["symbol"], row["tick_size"]) for row in rows]


#: By the order of the journal.
EXPECTED = [("OLD", 1.0), ("TWICE", 2.0), ("LATE", 3.0), ("OLD", 4.0)]


def test_window_begins_with_the_definitions_of_its_instruments(
    market: tuple[Path, int], tmp_path: Path
) -> None:
    journal, start_ns = market
    list(Exporter(journal, tmp_path, tables=TABLES, wanted=Wanted(start_ns=start_ns)).run())
    rows = rows_of(tmp_path, "instruments")
    assert definitions(rows) == EXPECTED
    assert [row["published_ns"] < start_ns for row in rows] == [True, True, False, False]
    assert all(row["published_ns"] >= start_ns for row in rows_of(tmp_path, "messages"))
    assert {row["tick_size_steps"][0]["tick_size"] for row in rows} == {1.0, 2.0, 3.0, 4.0}


def test_repeated_export_carries_each_definition_once(
    market: tuple[Path, int], tmp_path: Path
) -> None:
    journal, start_ns = market
    wanted = Wanted(start_ns=start_ns)
    passes = 0
    while True:  # a part in each run, as if every run had been killed
        exporter = Exporter(journal, tmp_path, tables=TABLES, wanted=wanted)
        written = [each for each in _some(exporter) if each]
        passes += 1
        if not written:
            break
    assert passes > 3
    assert definitions(rows_of(tmp_path, "instruments")) == EXPECTED


def _some(exporter: Exporter) -> list[bool]:
    found = []
    for exported in exporter.run():
        found.append(exported.written)
        if exported.written:
            break
    return found


def test_table_that_is_added_later_has_them_too(market: tuple[Path, int], tmp_path: Path) -> None:
    journal, start_ns = market
    wanted = Wanted(start_ns=start_ns)
    list(Exporter(journal, tmp_path, tables=("tops",), wanted=wanted).run())
    list(Exporter(journal, tmp_path, tables=("instruments",), wanted=wanted).run())
    assert definitions(rows_of(tmp_path, "instruments")) == EXPECTED


def test_choice_of_a_symbol_carries_that_one(market: tuple[Path, int], tmp_path: Path) -> None:
    journal, start_ns = market
    words = ["--from", str(start_ns), "--symbol", "TWICE", "--table", "instruments"]
    result = CliRunner().invoke(cli, ["export", str(journal), str(tmp_path), *words])
    assert result.exit_code == 0, result.output
    assert definitions(rows_of(tmp_path, "instruments")) == [("TWICE", 2.0)]


def test_end_of_a_time_alone_carries_nothing(market: tuple[Path, int], tmp_path: Path) -> None:
    journal, start_ns = market
    list(Exporter(journal, tmp_path, tables=TABLES, wanted=Wanted(end_ns=start_ns)).run())
    expected = [("OLD", 1.0), ("TWICE", 1.0), ("SILENT", 1.0), ("TWICE", 2.0)]
    assert definitions(rows_of(tmp_path, "instruments")) == expected


def test_one_file_formats_get_them_before_the_rows(market: tuple[Path, int]) -> None:
    journal, start_ns = market
    rows = JournalRows(journal, ("instruments",), Wanted(start_ns=start_ns))
    found = [row for tables in rows for row in tables["instruments"].to_pylist()]
    assert sorted(definitions(found)) == sorted(EXPECTED)


def test_dbn_definitions_of_a_time(market: tuple[Path, int], tmp_path: Path) -> None:
    databento_dbn = pytest.importorskip("databento_dbn", reason="not installed: the extra [dbn]")
    journal, start_ns = market
    path = tmp_path / "x.dbn"
    words = ["--format", "dbn", "--table", "instruments", "--from", str(start_ns)]
    result = CliRunner().invoke(cli, ["export", str(journal), str(path), *words])
    assert result.exit_code == 0, result.output
    decoder = databento_dbn.DBNDecoder()
    decoder.write(path.read_bytes())
    found = [each.raw_symbol for each in decoder.decode() if hasattr(each, "raw_symbol")]
    assert sorted(found) == sorted(symbol for symbol, _ in EXPECTED)
