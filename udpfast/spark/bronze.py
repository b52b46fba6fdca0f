"""Bronze: the tables of an export as they are, read at once or as they grow.

The columns are those of `export/schema.py`. A table of which an export has nothing (no trades on
this feed, no raw capture) is one without rows, so that every job runs on every export.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from udpfast.export.schema import spark_schema, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Bronze"]


@dataclass(frozen=True, slots=True)
class Bronze:
    """The tables of one or more exports.

    Attributes
    ----------
    spark : SparkSession
    roots : tuple of str
        Directories that `udpfast export` wrote, in any file system that Spark reads.
    streaming : bool
        Read what is there and then what comes, instead of what is there.
    start_ns, end_ns : int or None
        Only records received from then on, and before then.
    """

    spark: SparkSession
    roots: tuple[str, ...]
    streaming: bool = False
    start_ns: int | None = None
    end_ns: int | None = None

    def table(self, name: str) -> DataFrame:
        """Return a table by its name in `export/schema.py`."""
        frames = [self._read(name, f"{root}/{table_of(name).directory}") for root in self.roots]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        times = "minute_ns" if name == "latency" else "received_ns"
        if self.start_ns is not None:
            whole = whole.where(whole[times] >= self.start_ns)
        if self.end_ns is not None:
            whole = whole.where(whole[times] < self.end_ns)
        return whole

    def _read(self, name: str, path: str) -> DataFrame:
        from pyspark.errors import AnalysisException

        schema = spark_schema(name)
        if self.streaming:
            return self.spark.readStream.schema(schema).parquet(path)
        try:
            return self.spark.read.schema(schema).parquet(path)
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return self.spark.createDataFrame([], schema)
