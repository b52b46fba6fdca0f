"""The figures of a bus: how late each sender's messages were seen, and how that went over time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import Any

from matplotlib.dates import date2num
from matplotlib.figure import Figure

from udpfast.page.drawing import OWN, PEERS, Plot, label_ends, label_logarithmic
from udpfast.spark.axes import PERCENTS, draw_percentiles, over_time, panels, told_apart
from udpfast.spark.bus_answers import SENDERS_MAX, sender_name, stamps_differ
from udpfast.spark.gold import Gold
from udpfast.spark.shown import Inputs, input_name

__all__ = ["bus_figures"]

#: Periods of one figure, of all inputs: the first ones.
PERIODS_MAX = 20_000

Row = dict[str, Any]


def bus_figures(gold: Gold, inputs: Inputs) -> Iterator[Plot]:
    """Yield the figures that the tables can fill: those of a composite, by clocks that agree."""
    senders = [
        row
        for row in gold.table("bus", 100_000).to_pylist()
        if row["seen_p50_ns"] is not None and not stamps_differ(row["seen_p50_ns"])
    ]
    senders = sorted(senders, key=lambda row: -row["messages"])[:SENDERS_MAX]
    if senders:
        yield Plot(
            "bus",
            "bus",
            "How long after its sequencer's stamp the composite's host had taken a message, by "
            "sender: half of all at or below the point at 50, all but one in a thousand at or "
            "below that at 99.9. Two hosts have two clocks: what they differ by is in it.",
            partial(draw_senders, rows=senders, inputs=inputs),
            3.4,
        )
    periods = [
        row
        for row in gold.table("seen", PERIODS_MAX).to_pylist()
        if not stamps_differ(row["p50_ns"])
    ]
    if len({row["time"] for row in periods}) > 1:
        yield Plot(
            "seen",
            "seen",
            "How far the composite's host was behind the sequencer of each input: left in the "
            "median of each period, right at most.",
            partial(draw_seen, rows=periods, inputs=inputs),
            2.6,
            2,
        )


def draw_senders(canvas: Figure, rows: list[Row], inputs: Inputs) -> None:
    """Draw a curve per sender."""
    several = len({row["session"] for row in rows}) > 1
    names = told_apart(
        sender_name(row) + f" in {input_name(inputs, row['feed'], row['session'])}" * several
        for row in rows
    )
    curves = {
        name: [row[f"seen_{each}_ns"] / 1e3 for each in PERCENTS]
        for name, row in zip(names, rows, strict=True)
    }
    draw_percentiles(canvas.subplots(), curves, "us")


def draw_seen(canvas: Figure, rows: list[Row], inputs: Inputs) -> None:
    """Draw a line per input."""
    keys = list(dict.fromkeys((row["feed"], row["session"]) for row in rows))
    names = told_apart(input_name(inputs, *key) for key in keys)
    for axis, column in zip(panels(canvas, 2), ("p50_ns", "max_ns"), strict=True):
        ends, palette = [], {}
        positive = True
        for key, name, colour in zip(keys, names, cycle((*OWN, *PEERS)), strict=False):
            own = [row for row in rows if (row["feed"], row["session"]) == key]
            times, values = [row["time"] for row in own], [row[column] / 1e3 for row in own]
            axis.plot(times, values, "o-", ms=2.5, lw=1.2, color=colour)
            palette[name] = colour
            positive &= min(values) > 0
            end = float(date2num(times[-1]))  # type: ignore[no-untyped-call]
            ends.append((end, values[-1], name))
        over_time(axis, "in the median, us" if column == "p50_ns" else "at most, us")
        if positive:
            axis.set_yscale("log")
            label_logarithmic(axis)
        label_ends(axis, ends, palette)
