"""How fast does a journal become tables, and how fast does Spark read it, either way?

    journal --> `udpfast export` --> Parquet --> Spark, or pyarrow alone
            --> data source "udpfast" ---------> Spark

A journal of tops of book, one row each, is exported with pyarrow; then the table is read with all
its columns into nothing, and summed by symbol, out of Parquet and out of the journal; and as a
stream, all there is at once, with a checkpoint. Spark is local[1]: one core reads, as another one
passes batches from Python to the JVM. Every result is compared with what was appended.

Usage: udpfast bench run export [--quick]
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from udpfast.archive.names import names_path
from udpfast.core.layout import Kind
from udpfast.errors import UdpfastError
from udpfast.export.exporter import Exporter
from udpfast.export.schema import TABLES, spark_schema
from udpfast.log.journal import Journal
from udpfast.market.names import NameTable, name_table_size
from udpfast.market.updates import LAYOUTS, TOP_OF_BOOK
from udpfast.shm.names import create_names, names_table

from .inputs import need_pyarrow
from .result import Row
from .trials import Benchmark, Outcome, Settings, Unavailable, interleave

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BENCHMARK"]

NAME = "export"
BASE = "Parquet, Spark, all columns"
TABLE = "tops"
RECORDS = 2_000_000
SYMBOLS = 10
ROUNDS = 3
PAGE = 4096
#: What a query of prices wants of the table's columns.
COLUMNS = "position,received_ns,published_ns,number,line,symbol,bid_price,ask_price,stream"
NOBODY_LISTENS = "noop"

#: 2026-11-21 09:00 UTC; records are 10 us apart.
BEGIN_NS = 1_795_251_600_000_000_000
STEP_NS = 10_000


def run(settings: Settings) -> Iterator[Row]:
    """Make the journal and its export, then measure."""
    need_pyarrow()
    count = RECORDS // 10 if settings.quick else RECORDS
    with tempfile.TemporaryDirectory() as work:
        directory = Path(work)
        settings.progress("a journal to export")
        journal = make_journal(directory / "journal", count)
        list(Exporter(journal, directory / "tables", tables=(TABLE,)).run())
        variants: dict[str, Callable[[], float | Outcome]] = {
            "export, all tables": partial(export, journal, tuple(TABLES), 1, count),
            "export, all tables, 2 threads": partial(export, journal, tuple(TABLES), 2, count),
            "export, this table": partial(export, journal, (TABLE,), 1, count),
            "Parquet, pyarrow, sum by symbol": partial(arrow_sum, directory / "tables", count),
        }
        try:
            variants |= spark_variants(open_spark(), journal, directory / "tables", count)
        except Unavailable as reason:
            settings.note(f"Spark left out: {reason}")
        trials = interleave(
            variants,
            settings,
            label=f"{count:,} rows",
            rounds=min(settings.rounds, ROUNDS),
            two_cores=False,
        )
        yield from trials.rows(
            NAME,
            "rows/s",
            {"table": TABLE, "rows": count},
            base=BASE if BASE in variants else "",
            lower_is_better=False,
        )


def make_journal(directory: Path, count: int) -> Path:
    """Return a closed journal of so many tops of book."""
    with Journal.open(directory, LAYOUTS, name="bench", durable=False) as journal:
        region = create_names(names_path(directory, 1), name_table_size(SYMBOLS + 1))
        names = NameTable(names_table(region), capacity=SYMBOLS + 1)
        updates = [update(names, number) for number in range(1_000)]
        region.mark_ready()
        region.close()
        room = 0
        for number, content in zip(range(count), itertools.cycle(updates), strict=False):
            if room < PAGE:
                journal.prepare()
                journal.roll(0, 1, BEGIN_NS + number)
                room = 1 << 27
            room -= 64 + len(content)
            at_ns = BEGIN_NS + number * STEP_NS
            journal.append(
                Kind.TOP_OF_BOOK, content, 0, at_ns, at_ns + 9_000, number=number, session=1
            )
    return directory


def update(names: NameTable, number: int) -> bytes:
    """Return one of a thousand tops of book."""
    top = np.zeros((), TOP_OF_BOOK)
    top["exchange_id"] = names.intern("exchange")
    top["symbol_id"] = names.intern(f"SYMBOL-{number % SYMBOLS}")
    top["source_send_time_utc"] = BEGIN_NS - 40_000
    top["exchange_time_utc"] = BEGIN_NS - 90_000
    top["bid_price"], top["ask_price"] = 60_000 + number % 37, 60_001 + number % 41
    top["bid_quantity"], top["ask_quantity"] = 1 + number % 5, 2 + number % 7
    return top.tobytes()


def told(count: int, found: int, seconds: float) -> Outcome:
    """Return rows a second, after comparing their number."""
    if found != count:
        raise ValueError(f"expected {count:,} rows, found {found:,}")
    return Outcome(count / seconds, verified=f"{count:,} appended = {found:,} read")


def export(journal: Path, tables: tuple[str, ...], threads: int, count: int) -> Outcome:
    """Export all of it, into a directory of its own."""
    with tempfile.TemporaryDirectory() as work:
        began = time.perf_counter()
        exporter = Exporter(journal, Path(work), tables=tables, threads=threads)
        exported = list(exporter.run())
        took = time.perf_counter() - began
    return told(count, sum(each.entry.rows()[TABLE] for each in exported), took)


def arrow_sum(root: Path, count: int) -> Outcome:
    """Sum a column by symbol, without a JVM."""
    import pyarrow.dataset as ds

    began = time.perf_counter()
    table = ds.dataset(root / TABLE, format="parquet", partitioning="hive")
    sums = table.to_table(columns=["symbol", "bid_quantity"]).group_by("symbol")
    found = sums.aggregate([("bid_quantity", "sum"), ("bid_quantity", "count")])
    took = time.perf_counter() - began
    return told(count, sum(found["bid_quantity_count"].to_pylist()), took)


# --- Spark ----------------------------------------------------------------------------------------


def open_spark() -> SparkSession:
    """Return a session on one core."""
    from udpfast.spark import open_session, register

    try:
        spark = open_session("local[1]", name="udpfast bench", memory="1g")
    except UdpfastError as error:
        raise Unavailable(str(error)) from None
    register(spark)
    return spark


def spark_variants(
    spark: SparkSession, journal: Path, root: Path, count: int
) -> dict[str, Callable[[], float | Outcome]]:
    """Return every way that goes through Spark."""
    schema = spark_schema(TABLE)
    place = str(root / TABLE)
    source = {"table": TABLE, "piece_bytes": str(max(1 << 20, count * 184 // 4))}

    def parquet() -> DataFrame:
        return spark.read.schema(schema).parquet(place)

    def live(**options: str) -> DataFrame:
        return spark.read.format("udpfast").options(**source, **options).load(str(journal))

    def grows() -> DataFrame:
        return spark.readStream.format("udpfast").options(**source).load(str(journal))

    def files() -> DataFrame:
        return spark.readStream.schema(schema).parquet(place)

    return {
        BASE: partial(read, parquet, count),
        "Parquet, Spark, sum by symbol": partial(sum_by_symbol, parquet, count),
        "source, all columns": partial(read, live, count),
        "source, 9 columns": partial(read, partial(live, columns=COLUMNS), count),
        "source, sum by symbol": partial(sum_by_symbol, live, count),
        "source, 2 columns, sum by symbol": partial(
            sum_by_symbol, partial(live, columns="symbol,bid_quantity"), count
        ),
        "stream of the source": partial(stream, grows, count),
        "stream of Parquet files": partial(stream, files, count),
    }


def read(frame: Callable[[], DataFrame], count: int) -> Outcome:
    """Read every column of every row, for nobody."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    seen = Observation()
    began = time.perf_counter()
    frame().observe(seen, F.count(F.lit(1)).alias("rows")).write.format(NOBODY_LISTENS).mode(
        "overwrite"
    ).save()
    took = time.perf_counter() - began
    return told(count, seen.get["rows"], took)


def sum_by_symbol(frame: Callable[[], DataFrame], count: int) -> Outcome:
    """Ask for a sum and a count per symbol."""
    from pyspark.sql import functions as F  # noqa: N812

    began = time.perf_counter()
    sums = frame().groupBy("symbol").agg(F.sum("bid_quantity"), F.count("*").alias("rows"))
    rows = sums.collect()
    took = time.perf_counter() - began
    return told(count, sum(row["rows"] for row in rows), took)


def stream(frame: Callable[[], DataFrame], count: int) -> Outcome:
    """Take all there is as a stream, from a new checkpoint."""
    checkpoint = tempfile.mkdtemp()
    began = time.perf_counter()
    query: Any = (
        frame()
        .writeStream.format(NOBODY_LISTENS)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    took = time.perf_counter() - began
    found = sum(batch["numInputRows"] for batch in query.recentProgress)
    shutil.rmtree(checkpoint)
    return told(count, found, took)


BENCHMARK = Benchmark(
    name=NAME,
    question="How fast does a journal become tables, and how fast does Spark read it, either way?",
    topology="""
journal --> udpfast export --> Parquet --> Spark, or pyarrow alone      one core
        --> data source "udpfast" -------> Spark                        one core, and the pipe to it
""",
    run=run,
    seconds=70.0,
)
