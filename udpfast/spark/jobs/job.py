"""A job: a reduction, which a stream can do too, and a last step on its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from udpfast.spark.bronze import Bronze

__all__ = ["Job", "Parameters"]


@dataclass(frozen=True, slots=True)
class Parameters:
    """What may be asked of the jobs.

    Attributes
    ----------
    bar_s : int
        Seconds of a bar, and of a row of spreads.
    at_ns : int or None
        UNIX ns of the book that is wanted; None: the last.
    bucket_ms, lags : int
        Of lead-lag: milliseconds of a bucket, and how many buckets to look to either side.
    """

    bar_s: int = 60
    at_ns: int | None = None
    bucket_ms: int = 100
    lags: int = 10


@dataclass(frozen=True, slots=True)
class Job:
    """One gold table.

    Attributes
    ----------
    name : str
    question : str
        That the table answers.
    reduce : callable
        From bronze to one aggregation over silver tables. Spark does it for each part of the data
        and merges the results: the only step that sees every row. Works on a stream.
    finish : callable
        From the whole aggregation, and bronze where a few rows of it are needed besides, to the
        table: ranks, ratios, joins. Never on a stream: bronze is what is there.
    needs : tuple of str
        Tables of bronze, without any of which it is left out unless it is asked for by its name.
    """

    name: str
    question: str
    reduce: Callable[[Bronze, Parameters], DataFrame]
    finish: Callable[[DataFrame, Bronze, Parameters], DataFrame]
    needs: tuple[str, ...] = ()
