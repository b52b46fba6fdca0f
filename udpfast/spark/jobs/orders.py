"""Orders: how long they live, how they end, how much is filled, and their place in the queue.

A *stay* is the time that an order spends at one place in a queue. It ends when the order is
removed, or gets another price or priority. Only the first step reads every row, and makes stays;
the other steps count them.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from udpfast.spark import silver
from udpfast.spark.jobs.job import Job, Parameters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from udpfast.spark.bronze import Bronze

__all__ = ["ORDERS"]

#: The session is included, because ids are unique only within one.
ORDER = (*silver.OBJECT, "session", "order_id")
QUEUE = (*silver.OBJECT, "session", "side", "price")


def reduce_orders(bronze: Bronze, _: Parameters) -> DataFrame:
    """Aggregate the changes of each stay."""
    return (
        silver.orders(bronze)
        .groupBy(*ORDER, "side", "price", "priority")
        .agg(
            F.min("at").alias("begin"),
            F.max("at").alias("last"),
            F.min_by("received_ns", "at").alias("begin_ns"),
            F.max_by("received_ns", "at").alias("last_ns"),
            F.min_by("quantity", "at").alias("quantity"),
            F.max_by("action", "at").alias("action"),
            F.min_by("snapshot", "at").alias("snapshot"),
        )
    )


def finish_orders(stays: DataFrame, bronze: Bronze, _: Parameters) -> DataFrame:
    """Count the orders of each instrument."""
    whole = (
        placed(stays)
        .groupBy(*ORDER)
        .agg(
            F.min_by("quantity", "begin").alias("quantity"),
            F.min("begin_ns").alias("begin_ns"),
            F.max("last_ns").alias("last_ns"),
            (F.max_by("action", "last") == "Delete").alias("ended"),
            F.min_by("snapshot", "begin").alias("snapshot"),
            F.min_by("place", "begin").alias("place"),
        )
        .join(filled(bronze), list(ORDER), "left")
        .fillna(0.0, ["filled"])
    )
    # The time at which an order from a snapshot was placed is unknown.
    seen = ~F.col("snapshot")
    lived = F.when(seen & F.col("ended"), F.col("last_ns") - F.col("begin_ns"))
    place = F.when(seen, F.col("place"))
    cancelled = F.col("ended") & (F.col("filled") < F.col("quantity"))
    counted = whole.groupBy(*silver.OBJECT).agg(
        F.count("*").alias("orders"),
        F.sum(F.col("ended").cast("bigint")).alias("ended"),
        F.sum(cancelled.cast("bigint")).alias("cancelled"),
        silver.finite(F.sum("quantity")).alias("quantity"),
        silver.finite(F.sum("filled")).alias("filled"),
        F.avg(lived).alias("lifetime_mean_ns"),
        F.percentile(lived, 0.5).alias("lifetime_p50_ns"),
        F.percentile(lived, 0.99).alias("lifetime_p99_ns"),
        F.avg(place).alias("place_mean"),
        F.percentile(place, 0.5).alias("place_p50"),
        F.avg((place == 0).cast("double")).alias("at_front"),
    )
    return (
        counted.withColumn("cancel_ratio", F.try_divide("cancelled", "ended"))
        .withColumn("fill_ratio", F.try_divide("filled", "quantity"))
        .orderBy(*silver.OBJECT)
    )


def placed(stays: DataFrame) -> DataFrame:
    """Return stays with `place`: how many orders were at that price when each stay began."""
    mine = Window.partitionBy(*ORDER).orderBy("begin")
    ended = F.when(F.col("action") == "Delete", F.col("last")).otherwise(F.lead("begin").over(mine))
    stays = stays.withColumn("end", ended)
    # Orders that leave are counted before orders that come at the same moment.
    come = stays.withColumn("when", F.col("begin")).withColumn("change", F.lit(1))
    gone = stays.where("end IS NOT NULL").withColumn("when", F.col("end"))
    gone = gone.withColumn("change", F.lit(-1))
    before = Window.partitionBy(*QUEUE).orderBy("when", "change")
    before = before.rowsBetween(Window.unboundedPreceding, -1)
    return (
        come.unionByName(gone)
        .withColumn("place", F.coalesce(F.sum("change").over(before), F.lit(0)))
        .where("change = 1")
    )


def filled(bronze: Bronze) -> DataFrame:
    """Return how much of each order was traded, from the trades in its own messages."""
    there = dataclasses.replace(bronze, streaming=False)
    message = [*silver.INSTRUMENT, "session", "stream", "number"]
    trades = (
        there.table("trades")
        .groupBy(*message)
        .agg(F.sum(silver.finite(F.col("quantity"))).alias("traded"))
    )
    changed = silver.orders(there).where("action <> 'New' AND NOT snapshot")
    return changed.join(trades, message).groupBy(*ORDER).agg(F.sum("traded").alias("filled"))


ORDERS = Job(
    "orders",
    "How long do orders live, how many are cancelled, and where in the queue do they begin?",
    reduce_orders,
    finish_orders,
    needs=("orders",),
)
