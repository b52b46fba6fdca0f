"""The figures of a result: percentile curves, values over a parameter, hops, variants.

Drawn by matplotlib, once for the report (SVG in the page's own colours, light or dark) and once
for docs/benchmarks.md and the README (PNG). A figure says what its axes are, labels its lines where
they end, and shows one class of placement, that of which there are more trials.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from udpfast.page.colours import OWN, PEERS
from udpfast.page.words import figure
from udpfast.shm.histogram import LatencyHistogram

from .drawing import INK, MUTED, Plot, label_ends, label_logarithmic, name_of, tick
from .result import Row, text

__all__ = ["find_plots"]

NINES = ["0", "90", "99", "99.9", "99.99", "99.999"]

#: What the captions say, here and in docs/benchmarks.md.
BARS = (
    "The bar is the median of the trials, each of which is a dot. Blue: udpfast; grey: another "
    "program that ratios divide by; orange: other programs."
)
RATIOS = (
    "A ratio is the median of the ratios within one round, not the quotient of two bars; the title "
    "says what it divides by, and the bar, if that differs."
)
CURVES = "Each step to the right is one nine more; a name has the colour of its curve."

#: What the x axis of a figure over a parameter is; the first that a benchmark varies.
OVER = {"rate": "messages per second", "readers": "readers"}


def find_plots(rows: Sequence[Row]) -> Iterator[Plot]:
    """Yield the figures that these rows can fill, benchmark by benchmark."""
    for benchmark in dict.fromkeys(row.benchmark for row in rows):
        own = one_placement([row for row in rows if row.benchmark == benchmark])
        for over in OVER:
            if len({row.parameters[over] for row in own if over in row.parameters}) > 1:
                yield from over_plots(benchmark, own, over)
                break
        else:
            yield from bar_plots(benchmark, own)
        yield from curve_plots(benchmark, own)
        yield from hop_plots(benchmark, own)


def one_placement(rows: list[Row]) -> list[Row]:
    """Return the rows of one class of placement (and of none): that of most trials."""
    count = {
        where: sum(len(row.values) for row in rows if row.placement == where)
        for where in ("NEAR", "FAR")
    }
    chosen = max(count, key=lambda where: count[where])
    return [row for row in rows if row.placement in ("", chosen)]


def shared_without(row: Row, *left_out: str) -> str:
    """Return a row's parameters, but some, and its placement, for people."""
    words = [f"{k} {text(v)}" for k, v in row.parameters.items() if k not in left_out]
    return ", ".join(filter(None, [*words, row.placement]))


def grouped(rows: list[Row], *left_out: str) -> Iterator[tuple[str, list[Row]]]:
    """Yield the rows that differ only in variant and in these parameters."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(shared_without(row, *left_out), []).append(row)
    yield from found.items()


def is_foreign(row: Row) -> bool:
    """Whether a row is another program's; udpfast with less than all of its work is still ours."""
    return bool(row.version or row.less) and not row.variant.startswith("udpfast")


def colours(rows: list[Row]) -> dict[str, str]:
    """Return a colour for each variant: udpfast's own first, the base in grey."""
    found: dict[str, str] = {}
    own, peers = cycle(OWN), cycle(PEERS)
    for row in sorted(rows, key=lambda row: row.variant):
        if row.variant not in found:
            foreign = is_foreign(row)
            base = row.variant == row.base and foreign
            found[row.variant] = MUTED if base else next(peers if foreign else own)
    return found


# Percentile curves: the x axis is log of 1 / (1 - q), so that each nine has the same room.


def curve_plots(benchmark: str, rows: list[Row]) -> Iterator[Plot]:
    """Yield a figure of percentile curves per set of parameters, a panel per rate."""
    for words, group in grouped([row for row in rows if row.counts], "rate"):
        rates = sorted({float(row.parameters.get("rate", 0)) for row in group})
        panels = [
            (f"{rate:,.0f} per second" if rate else "", [r for r in group if rate_of(r) == rate])
            for rate in rates
        ]
        yield Plot(
            name_of(benchmark, "percentiles", words),
            benchmark,
            f"Latency by percentile, {words}. {CURVES}",
            partial(draw_curves, panels=panels),
            3.2 if len(panels) < 3 else 2.9 * ((len(panels) + 1) // 2),
        )


def rate_of(row: Row) -> float:
    """Return a row's rate, 0 if it has none."""
    return float(row.parameters.get("rate", 0))


def draw_curves(canvas: Figure, panels: list[tuple[str, list[Row]]]) -> None:
    """Draw a panel per rate, two in a row."""
    columns = min(2, len(panels))
    lines = (len(panels) + columns - 1) // columns
    axes = canvas.subplots(lines, columns, sharey=True, sharex=True, squeeze=False).flat
    palette = colours([row for _, rows in panels for row in rows])
    furthest = max(float(curve(row)[0][-1]) for _, rows in panels for row in rows)
    decades = max(2, math.ceil(math.log10(furthest)))
    for place, (axis, (title, rows)) in enumerate(zip(axes, panels, strict=False)):
        ends = []
        for row in rows:
            nines, latency = curve(row)
            axis.plot(nines, latency, color=palette[row.variant])
            # All names at the right edge: where curves end at different places they would overlap.
            ends.append((10**decades * 1.1, float(latency[-1]), row.variant))
        axis.set(xscale="log", yscale="log", title=title, xlim=(1, 10**decades * 1.1))
        axis.grid(True)
        axis.set_xticks([10**nines for nines in range(decades + 1)], NINES[: decades + 1])
        label_logarithmic(axis)
        if place % columns == 0:
            axis.set_ylabel("latency, us")
        if place >= len(panels) - columns:
            axis.set_xlabel("percentile")
        label_ends(axis, ends, palette)
    for axis in list(axes)[len(panels) :]:
        axis.remove()


def curve(row: Row) -> tuple[Any, Any]:
    """Return 1 / (1 - q) and the latency in us, up to the last sample but one."""
    slots = np.array(row.counts, dtype=np.int64)
    sums = np.cumsum(slots[:, 1])
    total = sums[-1]
    latency = LatencyHistogram.values()[slots[:, 0]] / 1e3
    # The share below a slot: the first is the minimum, at 0 %; the last one's own share is unknown.
    below = np.concatenate([[0], sums[:-1]])
    nines = total / (total - below)
    return np.minimum(nines, 1e5), np.maximum(latency, 1e-3)


# A figure over a rate, or over a number of readers.


def over_plots(benchmark: str, rows: list[Row], over: str) -> Iterator[Plot]:
    """Yield a figure per set of the other parameters: the median, and p99 if it is a latency."""
    # A row may say in words where the others have a number: "full speed".
    numbered = [row for row in rows if isinstance(row.parameters.get(over), (int, float))]
    for words, group in grouped(numbered, over):
        if len({row.parameters[over] for row in group}) > 1:
            latency = any(row.latency for row in group)
            yield Plot(
                name_of(benchmark, f"over {over}", words),
                benchmark,
                f"{'Latency' if latency else group[0].unit} over {OVER[over]}, {words}."
                + (" Thick: p50; thin: p99." if latency else ""),
                partial(draw_over, rows=group, over=over),
            )


def draw_over(canvas: Figure, rows: list[Row], over: str) -> None:
    """Draw a line per variant."""
    axis = canvas.subplots()
    palette = colours(rows)
    latency = any(row.latency for row in rows)
    scale = 1e3 if latency else 1.0
    ends = []
    for variant, colour in palette.items():
        own = sorted((r for r in rows if r.variant == variant), key=lambda r: r.parameters[over])
        x = [float(row.parameters[over]) for row in own]
        axis.plot(x, [row.median / scale for row in own], "o-", ms=4, color=colour)
        tail = [(at, r.latency["p99"] / scale) for at, r in zip(x, own, strict=True) if r.latency]
        if tail:
            axis.plot(*zip(*tail, strict=True), color=colour, lw=0.8)
        ends.append((x[-1], own[-1].median / scale, variant))
    values = [row.median / scale for row in rows]
    spread = latency or max(values) > 20 * min(values)
    axis.set(
        xscale="log",
        yscale="log" if spread else "linear",
        xlabel=OVER[over],
        ylabel="latency, us" if latency else rows[0].unit,
    )
    if not spread:
        axis.set_ylim(bottom=0)
    ticks = sorted({float(row.parameters[over]) for row in rows})
    axis.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    label_logarithmic(axis)
    axis.grid(True, axis="y")
    label_ends(axis, ends, palette)


# Where the time goes, hop by hop.


def hop_plots(benchmark: str, rows: list[Row]) -> Iterator[Plot]:
    """Yield one figure: the p50 of each hop, one bar per row."""
    own = [row for row in rows if row.hops]
    if own:
        yield Plot(
            name_of(benchmark, "hops", ""),
            benchmark,
            "Where the time goes: p50 of each hop. (Medians do not add up exactly.)",
            partial(draw_hops, rows=own),
            1.1 + 0.36 * len(own),
        )


def draw_hops(canvas: Figure, rows: list[Row]) -> None:
    """Draw a bar of hops per row, the first on top."""
    axis = canvas.subplots()
    names = list(dict.fromkeys(name for row in rows for name in row.hops or {}))
    palette = dict(zip(names, cycle((*OWN[:3], *PEERS)), strict=False))
    left = np.zeros(len(rows))
    longest = max(sum(hop["p50"] / 1e3 for hop in (row.hops or {}).values()) for row in rows)
    for name in names:
        width = np.array([(row.hops or {}).get(name, {}).get("p50", 0.0) / 1e3 for row in rows])
        axis.barh(range(len(rows)), width, left=left, height=0.6, color=palette[name], label=name)
        for place, (start, size) in enumerate(zip(left, width, strict=True)):
            if size > 0.06 * longest:
                words = f"{size:.2g}"
                axis.text(start + size / 2, place, words, ha="center", va="center", color="white")
        left += width
    axis.set_yticks(range(len(rows)), told_apart(rows))
    axis.invert_yaxis()
    axis.set_xlabel("us")
    axis.tick_params(axis="y", length=0, labelcolor=INK)
    axis.spines["left"].set_visible(False)
    canvas.legend(loc="outside upper left", ncols=4, frameon=False, fontsize=8)


def told_apart(rows: list[Row]) -> list[str]:
    """Return variant and parameters of each row, without the parameters that all have in common."""
    common = {
        name
        for name in rows[0].parameters
        if len({row.parameters.get(name) for row in rows}) == 1 and len(rows) > 1
    }
    return [f"{row.variant}, {shared_without(row, *common)}".strip(", ") for row in rows]


# Variants side by side: every trial a dot, the median a bar.


def bar_plots(benchmark: str, rows: list[Row]) -> Iterator[Plot]:
    """Yield one figure per unit and set of parameters."""
    units = list(dict.fromkeys(row.unit for row in rows))
    for unit in units:
        for words, group in grouped([row for row in rows if row.unit == unit]):
            if len(group) < 2:
                continue
            better = "shorter" if group[0].lower_is_better else "longer"
            yield Plot(
                name_of(benchmark, "variants", words if len(units) == 1 else f"{words} {unit}"),
                benchmark,
                f"{BARS} {better.capitalize()} is better. {RATIOS}",
                partial(draw_bars, title=words, group=group, unit=unit),
                0.95 + 0.27 * len(group),
            )


def draw_bars(canvas: Figure, title: str, group: list[Row], unit: str) -> None:
    """Draw a bar per variant, the best one on top."""
    axis = canvas.subplots()
    rows = sorted(group, key=lambda row: row.median * (1 if row.lower_is_better else -1))
    common = common_base(rows)
    for place, row in enumerate(rows):
        axis.barh(place, row.median, height=0.62, color=bar_colour(row), alpha=0.85)
        axis.plot(row.values, [place] * len(row.values), ".", ms=3, color=INK, alpha=0.45)
        axis.annotate(
            f"{figure(row.median)}{said_ratio(row, common)}",
            (max(row.values), place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axis.set_yticks(range(len(rows)), [row.variant for row in rows])
    axis.tick_params(axis="y", length=0, labelcolor=INK)
    axis.spines["left"].set_visible(False)
    axis.invert_yaxis()
    axis.set_title(", ".join(filter(None, [title, f"x: times {common}" if common else ""])))
    axis.set_xlim(0, 1.3 * max(max(row.values) for row in rows))
    axis.xaxis.set_major_formatter(tick)
    axis.set_xlabel(unit)


def common_base(rows: list[Row]) -> str:
    """Return what most ratios of these rows divide by; empty if none has a ratio."""
    bases = Counter(row.base for row in rows if row.ratio and row.variant != row.base)
    return bases.most_common(1)[0][0] if bases else ""


def said_ratio(row: Row, common: str) -> str:
    """Return what a bar's label says of a row's ratio, and of what, unless most divide by it."""
    if not row.ratio or row.variant == row.base:
        return ""
    return f"   x {row.ratio:.2f}" + (f" {row.base}" if row.base != common else "")


def bar_colour(row: Row) -> str:
    """Return the colour of a bar: see `BARS`."""
    if not is_foreign(row):
        return OWN[0]
    return MUTED if row.variant == row.base else PEERS[0]
