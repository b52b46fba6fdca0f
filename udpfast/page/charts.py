"""Charts of a page: values under the mouse, zoom by dragging, lines that a click hides.

Bokeh draws them in the reader's browser. Its script is embedded (the base component is enough), so
the page stays one file. CSS variables (`--bk-...`) give charts the page's ink, grid and background,
light or dark. Bokeh would draw a text like `$$x$$` as a formula. Names come from the network, so
they are passed as PlainText, or stand in a legend or a tooltip, which show them literally.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import cycle
from typing import Any

from bokeh.core.types import ID
from bokeh.embed import json_item
from bokeh.models import (
    BoxZoomTool,
    ColumnDataSource,
    CustomJSTickFormatter,
    DatetimeTicker,
    FixedTicker,
    HoverTool,
    LogTicker,
    NumeralTickFormatter,
    PanTool,
    ResetTool,
    WheelZoomTool,
)
from bokeh.models.annotations import Legend, LegendItem
from bokeh.models.renderers import GlyphRenderer
from bokeh.models.tickers import Ticker
from bokeh.plotting import figure
from bokeh.resources import Resources
from msgspec import Struct

from udpfast.page.colours import OWN, PEERS
from udpfast.page.words import duration, shortened

__all__ = [
    "Chart",
    "chart_html",
    "colours_of",
    "draw_line",
    "duration_axis",
    "hover",
    "legend",
    "log_axis",
    "panel",
    "percentile_panel",
    "script_html",
    "time_axis",
]

#: Pixels of a panel and of a legend line; the letters that fit the width of a phone.
HEIGHT, LEGEND_HEIGHT = 260, 21
PHONE_LETTERS = 40

#: Percentiles that the axis labels.
LABELLED = (10, 50, 90, 99, 99.9, 99.99)

#: Labels of an axis in ns, with their unit.
DURATION_JS = """
const [size, unit] =
  [[1e9, "s"], [1e6, "ms"], [1e3, "us"]].find(([size]) => Math.abs(tick) >= size) ?? [1, "ns"]
return (tick / size).toLocaleString("en", {maximumSignificantDigits: 3}) + " " + unit
"""
#: Bokeh makes the labels as HTML with a colour of its own.
LEGEND_CSS = ".bk-label { color: var(--ink) !important } .bk-inactive { opacity: .4 }"
#: A dragging finger scrolls the page instead of zooming.
EMBED_JS = """
for (const each of document.querySelectorAll("script.chart")) {
  const item = JSON.parse(each.textContent)
  Bokeh.embed.embed_item(item, item.target_id).then((views) => {
    if (matchMedia("(pointer: coarse)").matches)
      for (const view of views.roots) view.model.toolbar.active_drag = null
  })
}
"""


class Chart(Struct, frozen=True):
    """One figure of a page: its section, a caption, and panels, each with its title or none."""

    section: str
    caption: str
    panels: Sequence[tuple[str, figure]]


def script_html() -> str:
    """Return the scripts that draw a page's charts: Bokeh itself, and the code that starts it."""
    library = "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)
    return f"<script>{library}</script>\n<script>{EMBED_JS}</script>"


def chart_html(chart: Chart, name: str) -> str:
    """Return a chart's element; `name` must be unique in the page."""
    panels = []
    for place, (title, drawn) in enumerate(chart.panels):
        target = f"{name}-{place}"
        # An instrument's name must not end the script that holds it.
        item = json.dumps(_named(json_item(drawn, ID(target)), f"{target}-", {})).replace(
            "<", "\\u003c"
        )
        heading = f"<h3>{escape(title)}</h3>" if title else ""
        panels.append(
            f'<div>{heading}<div id="{target}"></div>'
            f'<script type="application/json" class="chart">{item}</script></div>'
        )
    return (
        f'<figure><div class="panels">{"".join(panels)}</div>'
        f"<figcaption>{escape(chart.caption)}</figcaption></figure>"
    )


def _named(item: Any, prefix: str, known: dict[str, str]) -> Any:
    # Ids do not depend on earlier drawings, so the same data make the same page.
    if isinstance(item, list | tuple):
        return [_named(each, prefix, known) for each in item]
    if not isinstance(item, dict):
        return item
    return {
        key: known.setdefault(value, f"{prefix}{len(known)}")
        if key in ("id", "root_id")
        else _named(value, prefix, known)
        for key, value in item.items()
    }


def panel(x_title: str = "", y_title: str = "", height: int = HEIGHT, **axes: Any) -> figure:
    """Return an empty panel as wide as its place; `axes` are those of `bokeh.plotting.figure`."""
    zoom = BoxZoomTool()
    made = figure(
        height=height,
        sizing_mode="stretch_width",
        tools=[zoom, PanTool(), WheelZoomTool(), ResetTool()],
        active_drag=zoom,
        active_scroll=None,
        toolbar_location="above",
        x_axis_label=x_title or None,
        y_axis_label=y_title or None,
        outline_line_color=None,
        min_border_right=12,
        **axes,
    )
    made.toolbar.logo = None
    made.xgrid.visible = False
    for axis in (*made.xaxis, *made.yaxis):
        axis.minor_tick_line_color = None
        axis.axis_label_text_font_style = "normal"
    for axis in made.yaxis:
        axis.formatter = NumeralTickFormatter(format="0,0.[0000]")
    return made


def colours_of(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each name."""
    return dict(zip(names, cycle((*OWN, *PEERS)), strict=False))


def draw_line(
    made: figure, name: str, colour: str, columns: Mapping[str, Any], *, dots: bool = False
) -> list[GlyphRenderer[Any]]:
    """Draw `y` over `x`; the tooltip shows `name` and the other columns."""
    count = len(columns["x"])
    source = ColumnDataSource({**columns, "name": [name] * count})
    drawn: list[GlyphRenderer[Any]] = [
        made.line("x", "y", source=source, line_width=1.6, line_color=colour)
    ]
    if dots or count == 1:
        drawn.append(made.scatter("x", "y", source=source, size=5, color=colour))
    return drawn


def legend(made: figure, lines: Mapping[str, list[GlyphRenderer[Any]]]) -> None:
    """Put the lines' names above a panel; a click hides or shows a line."""
    if not lines:
        return
    names = {name: shortened(name, PHONE_LETTERS - 5) for name in lines}
    columns = max(1, min(len(lines), PHONE_LETTERS // (5 + max(map(len, names.values())))))
    items = [LegendItem(label={"value": names[name]}, renderers=own) for name, own in lines.items()]
    made.add_layout(
        Legend(
            items=items,
            ncols=columns,
            click_policy="hide",
            inactive_fill_color=None,
            border_line_color=None,
            background_fill_color=None,
            label_text_font_size="12px",
            spacing=0,
            margin=2,
            glyph_height=14,
            stylesheets=[LEGEND_CSS],
        ),
        "above",
    )
    made.height = (made.height or HEIGHT) + LEGEND_HEIGHT * -(-len(lines) // columns)


def hover(
    made: figure,
    tooltips: Sequence[tuple[str, str]],
    renderers: Sequence[GlyphRenderer[Any]],
    *,
    times: bool = False,
    near: bool = False,
) -> None:
    """Show the values of all lines above and below the mouse, or (`near`) of the nearest."""
    made.add_tools(
        HoverTool(
            tooltips=[*([("time", "@x{%F %T}")] if times else []), *tooltips],
            renderers=list(renderers),
            formatters={"@x": "datetime"} if times else {},
            mode="mouse" if near else "vline",
        )
    )


def time_axis(made: figure) -> None:
    """Label as many times as fit on a phone, and show ten seconds around a single one."""
    made.xaxis.ticker = DatetimeTicker(desired_num_ticks=4)
    made.x_range.default_span = 10_000  # type: ignore[attr-defined]


def log_axis(made: figure) -> None:
    """Label 1, 2 and 5 in each decade of a logarithmic axis."""
    made.yaxis.ticker = LogTicker(mantissas=[1, 2, 5], desired_num_ticks=8, num_minor_ticks=0)


def duration_axis(made: figure, *, logarithmic: bool = True) -> None:
    """Label an axis in ns with units."""
    if logarithmic:
        log_axis(made)
    made.yaxis.formatter = CustomJSTickFormatter(code=DURATION_JS)


def percentile_panel(curves: Mapping[str, Sequence[float]], percents: Sequence[float]) -> figure:
    """Return curves of times in ns over percentiles: 99 to 99.9 is as wide as 90 to 99.

    Where a time is 0 or below, the axis is bent: linear near 0, logarithmic from 1 us on.
    """
    low = min((value for own in curves.values() for value in own), default=1.0)
    bent = low <= 0
    made = panel("% of values at or below", y_axis_type="linear" if bent else "log")
    places = [-math.log10(1 - percent / 100) for percent in percents]
    lines, colours = {}, colours_of(list(curves))
    for name, values in curves.items():
        columns = {
            "x": places,
            "y": [_bent(value) if bent else value for value in values],
            "share": [f"{percent:g} %" for percent in percents],
            "value": [duration(value) for value in values],
        }
        lines[name] = draw_line(made, name, colours[name], columns, dots=True)
    made.xaxis.ticker = _ticks(
        made, "x", {-math.log10(1 - each / 100): f"{each:g}" for each in LABELLED}
    )
    if bent:
        decades = [sign * 10.0**power for power in range(4, 13) for sign in (-1, 1)]
        made.yaxis.ticker = _ticks(
            made, "y", {_bent(each): duration(each) for each in sorted([0.0, *decades])}
        )
    else:
        duration_axis(made)
    tooltips = [("", "@name"), ("at or below", "@value"), ("share of values", "@share")]
    hover(made, tooltips, [own[0] for own in lines.values()])
    legend(made, lines)
    return made


def _bent(value_ns: float) -> float:
    return math.copysign(math.log10(1 + abs(value_ns) / 1000), value_ns)


def _ticks(made: figure, which: str, labels: Mapping[float, str]) -> Ticker:
    (axis,) = made.yaxis if which == "y" else made.xaxis
    axis.major_label_overrides = dict(labels.items())
    return FixedTicker(ticks=list(labels), minor_ticks=[])
