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
    """Count wins per line and slot of the lead; the slot is NULL where no other line brought it.

    The loop asks one line after the other: what it takes from the second first may have come to the
    host later. Such a win has a negative lead, and saves nothing.
    """
    return (
        silver.races(bronze)
        .withColumn("slot", slot_value("lead_ns"))
        .groupBy(*KEYS, "slot")
        .agg(
            F.count("*").alias("count"),
            F.sum(F.col("completed").cast("bigint")).alias("messages"),
            F.sum(F.greatest("lead_ns", F.lit(0))).alias("saved_ns"),
        )
    )


def finish_races(slots: DataFrame, _: Parameters) -> DataFrame:
    """Make a row per line: its wins, what it alone brought, how far ahead it was."""
    alone = F.col("slot").isNull()
    sums = slots.groupBy(*KEYS).agg(
        F.sum("count").alias("wins"),
        F.sum("messages").alias("messages_completed"),
        F.sum(F.when(alone, F.col("count")).otherwise(0)).alias("only_copy"),
        F.sum(F.when(F.col("slot") < 0, F.col("count")).otherwise(0)).alias("came_later"),
        F.sum("saved_ns").alias("saved_ns"),
    )
    race = Window.partitionBy("feed", "stream")
    leads = quantiles(slots.where(~alone), KEYS, "slot").drop("count")
    named = {name: f"lead_{name}_ns" for name in leads.columns if name not in KEYS}
    return (
        sums.withColumn("win_rate", F.col("wins") / F.sum("wins").over(race))
        .join(leads.withColumnsRenamed(named), list(KEYS), "left")
        .orderBy(*KEYS)
    )


def reduce_hops(bronze: Bronze, _: Parameters) -> DataFrame:
    """Add the histograms of all minutes and lines, slot by slot."""
    return silver.hops(bronze).groupBy("feed", "hop", "value_ns").agg(F.sum("count").alias("count"))


def finish_hops(slots: DataFrame, _: Parameters) -> DataFrame:
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
