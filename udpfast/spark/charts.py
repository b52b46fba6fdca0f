"""The charts of a pipeline's report."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from bokeh.models import (
    BasicTicker,
    ColumnDataSource,
    FixedTicker,
    NumeralTickFormatter,
    PlainText,
)
from bokeh.models.annotations import Span
from bokeh.plotting import figure
from pyarrow import compute as pc

from udpfast.page.charts import (
    HEIGHT,
    Chart,
    colours_of,
    draw_line,
    hover,
    legend,
    log_axis,
    panel,
    percentile_panel,
    time_axis,
)
from udpfast.page.colours import OWN, PEERS
from udpfast.page.words import NO_STREAM, channel, duration, literal, shortened
from udpfast.spark.answers import clock_differs, took_time
from udpfast.spark.gold import Gold
from udpfast.spark.probabilities import PROBABILITIES
from udpfast.spark.shown import SNAPSHOT, Lines, hop, line_name, share

__all__ = ["find_charts", "told_apart"]

#: A page shows this many instruments, those with the most trades, and this many pairs.
INSTRUMENTS_MAX = 6
PAIRS_MAX = 5

#: The most bars of one chart (a day of minutes), and the most levels near the mid.
BARS_MAX = 1440
LEVELS_MAX = 20_000

#: Most levels drawn of each side of a book without a mid.
NEAR_LEVELS = 20

#: Most steps drawn of one side of a book: a panel is 150 pixels high.
STEPS_MAX = 150

#: Pixels of a bar, and of the space around the bars.
BAR_HEIGHT, BARS_AROUND = 34, 80
#: Characters of a bar's name: more would leave no place for the bar on a phone.
BAR_LETTERS = 28

MUTED = "#8d96a0"
Curve = list[tuple[float, float]]
Numbers = npt.NDArray[np.float64]
Row = dict[str, Any]


def find_charts(gold: Gold, lines: Lines) -> Iterator[Chart]:
    """Yield the charts that the tables can fill."""
    yield from rate_charts(gold.table("rates", 100_000))
    yield from race_charts(gold.table("races", 200), lines)
    yield from hop_charts(gold.table("hops", 200))
    busy = busiest(gold)
    yield from bar_charts(gold, busy)
    yield from spread_charts(gold, busy)
    yield from book_charts(gold, busy)
    yield from leadlag_charts(gold.table("leadlag", 100_000))


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


def told_apart(names: Iterable[str]) -> list[str]:
    """Return names as they are drawn; equal names get a number."""
    seen: Counter[str] = Counter()
    found = []
    for each in map(literal, names):
        seen[each] += 1
        found.append(f"{each} ({seen[each]})" if seen[each] > 1 else each)
    return found


def rate_charts(rates: pa.Table) -> Iterator[Chart]:
    """Yield messages and losses over time, if there is more than one period."""
    rows = rates.to_pylist()
    if len({row["time"] for row in rows}) < 2:
        return
    channels: dict[str, list[Row]] = {}
    for row in rows:
        channels.setdefault(f"{literal(row['feed'])} {channel(row['stream'])}", []).append(row)
    # Lost snapshots are not shown: they repeat, so their share means nothing.
    lost = {name: own for name, own in channels.items() if own[0]["stream"] != SNAPSHOT}
    # Records that a recorder missed belong to no channel.
    own = {name: rows for name, rows in channels.items() if rows[0]["stream"] != NO_STREAM}
    yield Chart(
        "rates",
        f"Per period of {duration(rows[0]['seconds'] * 1e9)}. Left: messages per second. Right: "
        "lost messages per second, which arrived in time on no line.",
        (
            ("messages per second", rate_panel(own, "messages")),
            ("lost per second", rate_panel(lost, "lost")),
        ),
    )


def rate_panel(channels: dict[str, list[Row]], what: str) -> figure:
    """Return a line per channel; a channel has the same colour in both panels."""
    made = panel(x_axis_type="datetime")
    colours = colours_of(list(channels))
    drawn = {}
    for name, rows in channels.items():
        whole = list(every_period(rows))
        columns = {
            "x": [row["time"] for row in whole],
            "y": [row[what] / row["seconds"] for row in whole],
            "count": [row[what] for row in whole],
            "share": ["" if row["loss"] is None else share(row["loss"]) for row in whole],
        }
        drawn[name] = draw_line(made, name, colours[name], columns)
    tooltips = [("", "@name"), ("per second", "@y{0,0.[00]}"), (what, "@count{0,0}")]
    if what == "lost":
        tooltips.append(("share", "@share"))
    hover(made, tooltips, [own[0] for own in drawn.values()], times=True)
    time_axis(made)
    made.y_range.start = 0  # type: ignore[attr-defined]
    legend(made, drawn)
    return made


def every_period(rows: list[Row]) -> Iterator[Row]:
    """Yield a channel's periods in order, including those without a message."""
    expected = rows[0]["time"]
    for row in rows:
        while expected < row["time"]:
            yield row | {"time": expected, "messages": 0, "lost": 0, "loss": None}
            expected += datetime.timedelta(seconds=row["seconds"])
        yield row
        expected = row["time"] + datetime.timedelta(seconds=row["seconds"])


def race_charts(races: pa.Table, lines: Lines) -> Iterator[Chart]:
    """Yield the share of races that each line won, and its lead; a single line has none."""
    rows = races.to_pylist()
    counts = Counter((row["feed"], row["stream"]) for row in rows)
    raced = [row for row in rows if counts[row["feed"], row["stream"]] > 1]
    if not raced:
        return
    names = told_apart(
        f"{row['feed']} {channel(row['stream'])} "
        f"{line_name(lines, row['feed'], row['stream'], row['line'])}"
        for row in raced
    )
    leads = {
        name: [row[f"lead_{each}_ns"] for each in PROBABILITIES]
        for name, row in zip(names, raced, strict=True)
        if row["lead_p50_ns"] is not None
    }
    said = "Left: the share of datagrams that a line delivered first"
    said += "; grey: those that no other line delivered."
    panels = [("share of races won", share_panel(names, raced))]
    if leads:
        said += " Right: how far ahead a line was when it was first."
        panels.append(("lead", percentile_panel(leads, list(PROBABILITIES.values()))))
    if not any(row["stamped"] for row in raced):
        said += " No copy has a stamp of the kernel: first is what the loop took first."
    yield Chart("races", said, panels)


def share_panel(names: list[str], rows: list[Row]) -> figure:
    """Return a bar per line."""
    places = list(range(len(rows)))
    alone = [row["only_copy"] + row["late"] for row in rows]
    shares = zip(alone, rows, strict=True)
    only = [one / row["wins"] * row["win_rate"] if row["wins"] else 0 for one, row in shares]
    source = ColumnDataSource(
        {
            "y": places,
            "won": [row["win_rate"] for row in rows],
            "only": only,
            "name": names,
            "wins": [row["wins"] for row in rows],
            "only_copy": alone,
        }
    )
    made = panel(
        height=BARS_AROUND + BAR_HEIGHT * len(rows),
        x_range=(0, 1),
        y_range=(len(rows) - 0.5, -0.5),
    )
    bars = made.hbar("y", right="won", height=0.6, color=OWN[0], source=source)
    made.hbar("y", right="only", height=0.6, color=MUTED, source=source)
    made.xgrid.visible, made.ygrid.visible = True, False
    made.xaxis.formatter = NumeralTickFormatter(format="0%")
    made.yaxis.ticker = FixedTicker(ticks=places, minor_ticks=[])
    made.yaxis.major_label_overrides = {
        place: PlainText(text=shortened(name, BAR_LETTERS))
        for place, name in zip(places, names, strict=True)
    }
    made.yaxis.major_tick_line_color = None
    made.yaxis.axis_line_color = None
    tooltips = [("", "@name"), ("first", "@wins{0,0} (@won{0.0%})")]
    hover(made, [*tooltips, ("only copy", "@only_copy{0,0}")], [bars], near=True)
    return made


def hop_charts(hops: pa.Table) -> Iterator[Chart]:
    """Yield the curves of each hop whose clocks agree and that took any time.

    The hops of a replay take none.
    """
    rows = [row for row in hops.to_pylist() if took_time(row) and not clock_differs(row)]
    if not rows:
        return
    several = len({row["feed"] for row in rows}) > 1
    names = told_apart(f"{row['feed']} " * several + hop(row["hop"]) for row in rows)
    curves = {
        name: [row[f"{each}_ns"] for each in PROBABILITIES]
        for name, row in zip(names, rows, strict=True)
    }
    yield Chart(
        "hops",
        "How long each hop takes. Half of all values are at or below the point at 50, and all but "
        "one in a thousand at or below the point at 99.9.",
        (("", percentile_panel(curves, list(PROBABILITIES.values()))),),
    )


def names_of(busy: Sequence[dict[str, str]]) -> list[str]:
    """Return the names of instruments, with the feed's name if there are several feeds."""
    feeds = len({each["feed"] for each in busy}) > 1
    return told_apart(
        f"{each['feed']} " * feeds + f"{each['exchange']}:{each['symbol']}" for each in busy
    )


def bar_charts(gold: Gold, busy: list[dict[str, str]]) -> Iterator[Chart]:
    """Yield the prices of the busiest instruments."""
    tables = [rows_of(gold, "bars", each, BARS_MAX, sort="time") for each in busy]
    if any(table.num_rows for table in tables):
        yield Chart(
            "bars",
            "Each period's range from low to high, its close, and its VWAP (orange).",
            [
                (name, bar_panel(table))
                for name, table in zip(names_of(busy), tables, strict=True)
                if table.num_rows
            ],
        )


def bar_panel(table: pa.Table) -> figure:
    """Return the bars of one instrument."""
    made = panel(x_axis_type="datetime")
    names = ("open", "low", "high", "close", "vwap", "volume", "trades")
    columns = {name: table[name].to_numpy() for name in names}
    columns["x"] = table["time"].to_numpy()
    source = ColumnDataSource(columns)
    made.segment(x0="x", x1="x", y0="low", y1="high", source=source, color=MUTED)
    times, prices = broken(columns["x"], columns["vwap"])
    made.line(times, prices, color=PEERS[0])
    made.scatter("x", "close", source=source, size=4, color=OWN[0])
    close = made.line("x", "close", source=source, color=OWN[0], line_alpha=0)
    tooltips = [(name, f"@{name}{{0,0.[00000000]}}") for name in names]
    hover(made, tooltips, [close], times=True)
    time_axis(made)
    return made


def broken(times: npt.NDArray[np.datetime64], values: Numbers) -> tuple[Any, Numbers]:
    """Return a line that is broken where periods are missing: nothing was traded there.

    A period is the shortest time between two that are there.
    """
    if len(times) < 2:
        return times, values
    steps = np.diff(times)
    breaks = np.flatnonzero(steps > steps.min()) + 1
    return np.insert(times, breaks, times[breaks - 1]), np.insert(values, breaks, np.nan)


def spread_charts(gold: Gold, busy: list[dict[str, str]]) -> Iterator[Chart]:
    """Yield the spreads of the busiest instruments."""
    tables = [rows_of(gold, "spreads", each, BARS_MAX, sort="time") for each in busy]
    named = zip(names_of(busy), tables, strict=True)
    # An instrument whose mid is 0 has no basis points.
    kept = {
        name: each
        for name, each in named
        if each.num_rows and each["spread_bps_mean"].null_count < each.num_rows
    }
    if kept:
        yield Chart(
            "spreads",
            "Mean spread of each period, in basis points of the mid.",
            (("", spread_panel(kept)),),
        )


def spread_panel(tables: dict[str, pa.Table]) -> figure:
    """Return a line per instrument."""
    # Crossed and locked markets have spreads of 0 or less, which have no logarithm.
    whole = pa.concat_arrays([each["spread_bps_mean"].combine_chunks() for each in tables.values()])
    logarithmic = (pc.min(whole).as_py() or 0) > 0
    kind = "log" if logarithmic else "linear"
    made = panel("", "bps", HEIGHT + 40, x_axis_type="datetime", y_axis_type=kind)
    colours = colours_of(list(tables))
    drawn = {}
    for name, table in tables.items():
        columns = {
            "x": table["time"].to_numpy(),
            "y": table["spread_bps_mean"].to_numpy(),
            "bids": table["bid_quantity_mean"].to_numpy(),
            "asks": table["ask_quantity_mean"].to_numpy(),
        }
        drawn[name] = draw_line(made, name, colours[name], columns)
    tooltips = [("", "@name"), ("bps", "@y{0,0.[000]}"), ("mean bid size", "@bids{0,0.[00]}")]
    own = [each[0] for each in drawn.values()]
    hover(made, [*tooltips, ("mean ask size", "@asks{0,0.[00]}")], own, times=True, near=True)
    time_axis(made)
    if logarithmic:
        log_axis(made)
    legend(made, drawn)
    return made


def book_charts(gold: Gold, busy: list[dict[str, str]]) -> Iterator[Chart]:
    """Yield the books of the busiest instruments near their mids."""
    tables = [rows_of(gold, "book", each, LEVELS_MAX, sort="price") for each in busy]
    whole = [(title, near(table)) for title, table in zip(names_of(busy), tables, strict=True)]
    kept = [book for title, table in whole for book in by_object(title, table)]
    if kept:
        yield Chart(
            "book",
            "Quantity up to each price, within 50 bps of the mid; of a book without a mid, or with "
            f"a mid of 0, its best {NEAR_LEVELS} levels. Bids are blue, asks orange. A book in "
            "doubt shows what it last held.",
            [(in_doubt(title, table), book_panel(table)) for title, table in kept],
        )


def near(table: pa.Table) -> pa.Table:
    """Return the finite levels within 50 bps of the mid, or the best ones if there is none."""
    if not table.num_rows:
        return table
    away = pc.less(table["distance_bps"], 50)
    best = pc.less(table["level"], NEAR_LEVELS)
    shown = pc.if_else(pc.is_null(table["distance_bps"]), best, away)
    return table.filter(pc.and_(shown, pc.is_finite(table["price"])))


def by_object(title: str, table: pa.Table) -> list[tuple[str, pa.Table]]:
    """Return an instrument's books with titles; several if objects have the same name."""
    numbers = table["object"].unique().to_pylist() if table.num_rows else []
    if len(numbers) < 2:
        return [(title, table) for _ in numbers]
    return [
        (f"{title}, object {number}", table.filter(pc.equal(table["object"], number)))
        for number in numbers
    ]


def in_doubt(title: str, table: pa.Table) -> str:
    """Return a book's title, which says so if the book is in doubt."""
    return f"{title} (in doubt)" if pc.any(table["stale"]).as_py() else title


def book_panel(table: pa.Table) -> figure:
    """Return both sides of one book."""
    made = panel()
    drawn = []
    for side, colour in (("Bid", OWN[0]), ("Ask", PEERS[0])):
        own = table.filter(pc.equal(table["side"], side))
        prices, sums = thinned(own["price"].to_numpy(), own["cumulative"].to_numpy())
        # Each level extends to the next one, away from the mid.
        corners, heights = np.repeat(prices, 2), np.repeat(sums, 2)
        steps = (corners[1:], heights[:-1]) if side == "Ask" else (corners[:-1], heights[1:])
        made.varea(x=steps[0], y1=0, y2=steps[1], fill_color=colour, fill_alpha=0.25)
        made.line(*steps, color=colour)
        drawn += draw_line(made, side, colour, {"x": prices, "y": sums})[:1]
        drawn[-1].glyph.line_alpha = 0
    tooltips = [("", "@name"), ("price", "@x{0,0.[00000000]}"), ("cumulative", "@y{0,0.[00]}")]
    hover(made, tooltips, drawn)
    made.xaxis.formatter = NumeralTickFormatter(format="0,0.[00000000]")
    made.xaxis.ticker = BasicTicker(desired_num_ticks=5)
    made.y_range.start = 0  # type: ignore[attr-defined]
    return made


def thinned(prices: Numbers, sums: Numbers) -> tuple[Numbers, Numbers]:
    """Return the steps that a panel can show: the first and last at each pixel of height.

    A book of thousands of levels, drawn in full, made the page ten times as large.
    """
    if len(sums) <= STEPS_MAX:
        return prices, sums
    pixel = np.floor((STEPS_MAX - 2) * (sums - sums.min()) / max(np.ptp(sums), 1e-300))
    grown = np.diff(pixel) != 0
    kept = np.r_[True, grown] | np.r_[grown, True]
    return prices[kept], sums[kept]


def leadlag_charts(table: pa.Table) -> Iterator[Chart]:
    """Yield the correlations by lag of the most correlated pairs."""
    if not table.num_rows:
        return
    curves: dict[tuple[str, str, str], Curve] = {}
    for row in table.to_pylist():
        pair = (row["feed"], row["a"], row["b"])
        if row["correlation"] is not None:
            curves.setdefault(pair, []).append((row["lag_ms"], row["correlation"]))
    if not curves:
        return
    best = sorted(curves, key=lambda pair: -max(abs(value) for _, value in curves[pair]))
    several = len({feed for feed, _, _ in curves}) > 1
    shown = best[:PAIRS_MAX]
    names = told_apart(f"{feed} " * several + f"{a} and {b}" for feed, a, b in shown)
    chosen = {name: sorted(curves[pair]) for name, pair in zip(names, shown, strict=True)}
    yield Chart(
        "leadlag",
        "Correlation of returns by lag. To the right of zero, the first instrument moved first.",
        (("", leadlag_panel(chosen)),),
    )


def leadlag_panel(curves: dict[str, Curve]) -> figure:
    """Return a curve per pair."""
    made = panel("lag, ms", "correlation", HEIGHT + 40)
    colours = colours_of(list(curves))
    drawn = {}
    for name, points in curves.items():
        lags, values = zip(*points, strict=True)
        columns = {"x": lags, "y": values}
        drawn[name] = draw_line(made, name, colours[name], columns, dots=True)
    made.add_layout(Span(location=0, dimension="height", line_color=MUTED, line_width=1))
    tooltips = [("", "@name"), ("lag", "@x{0,0} ms"), ("correlation", "@y{0.000}")]
    hover(made, tooltips, [each for own in drawn.values() for each in own[1:]], near=True)
    legend(made, drawn)
    return made
