"""Which line wins, by how much, and how much time each line saves."""

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

__all__ = ["HOPS", "RACES"]

KEYS = ("feed", "stream", "line")


def reduce_races(bronze: Bronze, _: Parameters) -> DataFrame:
    """Count races per first line, line taken first, and slot of the lead.

    The slot is NULL where no other line brought the datagram.
    """
    return (
        silver.races(bronze)
        .withColumn("slot", slot_value("lead_ns"))
        .groupBy(*KEYS, "winner", "slot", "late")
        .agg(
            F.count("*").alias("count"),
            F.sum(F.col("completed").cast("bigint")).alias("messages"),
            F.sum("lead_ns").alias("saved_ns"),
            F.sum(F.col("stamped").cast("bigint")).alias("stamped"),
            F.sum(F.col("taken_ns").isNull().cast("bigint")).alias("taken_alone"),
            F.coalesce(F.sum("taken_ns"), F.lit(0)).alias("taken_ns"),
        )
    )


def finish_races(slots: DataFrame, _: Bronze, __: Parameters) -> DataFrame:
    """Make a row per line: its wins, the datagrams that only it brought in time, and its leads.

    Three columns have the feed's own counts, by the order in which its loop took the copies:
    `taken_first`, of these `taken_alone`, and `taken_ns`, the sum of its leads.
    """
    alone, count = F.col("slot").isNull(), F.col("count")
    sums = slots.groupBy(*KEYS).agg(
        F.sum("count").alias("wins"),
        F.sum("messages").alias("messages_completed"),
        F.sum(F.when(alone & ~F.col("late"), count).otherwise(0)).alias("only_copy"),
        F.sum(F.when(alone & F.col("late"), count).otherwise(0)).alias("late"),
        F.sum("stamped").alias("stamped"),
        F.coalesce(F.sum("saved_ns"), F.lit(0)).alias("saved_ns"),
    )
    taken = slots.groupBy("feed", "stream", F.col("winner").alias("line")).agg(
        F.sum("count").alias("taken_first"),
        F.sum("taken_alone").alias("taken_alone"),
        F.sum("taken_ns").alias("taken_ns"),
    )
    race = Window.partitionBy("feed", "stream")
    lead = slots.where(~alone).groupBy(*KEYS, "slot").agg(F.sum("count").alias("count"))
    leads = quantiles(lead, KEYS, "slot").drop("count")
    named = {name: f"lead_{name}_ns" for name in leads.columns if name not in KEYS}
    added = ("wins", "messages_completed", "only_copy", "late", "stamped", "saved_ns")
    return (
        sums.join(taken, list(KEYS), "full")
        .fillna(0, [*added, "taken_first", "taken_alone", "taken_ns"])
        .withColumn("win_rate", F.try_divide("wins", F.sum("wins").over(race)))
        .join(leads.withColumnsRenamed(named), list(KEYS), "left")
        .orderBy(*KEYS)
    )


def reduce_hops(bronze: Bronze, _: Parameters) -> DataFrame:
    """Add the histograms of all minutes and lines, slot by slot."""
    return silver.hops(bronze).groupBy("feed", "hop", "value_ns").agg(F.sum("count").alias("count"))


def finish_hops(slots: DataFrame, _: Bronze, __: Parameters) -> DataFrame:
    """Make a row per hop: count and quantiles in ns."""
    found = quantiles(slots, ("feed", "hop"), "value_ns")
    named = {name: f"{name}_ns" for name in found.columns if name not in ("feed", "hop", "count")}
    return found.withColumnsRenamed(named).orderBy("feed", "hop")


RACES = Job(
    "races",
    "How often is each line first, by how much, and what did only this line deliver?",
    reduce_races,
    finish_races,
)
HOPS = Job(
    "hops",
    "How long does each hop take, from the publisher's stamp to the ring?",
    reduce_hops,
    finish_hops,
)
