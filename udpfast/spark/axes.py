"""Axes of a report's figures: panels side by side, times, percentiles, names."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from udpfast.page.drawing import OWN, PEERS, columns, label_ends, label_logarithmic, tick
from udpfast.page.words import literal
from udpfast.spark.probabilities import PROBABILITIES

__all__ = ["PERCENTS", "draw_percentiles", "over_time", "panels", "told_apart"]

#: Days are what matplotlib counts times in. Around a single point it puts four years.
DAYS_MIN = 10 / 86_400
DAYS_OF_ONE_POINT = 365

PERCENTS = tuple(PROBABILITIES)
LABELLED = {"p10": "10", "p50": "50", "p90": "90", "p99": "99", "p99_9": "99.9", "p99_99": "99.99"}


def panels(canvas: Figure, count: int) -> list[Axes]:
    """Return axes, two in a row where there is room."""
    own = columns(canvas, count)
    axes = list(canvas.subplots(-(-count // own), own, squeeze=False).flat)
    for axis in axes[count:]:
        axis.remove()
    return axes[:count]


def over_time(axis: Axes, title: str) -> None:
    """Put times at the x axis, short; at least ten seconds of them."""
    low, high = axis.get_xlim()
    if high - low < DAYS_MIN or high - low > DAYS_OF_ONE_POINT:
        middle = (axis.dataLim.x0 + axis.dataLim.x1) / 2
        axis.set_xlim(middle - DAYS_MIN / 2, middle + DAYS_MIN / 2)
    locator = AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axis.yaxis.set_major_formatter(tick)
    axis.grid(True, axis="y")
    axis.set_title(title)


def draw_percentiles(axis: Axes, curves: dict[str, list[float]], title: str) -> None:
    """Draw what lies below each value: the rare at the right as wide as the common."""
    places = [-math.log10(1 - PROBABILITIES[name] / 100) for name in PERCENTS]
    ends, palette = [], {}
    for (name, values), colour in zip(curves.items(), cycle((*OWN, *PEERS)), strict=False):
        axis.plot(places, values, "o-", ms=3, lw=1.4, color=colour)
        palette[name] = colour
        ends.append((places[-1], values[-1], name))
    axis.set_xticks([places[PERCENTS.index(name)] for name in LABELLED], LABELLED.values())
    axis.set(xlabel="per cent of them at or below", ylabel=title)
    axis.grid(True, axis="y")
    if ends:
        if min(value for values in curves.values() for value in values) > 0:
            axis.set_yscale("log")
        else:
            axis.set_yscale("symlog", linthresh=1.0)
        label_logarithmic(axis)
        label_ends(axis, ends, palette)


def told_apart(names: Iterable[str]) -> list[str]:
    """Return names as they are drawn; those that are the same get a number."""
    seen: Counter[str] = Counter()
    found = []
    for each in map(literal, names):
        seen[each] += 1
        found.append(f"{each} ({seen[each]})" if seen[each] > 1 else each)
    return found
