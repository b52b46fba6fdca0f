"""Silver: typed tables with one meaning each, derived row by row from bronze.

Every function is a projection and a filter. It works on streams and on complete tables, needs no
shuffle, and lets Parquet read only the columns that a job uses.

`at` orders the rows of a feed: a record's position in bytes plus the row's number within it. No
record has more rows than bytes, so every row has its own `at`. It is a single BIGINT, because
`min_by` and `max_by` compare that fastest.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program gives it

from udpfast.core.layout import GapReason, Kind, LappedReason, RecordFlag, Stream
from udpfast.shm.histogram import VALUE_MAX
from udpfast.spark.bronze import POSITION_BITS
from udpfast.spark.quantiles import slot_value

if TYPE_CHECKING:
    from pyspark.sql import Column

    from udpfast.spark.bronze import Bronze

__all__ = ["INSTRUMENT", "OBJECT", "SILVER", "period"]

#: Columns that identify an instrument. The same symbol at two exchanges, or of two feeds, is two
#: instruments.
INSTRUMENT = ("feed", "exchange", "symbol")

#: Columns that identify the owner of levels: two objects with the same name have a book each.
OBJECT = (*INSTRUMENT, "object")

#: Roq's stream of snapshots, which repeats the messages of others. Other venues' streams follow it.
SNAPSHOT = 1
#: The stream in records that belong to no stream of a feed, such as those of a bus.
NO_STREAM = int(Stream.NONE)
#: Kinds of the records that hold a publisher's messages.
MESSAGES = tuple(kind.name for kind in Kind if kind == Kind.MESSAGE or Kind.BOOK <= kind < Kind.BUS)
#: Flags of messages whose time of arrival is unknown, or that waited for a snapshot.
NOT_TIMED = RecordFlag.NO_TIMESTAMP | RecordFlag.RELEASED
#: Hops whose values are negative latencies: how far the far end's clock is ahead.
BACKWARDS = {"kernel_to_origin": "origin_to_kernel", "kernel_to_exchange": "exchange_to_kernel"}
#: How many numbers of one gap are compared with the numbers of late datagrams, at most.
LATE_MAX = 1 << 20
#: Session of a store's own records. In a composite's copy, the session names the input.
STORE = "s0"
NS_PER_S = 1_000_000_000


def period(seconds: int, column: str = "received_ns") -> Column:
    """Return the beginning of the period that contains a time in nanoseconds, as a TIMESTAMP."""
    # Integers, because doubles near the current time are 128 ns apart.
    return F.timestamp_seconds(F.expr(f"{column} div {seconds * NS_PER_S} * {seconds}"))


def finite(value: Column) -> Column:
    """Return a number, or NULL for NaN and infinity, which can be neither added nor drawn."""
    return F.when(F.abs(value) < F.lit(float("inf")), value)


def trades(bronze: Bronze) -> DataFrame:
    """Return every trade once, with its notional. A price may be negative, but must be finite.

    Without a finite quantity a trade has a price and no notional.
    """
    quantity = finite(F.col("quantity"))
    return (
        bronze.table("trades")
        .where((F.col("stream") != SNAPSHOT) & finite(F.col("price")).isNotNull())
        .select(
            *INSTRUMENT,
            "received_ns",
            (F.col("position") + F.col("row")).alias("at"),
            "side",
            "price",
            quantity.alias("quantity"),
            finite(F.col("price") * quantity).alias("notional"),
        )
    )


def orders(bronze: Bronze) -> DataFrame:
    """Return every change of an order, with the quantity that is open after it.

    A change to no quantity is a removal, as in every book; its price may be missing.
    """
    quantity = F.coalesce(finite(F.col("quantity")), F.lit(0.0))
    gone = (F.col("action") == "Delete") | (quantity <= 0)
    return (
        bronze.table("orders")
        .where(F.col("order_id").isNotNull() & (finite(F.col("price")).isNotNull() | gone))
        .select(
            *OBJECT,
            "session",
            "stream",
            "number",
            "received_ns",
            (F.col("position") + F.col("row")).alias("at"),
            "order_id",
            F.coalesce("side", F.lit("")).alias("side"),
            F.coalesce("price", F.lit(float("nan"))).alias("price"),  # NULL equals nothing
            F.when(gone, 0.0).otherwise(quantity).alias("quantity"),
            "priority",
            F.when(gone, "Delete").otherwise(F.coalesce("action", F.lit(""))).alias("action"),
            F.coalesce(F.col("reason") == "Filled", F.lit(False)).alias("executed"),
        )
    )


def quotes(bronze: Bronze) -> DataFrame:
    """Return the tops of book that have both sides, with mid and spread.

    Prices may be negative, and may cross, so mid and spread may be negative too. Rows with an
    infinite price are left out, and so are those of a book in doubt: it may hold levels that are
    long gone.
    """
    bid, ask = F.col("bid_price"), F.col("ask_price")
    sound = ~F.coalesce("doubt", F.lit(False))  # earlier exports do not say it
    return (
        bronze.table("tops")
        .where(finite(bid).isNotNull() & finite(ask).isNotNull() & sound)
        .select(
            *INSTRUMENT,
            "received_ns",
            F.col("position").alias("at"),
            "bid_price",
            finite(F.col("bid_quantity")).alias("bid_quantity"),
            "ask_price",
            finite(F.col("ask_quantity")).alias("ask_quantity"),
            finite(ask - bid).alias("spread"),
            (ask / 2 + bid / 2).alias("mid"),  # their sum may be too large for a double
        )
    )


def changes(bronze: Bronze) -> DataFrame:
    """Return every change of a book level that a book accepts, and a row per message (`seen`).

    A level without a price, or without a quantity of at least 0, is refused, as by every book.
    Which book a change belongs to, and whether it is valid, follows from other records: see
    `spans`. The rows of messages have no levels; they show how far the records were read.
    """
    ungated = F.col("flags").bitwiseAND(int(RecordFlag.UNGATED)) != 0
    levels = (
        bronze.table("levels")
        .where(F.col("price").isNotNull() & (F.col("quantity") >= 0))
        .select(
            *OBJECT,
            F.coalesce(ungated, F.lit(False)).alias("ungated"),
            own_stream(),
            "received_ns",
            (F.col("position") + F.col("row")).alias("at"),
            F.col("position").alias("record"),
            "side",
            "price",
            "quantity",
            F.lit(None).cast("bigint").alias("seen"),
        )
    )
    messages = bronze.table("messages").select(
        "feed", "received_ns", F.col("position").alias("seen")
    )
    return levels.unionByName(messages, allowMissingColumns=True)


def deliveries(bronze: Bronze) -> DataFrame:
    """Return the fate of the feed's messages: a row per delivered message, and one per loss.

    Records of these kinds report losses: a GAP; a SESSION, for the numbers that came before the
    feed believed it, and for the messages pending when the previous session ended; a LAPPED, for
    records that a recorder missed or that a journal no longer has. Records of the last kind may
    be of any stream, so they are counted for none.

    Other records of the feed hold no message. Their rows count nothing, but they show that the
    second has records.
    """
    messages, gaps, events = (bronze.table(name) for name in ("messages", "gaps", "events"))
    spoken = ~F.col("kind").isin("GAP", "LAPPED") & (F.col("stream") != NO_STREAM)
    sessions = events.where("kind = 'SESSION'")
    parts = [
        _delivered(
            messages.where(spoken),
            messages=F.col("kind").isin(*MESSAGES).cast("bigint"),
            stale=(F.col("kind") == "STALE").cast("bigint"),
            recovered=(F.col("kind") == "RECOVERED").cast("bigint"),
        ),
        _delivered(
            gaps,
            gaps=F.lit(1),
            lost=F.col("lost"),
            reason=_reason("GAP", GapReason),
            waited_ns=F.col("waited_ns"),
        ),
        *(
            _delivered(sessions.where(F.col(name) > 0), lost=F.col(name), reason=F.lit(word))
            for name, word in (("unseen", "SESSION_UNSEEN"), ("discarded", "SESSION_DISCARDED"))
        ),
        _delivered(
            events.where("kind = 'LAPPED'").withColumn("stream", F.lit(NO_STREAM)),
            lost=F.col("missed"),
            reason=_reason("LAPPED", LappedReason),
        ),
    ]
    return functools.reduce(DataFrame.unionByName, parts)


#: Columns about the messages of a second, with their types.
_COUNTS = dict.fromkeys(
    ("messages", "gaps", "lost", "waited_ns", "stale", "recovered"), "bigint"
) | {"reason": "string"}


def _delivered(rows: DataFrame, **columns: Column) -> DataFrame:
    nothing = {name: None if type_ == "string" else 0 for name, type_ in _COUNTS.items()}
    return rows.select(
        "feed",
        "stream",
        "received_ns",
        period(1).alias("second"),
        *(
            columns.get(name, F.lit(nothing[name])).cast(type_).alias(name)
            for name, type_ in _COUNTS.items()
        ),
    )


def _reason(kind: str, reasons: type[enum.IntEnum]) -> Column:
    # One of reasons.LOST; reasons of later versions become OTHER.
    known = F.col("reason").isin(*reasons.__members__)
    return F.when(known, F.concat(F.lit(f"{kind}_"), "reason")).otherwise(f"{kind}_OTHER")


def copies(bronze: Bronze) -> DataFrame:
    """Return a row per datagram and line. `delay_ns` is NULL if the line did not bring it."""
    return bronze.table("races").select(
        "feed",
        "stream",
        period(3600).alias("hour"),
        "winner",
        F.posexplode("delays_ns").alias("line", "delay_ns"),
    )


def races(bronze: Bronze) -> DataFrame:
    """Return a row per datagram: which line brought it first, and how far ahead of the next.

    `line` is the first by the stamps of the kernel or card; without stamps it is the line from
    which the loop took the datagram (`winner`). The loop polls one line after the other, so the
    copy that it takes first may have reached the host later. `late` means that only one line
    brought the datagram, and that its message had been reported lost when it came.
    """
    delays = F.array_sort(F.filter("delays_ns", F.isnotnull))
    ahead = F.coalesce("stamped", F.lit(True)) & (delays[0] < 0)
    first = F.array_position("delays_ns", delays[0]).cast("int") - 1
    keys = ["feed", "stream", "session", "place", "number"]
    alone = F.col("lead_ns").isNull()
    raced = bronze.table("races").select(
        "feed",
        "stream",
        "session",
        place().alias("place"),
        # Only a datagram that a single line brought can be late. The others get NULL, which joins
        # with nothing.
        F.when(alone, F.col("number")).alias("number"),
        F.when(ahead, first).otherwise(F.col("winner")).alias("line"),
        "winner",
        F.when(ahead, F.try_element_at(delays, F.lit(2)) - delays[0])
        .otherwise(F.col("lead_ns"))
        .alias("lead_ns"),
        F.col("lead_ns").alias("taken_ns"),
        F.coalesce("stamped", F.lit(True)).alias("stamped"),
        "completed",
    )
    gone = lost_numbers(bronze).withColumn("late", F.lit(True))
    late = F.coalesce("late", F.lit(False)).alias("late")
    names = ("line", "winner", "lead_ns", "taken_ns", "stamped", "completed")
    return raced.join(gone, keys, "left").select("feed", "stream", *names, late)


def lost_numbers(bronze: Bronze) -> DataFrame:
    """Return each number that was reported lost, in 32 bits as in datagrams.

    Very long gaps contribute only their last numbers (`LATE_MAX`), because no datagram is later
    than that. This does not read a stream, because a datagram's race ends long after its gap.
    """
    last = F.col("last_number")
    first = F.greatest("first_number", last - (LATE_MAX - 1))
    gaps = dataclasses.replace(bronze, streaming=False).table("gaps")
    numbers = F.explode(F.sequence(first, last))
    return (
        gaps.where((F.col("stream") != SNAPSHOT) & (F.col("first_number") <= last))
        .select("feed", "stream", "session", place().alias("place"), numbers.alias("number"))
        .withColumn("number", F.col("number").bitwiseAND(0xFFFF_FFFF))
        .distinct()
    )


def own_stream() -> Column:
    """Return the stream of an object. Roq's two streams, and NO_STREAM, count as stream 0."""
    roq = (F.col("stream") <= SNAPSHOT) | (F.col("stream") == NO_STREAM)
    return F.when(roq, 0).otherwise(F.col("stream")).cast("int").alias("stream")


def place() -> Column:
    """Return the number of the root that a row comes from, in the order of the roots."""
    return F.shiftright("position", POSITION_BITS)


def hops(bronze: Bronze) -> DataFrame:
    """Return latencies, a row per hop and value.

    They come from histograms, or from the single records if bronze has a time range: a histogram
    covers a whole minute, and the range may begin or end within it. A value is negative where the
    clock at the far end is ahead.
    """
    if bronze.start_ns is not None or bronze.end_ns is not None:
        return _hops_of_records(bronze)
    slots = (
        bronze.table("latency")
        .select("feed", "hop", F.explode(F.arrays_zip("values_ns", "counts")).alias("slot"))
        .select("feed", "hop", F.col("slot.values_ns").alias("value_ns"), "slot.counts")
        .withColumnRenamed("counts", "count")
    )
    hop, value = F.col("hop"), F.col("value_ns")
    for back, forth in BACKWARDS.items():
        value = F.when(F.col("hop") == back, -F.col("value_ns")).otherwise(value)
        hop = F.when(F.col("hop") == back, forth).otherwise(hop)
    return slots.select("feed", hop.alias("hop"), value.alias("value_ns"), "count")


def _hops_of_records(bronze: Bronze) -> DataFrame:
    # The latencies that export/hops counts, but only from the records of a range.
    messages = bronze.table("messages").where(
        F.col("kind").isin(*MESSAGES) & (F.col("flags").bitwiseAND(int(NOT_TIMED)) == 0)
    )
    received, own = F.col("received_ns"), F.col("stream") != SNAPSHOT
    flight = received - F.col("sent_ns")
    taken = {
        "kernel_to_published": [F.greatest(F.col("published_ns") - received, F.lit(0))],
        "origin_to_kernel": [
            F.when(F.col("stream") > SNAPSHOT, flight),
            F.when(own & (F.col("source_send_ns") != 0), received - F.col("source_send_ns")),
        ],
        "exchange_to_kernel": [
            F.when(own & (F.col("exchange_time_ns") != 0), received - F.col("exchange_time_ns"))
        ],
    }
    each = F.explode(
        F.array(
            *(
                F.struct(F.lit(hop).alias("hop"), value.alias("value"))
                for hop, values in taken.items()
                for value in values
            )
        )
    ).alias("each")
    size = F.least(F.abs("value"), F.lit(VALUE_MAX))
    return (
        messages.select("feed", each)
        .select("feed", "each.hop", "each.value")
        .where("value IS NOT NULL")
        .withColumn("size", size)
        .withColumn("slot", F.least(slot_value("size"), F.lit(VALUE_MAX)))
        .select(
            "feed",
            "hop",
            F.when(F.col("value") < 0, -F.col("slot")).otherwise(F.col("slot")).alias("value_ns"),
            F.lit(1).cast("bigint").alias("count"),
        )
    )


def sent(bronze: Bronze) -> DataFrame:
    """Return a row per message of a bus, one per registration, and one per loss of an input.

    `seen_ns` is the time from the sequencer's stamp until a composite's order took the message, by
    the clock of the host that decides the order. It is NULL in a store, which does not record it.
    Rows of registrations have a `name` and no number; rows of losses have the sender 0, and the
    count in `taken_back`.
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


#: The silver tables by name, in the order in which they are written, if they are.
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
