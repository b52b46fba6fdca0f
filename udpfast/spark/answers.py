"""The answers at the top of a report: losses, their cost, the worth of each line, latencies.

Each answer stands alone; it is made from the rows of the tables.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from udpfast.page.words import channel, duration, literal
from udpfast.spark.bus_answers import bus_answers
from udpfast.spark.shown import HOUR_NS, SNAPSHOT, Inputs, Lines, hop, line_name, share

__all__ = ["Answer", "answers", "clock_differs"]

#: "good", "bad" or "" for neither, and the sentence.
Answer = tuple[str, str]
Row = dict[str, Any]

#: Below this correlation a pair of prices does not show which one moves first.
CORRELATION_MIN = 0.2

REASONS = {
    "lost_by_count": "too many later messages arrived first",
    "lost_by_time": "they did not arrive in time",
    "lost_by_window_full": "the window was full",
    "lost_by_finish": "the feed ended",
}


def answers(
    tables: dict[str, list[Row]], lines: Lines, inputs: Inputs | None = None
) -> Iterator[Answer]:
    """Yield the answers that the tables give, feed by feed."""
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
                    f"in {_many(gaps, 'gap')}, because {' and '.join(reasons)}.",
                    f"The longest gap had {_many(longest, 'message')}. Messages after a gap waited",
                    f"{waited} at most, and objects went stale {_many(stale, 'time')}.",
                )
            ),
        )
        worst = max(market, key=lambda row: row["lost"])
        if len(market) > 1:
            hour = f"{worst['hour']:%Y-%m-%d %H:%M}"
            where = channel(worst["stream"])
            most = _many(worst["lost"], "lost message")
            yield "", f"The worst hour began at {hour} UTC ({where}), with {most}."
    else:
        yield "good", f"Nothing was lost: {messages:,} messages arrived in order, each once."
    repeated = sum(row["lost"] for row in rows if row["stream"] == SNAPSHOT)
    if repeated:
        lost = _many(repeated, "message")
        yield "", f"The recovery channel lost {lost}; it repeats every state regularly."


def _raced(rows: list[Row], lines: Lines) -> Iterator[str]:
    # A line is worth the time that it saves, and the datagrams that only it delivers.
    total = sum(row["wins"] for row in rows)
    for row in sorted(rows, key=lambda row: -row["wins"]):
        name = line_name(lines, row["feed"], row["stream"], row["line"])
        lead = row["lead_p50_ns"]
        ahead = f", {duration(lead)} ahead in the median" if lead is not None and lead > 0 else ""
        alone = row["only_copy"]
        first = f"{name} delivered {share(row['win_rate'])} of the datagrams first{ahead}."
        yield f"{first} Without it, {alone:,} would be missing ({share(alone / total)})."


def clock_differs(row: Row) -> bool:
    """Whether the clocks of a hop disagree, so that its times do not show latency."""
    return bool(row["p50_ns"] < 0 or row["p50_ns"] >= HOUR_NS)


def _late(row: Row) -> str:
    what = hop(row["hop"])
    if row["p50_ns"] >= HOUR_NS:
        return (
            f"{what}: not drawn, because the stamps are an hour or more behind this host's clock. "
            "The market is a replay, or a clock is wrong."
        )
    if row["p50_ns"] < 0:
        ahead = duration(-row["p50_ns"])
        return (
            f"{what}: not drawn, because the stamps are {ahead} ahead of this host's clock in the "
            "median. One of the clocks is wrong."
        )
    half, most, longest = (duration(row[f"{name}_ns"]) for name in ("p50", "p99", "max"))
    return f"{what}: median {half}, p99 {most}, maximum {longest}."


def _peaks(rows: list[Row]) -> list[Row]:
    """Return the row of each pair's highest correlation, the most correlated pair first."""
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
        strength = f"{row['correlation']:.2f}"
        yield f"{second} moves {moves} {first}: the highest correlation of all pairs ({strength})."


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _by(rows: list[Row], *names: str) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        key = tuple(row[name] for name in names)
        found[key if len(names) > 1 else key[0]].append(row)
    return found
