"""The figures of a pipeline's report, by the same pen as those of the benchmarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from pyarrow import compute as pc

from udpfast.page.drawing import INK, MUTED, OWN, PEERS, Plot, label_ends, label_logarithmic, tick
from udpfast.page.words import channel, literal
from udpfast.spark.gold import Gold

__all__ = ["find_figures"]

#: A page shows so many instruments, those with the most trades (or quotes), and pairs of them.
INSTRUMENTS_MAX = 6
PAIRS_MAX = 5

#: Of one figure: a day of minutes, and the levels near the mid.
BARS_MAX = 1440
LEVELS_MAX = 20_000

#: Days are what matplotlib counts times in. Around a single point it puts four years.
DAYS_MIN = 1 / 1440
DAYS_OF_ONE_POINT = 365

PERCENTS = ("p50", "p90", "p99", "p99_9")

Curve = list[tuple[float, float]]


def find_figures(gold: Gold) -> Iterator[Plot]:
    """Yield the figures that the tables can fill."""
    yield from race_figures(gold.table("races", 200))
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


def race_figures(races: pa.Table) -> Iterator[Plot]:
    """Yield the share of races that each line won, and its lead."""
    if races.num_rows:
        lines = races.to_pylist()
        yield Plot(
            "races",
            "races",
            "Left: the share of datagrams that a line brought first; the grey part nobody else "
            "brought at all. Right: its lead when it won, p50 to p99.9.",
            partial(draw_races, lines=lines),
            1.2 + 0.34 * len(lines),
        )


def draw_races(canvas: Figure, lines: list[dict[str, Any]]) -> None:
    """Draw a bar and a span per line."""
    left, right = canvas.subplots(1, 2, sharey=True)
    for place, row in enumerate(lines):
        alone = row["only_copy"] / row["wins"] * row["win_rate"]
        left.barh(place, row["win_rate"], height=0.6, color=OWN[0])
        left.barh(place, alone, height=0.6, color=MUTED)
        leads = [row[f"lead_{name}_ns"] for name in PERCENTS]
        if leads[0] is not None:
            spread(right, place, [lead / 1e3 for lead in leads])
    names = [f"{row['feed']} {channel(row['stream'])} {row['line']}" for row in lines]
    left.set_yticks(range(len(lines)), names)
    left.set(xlabel="share of races won", xlim=(0, 1))
    right.set(xlabel="lead, us", xscale="log")
    label_logarithmic(right, "x")
    for axis in (left, right):
        axis.tick_params(axis="y", length=0, labelcolor=INK)
        axis.spines["left"].set_visible(False)
        axis.grid(True, axis="x")
    left.invert_yaxis()


def spread(axis: Axes, place: int, values: Sequence[float]) -> None:
    """Draw quantiles as a line that gets thinner, each a dot."""
    kept = [value for value in values if value > 0]  # a lead below zero is none
    axis.plot(kept, [place] * len(kept), color=OWN[0], lw=1.2)
    axis.plot(kept, [place] * len(kept), ".", color=OWN[0], ms=7)


def hop_figures(hops: pa.Table) -> Iterator[Plot]:
    """Yield the quantiles of each hop that took any time: a replay's has none of its own."""
    rows = [row for row in hops.to_pylist() if row["max_ns"]]
    if rows:
        yield Plot(
            "hops",
            "hops",
            "Latency of each hop: p50, p90, p99, p99.9.",
            partial(draw_hops, rows=rows),
            1.1 + 0.3 * len(rows),
        )


def draw_hops(canvas: Figure, rows: list[dict[str, Any]]) -> None:
    """Draw a span per hop."""
    axis = canvas.subplots()
    for place, row in enumerate(rows):
        spread(axis, place, [abs(row[f"{name}_ns"]) / 1e3 for name in PERCENTS])
    axis.set_yticks(range(len(rows)), [f"{row['feed']} {row['hop']}" for row in rows])
    axis.tick_params(axis="y", length=0, labelcolor=INK)
    axis.spines["left"].set_visible(False)
    axis.set(xscale="log", xlabel="us")
    label_logarithmic(axis, "x")
    axis.grid(True, axis="x")
    axis.invert_yaxis()


def names_of(busy: Sequence[dict[str, str]]) -> list[str]:
    """Return the names of instruments; with that of the feed, if there are several."""
    feeds = len({each["feed"] for each in busy}) > 1
    return told_apart(
        f"{each['feed']} " * feeds + f"{each['exchange']}:{each['symbol']}" for each in busy
    )


def told_apart(names: Iterable[str]) -> list[str]:
    """Return names as they are drawn; those that are the same get a number."""
    seen: Counter[str] = Counter()
    found = []
    for each in map(literal, names):
        seen[each] += 1
        found.append(f"{each} ({seen[each]})" if seen[each] > 1 else each)
    return found


def panels(canvas: Figure, count: int) -> list[Axes]:
    """Return axes, two in a row."""
    lines = (count + 1) // 2
    axes = list(canvas.subplots(lines, min(2, count), squeeze=False).flat)
    for axis in axes[count:]:
        axis.remove()
    return axes[:count]


def over_time(axis: Axes, title: str) -> None:
    """Put times at the x axis, short; at least a minute of them."""
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


def bar_figures(gold: Gold, busy: list[dict[str, str]]) -> Iterator[Plot]:
    """Yield the prices of the busiest instruments."""
    tables = [rows_of(gold, "bars", each, BARS_MAX, sort="time") for each in busy]
    if any(table.num_rows for table in tables):
        yield Plot(
            "bars",
            "bars",
            "Low to high of each period, its close, and in orange its VWAP.",
            partial(draw_bars, names=names_of(busy), tables=tables),
            2.2 * ((len(busy) + 1) // 2),
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
            2.2 * ((len(kept) + 1) // 2),
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
            prices, sums = own["price"].to_numpy(), own["cumulative"].to_numpy()
            where: Any = "pre" if side == "Bid" else "post"
            axis.fill_between(prices, sums, step=where, color=colour, alpha=0.25, lw=0)
            axis.step(prices, sums, where=where, color=colour, lw=1.2)
        axis.yaxis.set_major_formatter(tick)
        axis.xaxis.set_major_formatter(tick)
        axis.locator_params(axis="x", nbins=5)
        axis.set_ylim(bottom=0)
        axis.grid(True, axis="y")
        axis.set_title(title)


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
