"""What a report says first: what was lost, what it cost, which line to pay for, how late it came.

Each answer is a sentence that stands alone, made of the rows of the tables.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from udpfast.page.words import channel, duration, literal
from udpfast.spark.bus_answers import bus_answers
from udpfast.spark.shown import HOUR_NS, SNAPSHOT, Inputs, Lines, hop, line_name, share

__all__ = ["Answer", "answers", "clock_differs"]

#: Whether it is good or bad news, "" for neither, and the sentence.
Answer = tuple[str, str]
Row = dict[str, Any]

#: Prices of a pair that move together less than this say nothing of who is first.
CORRELATION_MIN = 0.2

REASONS = {
    "lost_by_count": "too many came behind them",
    "lost_by_time": "they did not come in time",
    "lost_by_window_full": "the window was full",
    "lost_by_finish": "the feed ended",
}


def answers(
    tables: dict[str, list[Row]], lines: Lines, inputs: Inputs | None = None
) -> Iterator[Answer]:
    """Yield what the tables answer, feed by feed."""
    losses = _by(tables.get("losses", []), "feed")
    for feed, rows in losses.items():
        of = f"{literal(feed)}: " if len(losses) > 1 else ""
        for kind, text in _lost(rows):
            yield kind, of + text
    for (feed, stream), rows in _by(tables.get("races", []), "feed", "stream").items():
        if stream != SNAPSHOT and len(rows) > 1:
            where = f"{literal(feed)}, {channel(stream)}: " if stream else f"{literal(feed)}: "
            for text in _raced(rows, lines):
                yield "", where + text
    hops = tables.get("hops", [])
    several = len({row["feed"] for row in hops}) > 1
    for row in hops:
        if row["max_ns"]:
            of = f"{literal(row['feed'])}, " if several else ""
            yield "", of + _late(row)
    for text in _first(tables.get("leadlag", [])):
        yield "", text
    yield from bus_answers(tables.get("bus", []), inputs or {})


def _lost(rows: list[Row]) -> Iterator[Answer]:
    market = [row for row in rows if row["stream"] != SNAPSHOT]
    messages, lost, gaps, stale = (
        sum(row[name] for row in market) for name in ("messages", "lost", "gaps", "stale")
    )
    if lost:
        reasons = [text for name, text in REASONS.items() if any(row[name] for row in market)]
        longest = max(row["longest"] for row in market)
        waited = duration(max(row["waited_ns_max"] for row in market))
        whole = messages + lost
        yield (
            "bad",
            " ".join(
                (
                    f"{lost:,} of {whole:,} messages were lost ({share(lost / whole)}),",
                    f"in {_many(gaps, 'gap')}: {' and '.join(reasons)}.",
                    f"The longest gap had {longest:,}; what came behind a gap waited {waited}",
                    f"at most, and objects went stale {_many(stale, 'time')}.",
                )
            ),
        )
        worst = max(market, key=lambda row: row["lost"])
        if len(market) > 1:
            hour = f"{worst['hour']:%Y-%m-%d %H:%M}"
            where = channel(worst["stream"])
            yield "", f"Most in the hour from {hour} (UTC), {where}: {worst['lost']:,}."
    else:
        yield "good", f"Nothing was lost: {messages:,} messages came in order, each once."
    repeated = sum(row["lost"] for row in rows if row["stream"] == SNAPSHOT)
    if repeated:
        lacked = _many(repeated, "message")
        yield "", f"The recovery channel lacked {lacked}; it sends each state again and again."


def _raced(rows: list[Row], lines: Lines) -> Iterator[str]:
    # What a line brings sooner, and what would be missing without it, is what it is worth.
    total = sum(row["wins"] for row in rows)
    for row in sorted(rows, key=lambda row: -row["wins"]):
        name = line_name(lines, row["feed"], row["stream"], row["line"])
        lead = row["lead_p50_ns"]
        ahead = f", by {duration(lead)} in the median" if lead is not None and lead > 0 else ""
        alone = row["only_copy"]
        first = f"{name} was first with {share(row['win_rate'])} of the datagrams{ahead}."
        yield f"{first} Without it {alone:,} would be missing ({share(alone / total)})."


def clock_differs(row: Row) -> bool:
    """Whether a hop's times are of clocks that do not agree, and so say nothing of latency."""
    return bool(row["p50_ns"] < 0 or row["p50_ns"] >= HOUR_NS)


def _late(row: Row) -> str:
    what = hop(row["hop"])
    if row["p50_ns"] >= HOUR_NS:
        return (
            f"{what}: the stamps are an hour or more behind this host's clock: a market that is "
            "replayed, or a clock that is wrong. Not drawn."
        )
    if row["p50_ns"] < 0:
        ahead = duration(-row["p50_ns"])
        return (
            f"{what}: the stamps are {ahead} ahead of this host's clock in the median: one of the "
            "clocks is wrong. Not drawn."
        )
    half, most, longest = (duration(row[f"{name}_ns"]) for name in ("p50", "p99", "max"))
    return f"{what}: {half} in the median, {most} at 99 %, {longest} at most."


def _peaks(rows: list[Row]) -> list[Row]:
    """Return of each pair of instruments the lag at which they are related most, best first."""
    best = [
        max(own, key=lambda row: abs(row["correlation"] or 0))
        for own in _by(rows, "feed", "a", "b").values()
    ]
    return sorted(best, key=lambda row: -abs(row["correlation"] or 0))


def _first(rows: list[Row]) -> Iterator[str]:
    for row in _peaks(rows)[:1]:
        if abs(row["correlation"] or 0) < CORRELATION_MIN:
            return
        first, second, lag = literal(row["a"]), literal(row["b"]), row["lag_ms"]
        if lag < 0:
            first, second, lag = second, first, -lag
        moves = f"{lag:,} ms after" if lag else "together with"
        alike = f"correlation {row['correlation']:.2f}"
        yield f"{second} moves {moves} {first}: of all pairs the most alike ({alike})."


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _by(rows: list[Row], *names: str) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        key = tuple(row[name] for name in names)
        found[key if len(names) > 1 else key[0]].append(row)
    return found
