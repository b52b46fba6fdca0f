"""Charts of a report: whatever instruments are called, that is what they say."""

import datetime
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from scripts import chromium
from tests.cases import nightly
from tests.waiting import wait_until
from udpfast.page.charts import Chart, chart_html, percentile_panel, script_html
from udpfast.page.document import document
from udpfast.spark.charts import (
    STEPS_MAX,
    bar_panel,
    book_panel,
    broken,
    by_object,
    every_period,
    hop_charts,
    in_doubt,
    leadlag_charts,
    leadlag_panel,
    near,
    race_charts,
    rate_charts,
    share_panel,
    spread_panel,
    thinned,
    told_apart,
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
    "$$\\frac{1}{0}$$",
    "Zürich 円",
]
TIME = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
#: How many charts a browser has drawn; written so that it looks into Bokeh's shadow roots.
CANVASES = """
const found = (root) => [...root.querySelectorAll("*")].reduce(
  (sum, each) => sum + (each.tagName == "CANVAS" && each.width > 300)
    + (each.shadowRoot ? found(each.shadowRoot) : 0), 0)
return found(document)
"""


def drawn(chart: Chart) -> str:
    """Return what the browser gets of a chart, as JSON; nothing in it ends its script."""
    html = chart_html(chart, "chart")
    items = re.findall(r'<script type="application/json" class="chart">(.*?)</script>', html, re.S)
    assert html.count("<script") == html.count("</script>") == len(items) == len(chart.panels)
    return json.dumps([json.loads(item) for item in items], ensure_ascii=False)


def said(name: str) -> str:
    """Return a name as it is in JSON."""
    return json.dumps(name, ensure_ascii=False)[1:-1]


def tables() -> dict[str, pa.Table]:
    """Return a row of each table that is drawn with an instrument's name."""
    bars = {"time": [TIME], "open": [1.0], "low": [1.0], "high": [2.0], "close": [1.5]}
    bars |= {"vwap": [1.4], "volume": [3.0], "trades": [2]}
    book = {"object": [1, 1], "side": ["Bid", "Ask"], "price": [1.0, 2.0], "cumulative": [3.0, 4.0]}
    spreads = {"time": [TIME, TIME + datetime.timedelta(0, 60)], "spread_bps_mean": [1.5, 4.0]}
    spreads |= {"bid_quantity_mean": [1.0, 2.0], "ask_quantity_mean": [1.0, 2.0]}
    return {"bars": pa.table(bars), "book": pa.table(book), "spreads": pa.table(spreads)}


def charts_of(name: str) -> list[Chart]:
    """Return a chart of each kind, of things that are called so."""
    table = tables()
    curve = [(-1.0, 0.1), (0.0, 0.2), (1.0, 0.3)]
    race = {"win_rate": 0.5, "wins": 3, "only_copy": 1, "late": 0, "stamped": 3}
    percents = list(PROBABILITIES.values())
    panels = (
        *((name, bar_panel(table["bars"])), (name, book_panel(table["book"]))),
        *(("", spread_panel({name: table["spreads"]})), ("", leadlag_panel({name: curve}))),
        ("", share_panel([name], [race])),
        ("", percentile_panel({name: [10.0**place for place in range(9)]}, percents)),
    )
    return [Chart("section", name, [panel]) for panel in panels]


@pytest.mark.parametrize("name", [*NAMES[:4], *nightly(*NAMES[4:])])
def test_names_are_drawn_as_they_are(name: str) -> None:
    for place, chart in enumerate(charts_of(name)):
        text = drawn(chart)  # which nothing in it ends
        assert place < 2 or said(name) in text


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return Chromium, without a screen."""
    pytest.importorskip("selenium.webdriver")
    if not chromium.is_there():
        pytest.skip(chromium.MISSING)
    folder = tmp_path_factory.mktemp("chromium")
    with chromium.browser(folder, {"performance": "ALL", "browser": "ALL"}) as found:
        yield found


@pytest.mark.system
@pytest.mark.parametrize("width", [390, *nightly(1400)])
def test_long_names_make_no_page_wider(tmp_path: Path, browser: Any, width: int) -> None:
    charts = charts_of("W" * 200)
    parts = [chart_html(chart, f"chart-{place}") for place, chart in enumerate(charts)]
    page = tmp_path / "page.html"
    page.write_text(document("names", "\n".join([*parts, script_html()])))
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(page.as_uri())
    wait_until(lambda: browser.execute_script(CANVASES) >= len(charts), "a canvas per chart")
    # A phone makes the window as wide as what is in it.
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.system
def test_browser_draws_every_chart_and_fetches_nothing(tmp_path: Path, browser: Any) -> None:
    charts = [chart for name in NAMES for chart in charts_of(name)]
    parts = [chart_html(chart, f"chart-{place}") for place, chart in enumerate(charts)]
    page = tmp_path / "page.html"
    page.write_text(document("names", "\n".join([*parts, script_html()])))
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})  # as wide as a desk
    browser.get(page.as_uri())
    wait_until(lambda: browser.execute_script(CANVASES) >= len(charts), "a canvas per chart")
    width = "return document.documentElement.scrollWidth - innerWidth"
    assert browser.execute_script(width) <= 0
    fetched = [
        json.loads(entry["message"])["message"]["params"]["request"]["url"]
        for entry in browser.get_log("performance")
        if '"Network.requestWillBeSent"' in entry["message"]
    ]
    assert [url for url in fetched if url.startswith(("http", "ws"))] == []
    said = [each["message"] for each in browser.get_log("browser") if each["level"] != "INFO"]
    assert said == []  # nor has its policy kept it from fetching anything


def test_periods_without_a_message_are_zero() -> None:
    second = datetime.timedelta(seconds=1)
    row = {"feed": "x", "stream": 0, "seconds": 2, "messages": 6, "lost": 1, "loss": 1 / 7}
    rows = [row | {"time": TIME}, row | {"time": TIME + 6 * second}]
    whole = [(each["time"], each["messages"], each["lost"]) for each in every_period(rows)]
    empty = [(TIME + place * second, 0, 0) for place in (2, 4)]
    assert whole == [(TIME, 6, 1), *empty, (TIME + 6 * second, 6, 1)]
    (chart,) = rate_charts(pa.Table.from_pylist(rows))
    assert "Per period of 2 s." in chart.caption
    assert "x incremental" in drawn(chart)
    assert list(rate_charts(pa.Table.from_pylist(rows[:1]))) == []


def test_pairs_of_two_feeds_are_two_curves() -> None:
    rows = [
        {"feed": feed, "a": "x:A\n", "b": "x:B", "lag_ms": lag, "correlation": lag / 10}
        for feed in ("east", "west")
        for lag in (-1, 0, 1)
    ]
    (chart,) = leadlag_charts(pa.Table.from_pylist(rows))
    text = drawn(chart)
    for feed in ("east", "west"):
        assert said(f"{feed} x:A\\n and x:B") in text


def test_names_that_are_the_same_are_told_apart() -> None:
    assert told_apart(["A", "A", "B", "A"]) == ["A", "A (2)", "B", "A (3)"]


def test_words_from_the_network_stay_in_their_cell() -> None:
    forms = {
        each.name: each.form for each in (*shown_columns("bars", 1), *shown_columns("hops", 2))
    }
    assert forms["symbol"]("A\x1b[31m\u202eB\n") == "A\\x1b[31m\\u202eB\\n"
    assert forms["time"]("2026-01-01T00:00:00Z") == "2026-01-01 00:00:00"
    assert forms["feed"]("a\n") == forms["hop"]("a\n") == "a\\n"


def test_prices_that_nothing_can_have_are_short() -> None:
    forms = {each.name: each.form for each in shown_columns("bars", 1)}
    assert forms["close"](123_456_789.5) == "123,456,790"
    assert forms["close"](sys.float_info.max) == "1.7976931e+308"
    assert len(forms["close"](-1e15)) < 10


def test_races_of_any_stream_are_drawn_with_the_names_of_their_lines() -> None:
    leads = {f"lead_{name}_ns": lead for lead, name in enumerate(PROBABILITIES, -4000)}
    race = {"feed": "x", "line": 0, "wins": 3, "win_rate": 0.5, "only_copy": 1, **leads}
    race |= {"late": 0, "stamped": 3}
    rows = [race | {"stream": stream} for stream in (0, 1, 2, 30)]
    lines = {"x": [["microwave"], ["slow"]]}
    races = pa.Table.from_pylist(rows + rows)
    (chart,) = race_charts(races, lines)
    words = drawn(chart)
    for name in (
        *("incremental microwave", "snapshot slow"),
        *("stream 2 microwave", "stream 30 microwave"),
    ):
        assert f"x {name}" in words
    (chart,) = race_charts(races, {})
    assert "x snapshot line 0" in drawn(chart)


def test_line_that_runs_alone_has_no_race() -> None:
    leads = {f"lead_{name}_ns": None for name in PROBABILITIES}
    race = {"feed": "x", "stream": 1, "line": 0, "wins": 3, "win_rate": 1.0, "only_copy": 3}
    race |= {"late": 0, "stamped": 3}
    assert list(race_charts(pa.Table.from_pylist([race | leads]), {})) == []


def test_line_of_prices_is_broken_where_nothing_was_traded() -> None:
    minutes = np.array([0, 1, 2, 62, 63], "datetime64[m]").astype("datetime64[ns]")
    times, prices = broken(minutes, np.arange(5.0))
    assert np.isnan(prices).tolist() == [False, False, False, True, False, False]
    assert (np.diff(times) >= np.timedelta64(0)).all()
    assert broken(minutes[:1], np.ones(1))[1].tolist() == [1.0]


def test_lines_without_a_lead_have_no_empty_panel() -> None:
    race = {"feed": "x", "stream": 0, "wins": 3, "win_rate": 0.5, "only_copy": 3, "late": 0}
    race |= {f"lead_{name}_ns": None for name in PROBABILITIES} | {"stamped": 0}
    (chart,) = race_charts(pa.Table.from_pylist([race | {"line": line} for line in (0, 1)]), {})
    assert [title for title, _ in chart.panels] == ["share of races won"]
    assert "first is what the loop took first" in chart.caption


def test_spreads_at_or_below_zero_are_drawn_on_a_linear_axis() -> None:
    table = tables()["spreads"]
    crossed = table.set_column(1, "spread_bps_mean", pa.array([-1.5, None]))
    for one, axis in ((table, "LogAxis"), (crossed, "LinearAxis")):
        assert axis in drawn(Chart("spreads", "", [("", spread_panel({"x": one}))]))


def test_book_without_a_mid_shows_its_best_levels_and_one_in_doubt_says_so() -> None:
    levels = pa.table(
        {
            "level": pa.array([0, 19, 20, 0], pa.int32()),
            "price": [1.0, 2.0, 3.0, float("inf")],
            "distance_bps": pa.array([None] * 4, pa.float64()),
            "stale": [True] * 4,
        }
    )
    assert near(levels)["price"].to_pylist() == [1.0, 2.0]
    assert in_doubt("ES", levels) == "ES (in doubt)"


def test_correlation_that_nobody_can_tell_is_no_point_of_a_curve() -> None:
    pair = {"feed": "x", "a": "A", "b": "B", "lag_ms": 0}
    assert list(leadlag_charts(pa.Table.from_pylist([pair | {"correlation": None}]))) == []


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
    assert list(hop_charts(pa.Table.from_pylist([row]))) == []


@pytest.mark.parametrize("value_ns", [-5_000, 3_600_000_000_000])
def test_hop_of_clocks_that_differ_is_not_drawn(value_ns: int) -> None:
    row = {"feed": "x", "hop": "origin_to_kernel", "count": 5, "max_ns": 3_600_000_000_000}
    row |= {f"{name}_ns": value_ns for name in PROBABILITIES}
    assert list(hop_charts(pa.Table.from_pylist([row]))) == []
    own = row | {"hop": "kernel_to_published"} | {f"{name}_ns": 900 for name in PROBABILITIES}
    (chart,) = hop_charts(pa.Table.from_pylist([row, own]))
    words = drawn(chart)
    assert "kernel to ring" in words and "publisher" not in words


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


def test_book_of_thousands_of_levels_is_a_small_chart() -> None:
    prices = np.arange(18_000.0)
    side = np.where(prices < 9000, "Bid", "Ask")
    table = pa.table({"side": side, "price": prices, "cumulative": np.abs(prices - 8999.5)})
    assert len(drawn(Chart("book", "", [("x", book_panel(table))]))) < 100_000
