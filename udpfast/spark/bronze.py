"""Bronze: the unchanged tables of exports and journals, read once or as they grow.

The columns are those of `export/schema.py`. A table that an export lacks (no trades on this feed,
no raw capture) is read as a table without rows, so that every job runs on every export.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyarrow.fs import FileSelector, FileType

from udpfast.errors import FormatError
from udpfast.export.race_rows import unraced
from udpfast.export.schema import TABLES, spark_schema, table_of
from udpfast.spark.gold import open_file_system

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["JOURNAL", "ROOTS_MAX", "Bronze"]

#: Prefix of a journal's directory, which is read without an export.
JOURNAL = "journal:"

#: Positions of each further root are shifted behind those of the roots before it, so that a feed
#: that was recorded in several journals has one order. No journal has that many bytes.
POSITION_BITS = 54
POSITIONS = 1 << POSITION_BITS
ROOTS_MAX = 1 << 9

#: A stream of files skips those that are older than the newest one by this; so it skips none.
_FILE_AGE_MAX = "36500d"


@dataclass(frozen=True, slots=True)
class Bronze:
    """The tables of one or more exports or journals.

    Attributes
    ----------
    spark : SparkSession
        The session.
    roots : tuple of str
        Directories that `udpfast export` wrote, in any file system that Spark reads; or
        `journal:` and the directory of a journal. Several roots of one feed must be in the order
        of time.
    streaming : bool
        True: read existing rows and then new ones. False: read existing rows.
    start_ns, end_ns : int or None
        Only records published from `start_ns` on and before `end_ns`, UNIX ns, as `export.Wanted`
        takes them; of `latency` whole minutes. None: no limit.
    ends : tuple of (str, int)
        Only records up to these positions, by feed: those that a stream has read.
    found : dict, optional
        Results that the jobs of a run share; None: they share none.
    """

    spark: SparkSession
    roots: tuple[str, ...]
    streaming: bool = False
    start_ns: int | None = None
    end_ns: int | None = None
    ends: tuple[tuple[str, int], ...] = ()
    found: dict[Any, Any] | None = field(default=None, compare=False, repr=False)

    def check(self) -> None:
        """Check that the exports exist; a single missing table counts as an empty one.

        Raises
        ------
        FormatError
            A root has none of the tables.
        """
        from pyspark.errors import AnalysisException

        for root in self.roots:
            if root.startswith(JOURNAL):
                continue
            for name in TABLES:
                try:
                    self.spark.read.schema(spark_schema(name)).parquet(f"{root}/{name}")
                except AnalysisException as error:
                    if error.getCondition() != "PATH_NOT_FOUND":
                        raise
                else:
                    break
            else:
                raise FormatError(f"{root}: expected an export, found none of its tables")

    def may_have(self, names: Iterable[str]) -> bool:
        """Return whether any of these tables may have rows; for a journal always True."""
        for root in self.roots:
            if root.startswith(JOURNAL):
                return True
            files, path = open_file_system(root)
            for name in names:
                selector = FileSelector(f"{path}/{name}", allow_not_found=True, recursive=True)
                if any(info.type == FileType.File for info in files.get_file_info(selector)):
                    return True
        return False

    def table(self, name: str) -> DataFrame:
        """Return a table by its name in `export/schema.py`."""
        frames = [
            self._placed(self._read(name, root), place) for place, root in enumerate(self.roots)
        ]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        times = "minute_ns" if name == "latency" else "published_ns"
        if self.start_ns is not None:
            whole = whole.where(whole[times] >= self.start_ns)
        if self.end_ns is not None:
            whole = whole.where(whole[times] < self.end_ns)
        if self.ends and "position" in whole.columns:
            ends = self.spark.createDataFrame(list(self.ends), "feed STRING, _end BIGINT")
            whole = (
                whole.join(ends.hint("broadcast"), "feed").where("position <= _end").drop("_end")
            )
        return whole

    def _placed(self, frame: DataFrame, place: int) -> DataFrame:
        if not place or "position" not in frame.columns:
            return frame
        return frame.withColumn("position", frame.position + place * POSITIONS)

    def _read(self, name: str, root: str) -> DataFrame:
        from pyspark.errors import AnalysisException

        schema = spark_schema(name)
        if root.startswith(JOURNAL):
            from udpfast.spark import register

            journal = root.removeprefix(JOURNAL)
            raw = Path(journal) / "raw"
            if table_of(name).raw and (not raw.is_dir() or unraced(raw.parent)):
                return self.spark.createDataFrame([], schema)
            register(self.spark)
            reader = self.spark.readStream if self.streaming else self.spark.read
            return reader.format("udpfast").option("table", name).load(journal)
        path = f"{root}/{name}"
        if self.streaming:
            files = self.spark.readStream.schema(schema).option("maxFileAge", _FILE_AGE_MAX)
            return files.parquet(path)
        try:
            return self.spark.read.schema(schema).parquet(path)
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return self.spark.createDataFrame([], schema)
