"""A result as text, as `udpfast wire` prints it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from udpfast.page.words import count_text, counted, duration, literal, moment
from udpfast.probe.result import (
    LISTENER_OUT,
    LineResult,
    Race,
    Result,
    percentiles_of,
    runs_of,
)

__all__ = ["result_text"]

SHOWN = {"min": "min", "p50": "p50", "p90": "p90", "p99": "p99", "p99_9": "p99.9", "max": "max"}
WORDS = {
    "round_trip": "round trip",
    "out": "way out",
    "back": "way back",
    "turn": "turn",
    "queued": "queued",
    "late": "sent late",
}


def result_text(result: Result) -> str:
    """Return tables of delays, loss and races, and what the clocks are worth."""
    return "\n".join(_lines(result))


def _lines(result: Result) -> Iterator[str]:
    count = len(result.planned_ns)
    when = moment(int(result.planned_ns[0])) if count else "nothing was sent"
    train = f", trains of {result.train}" if result.train > 1 else ""
    ended = ", interrupted" if result.complete is False and not result.first_probe else ""
    yield (
        f"{when}: {counted(count, 'probe')} of {result.size_bytes} bytes on each line, "
        f"{result.rate_per_s:,.10g}/s{train}{ended}"
    )
    yield from result.caveats()
    yield f"clocks: {result.offset.sentence()}"
    here, there = literal(result.offset.here.text), literal(result.offset.there.text)
    yield f"  sender: {here}; listener: {there}"
    yield ""
    words = WORDS if result.side == "sender" else WORDS | {"out": LISTENER_OUT}
    rows = [["line", "", *SHOWN.values()]]
    for name, line in result.lines.items():
        for what, word in words.items():
            found = line.percentiles(what)
            if found["count"]:
                rows.append([name, word, *_figures(found)])
    if len(result.lines) > 1:
        found = percentiles_of(result.first_out_ns)
        if found["count"]:
            rows.append(["first of all", words["out"], *_figures(found)])
    yield from _table(rows)
    yield ""
    yield from _table([_LOSS_HEAD, *map(_loss, result.lines.values())])
    if len(result.lines) > 1:
        lost, longest = (
            int(result.lost_on_all.sum()),
            int(runs_of(result.lost_on_all).max(initial=0)),
        )
        mark = " ?" if result.lost_either.any() else ""
        yield f"lost on all lines: {lost:,}{mark}, longest run {longest:,}"
        if said := result.left_out():
            yield said
    if result.races:
        yield ""
        for race in result.races:
            yield _race(race, words[race.way])


_LOSS_HEAD = [
    *("line", "sent", "lost, way out", "share", "runs", "longest", "reordered", "duplicates"),
    "lost, way back",
]


def _loss(line: LineResult) -> list[str]:
    runs = line.runs
    return [
        line.name,
        f"{int(line.sent.sum()):,}",
        line.lost_text,
        line.loss_text(3),
        f"{len(runs):,}",
        f"{int(runs.max(initial=0)):,}",
        count_text(line.counts["out_reordered"]),
        count_text(line.counts["out_duplicates"]),
        count_text(None if line.lost_back is None else int(line.lost_back.sum())),
    ]


def _race(race: Race, way: str) -> str:
    found = race.to_dict()
    won, lost = found["won_first"], found["won_second"]
    text = f"{way}: {race.first} was first {counted(won, 'time')}"
    if won:
        text += f" (by {_lead(found['lead_first_ns'])})"
    text += f", {race.second} {counted(lost, 'time')}"
    if lost:
        text += f" (by {_lead(found['lead_second_ns'])})"
    text += f"; only {race.first} {race.only_first:,}, only {race.second} {race.only_second:,}"
    text += f", neither {race.neither:,}"
    rest = {"tied": found["tied"], "unmeasured": race.unmeasured, "listener away": race.away}
    for word, count in rest.items():
        text += f", {word} {count:,}" if count else ""
    return text


def _lead(found: Mapping[str, float]) -> str:
    return f"{duration(found['p50'])} at p50, {duration(found['p99'])} at p99"


def _figures(found: Mapping[str, float]) -> list[str]:
    return ["-" if math.isnan(found[name]) else duration(found[name]) for name in SHOWN]


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            f"{cell:<{width}}" if place < 1 else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
