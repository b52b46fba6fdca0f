"""Lead and lag between instruments: whose mid price moves first. The worked example.

Time is cut into buckets. An instrument's return in a bucket is the logarithm of its last mid over
its last mid before the bucket; it is their difference if not all mids are above 0, as with calendar
spreads. The correlation of two instruments at a lag of k buckets is that of
a's returns with b's returns k buckets later, both about zero. If it is largest at k > 0, a leads b.

Buckets without a move have a return of zero and add nothing to any sum, so only buckets with a move
are joined: the work grows with the moves, not with the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from udpfast.spark import silver
from udpfast.spark.jobs.job import Job, Parameters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from udpfast.spark.bronze import Bronze

__all__ = ["LEADLAG"]

KEYS = silver.INSTRUMENT


def reduce_leadlag(bronze: Bronze, parameters: Parameters) -> DataFrame:
    """Keep the last mid of each instrument and bucket."""
    bucket = F.expr(f"received_ns div {parameters.bucket_ms * 1_000_000}").alias("bucket")
    return silver.quotes(bronze).groupBy(*KEYS, bucket).agg(F.max_by("mid", "at").alias("mid"))


def finish_leadlag(mids: DataFrame, _: Bronze, parameters: Parameters) -> DataFrame:
    """Correlate each pair of instruments of a feed at each lag."""
    own = Window.partitionBy(*KEYS)
    before = F.lag("mid").over(own.orderBy("bucket"))
    signed = F.min("mid").over(own) <= 0
    move = F.when(signed, F.col("mid") - before).otherwise(F.log("mid") - F.log(before))
    moves = (
        mids.withColumn("move", silver.finite(move))
        .where("move <> 0")
        .select(
            "feed",
            F.struct("exchange", "symbol").alias("instrument"),
            "bucket",
            "move",
        )
    )
    sizes = moves.groupBy("feed", "instrument").agg(F.sum(F.col("move") ** 2).alias("square"))
    lags = F.explode(F.sequence(F.lit(-parameters.lags), F.lit(parameters.lags)))
    ahead = moves.withColumnsRenamed({"instrument": "a", "move": "move_a"}).withColumn("lag", lags)
    behind = moves.withColumnsRenamed(
        {"feed": "feed_b", "instrument": "b", "move": "move_b", "bucket": "bucket_b"}
    )
    pairs = ahead.join(
        behind,
        (F.col("feed") == F.col("feed_b"))
        & (F.col("bucket") + F.col("lag") == F.col("bucket_b"))
        & (F.col("a") < F.col("b")),
    )
    sums = pairs.groupBy("feed", "a", "b", "lag").agg(
        F.count("*").alias("pairs"), F.sum(F.col("move_a") * F.col("move_b")).alias("product")
    )
    square = {name: sizes.withColumnsRenamed({"instrument": name, "square": f"square_{name}"})
              for name in ("a", "b")}  # fmt: skip
    return (
        sums.join(F.broadcast(square["a"]), ["feed", "a"])
        .join(F.broadcast(square["b"]), ["feed", "b"])
        .select(
            "feed",
            *(F.concat_ws(":", f"{name}.exchange", f"{name}.symbol").alias(name) for name in "ab"),
            (F.col("lag") * parameters.bucket_ms).alias("lag_ms"),
            "pairs",
            # Very small or large moves have squares that no double holds: they say nothing.
            silver.finite(F.try_divide("product", F.sqrt("square_a") * F.sqrt("square_b"))).alias(
                "correlation"
            ),
        )
        .orderBy("feed", "a", "b", "lag_ms")
    )


LEADLAG = Job(
    "leadlag",
    "Whose price moves first: how do two instruments' returns correlate at each lag?",
    reduce_leadlag,
    finish_leadlag,
)
