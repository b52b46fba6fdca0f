"""Figures of a report: whatever instruments are called, that is what they say."""

import datetime
import re
from functools import partial
from html import unescape
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure

from udpfast.page.drawing import INK, Plot, to_svg
from udpfast.spark.axes import told_apart
from udpfast.spark.figures import (
    STEPS_MAX,
    by_object,
    draw_bars,
    draw_books,
    draw_leadlag,
    draw_races,
    draw_spreads,
    hop_figures,
    leadlag_figures,
    race_figures,
    thinned,
)
from udpfast.spark.probabilities import PROBABILITIES
from udpfast.spark.shown import shown_columns

NAMES = [
    "x:$TRUMP_USDT_PERP",
    "$^$",
    "_HIDDEN",
    "<script>alert(1)</script>",
    "x:&amp;",
    "a\\frac{1}{0}$b",
    f"colour {INK}",
    "Zürich 円",
]
TIME = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def drawn(draw: "partial[None]") -> str:
    """Return the text of a figure; it is well-formed XML."""
    svg = to_svg(Plot("figure", "figure", "", draw))
    assert "<script" not in svg
    ElementTree.fromstring(svg)
    return " ".join(unescape(text) for text in re.findall(r">([^<]+)</t", svg))


def tables() -> dict[str, pa.Table]:
    """Return a row of each table that is drawn with an instrument's name."""
    bars = {"time": [TIME], "low": [1.0], "high": [2.0], "close": [1.5], "vwap": [1.4]}
    book = {"object": [1, 1], "side": ["Bid", "Ask"], "price": [1.0, 2.0], "cumulative": [3.0, 4.0]}
    spreads = {"time": [TIME, TIME + datetime.timedelta(0, 60)], "spread_bps_mean": [1.5, 4.0]}
    return {"bars": pa.table(bars), "book": pa.table(book), "spreads": pa.table(spreads)}


@pytest.mark.parametrize("name", NAMES)
def test_names_are_drawn_as_they_are(name: str) -> None:
    table = tables()
    curve = [(-1.0, 0.1), (0.0, 0.2), (1.0, 0.3)]
    for draw in (
        partial(draw_bars, names=[name], tables=[table["bars"]]),
        partial(draw_books, tables={name: table["book"]}),
        partial(draw_spreads, tables={name: table["spreads"]}),
        partial(draw_leadlag, curves={name: curve, "other": curve}),
    ):
        assert name in drawn(draw)


def test_numbers_of_logarithmic_axes_are_plain() -> None:
    def draw(canvas: Figure) -> None:
        draw_spreads(canvas, {"name": tables()["spreads"]})

    assert "mathdefault" not in drawn(partial(draw))


def test_pairs_of_two_feeds_are_two_curves() -> None:
    rows = [
        {"feed": feed, "a": "x:A\n", "b": "x:B", "lag_ms": lag, "correlation": lag / 10}
        for feed in ("east", "west")
        for lag in (-1, 0, 1)
    ]
    (plot,) = leadlag_figures(pa.Table.from_pylist(rows))
    text = drawn(plot.draw)
    assert "east x:A\\n and x:B" in text and "west x:A\\n and x:B" in text


def test_names_that_are_the_same_are_told_apart() -> None:
    assert told_apart(["A", "A", "B", "A"]) == ["A", "A (2)", "B", "A (3)"]


def test_words_from_the_network_stay_in_their_cell() -> None:
    forms = {
        each.name: each.form for each in (*shown_columns("bars", 1), *shown_columns("hops", 2))
    }
    assert forms["symbol"]("A\x1b[31m\u202eB\n") == "A\\x1b[31m\\u202eB\\n"
    assert forms["time"]("2026-01-01T00:00:00Z") == "2026-01-01 00:00:00"
    assert forms["feed"]("a\n") == forms["hop"]("a\n") == "a\\n"


def test_races_of_any_stream_are_drawn_with_the_names_of_their_lines() -> None:
    leads = {f"lead_{name}_ns": lead for lead, name in enumerate(PROBABILITIES, -4000)}
    race = {"feed": "x", "line": 0, "wins": 3, "win_rate": 0.5, "only_copy": 1, **leads}
    rows = [race | {"stream": stream} for stream in (0, 1, 2, 30)]
    lines = {"x": [["microwave"], ["slow"]]}
    words = drawn(partial(draw_races, rows=rows, lines=lines))
    for name in (
        *("incremental microwave", "snapshot slow"),
        *("stream 2 microwave", "stream 30 microwave"),
    ):
        assert f"x {name}" in words
    assert "x snapshot line 0" in drawn(partial(draw_races, rows=rows, lines={}))


def test_line_that_runs_alone_has_no_race() -> None:
    leads = {f"lead_{name}_ns": None for name in PROBABILITIES}
    race = {"feed": "x", "stream": 1, "line": 0, "wins": 3, "win_rate": 1.0, "only_copy": 3}
    assert list(race_figures(pa.Table.from_pylist([race | leads]), {})) == []


def test_two_objects_of_one_name_are_two_panels() -> None:
    one = tables()["book"]
    other = one.set_column(0, "object", [pa.array([2, 2])])
    assert [title for title, _ in by_object("X", one)] == ["X"]
    both = by_object("X", pa.concat_tables([one, other]))
    assert [(title, table.num_rows) for title, table in both] == [
        ("X, object 1", 2),
        ("X, object 2", 2),
    ]


def test_hop_that_took_no_time_is_not_drawn() -> None:
    row = {"feed": "x", "hop": "kernel_to_published", "count": 5, "max_ns": 0}
    row |= {f"{name}_ns": 0 for name in PROBABILITIES}
    assert list(hop_figures(pa.Table.from_pylist([row]))) == []


@pytest.mark.parametrize("value_ns", [-5_000, 3_600_000_000_000])
def test_hop_of_clocks_that_differ_is_not_drawn(value_ns: int) -> None:
    row = {"feed": "x", "hop": "origin_to_kernel", "count": 5, "max_ns": 3_600_000_000_000}
    row |= {f"{name}_ns": value_ns for name in PROBABILITIES}
    assert list(hop_figures(pa.Table.from_pylist([row]))) == []
    own = row | {"hop": "kernel_to_published"} | {f"{name}_ns": 900 for name in PROBABILITIES}
    (plot,) = hop_figures(pa.Table.from_pylist([row, own]))
    words = drawn(plot.draw)
    assert "kernel to ring" in words and "publisher" not in words


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("minutes", [1, 12, 200, 270, 700, 3000, 5000, 40_000])
def test_times_of_any_span_are_labelled(minutes: int) -> None:
    times = [TIME, TIME + datetime.timedelta(minutes=minutes)]
    values = {name: [1.0, 2.0] for name in ("low", "high", "close", "vwap")}
    drawn(partial(draw_bars, names=["x"], tables=[pa.table({"time": times, **values})]))


@pytest.mark.parametrize("where", ["pre", "post"])
def test_thinned_book_differs_by_less_than_a_pixel(where: str) -> None:
    """Between its levels, too; one level of a third of all is in its place."""
    random = np.random.default_rng(1)
    prices = np.arange(9000.0)
    quantities = random.exponential(size=prices.size)
    quantities[4000] = quantities.sum() / 2
    sums = np.cumsum(quantities)
    if where == "pre":  # of bids: the best is the last
        sums = sums[::-1]
    kept, drawn = thinned(prices, sums)
    assert len(kept) <= 2 * STEPS_MAX
    assert (kept[0], kept[-1]) == (prices[0], prices[-1])
    side = "left" if where == "pre" else "right"
    places = np.searchsorted(kept, prices, side=side) - (where == "post")
    assert np.abs(drawn[places] - sums).max() < 1.1 * np.ptp(sums) / STEPS_MAX


def test_book_of_thousands_of_levels_is_a_small_figure() -> None:
    prices = np.arange(18_000.0)
    side = np.where(prices < 9000, "Bid", "Ask")
    table = pa.table({"side": side, "price": prices, "cumulative": np.abs(prices - 8999.5)})
    svg = to_svg(Plot("book", "book", "", partial(draw_books, tables={"x": table})))
    assert len(svg) < 100_000
