"""The messages of a bus: whether each is there exactly once, and how late a composite took it.

A store holds only its sequencer's stamps. No record shows when an app called `send`, which messages
were sent again, or which were refused as duplicates. The records do show two things: whether all
numbers of a sender are there, once; and, in a composite, how long after its stamp a message reached
the host that decides the order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from udpfast.spark import silver
from udpfast.spark.jobs.job import Job, Parameters
from udpfast.spark.quantiles import quantiles, slot_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from udpfast.spark.bronze import Bronze

__all__ = ["BUS", "SEEN"]

#: Bronze tables that only a bus has.
BRONZE = ("bus", "senders", "merges")

KEYS = ("feed", "session", "sender", "incarnation")
TIMES = ("feed", "session", "time")


def reduce_bus(bronze: Bronze, _: Parameters) -> DataFrame:
    """Add up the messages of each sender, per slot of the time until they were seen."""
    number = F.col("number")
    return (
        silver.sent(bronze)
        .withColumn("slot", slot_value("seen_ns"))
        .groupBy(*KEYS, "slot")
        .agg(
            F.count("number").alias("count"),
            F.sum("size").alias("bytes"),
            F.min("number").alias("first_number"),
            F.max("number").alias("last_number"),
            # As a decimal, so that the sum of large numbers is exact.
            F.sum(number.cast("decimal(19,0)")).alias("numbers"),
            F.min(F.when(number.isNotNull(), F.col("published_ns"))).alias("first_ns"),
            F.max(F.when(number.isNotNull(), F.col("published_ns"))).alias("last_ns"),
            F.max("name").alias("name"),
            F.max("host").alias("host"),
            F.sum("taken_back").alias("taken_back"),
        )
    )


def finish_bus(slots: DataFrame, _: Bronze, __: Parameters) -> DataFrame:
    """Make a row per outbox: what it sent, and which numbers are missing or there twice.

    The numbers from the first to the last that is there count. `missing` and `twice` are net of
    each other; `whole` means that the sum of the numbers is correct too. Records that a copy had
    before an input lost them may be there twice: `taken_back` counts them.
    """
    span = F.col("last_number") - F.col("first_number") + 1
    middle = (F.col("last_number") + F.col("first_number")).cast("decimal(20,0)")
    sums = slots.groupBy(*KEYS).agg(
        F.sum("count").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.min("first_number").alias("first_number"),
        F.max("last_number").alias("last_number"),
        F.sum("numbers").alias("numbers"),
        F.min("first_ns").alias("first_ns"),
        F.max("last_ns").alias("last_ns"),
        F.max("name").alias("name"),
        F.max("host").alias("host"),
        F.sum("taken_back").alias("taken_back"),
    )
    stream = Window.partitionBy("feed", "session")
    found = sums.withColumns(
        {
            "missing": F.greatest(span - F.col("messages"), F.lit(0)),
            "twice": F.greatest(F.col("messages") - span, F.lit(0)),
            "whole": (F.col("messages") == span) & (F.col("numbers") * 2 == middle * span),
            "taken_back": F.coalesce(F.max("taken_back").over(stream), F.lit(0)),
        }
    )
    seen = quantiles(slots.where(F.col("slot").isNotNull()), KEYS, "slot").drop("count")
    named = {name: f"seen_{name}_ns" for name in seen.columns if name not in KEYS}
    return (
        found.where(F.col("messages") > 0)
        .drop("numbers")
        .join(seen.withColumnsRenamed(named), list(KEYS), "left")
        .orderBy(*KEYS)
    )


def reduce_seen(bronze: Bronze, parameters: Parameters) -> DataFrame:
    """Count the messages of each input and period, per slot of the time until they were seen."""
    return (
        silver.sent(bronze)
        .where(F.col("seen_ns").isNotNull())
        .withColumn("time", silver.period(parameters.bar_s))
        .withColumn("slot", slot_value("seen_ns"))
        .groupBy(*TIMES, "slot")
        .agg(F.count("*").alias("count"))
    )


def finish_seen(slots: DataFrame, _: Bronze, __: Parameters) -> DataFrame:
    """Make a row per input and period: count and quantiles in ns."""
    found = quantiles(slots, TIMES, "slot")
    named = {name: f"{name}_ns" for name in found.columns if name not in (*TIMES, "count")}
    return found.withColumnsRenamed(named).orderBy(*TIMES)


BUS = Job(
    "bus",
    "What did each sender send, is each message there once, and how late was it taken?",
    reduce_bus,
    finish_bus,
    BRONZE,
)
SEEN = Job(
    "seen",
    "How far behind the sequencers was the host that decides a composite's order, per period?",
    reduce_seen,
    finish_seen,
    BRONZE,
)
