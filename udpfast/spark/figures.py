"""The figures of a pipeline's report, by the same pen as those of the benchmarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from pyarrow import compute as pc

from udpfast.page.drawing import (
    INK,
    MUTED,
    OWN,
    PEERS,
    Plot,
    label_ends,
    label_logarithmic,
    tick,
)
from udpfast.page.words import channel, literal
from udpfast.spark.answers import clock_differs
from udpfast.spark.axes import PERCENTS, draw_percentiles, over_time, panels, told_apart
from udpfast.spark.gold import Gold
from udpfast.spark.shown import SNAPSHOT, Lines, hop, line_name

__all__ = ["find_figures"]

#: A page shows so many instruments, those with the most trades (or quotes), and pairs of them.
INSTRUMENTS_MAX = 6
PAIRS_MAX = 5

#: Of one figure: a day of minutes, and the levels near the mid.
BARS_MAX = 1440
LEVELS_MAX = 20_000

#: Of one side of a book: a panel is 150 pixels high.
STEPS_MAX = 150

Curve = list[tuple[float, float]]
Numbers = npt.NDArray[np.float64]


def find_figures(gold: Gold, lines: Lines) -> Iterator[Plot]:
    """Yield the figures that the tables can fill."""
    yield from loss_figures(gold.table("losses", 100_000))
    yield from race_figures(gold.table("races", 200), lines)
    yield from hop_figures(gold.table("hops", 200))
    busy = busiest(gold)
    yield from bar_figures(gold, busy)
    yield from spread_figures(gold, busy)
    yield from book_figures(gold, busy)
    yield from leadlag_figures(gold.table("leadlag", 100_000))


def busiest(gold: Gold) -> list[dict[str, str]]:
    """Return the instruments to show: feed, exchange and symbol."""
    table = gold.table("instruments", 100_000)
    if not table.num_rows:
        return []
    found = table.sort_by([("trades", "descending")]).slice(0, INSTRUMENTS_MAX)
    rows: list[dict[str, str]] = found.select(["feed", "exchange", "symbol"]).to_pylist()
    return rows


def rows_of(
    gold: Gold, name: str, instrument: dict[str, str], limit: int, *, sort: str
) -> pa.Table:
    """Return some rows of a table about an instrument."""
    own = None
    for key, value in instrument.items():
        same = pc.field(key).is_null() if value is None else pc.field(key) == value
        own = same if own is None else own & same
    table = gold.table(name, limit, own)
    return table.sort_by(sort) if table.num_rows else table


def loss_figures(losses: pa.Table) -> Iterator[Plot]:
    """Yield messages and losses over time, where there is more than one hour of them."""
    rows = losses.to_pylist()
    if len({row["hour"] for row in rows}) > 1:
        yield Plot(
            "losses",
            "losses",
            "Left: messages per second in each hour. Right: the share that no line brought.",
            partial(draw_losses, rows=rows),
            2.6,
            2,
        )


def draw_losses(canvas: Figure, rows: list[dict[str, Any]]) -> None:
    """Draw a line per channel."""
    rates, losses = panels(canvas, 2)
    channels: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        channels.setdefault((row["feed"], row["stream"]), []).append(row)
    draw_hours(
        rates,
        "messages per second",
        {key: [row["messages"] / 3600 for row in own] for key, own in channels.items()},
        channels,
    )
    # Which part of the snapshots was lost nobody knows.
    lost = {key: own for key, own in channels.items() if key[1] != SNAPSHOT}
    draw_hours(
        losses,
        "lost, per cent",
        {key: [(row["loss"] or 0) * 100 for row in own] for key, own in lost.items()},
        channels,
    )


def draw_hours(
    axis: Axes,
    title: str,
    values: dict[tuple[str, int], list[float]],
    channels: dict[tuple[str, int], list[dict[str, Any]]],
) -> None:
    """Draw a line per channel, of one value per hour; in both panels a channel has its colour."""
    palette = dict(zip(channels, cycle((*OWN, *PEERS)), strict=False))
    ends, names = [], {}
    for key, own in values.items():
        times = [row["hour"] for row in channels[key]]
        name = f"{literal(key[0])} {channel(key[1])}"
        axis.plot(times, own, "o-", ms=2.5, lw=1.2, color=palette[key])
        names[name] = palette[key]
        ends.append((float(date2num(times[-1])), own[-1], name))  # type: ignore[no-untyped-call]
    over_time(axis, title)
    axis.set_ylim(bottom=0)
    label_ends(axis, ends, names)


def race_figures(races: pa.Table, lines: Lines) -> Iterator[Plot]:
    """Yield the share of races that each line won, and its lead; one line alone has none."""
    rows = races.to_pylist()
    counts = Counter((row["feed"], row["stream"]) for row in rows)
    raced = [row for row in rows if counts[row["feed"], row["stream"]] > 1]
    if raced:
        yield Plot(
            "races",
            "races",
            "Left: the share of datagrams that a line brought first; the grey part nobody else "
            "brought at all. Right: how far ahead it was when it was first. Below 0 the host had "
            "the other copy before, and the loop took this one first.",
            partial(draw_races, rows=raced, lines=lines),
            max(2.4, 1.2 + 0.34 * len(raced)),
            2,
        )


def draw_races(canvas: Figure, rows: list[dict[str, Any]], lines: Lines) -> None:
    """Draw a bar and a curve per line."""
    left, right = panels(canvas, 2)
    names = told_apart(
        f"{row['feed']} {channel(row['stream'])} "
        f"{line_name(lines, row['feed'], row['stream'], row['line'])}"
        for row in rows
    )
    curves = {}
    for place, (name, row) in enumerate(zip(names, rows, strict=True)):
        alone = row["only_copy"] / row["wins"] * row["win_rate"] if row["wins"] else 0
        left.barh(place, row["win_rate"], height=0.6, color=OWN[0])
        left.barh(place, alone, height=0.6, color=MUTED)
        if row["lead_p50_ns"] is not None:
            curves[name] = [row[f"lead_{each}_ns"] / 1e3 for each in PERCENTS]
    left.set_yticks(range(len(rows)), names)
    left.set(xlabel="share of races won", xlim=(0, 1))
    left.tick_params(axis="y", length=0, labelcolor=INK)
    left.spines["left"].set_visible(False)
    left.grid(True, axis="x")
    left.invert_yaxis()
    draw_percentiles(right, curves, "lead, us")


def hop_figures(hops: pa.Table) -> Iterator[Plot]:
    """Yield the curves of each hop that took any time by clocks that agree.

    A replay's hops took none of their own.
    """
    rows = [row for row in hops.to_pylist() if row["max_ns"] and not clock_differs(row)]
    if rows:
        yield Plot(
            "hops",
            "hops",
            "How long each hop takes: half of all at or below the point at 50, all but one in a "
            "thousand at or below that at 99.9.",
            partial(draw_hops, rows=rows),
            3.4,
        )


def draw_hops(canvas: Figure, rows: list[dict[str, Any]]) -> None:
    """Draw a curve per hop."""
    several = len({row["feed"] for row in rows}) > 1
    names = told_apart(f"{row['feed']} " * several + hop(row["hop"]) for row in rows)
    curves = {
        name: [row[f"{each}_ns"] / 1e3 for each in PERCENTS]
        for name, row in zip(names, rows, strict=True)
    }
    draw_percentiles(canvas.subplots(), curves, "us")


def names_of(busy: Sequence[dict[str, str]]) -> list[str]:
    """Return the names of instruments; with that of the feed, if there are several."""
    feeds = len({each["feed"] for each in busy}) > 1
    return told_apart(
        f"{each['feed']} " * feeds + f"{each['exchange']}:{each['symbol']}" for each in busy
    )


def bar_figures(gold: Gold, busy: list[dict[str, str]]) -> Iterator[Plot]:
    """Yield the prices of the busiest instruments."""
    tables = [rows_of(gold, "bars", each, BARS_MAX, sort="time") for each in busy]
    if any(table.num_rows for table in tables):
        yield Plot(
            "bars",
            "bars",
            "Low to high of each period, its close, and in orange its VWAP.",
            partial(draw_bars, names=names_of(busy), tables=tables),
            2.2,
            len(busy),
        )


def draw_bars(canvas: Figure, names: list[str], tables: list[pa.Table]) -> None:
    """Draw a panel per instrument."""
    for axis, title, table in zip(panels(canvas, len(names)), names, tables, strict=True):
        times = table["time"].to_numpy()
        axis.vlines(times, table["low"].to_numpy(), table["high"].to_numpy(), color=MUTED, lw=1)
        axis.plot(times, table["close"].to_numpy(), ".", ms=3, color=OWN[0])
        axis.plot(times, table["vwap"].to_numpy(), color=PEERS[0], lw=1)
        over_time(axis, title)


def spread_figures(gold: Gold, busy: list[dict[str, str]]) -> Iterator[Plot]:
    """Yield the spreads of the busiest instruments."""
    tables = [rows_of(gold, "spreads", each, BARS_MAX, sort="time") for each in busy]
    kept = [each for each in zip(names_of(busy), tables, strict=True) if each[1].num_rows]
    if kept:
        yield Plot(
            "spreads",
            "spreads",
            "Mean spread of each period in hundredths of a per cent of the mid.",
            partial(draw_spreads, tables=dict(kept)),
        )


def draw_spreads(canvas: Figure, tables: dict[str, pa.Table]) -> None:
    """Draw a line per instrument."""
    axis = canvas.subplots()
    ends, palette = [], {}
    for (title, table), colour in zip(tables.items(), cycle((*OWN, *PEERS)), strict=False):
        times, values = table["time"].to_numpy(), table["spread_bps_mean"].to_numpy()
        axis.plot(times, values, "o-", ms=2.5, lw=1.2, color=colour)
        palette[title] = colour
        end = date2num(times[-1])  # type: ignore[no-untyped-call]
        ends.append((float(end), float(values[-1]), title))
    over_time(axis, "")
    axis.set_yscale("log")
    axis.set_ylabel("bps")
    label_logarithmic(axis)
    label_ends(axis, ends, palette)


def book_figures(gold: Gold, busy: list[dict[str, str]]) -> Iterator[Plot]:
    """Yield the books of the busiest instruments near their mids."""
    tables = [rows_of(gold, "book", each, LEVELS_MAX, sort="price") for each in busy]
    whole = [(title, near(table)) for title, table in zip(names_of(busy), tables, strict=True)]
    kept = [book for title, table in whole for book in by_object(title, table)]
    if kept:
        yield Plot(
            "book",
            "book",
            "Quantity up to each price, bids blue and asks orange, within 50 bps of the mid.",
            partial(draw_books, tables=dict(kept)),
            2.2,
            len(kept),
        )


def near(table: pa.Table) -> pa.Table:
    """Return the levels within 50 bps of the mid."""
    return table.filter(pc.less(table["distance_bps"], 50)) if table.num_rows else table


def by_object(title: str, table: pa.Table) -> list[tuple[str, pa.Table]]:
    """Return an instrument's books with their titles: one, but for objects of the same name."""
    numbers = table["object"].unique().to_pylist() if table.num_rows else []
    if len(numbers) < 2:
        return [(title, table) for _ in numbers]
    return [
        (f"{title}, object {number}", table.filter(pc.equal(table["object"], number)))
        for number in numbers
    ]


def draw_books(canvas: Figure, tables: dict[str, pa.Table]) -> None:
    """Draw a panel per instrument."""
    for axis, (title, table) in zip(panels(canvas, len(tables)), tables.items(), strict=True):
        for side, colour in (("Bid", OWN[0]), ("Ask", PEERS[0])):
            own = table.filter(pc.equal(table["side"], side))
            prices, sums = thinned(own["price"].to_numpy(), own["cumulative"].to_numpy())
            where: Any = "pre" if side == "Bid" else "post"
            axis.fill_between(prices, sums, step=where, color=colour, alpha=0.25, lw=0)
            axis.step(prices, sums, where=where, color=colour, lw=1.2)
        axis.yaxis.set_major_formatter(tick)
        axis.xaxis.set_major_formatter(tick)
        axis.locator_params(axis="x", nbins=5)
        axis.set_ylim(bottom=0)
        axis.grid(True, axis="y")
        axis.set_title(title)


def thinned(prices: Numbers, sums: Numbers) -> tuple[Numbers, Numbers]:
    """Return the steps that a panel can show: the first and the last of each pixel's height.

    A book of thousands of levels, drawn in full, made the page ten times as large.
    """
    if len(sums) <= STEPS_MAX:
        return prices, sums
    pixel = np.floor((STEPS_MAX - 2) * (sums - sums.min()) / max(np.ptp(sums), 1e-300))
    grown = np.diff(pixel) != 0
    kept = np.r_[True, grown] | np.r_[grown, True]
    return prices[kept], sums[kept]


def leadlag_figures(table: pa.Table) -> Iterator[Plot]:
    """Yield the correlations by lag of the pairs that are related most."""
    if not table.num_rows:
        return
    curves: dict[tuple[str, str, str], Curve] = {}
    for row in table.to_pylist():
        pair = (row["feed"], row["a"], row["b"])
        curves.setdefault(pair, []).append((row["lag_ms"], row["correlation"]))
    best = sorted(curves, key=lambda pair: -max(abs(value) for _, value in curves[pair]))
    several = len({feed for feed, _, _ in curves}) > 1
    shown = best[:PAIRS_MAX]
    names = told_apart(f"{feed} " * several + f"{a} and {b}" for feed, a, b in shown)
    chosen = {name: sorted(curves[pair]) for name, pair in zip(names, shown, strict=True)}
    yield Plot(
        "leadlag",
        "leadlag",
        "Correlation of returns by lag: right of zero the first instrument moved first.",
        partial(draw_leadlag, curves=chosen),
        3.2,
    )


def draw_leadlag(canvas: Figure, curves: dict[str, Curve]) -> None:
    """Draw a curve per pair."""
    axis = canvas.subplots()
    drawn = []
    for points, colour in zip(curves.values(), cycle((*OWN, *PEERS)), strict=False):
        found = np.array(points)
        drawn += axis.plot(found[:, 0], found[:, 1], "o-", ms=3, color=colour)
    axis.axvline(0, color=MUTED, lw=0.8)
    axis.set(xlabel="lag, ms", ylabel="correlation")
    axis.grid(True, axis="y")
    # By hand: labels that begin with "_" would be left out.
    canvas.legend(drawn, list(curves), loc="outside upper left", ncols=2, frameon=False, fontsize=8)
