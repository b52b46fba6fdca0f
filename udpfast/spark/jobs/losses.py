"""What was lost: by the feed as a whole, and by each line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from udpfast.spark import silver
from udpfast.spark.jobs.job import Job, Parameters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from udpfast.spark.bronze import Bronze

__all__ = ["LINES", "LOSSES"]

#: Of all venues but Roq.
STREAM_FIRST = 2


def reduce_losses(bronze: Bronze, _: Parameters) -> DataFrame:
    """Add up messages, gaps and doubts per feed, channel and hour."""
    by_reason = (
        F.sum(F.when(F.col("reason") == reason, F.col("lost")).otherwise(0)).alias(
            f"lost_by_{reason.lower()}"
        )
        for reason in ("COUNT", "TIME", "WINDOW_FULL", "FINISH")
    )
    return (
        silver.deliveries(bronze)
        .groupBy("feed", "stream", "hour")
        .agg(
            F.sum("messages").alias("messages"),
            F.sum("gaps").alias("gaps"),
            F.sum("lost").alias("lost"),
            *by_reason,
            F.max("lost").alias("longest"),
            F.max("waited_ns").alias("waited_ns_max"),
            F.sum("stale").alias("stale"),
            F.sum("recovered").alias("recovered"),
            F.min("received_ns").alias("first_ns"),
            F.max("received_ns").alias("last_ns"),
        )
    )


def finish_losses(sums: DataFrame, _: Parameters) -> DataFrame:
    """Put the share of what was lost beside it.

    What the loop says of itself is of stream 0, which only Roq's feeds have. Of their snapshots
    only those become records that an object waited for: lost ones are no part of them.
    """
    whole = F.when(F.col("stream") != silver.SNAPSHOT, F.col("messages") + F.col("lost"))
    streams = F.max("stream").over(Window.partitionBy("feed"))
    return (
        sums.withColumn("streams", streams)
        .where((F.col("streams") < STREAM_FIRST) | (F.col("stream") >= STREAM_FIRST))
        .drop("streams")
        .withColumn("loss", F.try_divide("lost", whole))
        .orderBy("feed", "stream", "hour")
    )


def reduce_lines(bronze: Bronze, _: Parameters) -> DataFrame:
    """Count what each line brought, first or at all, per feed, channel and hour."""
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


def finish_lines(sums: DataFrame, _: Parameters) -> DataFrame:
    """Put beside it what each line did not bring."""
    return sums.withColumns(
        {
            "missing": F.col("datagrams") - F.col("brought"),
            "loss": F.try_divide(F.col("datagrams") - F.col("brought"), F.col("datagrams")),
        }
    ).orderBy("feed", "stream", "line", "hour")


LOSSES = Job(
    "losses",
    "How many messages arrived, and how many no line brought, per channel and hour?",
    reduce_losses,
    finish_losses,
)
LINES = Job(
    "lines",
    "Of all datagrams that any line brought, how many did each line miss, per hour?",
    reduce_lines,
    finish_lines,
)
