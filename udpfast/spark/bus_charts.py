"""The charts of a bus: how late the composite took each sender's messages, also over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bokeh.plotting import figure

from udpfast.page.charts import (
    Chart,
    colours_of,
    draw_line,
    duration_axis,
    hover,
    legend,
    panel,
    percentile_panel,
    time_axis,
)
from udpfast.page.words import duration
from udpfast.spark.bus_answers import SENDERS_MAX, sender_name, stamps_differ
from udpfast.spark.charts import told_apart
from udpfast.spark.gold import Gold
from udpfast.spark.probabilities import PROBABILITIES
from udpfast.spark.shown import Inputs, input_name

__all__ = ["bus_charts"]

#: The most periods of one chart, over all inputs; the first ones are kept.
PERIODS_MAX = 20_000

Row = dict[str, Any]


def bus_charts(gold: Gold, inputs: Inputs) -> Iterator[Chart]:
    """Yield the charts that the tables can fill: those of a composite whose clocks agree."""
    senders = [
        row
        for row in gold.table("bus", 100_000).to_pylist()
        if row["seen_p50_ns"] is not None and not stamps_differ(row["seen_p50_ns"])
    ]
    senders = sorted(senders, key=lambda row: -row["messages"])[:SENDERS_MAX]
    if senders:
        several = len({row["session"] for row in senders}) > 1
        names = told_apart(
            sender_name(row) + f" in {input_name(inputs, row['feed'], row['session'])}" * several
            for row in senders
        )
        curves = {
            name: [row[f"seen_{each}_ns"] for each in PROBABILITIES]
            for name, row in zip(names, senders, strict=True)
        }
        yield Chart(
            "bus",
            "Time from the sequencer's stamp until the composite's host took the message, by "
            "sender. Half of all values are at or below the point at 50, and all but one in a "
            "thousand at or below the point at 99.9. The time includes the difference between the "
            "clocks of the two hosts.",
            (("", percentile_panel(curves, list(PROBABILITIES.values()))),),
        )
    periods = [
        row
        for row in gold.table("seen", PERIODS_MAX).to_pylist()
        if not stamps_differ(row["p50_ns"])
    ]
    if len({row["time"] for row in periods}) > 1:
        yield Chart(
            "seen",
            "How far the composite's host was behind the sequencer of each input. Left: the median "
            "of each period. Right: the maximum.",
            (
                ("median", seen_panel(periods, inputs, "p50_ns")),
                ("maximum", seen_panel(periods, inputs, "max_ns")),
            ),
        )


def seen_panel(rows: list[Row], inputs: Inputs, column: str) -> figure:
    """Return a line per input; an input has the same colour in both panels."""
    positive = min(row[column] for row in rows) > 0
    made = panel(x_axis_type="datetime", y_axis_type="log" if positive else "linear")
    keys = list(dict.fromkeys((row["feed"], row["session"]) for row in rows))
    names = told_apart(input_name(inputs, feed, session) for feed, session in keys)
    colours = colours_of(names)
    drawn = {}
    for key, name in zip(keys, names, strict=True):
        own = [row for row in rows if (row["feed"], row["session"]) == key]
        columns = {
            "x": [row["time"] for row in own],
            "y": [row[column] for row in own],
            "count": [row["count"] for row in own],
            "behind": [duration(row[column]) for row in own],
        }
        drawn[name] = draw_line(made, name, colours[name], columns)
    tooltips = [("", "@name"), ("behind", "@behind"), ("messages", "@count{0,0}")]
    hover(made, tooltips, [each[0] for each in drawn.values()], times=True)
    time_axis(made)
    duration_axis(made, logarithmic=positive)
    legend(made, drawn)
    return made
