"""Imbalance of the quantities at the top of the book, and the move of the mid meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from udpfast.spark import silver
from udpfast.spark.jobs.job import Job, Parameters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from udpfast.spark.bronze import Bronze

__all__ = ["IMBALANCE"]

KEYS = silver.INSTRUMENT


def reduce_imbalance(bronze: Bronze, parameters: Parameters) -> DataFrame:
    """Aggregate the tops of book of an instrument and period. Each has the same weight.

    The imbalance is 1 if only the bid has a quantity and -1 if only the ask has one. Tops without
    any quantity are left out.
    """
    bid, ask = F.col("bid_quantity"), F.col("ask_quantity")
    return (
        silver.quotes(bronze)
        .withColumn("imbalance", silver.finite(F.try_divide(bid - ask, bid + ask)))
        .where(F.col("imbalance").isNotNull())
        .groupBy(*KEYS, silver.period(parameters.bar_s).alias("time"))
        .agg(
            F.count("*").alias("quotes"),
            F.avg("imbalance").alias("imbalance_mean"),
            F.min("imbalance").alias("imbalance_min"),
            F.max("imbalance").alias("imbalance_max"),
            F.max_by("imbalance", "at").alias("imbalance_last"),
            F.min_by("mid", "at").alias("mid_first"),
            F.max_by("mid", "at").alias("mid_last"),
        )
    )


def finish_imbalance(sums: DataFrame, _: Bronze, __: Parameters) -> DataFrame:
    """Add the move of the mid, and sort the rows."""
    moved = silver.finite(F.col("mid_last") - F.col("mid_first"))
    return sums.withColumn("mid_moved", moved).orderBy(*KEYS, "time")


IMBALANCE = Job(
    "imbalance",
    "How much more was bid than asked at the top, and where did the mid go, per period?",
    reduce_imbalance,
    finish_imbalance,
)
