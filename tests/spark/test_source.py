"""The data source: the rows of an export, row by row; streams that hold every record once."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.aged import write_aged
from tests.export.market import (
    BEGIN_NS,
    STEP_NS,
    Market,
    append_and_die,
    drive,
    fill,
    make_journal,
    record,
)
from tests.export.test_races import arrivals, captured  # noqa: F401
from tests.layouts import NEWER
from tests.spark.streams import drain
from udpfast.export.exporter import Exporter
from udpfast.export.schema import TABLES, spark_schema
from udpfast.export.wanted import Wanted
from udpfast.log.segment import list_segments, segment_path
from udpfast.market.updates import LAYOUTS
from udpfast.spark.bronze import Bronze

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS = 110
PIECE = 1 << 17


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a closed journal of several segments."""
    return make_journal(tmp_path_factory.mktemp("market"), ROUNDS)


@pytest.fixture(scope="module")
def root(journal: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of its export."""
    root = tmp_path_factory.mktemp("export")
    list(Exporter(journal, root, payloads=True).run())
    return root


def load(spark: "SparkSession", journal: Path, table: str, **options: Any) -> "DataFrame":
    """Return a table of a journal, in small pieces."""
    options = {"table": table, "piece_bytes": PIECE} | options
    return spark.read.format("udpfast").options(**options).load(str(journal))


def exported(spark: "SparkSession", root: Path, table: str) -> "DataFrame":
    """Return a table of an export."""
    place = f"{root}/{table}"
    return spark.read.schema(spark_schema(table)).parquet(place)


def assert_same(found: "DataFrame", expected: "DataFrame", empty: bool = False) -> None:
    """Compare schemas, and all rows, in any order."""
    from pyspark.testing import assertSchemaEqual

    assertSchemaEqual(found.schema, expected.schema)
    rows = sorted(map(repr, expected.collect()))
    assert sorted(map(repr, found.collect())) == rows
    assert (not rows) == empty


#: Tables of kinds that the market does not have.
EMPTY = ("bus", "senders", "merges", "gateway_settings", "external_latency", "custom_metrics")


@pytest.mark.parametrize("table", [name for name, table in TABLES.items() if not table.raw])
def test_source_has_the_rows_of_the_export(
    spark: "SparkSession", journal: Path, root: Path, table: str
) -> None:
    payloads = {"payloads": "true"} if table == "messages" else {}
    found = load(spark, journal, table, **payloads)
    assert_same(found, exported(spark, root, table), empty=table in EMPTY)


def test_source_of_races_has_the_rows_of_the_export(
    spark: "SparkSession",
    captured: tuple[Path, Any],  # noqa: F811
    tmp_path: Path,
) -> None:
    list(Exporter(captured[0], tmp_path, tables=("races",)).run())
    assert_same(load(spark, captured[0], "races"), exported(spark, tmp_path, "races"))


def test_source_reads_a_piece_per_task(spark: "SparkSession", journal: Path) -> None:
    few = load(spark, journal, "messages", piece_bytes=1 << 30)
    assert few.rdd.getNumPartitions() == len(list_segments(journal))
    many = load(spark, journal, "messages", piece_bytes=1 << 16)
    assert many.rdd.getNumPartitions() > 2 * len(list_segments(journal))


def test_register_makes_the_format_known_and_columns_narrow_it(
    spark: "SparkSession", journal: Path
) -> None:
    from udpfast.spark import register

    register(spark)
    found = load(spark, journal, "trades", columns="price, symbol,session")
    assert found.columns == ["price", "symbol", "session"]
    assert found.groupBy("symbol").sum("price").count() == 5
    own = spark.read.format("udpfast").schema("symbol STRING, quantity DOUBLE")
    assert own.option("table", "trades").load(str(journal)).first().asDict() == {
        "symbol": "SYM0",
        "quantity": 2.0,
    }


def test_options_choose_times_kinds_and_symbols(spark: "SparkSession", journal: Path) -> None:
    start_ns, end_ns = BEGIN_NS + 700 * STEP_NS, BEGIN_NS + 1_200 * STEP_NS
    some = load(spark, journal, "messages", start=start_ns, end="2026-11-21T00:00:00.7Z")
    times = [row.published_ns for row in some.select("published_ns").collect()]
    assert len(times) == 500 and start_ns <= min(times) and max(times) < end_ns
    kinds = load(spark, journal, "messages", kinds="GAP,TRADES").groupBy("kind").count().collect()
    assert {row["kind"]: row["count"] for row in kinds} == {"GAP": ROUNDS, "TRADES": ROUNDS}
    trades = load(spark, journal, "trades", symbols="SYM1,SYM2")
    assert {row.symbol for row in trades.collect()} == {"SYM1", "SYM2"}


@pytest.mark.parametrize("table", ["messages", "tops", "gaps"])
def test_range_of_a_run_is_that_of_an_export(
    spark: "SparkSession", journal: Path, root: Path, tmp_path: Path, table: str
) -> None:
    # Each time is between the receipt and the publication of a record.
    start_ns, end_ns = (BEGIN_NS + each * STEP_NS + 3_000 for each in (700, 1_200))
    wanted = Wanted(start_ns, end_ns)
    list(Exporter(journal, tmp_path, tables=(table,), payloads=True, wanted=wanted).run())
    own = Bronze(spark, (str(root),), start_ns=start_ns, end_ns=end_ns).table(table)
    assert_same(own, exported(spark, tmp_path, table))


@pytest.fixture
def pushing(spark: "SparkSession") -> Iterator[None]:
    """Let sources see filters."""
    key = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(key)
    spark.conf.set(key, "true")
    yield
    spark.conf.set(key, before)


FILTERS = [
    "published_ns >= {0} and published_ns < {1}",
    "published_ns > {0} and position < 500000 and number <= 1500",
    "symbol in ('SYM1', 'SYM2') and kind = 'TRADES' and line = 1",
    "kind in ('GAP', 'NONSENSE')",
    "date = '2026-11-21' and stream = 1",
    "symbol is null and size > 20",
    "number < -1",
]


@pytest.mark.parametrize("condition", FILTERS)
def test_pushed_filters_change_no_answer(
    spark: "SparkSession", journal: Path, root: Path, pushing: None, condition: str
) -> None:
    from pyspark.testing import assertDataFrameEqual

    condition = condition.format(BEGIN_NS + 700 * STEP_NS, BEGIN_NS + 1_200 * STEP_NS)
    found = load(spark, journal, "messages", pushdown="true").where(condition).drop("payload")
    expected = exported(spark, root, "messages").where(condition).drop("payload")
    assertDataFrameEqual(found, expected)
    plan = found._jdf.queryExecution().executedPlan().toString()
    left = re.search(r"Filter .*( = | < | > | <= | >= | IN )", plan)
    assert (left is not None) == ("size" in condition), plan


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tabel": "trades"}, "option must be one of path, table"),
        ({"table": "bars"}, "table must be one of messages"),
        ({"columns": "prise"}, "columns must be among feed, position"),
        ({"kinds": "TRADE"}, "kind must be one of PAD"),
        ({"start": "2026-08-21"}, "start must have a time zone"),
        ({"pushdown": "yes"}, "pushdown must be true or false"),
        ({"table": "latency", "symbols": "A"}, "latency is made from all records"),
        ({"table": "trades", "symbols": "SYM1,SYM33"}, "symbol not published so far: 'SYM33'"),
        ({"exchanges": "SYM1"}, "exchange not published so far: 'SYM1'"),
    ],
)
def test_wrong_options_are_refused_in_one_line(
    spark: "SparkSession", journal: Path, options: dict[str, str], message: str
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=message) as caught:
        spark.read.format("udpfast").options(**options).load(str(journal)).count()
    assert "Traceback" not in str(caught.value)


def test_damage_is_an_error_that_names_the_file(
    spark: "SparkSession", journal: Path, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    for path in journal.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    path = segment_path(tmp_path, 2)
    content = bytearray(path.read_bytes())
    content[100_000] ^= 1
    path.write_bytes(content)
    tmp_path.chmod(0o700)
    with pytest.raises(PySparkException, match=r"00000002.segment: expected all records"):
        load(spark, tmp_path, "messages").count()
    assert 0 < load(spark, tmp_path, "messages", skip_damage="true").count() < 18 * ROUNDS


# --- streams -------------------------------------------------------------------------------------


def test_journal_of_another_version_has_the_same_rows(
    spark: "SparkSession", tmp_path: Path
) -> None:
    own = make_journal(tmp_path, 3)
    write_aged(own, tmp_path / "newer", LAYOUTS, NEWER)
    for table in ("messages", "levels"):
        expected = load(spark, own, table).drop("position")
        assert_same(load(spark, tmp_path / "newer", table).drop("position"), expected)
    run_stream(spark, tmp_path / "newer", tmp_path, "levels")
    assert_same(spark.read.parquet(str(tmp_path / "rows")).drop("position"), expected)


def run_stream(
    spark: "SparkSession", journal: Path, sink: Path, table: str, **options: Any
) -> list[int]:
    """Take what there is into Parquet; return the rows of each batch."""
    stream = spark.readStream.format("udpfast").options(table=table, **options).load(str(journal))
    return drain(stream, sink)


def test_stream_goes_on_where_its_checkpoint_ends(spark: "SparkSession", tmp_path: Path) -> None:
    market = Market(tmp_path / "feed", 1 << 22)
    fill(market, 150)
    journal = tmp_path / "journal"
    recorder = record(market, journal, close=False)
    assert run_stream(spark, journal, tmp_path, "messages", max_records=1_000) == [1000, 1000, 700]
    fill(market, 100)
    drive(recorder)
    recorder.on_stop()
    assert run_stream(spark, journal, tmp_path, "messages", max_records=2_000) == [1800]
    assert run_stream(spark, journal, tmp_path, "messages") == []
    found = spark.read.parquet(str(tmp_path / "rows"))
    assert_same(found, load(spark, journal, "messages").select(found.columns))
    assert found.count() == found.select("index").distinct().count() == 18 * 250
    market.close()


@pytest.mark.parametrize("table", ["levels", "latency"])
def test_stream_of_other_tables_has_all_their_rows(
    spark: "SparkSession", journal: Path, tmp_path: Path, table: str
) -> None:
    run_stream(spark, journal, tmp_path, table, max_records=1_500)
    found = spark.read.parquet(str(tmp_path / "rows"))
    whole = load(spark, journal, table)
    if table == "levels":
        assert_same(found, whole.select(found.columns))
    else:
        sums = [
            frame.groupBy("hop").sum("count").orderBy("hop").collect() for frame in (found, whole)
        ]
        assert sums[0] == sums[1] and len(sums[0]) >= 3


def test_stream_refuses_another_journal_of_the_name(spark: "SparkSession", tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    journal = tmp_path / "journal"
    append_and_die(journal, 0, 100)
    assert run_stream(spark, journal, tmp_path, "messages") == [100]
    append_and_die(journal, 100, 50)
    assert run_stream(spark, journal, tmp_path, "messages") == [50]
    shutil.rmtree(journal)
    append_and_die(journal, 0, 300)
    with pytest.raises(PySparkException, match="found another one"):
        run_stream(spark, journal, tmp_path, "messages")
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 150


@pytest.mark.nightly  # ten seconds; streams of records and of other tables are tested always
def test_stream_of_races_takes_a_segment_at_a_time(
    spark: "SparkSession",
    captured: tuple[Path, Any],  # noqa: F811
    tmp_path: Path,
) -> None:
    batches = run_stream(spark, captured[0], tmp_path, "races", max_records=1)
    assert len(batches) == len(list_segments(captured[0] / "raw"))
    found = spark.read.parquet(str(tmp_path / "rows"))
    assert_same(found, load(spark, captured[0], "races").select(found.columns))


def test_stream_from_the_tail_has_only_what_comes(
    spark: "SparkSession", journal: Path, tmp_path: Path
) -> None:
    assert run_stream(spark, journal, tmp_path, "messages", **{"from": "tail"}) == []


def test_stream_says_when_records_were_removed(spark: "SparkSession", tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    market = Market(tmp_path / "feed", 1 << 22)
    fill(market, 10)
    journal = tmp_path / "journal"
    recorder = record(market, journal, close=False)
    assert run_stream(spark, journal, tmp_path, "gaps") == [10]
    fill(market, 150)
    drive(recorder)
    recorder.on_stop()
    market.close()
    segment_path(journal, 1).unlink()
    with pytest.raises(PySparkException, match="were removed before they were read"):
        run_stream(spark, journal, tmp_path, "gaps")
    assert 0 < sum(run_stream(spark, journal, tmp_path, "gaps", skip_loss="true")) < 150
