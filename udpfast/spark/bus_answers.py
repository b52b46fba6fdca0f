"""A report's answers about a bus: whether every message is there once, how late, what is unknown.

As in `answers`, each can be read by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from udpfast.page.words import counted, duration, literal
from udpfast.spark.shown import HOUR_NS, Inputs, input_name

__all__ = ["bus_answers", "sender_name", "stamps_differ"]

#: The report names this many senders, those with the most messages.
SENDERS_MAX = 6

UNKNOWN = (
    "The records do not show when apps called send, which messages were sent again or refused as "
    "duplicates, or how far other copies were behind. udpfast bus stat shows it while the bus runs."
)
UNSEEN = (
    "The records do not show how long messages took to reach their readers, because a store holds "
    "only its sequencer's stamps. A copy of a composite also shows when its order took each "
    "message (udpfast record composite:NAME)."
)

Row = dict[str, Any]


def bus_answers(rows: list[Row], inputs: Inputs) -> Iterator[tuple[str, str]]:
    """Yield the answers of the table `bus`, feed by feed; none if it has no rows."""
    feeds: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        feeds[row["feed"]].append(row)
    for feed, own in feeds.items():
        yield from _complete(feed, own, inputs)
        busiest = sorted(own, key=lambda row: -row["messages"])
        seen = [row for row in busiest if row["seen_p50_ns"] is not None]
        for row in seen[:SENDERS_MAX]:
            yield "", f"{literal(feed)}: {_late(row, inputs)}"
        if len(seen) > SENDERS_MAX:
            yield "", f"{literal(feed)}: the table lists {len(seen) - SENDERS_MAX:,} more senders."
        if not seen:
            yield "", UNSEEN
    if feeds:
        yield "", UNKNOWN


def sender_name(row: Row) -> str:
    """Return a sender's name, or its number if the records read lack its registration."""
    name = f"sender {row['sender']}" if row["name"] is None else literal(row["name"])
    return name if row["incarnation"] == 1 else f"{name} (outbox {row['incarnation']})"


def stamps_differ(half_ns: int) -> bool:
    """Whether a median shows that the clocks disagree, so that it does not show latency."""
    return half_ns < 0 or half_ns >= HOUR_NS


def _complete(feed: str, rows: list[Row], inputs: Inputs) -> Iterator[tuple[str, str]]:
    total = sum(row["messages"] for row in rows)
    back = sum({row["session"]: row["taken_back"] for row in rows}.values())
    wrong = [row for row in rows if not row["whole"]]
    if back:
        yield (
            "bad",
            f"{literal(feed)}: inputs lost {counted(back, 'record')} that had been taken, because "
            "a host without them was promoted. Senders that were still alive sent theirs again "
            "under the same numbers, so a copy that had them holds them twice.",
        )
    if not wrong:
        yield (
            "good",
            f"{literal(feed)}: {counted(total, 'message')} from {counted(len(rows), 'sender')}, "
            "each there once. No number is missing between a sender's first and last.",
        )
    for row in wrong:
        # A copy that had records before they were taken back holds them twice; that is no fault.
        kind = "" if row["taken_back"] >= row["twice"] and not row["missing"] else "bad"
        yield (
            kind,
            f"{literal(feed)}: {sender_name(row)} in "
            f"{input_name(inputs, feed, row['session'])}, numbers {row['first_number']:,} to "
            f"{row['last_number']:,}: {_fault(row)}.",
        )


def _fault(row: Row) -> str:
    if row["missing"]:
        return f"{counted(row['missing'], 'message')} {_are(row['missing'])} missing"
    if row["twice"]:
        return f"{counted(row['twice'], 'message')} {_are(row['twice'])} there twice"
    return "some messages are missing, and as many others are there twice"


def _late(row: Row, inputs: Inputs) -> str:
    what = f"{sender_name(row)} in {input_name(inputs, row['feed'], row['session'])}"
    half = row["seen_p50_ns"]
    if stamps_differ(half):
        ahead = "ahead of" if half < 0 else "behind"
        size = duration(abs(half)) if half < HOUR_NS else "an hour or more"
        return (
            f"{what}: not drawn, because the sequencer's stamps are {size} {ahead} the clock of "
            "the composite's host in the median. The clocks disagree, or the composite was made "
            "later."
        )
    p50, p99, most = (duration(row[f"seen_{name}_ns"]) for name in ("p50", "p99", "max"))
    return (
        f"{what}, from the sequencer's stamp until the composite's host took the message: median "
        f"{p50}, p99 {p99}, maximum {most}."
    )


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
