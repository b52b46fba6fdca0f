"""A job: a reduction, which also works on a stream, and a final step on its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from udpfast.spark.bronze import Bronze

__all__ = ["Job", "Parameters"]


class Parameters(Struct, frozen=True):
    """Parameters of the jobs.

    Attributes
    ----------
    bar_s : int
        Seconds of a bar, and of a row of spreads.
    at_ns : int or None
        Time of the order books in UNIX ns; None is the end of the records.
    bucket_ms, lags : int
        For lead-lag: milliseconds of a bucket, and the largest lag in buckets, in both directions.
    """

    bar_s: int = 60
    at_ns: int | None = None
    bucket_ms: int = 100
    lags: int = 10


class Job(Struct, frozen=True):
    """One gold table.

    Attributes
    ----------
    name : str
    question : str
        The question that the table answers.
    reduce : callable
        Makes one aggregation over silver tables from bronze. Only this step reads every row: Spark
        does it for each part of the data and merges the results. It works on a stream.
    finish : callable
        Makes the table from the complete aggregation: ranks, ratios, joins. It may read a few rows
        of bronze, which is never a stream here.
    needs : tuple of str
        Tables of bronze. If all of them are empty, the job runs only when it is asked for by name.
    """

    name: str
    question: str
    reduce: Callable[[Bronze, Parameters], DataFrame]
    finish: Callable[[DataFrame, Bronze, Parameters], DataFrame]
    needs: tuple[str, ...] = ()
