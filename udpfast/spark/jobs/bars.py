"""Trades and quotes, per instrument and per period: OHLCV, VWAP, spread, sizes at the top."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from udpfast.spark import silver
from udpfast.spark.jobs.job import Job, Parameters

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from udpfast.spark.bronze import Bronze

__all__ = ["BARS", "INSTRUMENTS", "SPREADS"]

KEYS = silver.INSTRUMENT


def trade_sums() -> list[Column]:
    """Return the aggregates of trades. Those of several parts can be merged."""
    return [
        F.min_by("price", "at").alias("open"),
        F.max("price").alias("high"),
        F.min("price").alias("low"),
        F.max_by("price", "at").alias("close"),
        F.count("*").alias("trades"),
        silver.finite(F.sum("quantity")).alias("volume"),
        silver.finite(F.sum("notional")).alias("notional"),
        silver.finite(F.sum(F.when(F.col("notional").isNotNull(), F.col("quantity")))).alias(
            "valued"
        ),
        F.sum((F.col("side") == "Buy").cast("bigint")).alias("taker_buys"),
    ]


def reduce_instruments(bronze: Bronze, _: Parameters) -> DataFrame:
    """Aggregate all trades of an instrument."""
    return silver.trades(bronze).groupBy(*KEYS).agg(*trade_sums())


def finish_instruments(sums: DataFrame, _: Bronze, __: Parameters) -> DataFrame:
    """Add the volume-weighted price."""
    return with_vwap(sums).orderBy(*KEYS)


def reduce_bars(bronze: Bronze, parameters: Parameters) -> DataFrame:
    """Aggregate the trades of an instrument and period."""
    return (
        silver.trades(bronze)
        .groupBy(*KEYS, silver.period(parameters.bar_s).alias("time"))
        .agg(*trade_sums())
    )


def finish_bars(sums: DataFrame, _: Bronze, __: Parameters) -> DataFrame:
    """Add the volume-weighted price."""
    return with_vwap(sums).orderBy(*KEYS, "time")


def with_vwap(sums: DataFrame) -> DataFrame:
    """Divide notional by volume, counting only the trades that have a notional."""
    return sums.withColumn("vwap", silver.finite(F.try_divide("notional", "valued"))).drop("valued")


def reduce_spreads(bronze: Bronze, parameters: Parameters) -> DataFrame:
    """Aggregate the tops of book of an instrument and period. Each has the same weight.

    Basis points refer to the absolute value of the mid, which may be negative; they are NULL if
    the mid is 0.
    """
    middle = silver.finite(F.try_divide("spread", F.abs("mid")) * 10_000)
    return (
        silver.quotes(bronze)
        .groupBy(*KEYS, silver.period(parameters.bar_s).alias("time"))
        .agg(
            F.count("*").alias("quotes"),
            silver.finite(F.avg("spread")).alias("spread_mean"),
            F.min("spread").alias("spread_min"),
            F.max("spread").alias("spread_max"),
            silver.finite(F.avg(middle)).alias("spread_bps_mean"),
            silver.finite(F.avg("bid_quantity")).alias("bid_quantity_mean"),
            silver.finite(F.avg("ask_quantity")).alias("ask_quantity_mean"),
            F.max_by("bid_price", "at").alias("bid_price"),
            F.max_by("ask_price", "at").alias("ask_price"),
        )
    )


def finish_spreads(sums: DataFrame, _: Bronze, __: Parameters) -> DataFrame:
    """Sort the rows."""
    return sums.orderBy(*KEYS, "time")


INSTRUMENTS = Job(
    "instruments",
    "What was traded in each instrument, and at which average price?",
    reduce_instruments,
    finish_instruments,
)
BARS = Job(
    "bars",
    "How did prices move: open, high, low, close, volume and VWAP per period?",
    reduce_bars,
    finish_bars,
)
SPREADS = Job(
    "spreads",
    "How wide was the spread, and how much was quoted at the top, per period?",
    reduce_spreads,
    finish_spreads,
)
