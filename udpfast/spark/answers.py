"""The answers at the top of a report: losses, their cost, the value of each line, latencies.

Each answer can be read by itself; it is made from the rows of the tables.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from udpfast.page.words import channel, counted, duration, literal, moment
from udpfast.spark.bus_answers import bus_answers
from udpfast.spark.reasons import LOST, OF_MESSAGES, OF_RECORDS, lost_by
from udpfast.spark.shown import HOUR_NS, SNAPSHOT, Inputs, Lines, hop, line_name, share

__all__ = ["Answer", "answers", "clock_differs", "took_time"]

#: "good", "bad" or "" for neither, and the sentence.
Answer = tuple[str, str]
Row = dict[str, Any]

#: Books in doubt that one sentence names.
BOOKS_MAX = 5

#: Below this correlation a pair of prices does not show which one moves first.
CORRELATION_MIN = 0.2


def answers(
    tables: dict[str, list[Row]],
    lines: Lines,
    inputs: Inputs | None = None,
    doubts: Sequence[str] = (),
) -> Iterator[Answer]:
    """Yield the answers from the tables, feed by feed; `doubts` are losses that no table shows."""
    losses = _by(tables.get("losses", []), "feed")
    for feed, rows in losses.items():
        of = f"{literal(feed)}: " if len(losses) > 1 else ""
        for kind, text in _lost(rows, doubts):
            yield kind, of + text
    for doubt in doubts:
        yield "bad", doubt
    for (feed, stream), rows in _by(tables.get("races", []), "feed", "stream").items():
        if stream != SNAPSHOT and len(rows) > 1:
            where = f"{literal(feed)}, {channel(stream)}: " if stream else f"{literal(feed)}: "
            for text in _raced(rows, lines):
                yield "", where + text
    hops = tables.get("hops", [])
    several = len({row["feed"] for row in hops}) > 1
    for row in hops:
        if took_time(row):
            of = f"{literal(row['feed'])}, " if several else ""
            yield "", of + _late(row)
    for text in _doubtful(tables.get("depth", [])):
        yield "", text
    for text in _first(tables.get("leadlag", [])):
        yield "", text
    yield from bus_answers(tables.get("bus", []), inputs or {})


def _lost(rows: list[Row], doubts: Sequence[str]) -> Iterator[Answer]:
    # Losses of all channels but the snapshot channel, whichever record reports them.
    market = [row for row in rows if row["stream"] != SNAPSHOT]
    messages = sum(row["messages"] for row in market)
    counts = {reason: sum(row[lost_by(reason)] for row in market) for reason in LOST}
    lost = sum(row["lost"] for row in market)
    records = sum(counts[reason] for reason in OF_RECORDS)
    if lost > records:
        yield "bad", _lost_messages(market, messages, lost - records, counts)
    if records:
        yield "bad", _missing_records(records, counts)
    worst = max(market, key=lambda row: row["lost"], default=None)
    if lost and worst is not None and len(market) > 1:
        hour = f"{worst['hour']:%Y-%m-%d %H:%M}"
        where = channel(worst["stream"])
        most = counted(worst["lost"], "lost message")
        yield "", f"The worst hour began at {hour} UTC ({where}), with {most}."
    if not lost:
        arrived = f"{messages:,} messages arrived in order, each once."
        if doubts:
            yield "", f"No record says that anything was lost: {arrived}"
        else:
            yield "good", f"Nothing was lost: {arrived}"
    snapshots = [row for row in rows if row["stream"] == SNAPSHOT]
    repeated = sum(row["lost"] for row in snapshots)
    if repeated:
        lost = counted(repeated, "message")
        yield "", f"The snapshot channel lost {lost}; it repeats every state regularly."


def _lost_messages(market: list[Row], messages: int, lost: int, counts: dict[str, int]) -> str:
    whole = messages + lost
    gaps, stale = (sum(row[name] for row in market) for name in ("gaps", "stale"))
    said = [f"{lost:,} of {whole:,} messages were lost ({share(lost / whole)})"]
    said += [f", in {counted(gaps, 'gap')}"] if gaps else []
    said += [f", {_because(counts, OF_MESSAGES)}."]
    if gaps:
        longest = max(row["longest"] for row in market)
        waited = duration(max(row["waited_ns_max"] for row in market))
        said += [f" The longest gap had {counted(longest, 'message')}."]
        said += [f" Messages after a gap waited {waited} at most,"]
        said += [f" and objects went stale {counted(stale, 'time')}."]
    return "".join(said)


def _missing_records(records: int, counts: dict[str, int]) -> str:
    # The number is unknown if a log was not read to its end.
    more = " or more" if counts["LAPPED_UNKNOWN"] else ""
    are = "is" if records == 1 and not more else "are"
    return (
        f"{counted(records, 'record')}{more} that the feed published {are} missing here, "
        f"{_because(counts, OF_RECORDS)}. The messages that they held are unknown."
    )


def _because(counts: dict[str, int], reasons: tuple[str, ...]) -> str:
    # Name each reason, with its count if there are several. Reasons with the same words are merged.
    words: dict[str, int] = defaultdict(int)
    for reason in reasons:
        words[LOST[reason]] += counts[reason]
    found = [(text, count) for text, count in words.items() if count]
    if len(found) == 1:
        return f"because {found[0][0]}"
    return "because " + " and ".join(f"{text} ({count:,})" for text, count in found)


def _raced(rows: list[Row], lines: Lines) -> Iterator[str]:
    # The value of a line: the time that it saves, and the datagrams that only it delivers in time.
    total = sum(row["wins"] for row in rows)
    clock = "" if any(row["stamped"] for row in rows) else " by the loop's clock"
    for row in sorted(rows, key=lambda row: -row["wins"]):
        name = line_name(lines, row["feed"], row["stream"], row["line"])
        lead = row["lead_p50_ns"]
        ahead = f", {duration(lead)} ahead in the median" if lead is not None and lead > 0 else ""
        alone = row["only_copy"]
        first = f"{name} delivered {share(row['win_rate'])} of the datagrams first{clock}{ahead}."
        said = f"{first} Without it, {alone:,} would be missing ({share(alone / total)})."
        if row["late"]:
            said += (
                f" It alone delivered {row['late']:,} more, but their messages had been reported "
                "lost by then."
            )
        yield said


def took_time(row: Row) -> bool:
    """Whether a hop took any time; in a replay most take none."""
    return bool(row["max_ns"] or row["p50_ns"])


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


def _doubtful(rows: list[Row]) -> Iterator[str]:
    # Name the books that are in doubt, and since when.
    stale = [row for row in rows if row["stale"]]
    if not stale:
        return
    stale.sort(key=lambda row: row["stale_since_ns"])
    are = "is" if len(stale) == 1 else "are"
    named = "; ".join(map(_since, stale[:BOOKS_MAX]))
    more = f"; and {len(stale) - BOOKS_MAX:,} more" if len(stale) > BOOKS_MAX else ""
    yield (
        f"{len(stale):,} of {counted(len(rows), 'book')} {are} in doubt, and shown as last known: "
        f"{named}{more}."
    )


def _since(row: Row) -> str:
    name = ":".join(literal(row[part]) for part in ("exchange", "symbol"))
    return f"{name} since {moment(row['stale_since_ns'])}"


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
        against = ", the other way" if row["correlation"] < 0 else ""
        yield (
            f"{second} moves {moves} {first}{against}: the strongest correlation of all pairs "
            f"({strength})."
        )


def _by(rows: list[Row], *names: str) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        key = tuple(row[name] for name in names)
        found[key if len(names) > 1 else key[0]].append(row)
    return found
