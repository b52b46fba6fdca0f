"""Damaged journals in Spark itself: batches of several in one query, and a stream."""

import functools
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.journals import Journals, Written, content, damage
from tests.spark.streams import drain
from udpfast.log.journal_cursor import JournalCursor

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

SEEDS = range(1, 4)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> list[Written]:
    """Return journals whose segments are damaged, each in its way."""
    work = tmp_path_factory.mktemp("journals")
    found = []
    for seed in SEEDS:
        written, other = Journals.write(seed, work / f"{seed}"), Journals(work)[9]
        saved = (written.directory / "journal").read_bytes()
        damage(written.directory, random.Random(seed), other.directory)
        (written.directory / "journal").write_bytes(saved)  # somebody knows how much there was
        found.append(written)
    return found


def in_order(rows: "list[Row]") -> list[int]:
    """Return the indices of rows that are the records written there, in their order."""
    assert all(row["payload"] == content(row["index"]) for row in rows)
    return sorted(row["index"] for row in rows)


def test_batch_of_damaged_journals_has_what_a_cursor_reads(
    spark: "SparkSession", damaged: list[Written]
) -> None:
    options = {"columns": "index,payload", "payloads": "true", "skip_damage": "true"}
    tables = [
        spark.read.format("udpfast").options(**options).load(str(written.directory))
        for written in damaged
    ]
    found = in_order(functools.reduce(lambda a, b: a.unionAll(b), tables).collect())
    expected = 0
    for written in damaged:
        with JournalCursor.attach(written.directory, follow=False) as cursor:
            while count := cursor.poll():
                expected += count
            missing = written.records - written.first
            assert cursor.missed_total <= missing
    assert len(found) == expected


def test_stream_of_a_damaged_journal_has_all_or_says_what_is_missing(
    spark: "SparkSession", damaged: list[Written], tmp_path: Path
) -> None:
    directory = tmp_path / "journal"
    written = Journals.write(5, directory)
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    (segment, *_) = sorted(directory.glob("*.segment"))[1:2]
    segment.unlink()
    options = {"columns": "index,payload", "payloads": "true"}

    def run(**more: str) -> "list[Row]":
        stream = spark.readStream.format("udpfast").options(**options | more)
        drain(stream.load(str(directory)), tmp_path / "out")
        return spark.read.parquet(str(tmp_path / "out" / "rows")).collect()

    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException, match="are no longer in any segment"):
        run()
    found = in_order(run(skip_damage="true", skip_loss="true"))
    with JournalCursor.attach(directory, follow=False) as cursor:
        while cursor.poll():
            pass
        assert len(found) + cursor.missed_total == written.records - written.first
