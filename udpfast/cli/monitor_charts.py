"""Charts of `udpfast monitor`'s page: the browser keeps their points and gets only the newest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nicegui import ui

from udpfast.monitor.history import Point
from udpfast.page.colours import OWN

__all__ = ["Charts", "add_script"]

# Sending all points each time was two thirds of what the page cost this process.
_SCRIPT = """
<script>
const udpfastPoints = {};  // by chart: [time, {name: value}] of each look
function udpfastGrow(fresh, length, charts) {
  for (const [id, kind, points] of charts) {
    const kept = fresh ? points : [...(udpfastPoints[id] ?? []), ...points].slice(-length);
    udpfastPoints[id] = kept;
    // What came or went meanwhile has no value at the other points.
    const names = [...new Set(kept.flatMap(([_, values]) => Object.keys(values)))];
    getElement(id)?.chart?.setOption({series: names.map(name => ({
      name, type: kind, showSymbol: false, stack: kind === 'bar' ? 'all' : undefined,
      data: kept.map(([at, values]) => [at, values[name] ?? null]),
    }))}, {replaceMerge: ['series']});
  }
}
</script>
"""

Values = dict[str, float] | dict[str, int]


def add_script() -> None:
    """Give every page what its charts run."""
    ui.add_head_html(_SCRIPT, shared=True)


class Charts:
    """The charts of one feed, in one browser.

    Parameters
    ----------
    length : int
        Points that they show.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._feed = ""
        self._sent_ns = 0
        self._charts = {
            "rates": _chart("per second", "line"),
            "latency": _chart("latency, kernel to loop, us", "line", log=True),
            "losses": _chart("lost, by stage: messages, datagrams, records", "bar"),
            "first": _chart("part that each line brought first, %", "line"),
            "lead": _chart("mean lead of a line that was first, us", "line"),
            "doubt": _chart("objects in doubt, by reason: with an [image]", "bar"),
            "lag": _chart("lag of readers, records", "line"),
        }

    def show(self, feed: str, points: Sequence[Point]) -> None:
        """Show the points of a feed, the oldest first; what the browser has is not sent again."""
        fresh = feed != self._feed
        self._feed = feed
        if not fresh:
            points = [point for point in points if point.unix_ns > self._sent_ns]
        if not points and not fresh:
            return
        self._sent_ns = points[-1].unix_ns if points else 0
        times = [point.unix_ns // 1_000_000 for point in points]
        values = [_values(point) for point in points]
        charts = [
            (chart.id, kind, [*zip(times, (one[name] for one in values), strict=True)])
            for name, (chart, kind) in self._charts.items()
        ]
        ui.run_javascript(f"udpfastGrow({json.dumps(fresh)}, {self._length}, {json.dumps(charts)})")


def _values(point: Point) -> dict[str, Values]:
    hop = point.latency_ns.get("kernel_to_loop", {})
    return {
        "rates": {"datagrams": point.datagrams_per_s, "records": point.records_per_s},
        # A logarithmic axis has no place for 0.
        "latency": {name: max(value_ns / 1e3, 0.01) for name, value_ns in hop.items()},
        "losses": {
            "lines": point.lost,
            "kernel": point.kernel_drops,
            "readers": point.lapped,
        },
        "first": {name: 100 * part for name, part in point.first.items()},
        "lead": {name: lead_ns / 1e3 for name, lead_ns in point.lead_ns.items()},
        "doubt": {
            reason: count for reason, count in point.in_doubt.items() if count or reason == "gap"
        },
        "lag": point.lag,
    }


def _chart(title: str, kind: str, *, log: bool = False) -> tuple[ui.echart, str]:
    options: dict[str, Any] = {
        "animation": False,
        "title": {"text": title, "textStyle": {"fontSize": 13, "color": "#888"}},
        "grid": {"left": 8, "right": 16, "top": 56, "bottom": 8, "containLabel": True},
        "legend": {"top": 27, "type": "scroll", "textStyle": {"color": "#888"}},
        "tooltip": {"trigger": "axis"},
        "color": list(OWN),
        "xAxis": {
            "type": "time",
            "axisLabel": {"hideOverlap": True, "showMaxLabel": False, "color": "#888"},
        },
        "yAxis": {
            "type": "log" if log else "value",
            "axisLabel": {"color": "#888"},
            "splitLine": {"lineStyle": {"color": "#8884"}},
        },
        "series": [],
    }
    return ui.echart(options), kind
