"""A result as a page: one HTML file with tables and charts that fetches nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

import numpy as np
from bokeh.plotting import figure

from udpfast.page.charts import (
    Chart,
    chart_html,
    colours_of,
    draw_line,
    duration_axis,
    hover,
    legend,
    panel,
    percentile_panel,
    script_html,
    time_axis,
)
from udpfast.page.document import cells_of, document
from udpfast.page.words import count_text, counted, duration, literal, moment
from udpfast.probe.result import LISTENER_OUT, PERCENTS, Result, Values, percentiles_of

__all__ = ["page_of"]

#: The percentiles at which a curve is drawn.
CURVE = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)
HOST = {"turn": "turn at the listener", "queued": "queued at the sender", "late": "sent late"}
WAYS = {"round_trip": "round trip", "out": "way out", "back": "way back"}


def page_of(result: Result) -> str:
    """Return the page, the charts' script included (about 1 MB)."""
    charts = list(_charts(result))
    parts = [
        f"<h1>Lines, {escape(moment(int(result.planned_ns[0])))}</h1>"
        if len(result.planned_ns)
        else "<h1>Lines: nothing was sent</h1>",
        f"<p class=muted>{escape(_what(result))}</p>",
        *(f"<p>{escape(_capital(each))}.</p>" for each in result.caveats()),
        f"<p>{escape(_capital(result.offset.sentence()))}. "
        f"Sender: {escape(literal(result.offset.here.text))}; "
        f"listener: {escape(literal(result.offset.there.text))}.</p>",
        "<h2>Delays</h2>",
        _delays(result),
        "<h2>Loss and order</h2>",
        _losses(result),
    ]
    if result.races:
        parts += ["<h2>Which line is first</h2>", _races(result)]
    section = ""
    for number, chart in enumerate(charts):
        if chart.section != section:
            section = chart.section
            parts.append(f"<h2>{escape(section)}</h2>")
        parts.append(chart_html(chart, f"chart-{number}"))
    return document("udpfast wire", "\n".join([*parts, script_html()]))


def _what(result: Result) -> str:
    train = f" in trains of {result.train}" if result.train > 1 else ""
    text = (
        f"{counted(len(result.planned_ns), 'probe')} of {result.size_bytes} bytes{train} "
        "on each line, "
        f"{result.rate_per_s:,.10g} per second"
    )
    text += "; interrupted" if result.complete is False and not result.first_probe else ""
    return text + ("" if result.side == "sender" else "; as the listener saw it")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    kinds = ["" if place < words else "n" for place in range(len(head))]
    lines = [cells_of("td", [escape(cell) for cell in row], kinds) for row in rows]
    return (
        f'<div class="wide"><table><thead>{cells_of("th", head, kinds)}</thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _figures(found: Mapping[str, float]) -> list[str]:
    return [duration(found[name]) for name in ("min", *PERCENTS, "max")]


def _ways(result: Result) -> dict[str, str]:
    return WAYS if result.side == "sender" else WAYS | {"out": LISTENER_OUT}


def _delays(result: Result) -> str:
    rows = []
    for name, line in result.lines.items():
        for what, word in (_ways(result) | HOST).items():
            found = line.percentiles(what)
            if found["count"]:
                rows.append([name, word, *_figures(found)])
    first = percentiles_of(result.first_out_ns)
    if len(result.lines) > 1 and first["count"]:
        rows.append(["first of all", _ways(result)["out"], *_figures(first)])
    percents = [f"p{percent:g}" for percent in PERCENTS.values()]
    return _table(["line", "", "min", *percents, "max"], rows, 2)


def _losses(result: Result) -> str:
    rows = []
    for name, line in result.lines.items():
        runs, counts = line.runs, line.counts
        rows.append(
            [
                name,
                f"{int(line.sent.sum()):,}",
                line.lost_text,
                line.loss_text(4),
                f"{len(runs):,}",
                f"{int(runs.max(initial=0)):,}",
                count_text(counts["out_reordered"]),
                count_text(counts["out_duplicates"]),
                count_text(None if line.lost_back is None else int(line.lost_back.sum())),
            ]
        )
    head = ["line", "sent", "lost, way out", "share", "runs of loss", "longest", "reordered"]
    table = _table([*head, "duplicates", "lost, way back"], rows)
    if len(result.lines) < 2:
        return table
    mark = " ?" if result.lost_either.any() else ""
    lost = f"{table}<p>Lost on all lines at once: {int(result.lost_on_all.sum()):,}{mark}.</p>"
    said = result.left_out()
    return lost + (f"<p>{escape(_capital(said))}.</p>" if said else "")


def _races(result: Result) -> str:
    rows = []
    for race in result.races:
        found = race.to_dict()
        leads = [
            "-" if found[f"lead_{which}_ns"]["p50"] is None
            else duration(found[f"lead_{which}_ns"]["p50"])
            for which in ("first", "second")
        ]  # fmt: skip
        rows.append(
            [
                _ways(result)[race.way],
                race.first,
                race.second,
                f"{found['won_first']:,}",
                leads[0],
                f"{found['won_second']:,}",
                leads[1],
                f"{race.only_first:,}",
                f"{race.only_second:,}",
                f"{race.neither:,}",
                f"{found['tied']:,}",
                f"{race.unmeasured:,}",
                f"{race.away:,}",
            ]
        )
    head = ["way", "first line", "second line", "first won", "by (p50)", "second won", "by (p50)"]
    rest = ("only first", "only second", "neither", "tied", "unmeasured", "listener away")
    return _table([*head, *rest], rows, 3)


def _charts(result: Result) -> Iterator[Chart]:
    over = result.over_time()
    if any(np.isfinite(line.round_trip_ns).any() for line in result.lines.values()):
        yield Chart(
            "Over time",
            "Round trips from the planned time, in equal parts of the run.",
            [
                ("Round trip, median", _times(over, "round_trip_p50")),
                ("Round trip, p99", _times(over, "round_trip_p99")),
            ],
        )
    yield Chart(
        "Over time",
        "One way out, and the share of probes that did not arrive.",
        [("One way out, median", _times(over, "out_p50")), ("Loss, %", _loss(over))],
    )
    curves = [
        (word.capitalize(), percentile_panel(found, CURVE))
        for what, word in _ways(result).items()
        if (found := _curves(result, what))
    ]
    if curves:
        yield Chart("Distributions", "How much of the probes took how long at most.", curves)
    leads = {
        f"{race.first} before {race.second}, {_ways(result)[race.way]}": _curve(race.lead_ns)
        for race in result.races
        if np.isfinite(race.lead_ns).any()
    }
    if leads:
        yield Chart(
            "Distributions",
            "By how much the first line was faster; below 0, the second was.",
            [("Races", percentile_panel(leads, CURVE))],
        )
    if len(result.offset.times_ns) > 1:
        yield Chart(
            "Clocks",
            "How far the listener's clock was ahead, by window: the middle of what round trips "
            "allow, and the ends.",
            [("Offset less its mean", _offset(result))],
        )


def _curve(values: Values) -> list[float]:
    there = values[np.isfinite(values)]
    found: list[float] = np.percentile(there, CURVE, method="inverted_cdf").tolist()
    return found


def _curves(result: Result, what: str) -> dict[str, list[float]]:
    return {
        name: _curve(values)
        for name, line in result.lines.items()
        if np.isfinite(values := getattr(line, f"{what}_ns")).any()
    }


def _times(over: Mapping[str, Mapping[str, Values]], what: str) -> figure:
    return _over_time({name: (own["time_ns"], own[what]) for name, own in over.items()})


def _loss(over: Mapping[str, Mapping[str, Values]]) -> figure:
    shares = {name: (own["time_ns"], own["loss"] * 100) for name, own in over.items()}
    return _over_time(shares, times=False)


def _offset(result: Result) -> figure:
    found = result.offset
    middle = found.offsets_ns - found.offsets_ns.mean()
    ends = {"middle": 0.0, "at most": found.halves_ns, "at least": -found.halves_ns}
    return _over_time({name: (found.times_ns, middle + each) for name, each in ends.items()})


def _over_time(curves: Mapping[str, tuple[Values, Values]], *, times: bool = True) -> figure:
    made = panel("UTC", x_axis_type="datetime")
    colours, lines = colours_of(list(curves)), {}
    for name, (when_ns, values) in curves.items():
        shown = {
            "x": when_ns / 1e6,
            "y": values,
            "value": [_shown(each, times) for each in values],
        }
        lines[name] = draw_line(made, name, colours[name], shown)
    time_axis(made)
    if times:
        duration_axis(made, logarithmic=False)
    hover(made, [("", "@name"), ("", "@value")], [own[0] for own in lines.values()], times=True)
    legend(made, lines)
    return made


def _shown(value: float, is_time: bool) -> str:
    if np.isnan(value):
        return "-"
    return duration(value) if is_time else f"{value:.4g} %"
