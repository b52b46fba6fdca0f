"""Losses of the feed as a whole, and of each line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from udpfast.spark import silver
from udpfast.spark.jobs.job import Job, Parameters
from udpfast.spark.reasons import LOST, lost_by

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from udpfast.spark.bronze import Bronze

__all__ = ["LINES", "LOSSES", "RATES"]

#: The first stream of all venues except Roq.
STREAM_FIRST = 2

#: Possible periods of a chart, in seconds, and the maximum number of periods in it.
STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200)
DAY_S = 86_400
PERIODS_MAX = 400


def reduce_losses(bronze: Bronze, _: Parameters) -> DataFrame:
    """Add up messages, gaps and STALE records per feed, channel and second."""
    by_reason = (
        F.sum(F.when(F.col("reason") == reason, F.col("lost")).otherwise(0)).alias(lost_by(reason))
        for reason in LOST
    )
    return (
        silver.deliveries(bronze)
        .groupBy("feed", "stream", "second")
        .agg(
            F.sum("messages").alias("messages"),
            F.sum("gaps").alias("gaps"),
            F.sum("lost").alias("lost"),
            *by_reason,
            F.max(F.when(F.col("gaps") > 0, F.col("lost")).otherwise(0)).alias("longest"),
            F.max("waited_ns").alias("waited_ns_max"),
            F.sum("stale").alias("stale"),
            F.sum("recovered").alias("recovered"),
            F.min("received_ns").alias("first_ns"),
            F.max("received_ns").alias("last_ns"),
        )
    )


def finish_losses(sums: DataFrame, _: Bronze, __: Parameters) -> DataFrame:
    """Make a row per hour, with the share of messages that were lost."""
    added = ("messages", "gaps", "lost", *map(lost_by, LOST))
    return (
        with_loss(
            own_streams(sums)
            .groupBy("feed", "stream", beginning(3600).alias("hour"))
            .agg(
                *(F.sum(name).alias(name) for name in added),
                *(F.max(name).alias(name) for name in ("longest", "waited_ns_max")),
                *(F.sum(name).alias(name) for name in ("stale", "recovered")),
                F.min("first_ns").alias("first_ns"),
                F.max("last_ns").alias("last_ns"),
            )
        )
    ).orderBy("feed", "stream", "hour")


def finish_rates(sums: DataFrame, _: Bronze, __: Parameters) -> DataFrame:
    """Make a row per period. Its length (`seconds`) depends on the time that the sums cover."""
    own = own_streams(sums)
    second = F.unix_seconds("second")
    ends = own.agg(F.min(second), F.max(second)).first()
    first_s, last_s = ends if ends is not None and ends[0] is not None else (0, 0)
    step_s = step_of(last_s - first_s + 1)
    added = (F.sum(name).alias(name) for name in ("messages", "gaps", "lost", "stale"))
    rates = own.groupBy("feed", "stream", beginning(step_s).alias("time")).agg(*added)
    return with_loss(rates.withColumn("seconds", F.lit(step_s))).orderBy("feed", "stream", "time")


def step_of(span_s: int) -> int:
    """Return the length of a period in a chart that covers `span_s` seconds."""
    for step_s in STEPS_S:
        if span_s <= step_s * PERIODS_MAX:
            return step_s
    return -(-span_s // (PERIODS_MAX * DAY_S)) * DAY_S


def beginning(step_s: int) -> Column:
    """Return the beginning of the period that contains a second."""
    return F.timestamp_seconds(F.expr(f"unix_seconds(second) div {step_s} * {step_s}"))


def own_streams(sums: DataFrame) -> DataFrame:
    """Leave out stream 0 unless the venue is Roq: other venues use it for records of the loop."""
    of_any = F.when(F.col("stream") != silver.NO_STREAM, F.col("stream"))
    streams = F.coalesce(F.max(of_any).over(Window.partitionBy("feed")), F.lit(0))
    return (
        sums.withColumn("streams", streams)
        .where((F.col("streams") < STREAM_FIRST) | (F.col("stream") >= STREAM_FIRST))
        .drop("streams")
    )


def with_loss(sums: DataFrame) -> DataFrame:
    """Add the share of messages that were lost.

    It is NULL for Roq's snapshots, because only those that an object waited for become records,
    and for records without a stream.
    """
    shares = ~F.col("stream").isin(silver.SNAPSHOT, silver.NO_STREAM)
    whole = F.when(shares, F.col("messages") + F.col("lost"))
    return sums.withColumn("loss", F.try_divide("lost", whole))


def reduce_lines(bronze: Bronze, _: Parameters) -> DataFrame:
    """Count the datagrams that each line brought, and brought first, per feed, channel and hour."""
    brought = F.col("delay_ns").isNotNull()
    return (
        silver.copies(bronze)
        .groupBy("feed", "stream", "line", "hour")
        .agg(
            F.count("*").alias("datagrams"),
            F.sum(brought.cast("bigint")).alias("brought"),
            F.sum((F.col("winner") == F.col("line")).cast("bigint")).alias("first"),
        )
    )


def finish_lines(sums: DataFrame, _: Bronze, __: Parameters) -> DataFrame:
    """Add the count and the share of the datagrams that each line did not bring."""
    return sums.withColumns(
        {
            "missing": F.col("datagrams") - F.col("brought"),
            "loss": F.try_divide(F.col("datagrams") - F.col("brought"), F.col("datagrams")),
        }
    ).orderBy("feed", "stream", "line", "hour")


LOSSES = Job(
    "losses",
    "How many messages arrived, and how many did not arrive in time, per channel and hour?",
    reduce_losses,
    finish_losses,
)
RATES = Job(
    "rates",
    "How many messages arrived per second, and how many were lost, over time?",
    reduce_losses,
    finish_rates,
)
LINES = Job(
    "lines",
    "Of all datagrams that any line delivered, how many did each line miss, per hour?",
    reduce_lines,
    finish_lines,
)
