"""The order book of every object at a given time: the newest snapshot and later changes.

The heavy step is an aggregation (the last change of each price), which Spark runs in parallel.
`applyInArrow` sorts only the levels that remain, a few thousand per instrument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from udpfast.spark import silver
from udpfast.spark.jobs.job import Job, Parameters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from udpfast.spark.bronze import Bronze

__all__ = ["BOOK", "DEPTH"]

KEYS = silver.OBJECT

Values = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

BOOK_SCHEMA = (
    "feed STRING, exchange STRING, symbol STRING, object BIGINT, side STRING, level INT, "
    "price DOUBLE, quantity DOUBLE, cumulative DOUBLE, distance_bps DOUBLE, at BIGINT, "
    "received_ns BIGINT"
)

#: How far from the mid depth is measured, in hundredths of a per cent.
DISTANCES_BPS = (1, 5, 10, 50)

DEPTH_SCHEMA = (
    "feed STRING, exchange STRING, symbol STRING, object BIGINT, bid_price DOUBLE, "
    "bid_quantity DOUBLE, ask_price DOUBLE, ask_quantity DOUBLE, bid_levels INT, ask_levels INT, "
    "bid_quantity_sum DOUBLE, ask_quantity_sum DOUBLE"
) + "".join(f", {side}_within_{bps}_bps DOUBLE" for bps in DISTANCES_BPS for side in ("bid", "ask"))


def reduce_book(bronze: Bronze, parameters: Parameters) -> DataFrame:
    """Keep the last change of each price before the time, and the newest snapshot's position."""
    changes = silver.changes(bronze)
    if parameters.at_ns is not None:
        changes = changes.where(F.col("received_ns") <= parameters.at_ns)
    # A level that is no number is refused, as by every book; one below 0 is a number.
    at = F.when(F.col("price").isNotNull() & F.col("quantity").isNotNull(), F.col("at"))
    return changes.groupBy(*KEYS, "side", "price").agg(
        F.max_by("quantity", at).alias("quantity"),
        F.max(at).alias("at"),
        F.max("reset").alias("reset"),
        F.max("begun").alias("begun"),
        F.max("received_ns").alias("received_ns"),
    )


def standing(last: DataFrame) -> DataFrame:
    """Return the levels in the book: of the last session, not before its snapshot, not removed."""
    newest = F.max("reset").over(Window.partitionBy(*KEYS))
    begun = F.max("begun").over(Window.partitionBy("feed"))
    return (
        last.withColumns({"reset": newest, "begun": begun})
        .where(
            F.col("price").isNotNull()
            & (F.col("quantity") != 0)
            & (F.col("at") >= F.coalesce("reset", F.lit(0)))
            & (F.col("at") >= F.coalesce("begun", F.lit(0)))
        )
        .drop("reset", "begun")
    )


def finish_book(last: DataFrame, _: Parameters) -> DataFrame:
    """Put each book's levels in order, best first, with what stands up to each."""
    return standing(last).groupBy(*KEYS).applyInArrow(in_order, BOOK_SCHEMA)


def finish_depth(last: DataFrame, _: Parameters) -> DataFrame:
    """Make a row per book: its best levels, how many there are, and depth around the mid."""
    return standing(last).groupBy(*KEYS).applyInArrow(depth, DEPTH_SCHEMA).orderBy(*KEYS)


def in_order(levels: pa.Table) -> pa.Table:
    """Return one book's levels in order of price: bids, then asks."""
    is_ask, prices, quantities = columns(levels)
    # Bids by falling, asks by rising price.
    order = np.lexsort((np.where(is_ask, prices, -prices), is_ask))
    is_ask, prices, quantities = is_ask[order], prices[order], quantities[order]
    bids = int((~is_ask).sum())
    rank = np.concatenate((np.arange(bids), np.arange(len(prices) - bids)))
    cumulative = np.concatenate((np.cumsum(quantities[:bids]), np.cumsum(quantities[bids:])))
    mid = middle(prices[:bids], prices[bids:])
    ordered = levels.take(pa.array(order))
    return pa.table(
        {
            **{name: ordered[name] for name in (*KEYS, "side")},
            "level": pa.array(rank, pa.int32()),
            "price": prices,
            "quantity": quantities,
            "cumulative": cumulative,
            "distance_bps": np.abs(prices - mid) / mid * 1e4,
            "at": ordered["at"],
            "received_ns": ordered["received_ns"],
        }
    )


def depth(levels: pa.Table) -> pa.Table:
    """Return one row about one book's levels."""
    is_ask, prices, quantities = columns(levels)
    found: dict[str, object] = {name: levels[name][0].as_py() for name in KEYS}
    mid = middle(np.sort(prices[~is_ask])[::-1], np.sort(prices[is_ask]))
    for side, mask, best in (("bid", ~is_ask, np.argmax), ("ask", is_ask, np.argmin)):
        own_prices, own_quantities = prices[mask], quantities[mask]
        if len(own_prices):
            top = int(best(own_prices))
            found[f"{side}_price"] = float(own_prices[top])
            found[f"{side}_quantity"] = float(own_quantities[top])
        found[f"{side}_levels"] = len(own_prices)
        found[f"{side}_quantity_sum"] = float(own_quantities.sum())
        away = np.abs(own_prices - mid) / mid * 1e4
        for bps in DISTANCES_BPS:
            found[f"{side}_within_{bps}_bps"] = float(own_quantities[away <= bps].sum())
    types = {
        "STRING": pa.string(),
        "DOUBLE": pa.float64(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
    }
    fields = [field.split() for field in DEPTH_SCHEMA.split(", ")]
    return pa.Table.from_pylist(
        [found], pa.schema([(name, types[type_]) for name, type_ in fields])
    )


def columns(
    levels: pa.Table,
) -> tuple[Mask, Values, Values]:
    """Return which levels are asks, their prices and their quantities."""
    return (
        pc.equal(levels["side"], "Ask").to_numpy(),
        levels["price"].to_numpy(),
        levels["quantity"].to_numpy(),
    )


def middle(bids: Values, asks: Values) -> float:
    """Return the price between the best levels of sorted sides; NaN if one has none."""
    return (float(bids[0]) + float(asks[0])) / 2 if len(bids) and len(asks) else float("nan")


BOOK = Job(
    "book",
    "Which levels did each order book have, at the given time or at the end?",
    reduce_book,
    finish_book,
)
DEPTH = Job(
    "depth",
    "How much was quoted near the mid, at that time?",
    reduce_book,
    finish_depth,
)
