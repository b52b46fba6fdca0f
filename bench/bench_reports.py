"""What do the jobs of the reports take, beside queries written for Spark by hand?

    export (Parquet) --> silver, reduce, finish --> rows      udpfast spark run
                     --> one SQL query -----------> rows      written for this question alone

Both run on local[2] over the same tables of random rows, six instruments and two lines over three
hours. What they find is compared first, value by value; that run also warms the JVM up.

Usage: udpfast bench run reports [--quick]
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from udpfast.errors import UdpfastError
from udpfast.export.schema import spark_schema

from .inputs import need_pyarrow
from .reports_by_hand import QUERIES
from .result import Row
from .trials import Benchmark, Outcome, Settings, Unavailable, interleave

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from udpfast.spark.bronze import Bronze

__all__ = ["BENCHMARK"]

NAME = "reports"
HAND = "by hand"
ROWS = 2_000_000
FILES = 8
INSTRUMENTS = 6
#: Messages per gap.
GAPS = 100
ROUNDS = 5

#: 2026-11-21 09:00 UTC.
BEGIN_NS = 1_795_251_600_000_000_000
SPAN_NS = 3 * 3_600_000_000_000


def run(settings: Settings) -> Iterator[Row]:
    """Make the tables, compare each job with its query, then time them."""
    need_pyarrow()
    count = ROWS // 10 if settings.quick else ROWS
    with tempfile.TemporaryDirectory() as work:
        settings.progress("tables to report on")
        make_export(Path(work), count)
        bronze = open_bronze(work)
        for name in QUERIES:
            rows = compare(job_rows(bronze, name), query_rows(bronze, name))
            verified = f"{rows:,} rows equal"
            trials = interleave(
                {
                    HAND: partial(timed, query_rows, bronze, name, verified),
                    "udpfast": partial(timed, job_rows, bronze, name, verified),
                },
                settings,
                label=name,
                rounds=min(settings.rounds, ROUNDS),
                two_cores=False,
            )
            yield from trials.rows(
                NAME,
                "s",
                {"job": name, "rows": count},
                base=HAND,
                goals={"udpfast": "P22: <= 1.5"},
            )


def make_export(root: Path, count: int) -> None:
    """Write the columns that these jobs read, of tables with so many rows each."""
    import pyarrow as pa
    from pyarrow import parquet

    chance = np.random.default_rng(1)
    for name, make in TABLE_MAKERS.items():
        for file in range(FILES):
            rows = count // FILES // (GAPS if name == "gaps" else 1)
            number = np.arange(file * rows, (file + 1) * rows)
            at_ns = BEGIN_NS + number * (SPAN_NS // (rows * FILES))
            columns = make(chance, rows, number)
            each = len(next(iter(columns.values()))) // rows  # records of one position and time
            columns |= {
                "feed": np.full(rows * each, "bench"),
                "position": np.repeat(number * 256, each) + np.tile(128 * np.arange(each), rows),
                "received_ns": np.repeat(at_ns, each),
            }
            folder = root / name / "date=2026-11-21/stream=0/session=s1"
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"part-{file:05}.parquet"
            parquet.write_table(pa.table(columns), path, compression="zstd")


def instruments(chance: np.random.Generator, rows: int) -> dict[str, Any]:
    """Return the columns that tell the object of each row, and its flags."""
    which = chance.integers(0, INSTRUMENTS, rows)
    symbols = np.array([f"SYMBOL-{number}" for number in range(INSTRUMENTS)])
    return {
        "exchange": np.full(rows, "deribit"),
        "symbol": symbols[which],
        "object": which + 1,
        "flags": np.zeros(rows, np.int32),
    }


def trades(chance: np.random.Generator, rows: int, _: Any) -> dict[str, Any]:
    """Return the columns of trades."""
    return {
        **instruments(chance, rows),
        "row": np.zeros(rows, np.int32),
        "side": np.where(chance.random(rows) < 0.5, "Buy", "Sell"),
        "price": 60_000 + chance.integers(-500, 500, rows) / 2,
        "quantity": chance.integers(1, 100, rows).astype(float),
    }


def tops(chance: np.random.Generator, rows: int, _: Any) -> dict[str, Any]:
    """Return the columns of tops of book."""
    bid = 60_000 + chance.integers(-500, 500, rows) / 2
    return {
        **instruments(chance, rows),
        "bid_price": bid,
        "bid_quantity": chance.integers(1, 100, rows).astype(float),
        "ask_price": bid + chance.integers(1, 9, rows) / 2,
        "ask_quantity": chance.integers(1, 100, rows).astype(float),
    }


def levels(_: np.random.Generator, rows: int, number: Any) -> dict[str, Any]:
    """Return the columns of levels, one of each update of a book."""
    chance = np.random.default_rng(number[0] + 1)
    return {
        **updates(rows, number),
        "row": np.zeros(rows, np.int32),
        "side": np.where(chance.random(rows) < 0.5, "Bid", "Ask"),
        "price": 60_000 + chance.integers(-2_000, 2_000, rows) / 2,
        "quantity": chance.integers(0, 5, rows).astype(float),
    }


def messages(chance: np.random.Generator, rows: int, number: Any) -> dict[str, Any]:
    """Return the columns of messages: the updates of the books, and as many of something else."""
    books = {
        **updates(rows, number),
        "kind": np.full(rows, "BOOK"),
        "update_type": np.full(rows, "Incremental"),
    }
    trades = {
        **books,
        **instruments(chance, rows),
        "kind": np.full(rows, "TRADES"),
        "snapshot": np.zeros(rows, bool),
    }
    return {
        "rows": np.ones(2 * rows, np.int32),
        **{name: np.stack((books[name], trades[name]), axis=1).ravel() for name in books},
    }


def updates(rows: int, number: Any) -> dict[str, Any]:
    """Return what records of updates of books have in all tables: now and then a snapshot."""
    chance = np.random.default_rng(number[0])
    return {
        **instruments(chance, rows),
        "snapshot": number % (rows // 4) < 2 * INSTRUMENTS,
    }


def gaps(chance: np.random.Generator, rows: int, number: Any) -> dict[str, Any]:
    """Return the columns of gaps: of numbers that no race has."""
    return {
        "first_number": 2 * number + 1,
        "last_number": 2 * number + 1,
        "lost": chance.integers(1, 9, rows),
        "reason": np.where(chance.random(rows) < 0.5, "COUNT", "TIME"),
        "waited_ns": chance.integers(0, 1_000_000, rows),
    }


def races(chance: np.random.Generator, rows: int, number: Any) -> dict[str, Any]:
    """Return the columns of races between two lines."""
    import pyarrow as pa

    winner = chance.integers(0, 2, rows).astype(np.int32)
    lead = chance.lognormal(11, 1.5, rows).astype(np.int64)
    delays = np.zeros((rows, 2), np.int64)
    delays[np.arange(rows), 1 - winner] = lead
    alone = chance.random(rows) < 0.01
    missing = np.zeros((rows, 2), bool)
    missing[np.arange(rows), 1 - winner] = alone
    places = pa.array(np.arange(rows + 1, dtype=np.int32) * 2)
    return {
        "number": 2 * number,
        "stamped": np.ones(rows, bool),
        "winner": winner,
        "completed": chance.random(rows) < 0.9,
        "lead_ns": pa.array(lead, mask=alone),
        "delays_ns": pa.ListArray.from_arrays(
            places, pa.array(delays.ravel(), mask=missing.ravel())
        ),
    }


TABLE_MAKERS = {
    "trades": trades,
    "tops": tops,
    "levels": levels,
    "messages": messages,
    "gaps": gaps,
    "races": races,
}


# --- Spark ----------------------------------------------------------------------------------------


def open_bronze(root: str) -> Bronze:
    """Return the tables, which queries find as views."""
    from udpfast.spark import open_session

    try:
        spark = open_session("local[2]", name="udpfast bench", memory="2g")
    except UdpfastError as error:
        raise Unavailable(str(error)) from None
    return view_tables(spark, root)


def view_tables(spark: SparkSession, root: str) -> Bronze:
    """Make a view of each table, and return them all as the jobs read them."""
    from udpfast.spark.bronze import Bronze

    for name in TABLE_MAKERS:
        folder = f"{root}/{name}"
        spark.read.schema(spark_schema(name)).parquet(folder).createOrReplaceTempView(name)
    return Bronze(spark, (root,))


def job_rows(bronze: Bronze, name: str) -> list[dict[str, Any]]:
    """Return what a job finds."""
    from udpfast.spark.jobs import JOBS, Parameters

    job = JOBS[name]
    table = job.finish(job.reduce(bronze, Parameters()), bronze, Parameters())
    return [row.asDict() for row in table.collect()]


def query_rows(bronze: Bronze, name: str) -> list[dict[str, Any]]:
    """Return what the query finds."""
    return [row.asDict() for row in bronze.spark.sql(QUERIES[name]).collect()]


def timed(rows: Any, bronze: Bronze, name: str, verified: str) -> Outcome:
    """Return the seconds that one of them takes."""
    began = time.perf_counter()
    rows(bronze, name)
    return Outcome(time.perf_counter() - began, verified=verified)


def compare(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> int:
    """Return how many rows there are, all that a query selects being equal."""
    keys = ("feed", "exchange", "symbol", "stream", "line", "hour", "time", "side", "level")
    for rows in (found, expected):
        rows.sort(key=lambda row: [str(row[key]) for key in keys if key in row])
    if len(found) != len(expected):
        raise ValueError(f"expected {len(expected)} rows, found {len(found)}")
    for one, other in zip(found, expected, strict=True):
        leads = other.pop("leads", ())
        one_leads = [one[f"lead_{p}_ns"] for p in ("p50", "p90", "p99", "p99_9") if leads]
        pairs = [(one[name], value, 1e-9) for name, value in other.items()]
        pairs += [(a, b, 0.01) for a, b in zip(one_leads, leads, strict=False)]
        for a, b, tolerance in pairs:
            equal = abs(a - b) <= tolerance * abs(b) if isinstance(b, float) else a == b
            if not equal:
                raise ValueError(f"expected {other}, found {one}")
    return len(found)


BENCHMARK = Benchmark(
    name=NAME,
    question="What do the jobs of the reports take, beside queries written for Spark by hand?",
    topology="""
export (Parquet) --> silver, reduce, finish --> rows      udpfast spark run
                 --> one SQL query -----------> rows      written for this question alone
""",
    run=run,
    seconds=100.0,
    by_name=True,
)
