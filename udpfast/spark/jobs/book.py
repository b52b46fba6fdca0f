"""The order book of every object at a given time: the newest snapshot and later changes.

`spans` finds out which changes those are, and whether the book is in doubt.

The heavy step is an aggregation (the last change of each price), which Spark runs in parallel.
`applyInArrow` sorts only the levels that remain, a few thousand per instrument.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from udpfast.spark import silver
from udpfast.spark.jobs.job import Job, Parameters
from udpfast.spark.spans import BOOK_KEYS, spans

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from udpfast.spark.bronze import Bronze

__all__ = ["BOOK", "DEPTH"]

KEYS = silver.OBJECT

Values = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

BOOK_SCHEMA = (
    "feed STRING, exchange STRING, symbol STRING, object BIGINT, side STRING, level INT, "
    "price DOUBLE, quantity DOUBLE, cumulative DOUBLE, distance_bps DOUBLE, at BIGINT, "
    "received_ns BIGINT, stale BOOLEAN"
)

#: Distances from the mid within which depth is measured, in basis points.
DISTANCES_BPS = (1, 5, 10, 50)

DEPTH_SCHEMA = (
    "feed STRING, exchange STRING, symbol STRING, object BIGINT, ungated BOOLEAN, "
    "stream INT, "
    "bid_price DOUBLE, bid_quantity DOUBLE, ask_price DOUBLE, ask_quantity DOUBLE, "
    "bid_levels INT, ask_levels INT, bid_quantity_sum DOUBLE, ask_quantity_sum DOUBLE"
) + "".join(f", {side}_within_{bps}_bps DOUBLE" for bps in DISTANCES_BPS for side in ("bid", "ask"))


def reduce_book(bronze: Bronze, parameters: Parameters) -> DataFrame:
    """Keep the last change of each price up to the given time, from the first record on."""
    changes = silver.changes(unbegun(bronze))
    if parameters.at_ns is not None:
        changes = changes.where(F.col("received_ns") <= parameters.at_ns)
    return changes.groupBy(*BOOK_KEYS, "side", "price").agg(
        *last_change(), F.max("seen").alias("seen")
    )


def unbegun(bronze: Bronze) -> Bronze:
    """Return bronze from its first record, because a book depends on all earlier records."""
    return dataclasses.replace(bronze, start_ns=None)


def last_change() -> Iterator[Column]:
    """Yield the columns of the last change of a price."""
    yield F.max_by("quantity", "at").alias("quantity")
    yield F.max_by("received_ns", "at").alias("received_ns")
    yield F.max("at").alias("at")


def judged(last: DataFrame, bronze: Bronze, parameters: Parameters) -> DataFrame:
    """Return the state of each book (`spans`), from the records that were read so far."""
    there = unbegun(dataclasses.replace(bronze, streaming=False))
    if bronze.streaming:  # files may have come since this batch began
        seen = last.where("seen IS NOT NULL").groupBy("feed").agg(F.max("seen"))
        there = dataclasses.replace(there, ends=tuple(tuple(row) for row in seen.collect()))
        return spans(there, parameters.at_ns)
    found = {} if bronze.found is None else bronze.found
    if "spans" not in found:
        found["spans"] = spans(there, parameters.at_ns)
    books: DataFrame = found["spans"]
    return books


def standing(
    last: DataFrame, books: DataFrame, bronze: Bronze, parameters: Parameters
) -> DataFrame:
    """Return the levels in the books, with `stale`.

    A book whose span has ended takes its last changes from within the span. Only these books need
    a second pass over the changes.
    """
    own = [F.col(f"change.{name}").eqNullSafe(F.col(f"of.{name}")) for name in BOOK_KEYS]

    def within(changes: DataFrame, some: DataFrame) -> DataFrame:
        return (
            changes.alias("change")
            .join(F.broadcast(some.alias("of")), own)
            .where("change.at >= of.begin")
            .select("change.*", "of.stale", "of.end")
        )

    whole = within(last.drop("seen"), books.where("end IS NULL"))
    ended = books.where("end IS NOT NULL")
    if not ended.isEmpty():
        there = unbegun(dataclasses.replace(bronze, streaming=False))
        changes = silver.changes(there)
        if parameters.at_ns is not None:
            changes = changes.where(F.col("received_ns") <= parameters.at_ns)
        held = (
            within(changes.drop("seen"), ended)
            .where("record <= end")
            .groupBy(*BOOK_KEYS, "side", "price", "stale", "end")
            .agg(*last_change())
        )
        whole = whole.unionByName(held)
    return whole.where("price IS NOT NULL AND quantity <> 0").drop("end")


def finish_book(last: DataFrame, bronze: Bronze, parameters: Parameters) -> DataFrame:
    """Sort each book's levels, best first, and add the cumulative quantity up to each."""
    levels = standing(last, judged(last, bronze, parameters), bronze, parameters)
    return levels.groupBy(*BOOK_KEYS).applyInArrow(in_order, BOOK_SCHEMA)


def finish_depth(last: DataFrame, bronze: Bronze, parameters: Parameters) -> DataFrame:
    """Make a row per book: its best levels, depth around the mid, and whether it is in doubt.

    A book without levels has a row too: it is empty, or its levels are unknown.
    """
    books = judged(last, bronze, parameters)
    levels = standing(last, books, bronze, parameters)
    found = levels.groupBy(*BOOK_KEYS).applyInArrow(depth, DEPTH_SCHEMA)
    counts = [f"{side}_{what}" for side in ("bid", "ask") for what in ("levels", "quantity_sum")]
    return (
        books.select(*BOOK_KEYS, "stale", "stale_since_ns")
        .join(found, list(BOOK_KEYS), "left")
        .fillna(0, counts)
        .drop("ungated", "stream")
        .orderBy(*KEYS)
    )


def in_order(levels: pa.Table) -> pa.Table:
    """Return one book's levels sorted by price: bids, then asks."""
    is_ask, prices, quantities = columns(levels)
    # Bids by descending price, asks by ascending price.
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
            "distance_bps": blank(away_bps(prices, mid)),
            "at": ordered["at"],
            "received_ns": ordered["received_ns"],
            "stale": ordered["stale"],
        }
    )


def depth(levels: pa.Table) -> pa.Table:
    """Return one row about one book's levels."""
    is_ask, prices, quantities = columns(levels)
    found: dict[str, object] = {name: levels[name][0].as_py() for name in BOOK_KEYS}
    mid = middle(np.sort(prices[~is_ask])[::-1], np.sort(prices[is_ask]))
    for side, mask, best in (("bid", ~is_ask, np.argmax), ("ask", is_ask, np.argmin)):
        own_prices, own_quantities = prices[mask], quantities[mask]
        if len(own_prices):
            top = int(best(own_prices))
            found[f"{side}_price"] = float(own_prices[top])
            found[f"{side}_quantity"] = float(own_quantities[top])
        found[f"{side}_levels"] = len(own_prices)
        found[f"{side}_quantity_sum"] = float(own_quantities.sum())
        away = away_bps(own_prices, mid)
        for bps in DISTANCES_BPS:
            within = float(own_quantities[away <= bps].sum())
            found[f"{side}_within_{bps}_bps"] = within if is_measure(mid) else None
    types = {
        "STRING": pa.string(),
        "DOUBLE": pa.float64(),
        "INT": pa.int32(),
        "BOOLEAN": pa.bool_(),
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
    """Return the mean price of the best levels of sorted sides, or NaN if a side has none."""
    # Add halves, because the sum of two prices may be too large for a double.
    return float(bids[0]) / 2 + float(asks[0]) / 2 if len(bids) and len(asks) else float("nan")


def is_measure(mid: float) -> bool:
    """Whether distances can be expressed in parts of a mid. A negative mid is possible."""
    return math.isfinite(mid) and mid != 0


def away_bps(prices: Values, mid: float) -> Values:
    """Return the distance of prices from the mid, in basis points of its size; NaN if unknown."""
    if not is_measure(mid):
        return np.full(len(prices), np.nan)
    with np.errstate(over="ignore"):
        return np.abs(prices - mid) / abs(mid) * 1e4


def blank(values: Values) -> pa.Array:
    """Return numbers for a table, with NULL for NaN and infinity."""
    return pa.array(values, mask=~np.isfinite(values))


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
