"""Silver: typed tables that mean one thing each, derived row by row from bronze.

Every function is a projection and a filter. It works on streams as on complete tables, needs no
shuffle, and lets Parquet read only the columns that a job uses.

`at` orders the rows of a feed: a record's position in bytes plus the row's number within it. No
record has more rows than bytes, so every row has its own `at`. It is a single BIGINT, because
`min_by` and `max_by` compare that fastest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program gives it

from udpfast.core.layout import Kind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from udpfast.spark.bronze import Bronze

__all__ = ["INSTRUMENT", "OBJECT", "SILVER", "period"]

#: What names an instrument: the same symbol at two exchanges is two, of two feeds too.
INSTRUMENT = ("feed", "exchange", "symbol")

#: Whose levels they are: two objects of one name have a book each.
OBJECT = (*INSTRUMENT, "object")

#: Roq's stream of snapshots, which repeats what others said. Streams of other venues follow.
SNAPSHOT = 1
#: Of records that are about no stream of a feed: a bus's are.
NO_STREAM = 65_535
#: Kinds of records behind which nothing is known of any book before them.
BEGINNINGS = ("SESSION", "RESTART")
#: Kinds of what a publisher sent.
MESSAGES = tuple(kind.name for kind in Kind if kind == Kind.MESSAGE or Kind.BOOK <= kind < Kind.BUS)
#: Session of a store's own records; in a composite's copy it is the input.
STORE = "s0"
NS_PER_S = 1_000_000_000


def period(seconds: int, column: str = "received_ns") -> Column:
    """Return the beginning of the period in which a time of nanoseconds lies, as a TIMESTAMP."""
    # Integers: as a double, a time of today is 128 ns away from the next.
    return F.timestamp_seconds(F.expr(f"{column} div {seconds * NS_PER_S} * {seconds}"))


def trades(bronze: Bronze) -> DataFrame:
    """Return every trade once, with its notional."""
    return (
        bronze.table("trades")
        .where((F.col("stream") != SNAPSHOT) & F.col("price").isNotNull())
        .select(
            *INSTRUMENT,
            "received_ns",
            (F.col("position") + F.col("row")).alias("at"),
            "side",
            "price",
            "quantity",
            (F.col("price") * F.col("quantity")).alias("notional"),
        )
    )


def quotes(bronze: Bronze) -> DataFrame:
    """Return the tops of book that have both sides, with mid and spread."""
    return (
        bronze.table("tops")
        .where(F.col("bid_price").isNotNull() & F.col("ask_price").isNotNull())
        .select(
            *INSTRUMENT,
            "received_ns",
            F.col("position").alias("at"),
            "bid_price",
            "bid_quantity",
            "ask_price",
            "ask_quantity",
            (F.col("ask_price") - F.col("bid_price")).alias("spread"),
            ((F.col("ask_price") + F.col("bid_price")) / 2).alias("mid"),
        )
    )


def changes(bronze: Bronze) -> DataFrame:
    """Return every change of a book level, and for a snapshot without levels one row without price.

    `reset` is the position of the snapshot that the row belongs to, NULL for an update: whatever is
    older than the newest of them is no longer in the book. A row of no instrument, with `begun`,
    says where a session of the feed began: what is older is in no book.
    """
    reset = F.when(F.col("snapshot"), F.col("position")).alias("reset")
    levels = bronze.table("levels").select(
        *OBJECT,
        "received_ns",
        (F.col("position") + F.col("row")).alias("at"),
        reset,
        "side",
        "price",
        "quantity",
        F.lit(None).cast("bigint").alias("begun"),
    )
    begins = F.col("kind").isin(*BEGINNINGS)
    emptied = (F.col("kind") == "BOOK") & F.col("snapshot") & (F.col("rows") == 0)
    others = bronze.table("messages").where(begins | emptied)
    nothing = (F.lit(None).cast(type_).alias(name) for name, type_ in (
        ("side", "string"), ("price", "double"), ("quantity", "double")
    ))  # fmt: skip
    begun = F.when(begins, F.col("position")).alias("begun")
    at = F.col("position").alias("at")
    return levels.unionByName(others.select(*OBJECT, "received_ns", at, reset, *nothing, begun))


def deliveries(bronze: Bronze) -> DataFrame:
    """Return what became of the feed's messages: a row per delivered one, and one per gap.

    What the feed says of itself carries no message: control records count nothing, but stand for
    the second in which they came.
    """
    count = F.when(F.col("kind").isin(*MESSAGES), 1).otherwise(0).cast("bigint")
    zero = F.lit(0).cast("bigint")
    messages = bronze.table("messages")
    messages = messages.where((F.col("kind") != "GAP") & (F.col("stream") != NO_STREAM))
    gaps = bronze.table("gaps")
    keys = ("feed", "stream", "received_ns", period(1).alias("second"))
    return messages.select(
        *keys,
        count.alias("messages"),
        zero.alias("gaps"),
        zero.alias("lost"),
        F.lit(None).cast("string").alias("reason"),
        zero.alias("waited_ns"),
        (F.col("kind") == "STALE").cast("bigint").alias("stale"),
        (F.col("kind") == "RECOVERED").cast("bigint").alias("recovered"),
    ).unionByName(
        gaps.select(
            *keys,
            zero.alias("messages"),
            F.lit(1).cast("bigint").alias("gaps"),
            "lost",
            "reason",
            "waited_ns",
            zero.alias("stale"),
            zero.alias("recovered"),
        )
    )


def copies(bronze: Bronze) -> DataFrame:
    """Return a row per datagram and line that could have brought it; `delay_ns` NULL: did not."""
    return bronze.table("races").select(
        "feed",
        "stream",
        period(3600).alias("hour"),
        "winner",
        F.posexplode("delays_ns").alias("line", "delay_ns"),
    )


def races(bronze: Bronze) -> DataFrame:
    """Return a row per datagram: who brought it first, and by how much if anyone else did."""
    return bronze.table("races").select(
        "feed", "stream", F.col("winner").alias("line"), "lead_ns", "completed"
    )


def hops(bronze: Bronze) -> DataFrame:
    """Return the histograms of latency, a row per minute, line, hop and slot."""
    return (
        bronze.table("latency")
        .select(
            "feed",
            "hop",
            "minute",
            F.explode(F.arrays_zip("values_ns", "counts")).alias("slot"),
        )
        .select("feed", "hop", "minute", "slot.values_ns", "slot.counts")
        .withColumnsRenamed({"values_ns": "value_ns", "counts": "count"})
    )


def sent(bronze: Bronze) -> DataFrame:
    """Return a row per message of a bus, one per registration, and one per loss of an input.

    `seen_ns` is how long after the sequencer's stamp the order of a composite took the message, by
    the clock of the host that decides the order; NULL in a store, which does not say. Registrations
    have the `name`, and no number; what an input lost has the sender 0, and `taken_back`.
    """
    none = {name: F.lit(None).cast(type_).alias(name) for name, type_ in (
        ("number", "bigint"), ("size", "bigint"), ("seen_ns", "bigint"), ("name", "string"),
        ("host", "string"), ("taken_back", "bigint"), ("incarnation", "int"),
    )}  # fmt: skip
    keys = ("feed", "session", "sender", "incarnation", "received_ns", "published_ns")
    seen = F.when(F.col("session") != STORE, F.col("received_ns") - F.col("published_ns"))
    messages = bronze.table("bus").select(
        *keys, "number", F.col("size").cast("bigint").alias("size"), seen.alias("seen_ns"),
        none["name"], none["host"], none["taken_back"])  # fmt: skip
    senders = bronze.table("senders").select(
        *keys, none["number"], none["size"], none["seen_ns"], "name", "host", none["taken_back"]
    )
    losses = bronze.table("merges").where("back").select(
        "feed", "session", F.lit(0).alias("sender"), none["incarnation"], "received_ns",
        "published_ns", none["number"], none["size"], none["seen_ns"], none["name"], none["host"],
        F.col("count").alias("taken_back"))  # fmt: skip
    return messages.unionByName(senders).unionByName(losses)


#: By name, in the order in which they are written where that is asked for.
SILVER: dict[str, Callable[[Bronze], DataFrame]] = {
    "trades": trades,
    "quotes": quotes,
    "changes": changes,
    "deliveries": deliveries,
    "copies": copies,
    "races": races,
    "hops": hops,
    "sent": sent,
}
