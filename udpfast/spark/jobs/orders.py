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

#: By how much, relatively, sums of quantities may differ and be the same.
ROUNDING = 1e-9

#: The session is included, because ids are unique only within one.
BOOK = (*silver.OBJECT, "session")
ORDER = (*BOOK, "order_id")
QUEUE = (*BOOK, "side", "price")
STAY = (*ORDER, "side", "price", "priority")
MESSAGE = (*BOOK, "stream", "number", "received_ns")


def reduce_orders(bronze: Bronze, _: Parameters) -> DataFrame:
    """Aggregate the changes of each stay."""
    return (
        silver.orders(bronze)
        .groupBy(*STAY)
        .agg(
            F.min("at").alias("begin"),
            F.max("at").alias("last"),
            *(F.min_by(name, "at").alias(name) for name in ("stream", "number", "received_ns")),
            F.max_by("received_ns", "at").alias("last_ns"),
            F.max("quantity").alias("most"),
            F.max_by("quantity", "at").alias("left"),
            F.min_by("action", "at").alias("first_action"),
            F.max_by("action", "at").alias("action"),
        )
    )


def finish_orders(stays: DataFrame, bronze: Bronze, _: Parameters) -> DataFrame:
    """Count the orders of each instrument."""
    there = dataclasses.replace(bronze, streaming=False)
    whole = (
        placed(stays, snapshots(there))
        .join(filled(there), list(STAY), "left")
        .groupBy(*ORDER, "life")
        .agg(
            F.sum("asked").alias("quantity"),
            F.min_by("received_ns", "begin").alias("begin_ns"),
            F.max("last_ns").alias("last_ns"),
            (F.max_by("action", "last") == "Delete").alias("ended"),
            F.min_by("first_action", "begin").alias("first_action"),
            F.min_by("told", "begin").alias("told"),
            F.min_by("place", "begin").alias("place"),
            F.coalesce(F.sum("filled"), F.lit(0.0)).alias("filled"),
        )
        .where("first_action <> 'Delete'")
    )
    # When an order was placed is unknown if a snapshot told of it, or a change was its first row.
    seen = F.col("told").isNull() & (F.col("first_action") == "New")
    lived = F.when(seen & F.col("ended"), F.col("last_ns") - F.col("begin_ns"))
    place = F.when(seen, F.col("place"))
    # Sums of decimals are off by rounding.
    cancelled = F.col("ended") & (F.col("filled") < F.col("quantity") * (1 - ROUNDING))
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


def snapshots(bronze: Bronze) -> DataFrame:
    """Return the records that replace all orders of a book."""
    return (
        bronze.table("messages")
        .where("kind = 'ORDERS' AND snapshot")
        .select(*MESSAGE, F.col("position").alias("at"))
    )


def placed(stays: DataFrame, whole: DataFrame) -> DataFrame:
    """Return stays with what follows from others.

    `place` is how many orders were at that price when the stay began, `life` counts the orders that
    had the same id one after the other, `asked` is by how much the order grew, and `told` is the
    snapshot that told of it, or NULL. Only the first record of a large snapshot is marked as one.
    """
    mine = Window.partitionBy(*ORDER).orderBy("begin")
    told = whole.groupBy(*MESSAGE).agg(F.min("at").alias("told"))
    stays = ended(stays, whole).join(told, list(MESSAGE), "left")
    # A snapshot that does not tell of an order ends its life, too.
    dead = (F.lag("action").over(mine) == "Delete") | (
        F.lag("replaced").over(mine) < F.coalesce("told", "begin")
    )
    another = F.coalesce(dead, F.lag("begin").over(mine).isNull())
    grown = F.col("most") - F.when(F.col("another"), 0.0).otherwise(F.lag("left").over(mine))
    stays = (
        stays.withColumn("another", another)
        .withColumn("life", F.sum(F.col("another").cast("bigint")).over(mine))
        .withColumn("asked", F.greatest(grown, F.lit(0.0)))
    )
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


def ended(stays: DataFrame, whole: DataFrame) -> DataFrame:
    """Return stays with their `end`, NULL if it still lasts, and the next snapshot (`replaced`).

    Besides the order's own next row, a snapshot without the order ends its stay.
    """
    mine = Window.partitionBy(*ORDER).orderBy("begin")
    later = Window.partitionBy(*BOOK).orderBy("when").rowsBetween(1, Window.unboundedFollowing)
    both = stays.withColumn("when", F.col("last")).unionByName(
        whole.select(*BOOK, F.expr("at - 1").alias("when"), F.col("at").alias("replaced")),
        allowMissingColumns=True,
    )
    both = both.withColumn("replaced", F.min("replaced").over(later)).where("begin IS NOT NULL")
    moved = F.least(F.lead("begin").over(mine), "replaced")
    end = F.when(F.col("action") == "Delete", F.col("last")).otherwise(moved)
    return both.withColumn("end", end).drop("when")


def filled(bronze: Bronze) -> DataFrame:
    """Return how much of each order was executed.

    Where rows say that an execution made them, they are all that was filled in their message:
    some executions are on no tape. Elsewhere the trades in an order's own messages fill it. Either
    way it is filled by no more than what it shrinks: where a number is that of a datagram (CME),
    its trades are those of many orders.
    """
    message = [*silver.INSTRUMENT, "session", "stream", "number"]
    trades = (
        bronze.table("trades")
        .groupBy(*message)
        .agg(F.sum(silver.finite(F.col("quantity"))).alias("traded"))
    )
    mine = Window.partitionBy(*ORDER).orderBy("at")
    shrunk = F.greatest(F.lag("quantity").over(mine) - F.col("quantity"), F.lit(0.0))
    return (
        silver.orders(bronze)
        .withColumn("shrunk", shrunk)
        .where("action <> 'New' AND (shrunk > 0 OR executed)")
        .join(trades, message, "left")
        .withColumn("tells", F.max("executed").over(Window.partitionBy(*message)))
        .where("executed OR (NOT tells AND traded IS NOT NULL)")
        .groupBy(*STAY)
        .agg(F.sum(F.least("shrunk", "traded")).alias("filled"))  # `least` skips NULL
    )


ORDERS = Job(
    "orders",
    "How long do orders live, how many are cancelled, and where in the queue do they begin?",
    reduce_orders,
    finish_orders,
    needs=("orders",),
)
