"""Silver: typed tables that mean one thing each, derived row by row from bronze.

Every function is a projection and a filter. It works on streams as on complete tables, needs no
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

#: What names an instrument: the same symbol at two exchanges is two, of two feeds too.
INSTRUMENT = ("feed", "exchange", "symbol")

#: Whose levels they are: two objects of one name have a book each.
OBJECT = (*INSTRUMENT, "object")

#: Roq's stream of snapshots, which repeats what others said. Streams of other venues follow.
SNAPSHOT = 1
#: For records that are about no stream of a feed: a bus's are.
NO_STREAM = int(Stream.NONE)
#: Kinds of what a publisher sent.
MESSAGES = tuple(kind.name for kind in Kind if kind == Kind.MESSAGE or Kind.BOOK <= kind < Kind.BUS)
#: Flags of messages of which nobody knows when they came, or that waited for a snapshot.
NOT_TIMED = RecordFlag.NO_TIMESTAMP | RecordFlag.RELEASED
#: Hops whose values count backwards: how far the far end's clock is ahead.
BACKWARDS = {"kernel_to_origin": "origin_to_kernel", "kernel_to_exchange": "exchange_to_kernel"}
#: No more numbers of one gap than this are looked for among those that came late.
LATE_MAX = 1 << 20
#: Session of a store's own records; in a composite's copy it is the input.
STORE = "s0"
NS_PER_S = 1_000_000_000


def period(seconds: int, column: str = "received_ns") -> Column:
    """Return the beginning of the period in which a time of nanoseconds lies, as a TIMESTAMP."""
    # Integers: as a double, a time of today is 128 ns away from the next.
    return F.timestamp_seconds(F.expr(f"{column} div {seconds * NS_PER_S} * {seconds}"))


def finite(value: Column) -> Column:
    """Return a number, or NULL where it is none or infinite: it can be neither added nor drawn."""
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
    """Return every change of an order, and whether a snapshot tells of it.

    Behind a change `quantity` is what stands of the order; behind its removal it is 0.
    """
    snapshot = F.col("flags").bitwiseAND(int(RecordFlag.SNAPSHOT)) != 0
    return (
        bronze.table("orders")
        .where(F.col("order_id").isNotNull() & finite(F.col("price")).isNotNull())
        .select(
            *OBJECT,
            "session",
            "stream",
            "number",
            "received_ns",
            (F.col("position") + F.col("row")).alias("at"),
            F.coalesce(snapshot, F.lit(False)).alias("snapshot"),
            "order_id",
            "side",
            "price",
            F.coalesce(finite(F.col("quantity")), F.lit(0.0)).alias("quantity"),
            "priority",
            "action",
        )
    )


def quotes(bronze: Bronze) -> DataFrame:
    """Return the tops of book that have both sides, with mid and spread.

    Prices may be negative, and cross: so may mid and spread. Infinite prices are none.
    """
    bid, ask = F.col("bid_price"), F.col("ask_price")
    return (
        bronze.table("tops")
        .where(finite(bid).isNotNull() & finite(ask).isNotNull())
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
    """Return every change of a book level that a book takes, and a row per message (`seen`).

    A level that is no number is refused, as by every book; one below 0 is a number. What a change
    is of, and whether it holds, is told by other records: `spans`. The rows of messages have no
    levels; they tell how far the records were read.
    """
    ungated = F.col("flags").bitwiseAND(int(RecordFlag.UNGATED)) != 0
    levels = (
        bronze.table("levels")
        .where(F.col("price").isNotNull() & F.col("quantity").isNotNull())
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
    """Return what became of the feed's messages: a row per delivered one, and one per loss.

    A loss is what a record says is missing, whichever: a GAP; a SESSION, of the numbers that came
    before it was believed and of what was pending when the one before ended; a LAPPED, of records
    that a recorder did not get or that a journal does not have any more. The last ones may be of
    any stream, so they are of none.

    Other records of the feed carry no message: they count nothing, but stand for the second in
    which they came.
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


#: What can be said of a second's messages, with the type of each.
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
    # One of reasons.LOST; a reason that only a later version knows is another one.
    known = F.col("reason").isin(*reasons.__members__)
    return F.when(known, F.concat(F.lit(f"{kind}_"), "reason")).otherwise(f"{kind}_OTHER")


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
    """Return a row per datagram: who brought it first, and by how much if anyone else did.

    `line` is the first one by the stamps of kernel or card; where there are none, the one that the
    loop took it from (`winner`). The loop asks one line after the other, so that what it takes
    first may have come to the host later. `late`: only one line brought it, and when it came, its
    message had been reported lost.
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
        # Only those that nobody else brought are in question: the others find nothing.
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
    """Return each number that was reported lost, as datagrams have it: in 32 bits.

    Of a very long gap only the last ones: what is late is not that late. Not read as a stream,
    because a datagram's race is known long after its gap.
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
    """Return the stream of an object; Roq's two are one, and what is of none is of that one."""
    roq = (F.col("stream") <= SNAPSHOT) | (F.col("stream") == NO_STREAM)
    return F.when(roq, 0).otherwise(F.col("stream")).cast("int").alias("stream")


def place() -> Column:
    """Return of which root a row is, in the order in which they follow each other."""
    return F.shiftright("position", POSITION_BITS)


def hops(bronze: Bronze) -> DataFrame:
    """Return latencies, a row per hop and value: from histograms, or from a range's own records.

    A histogram is of a whole minute, in which a range may begin or end. Where the clock at the far
    end is ahead, a value is negative.
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
    # What export/hops counts, of the records of a range alone.
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
