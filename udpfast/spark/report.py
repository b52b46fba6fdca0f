"""The report of a run: every gold table as text, as JSON, and as one HTML page with charts.

It reads the files that the run wrote, so it needs no Spark and no Java. It shows the first rows of
a long table and says how many there are.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from udpfast.page.document import document
from udpfast.page.words import duration, literal
from udpfast.spark.answers import answers, clock_differs, took_time
from udpfast.spark.gold import Gold
from udpfast.spark.shown import (
    TITLES,
    Inputs,
    Lines,
    Shown,
    input_name,
    line_name,
    shown_columns,
    when,
)

__all__ = ["page", "read_report", "text_tables"]

#: Rows of a table on a page, and on a terminal.
ROWS_MAX = 50
ROWS_OF_TERMINAL = 12
#: A page folds longer tables.
ROWS_OPEN = 12
#: Tables that the answers are made from, and the most rows that are read of each.
ANSWERED = ("losses", "races", "hops", "depth", "leadlag", "bus")
ROWS_OF_ANSWERS = 100_000
#: The column whose largest values are shown first if a table is too long; others keep their order.
SHOWN_FIRST = {"losses": "lost", "lines": "missing", "instruments": "trades"}
WITHOUT_SCRIPTS = "<noscript>The charts need the script that is embedded in this page.</noscript>"


def read_report(gold: Gold, rows: int = ROWS_MAX) -> dict[str, Any]:
    """Return the run, its answers, and at most `rows` rows of each table, for `json.dumps`.

    Answers, feeds and the period come from the whole tables, however few rows are shown.
    """
    run = gold.run()
    whole = {name: gold.table(name, ROWS_OF_ANSWERS).to_pylist() for name in ANSWERED}
    timed = [*whole["losses"], *whole["bus"]]
    tables = {}
    for name, ran in run["jobs"].items():
        table = gold.table(name, rows, shown_first=SHOWN_FIRST.get(name))
        tables[name] = {
            **ran,
            "columns": table.column_names,
            "table": [[plain(value) for value in row.values()] for row in table.to_pylist()],
        }
    return {
        **run,
        "feeds": list(dict.fromkeys(row["feed"] for row in timed)),
        "first_ns": min((row["first_ns"] for row in timed), default=None),
        "last_ns": max((row["last_ns"] for row in timed), default=None),
        "answers": list(
            answers(whole, run.get("lines", {}), run.get("inputs", {}), run.get("doubts", ()))
        ),
        "jobs": tables,
    }


def plain(value: Any) -> Any:
    """Return a value for JSON: times in ISO 8601, floats that are not finite as null."""
    if isinstance(value, datetime.datetime):
        return value.isoformat().replace("+00:00", "Z")
    return None if isinstance(value, float) and not math.isfinite(value) else value


def text_tables(report: dict[str, Any], rows: int = ROWS_OF_TERMINAL) -> Iterator[str]:
    """Yield the answers and the tables for a terminal, line by line."""
    for _, text in report["answers"]:
        yield text
    for name, job in report["jobs"].items():
        yield ""
        yield f"{name}: {job['question']}"
        if job.get("failure"):
            yield f"  failed: {literal(job['failure'])}"
            continue
        if not job["table"]:
            yield "  (no rows)"
            continue
        shown, cells = table_cells(report, name, rows)
        widths = [
            max(map(len, column))
            for column in zip([each.title for each in shown], *cells, strict=True)
        ]
        for line in ([each.title for each in shown], *cells):
            padded = (
                value.rjust(width) if each.number else value.ljust(width)
                for value, width, each in zip(line, widths, shown, strict=True)
            )
            yield "  " + "  ".join(padded).rstrip()
        if job["rows"] > rows:
            yield f"  ... {job['rows'] - min(rows, len(cells)):,} more"


def table_cells(
    report: dict[str, Any], name: str, rows: int | None = None
) -> tuple[list[Shown], list[list[str]]]:
    """Return the shown columns of a table and the cells of its first rows."""
    shown = shown_columns(name, len(report["feeds"]))
    lines: Lines = report.get("lines", {})
    inputs: Inputs = report.get("inputs", {})

    def cell(row: dict[str, Any], column: Shown) -> str:
        value = row.get(column.name)
        if value is None:
            return ""
        if column.name == "line":
            return line_name(lines, row["feed"], row["stream"], value)
        if column.name == "session":
            return input_name(inputs, row["feed"], value)
        return column.form(value)

    return shown, [[cell(row, column) for column in shown] for row in records(report, name)[:rows]]


def page(gold: Gold) -> str:
    """Return the whole page."""
    from udpfast.page.charts import Chart, chart_html, script_html
    from udpfast.spark.bus_charts import bus_charts
    from udpfast.spark.charts import find_charts

    report = read_report(gold)
    lines: Lines = report.get("lines", {})
    charts: dict[str, list[Chart]] = {}
    for chart in (*find_charts(gold, lines), *bus_charts(gold, report.get("inputs", {}))):
        charts.setdefault(chart.section, []).append(chart)
    title = f"udpfast: {', '.join(map(literal, report['feeds'])) or 'report'}"
    parts = [*header(report, title), *answered(report), contents(report)]
    for name, job in report["jobs"].items():
        if not has_section(job):
            continue
        heading = f"{escape(TITLES[name])}"
        parts.append(f'<h2 id="{escape(name)}">{heading}</h2><p>{escape(job["question"])}</p>')
        if job.get("failure"):
            parts.append(f'<p class="bad">This job failed: {escape(literal(job["failure"]))}</p>')
            continue
        for place, chart in enumerate(charts.get(name, ())):
            parts.append(chart_html(chart, f"chart-{name}-{place}"))
        parts.append(html_table(report, name))
    parts += [unanswered(report), footer(report)]
    if charts:
        parts += [WITHOUT_SCRIPTS, script_html()]
    return document(title, "\n".join(parts))


def has_section(job: dict[str, Any]) -> bool:
    """Whether a job has rows to show, or a failure to report."""
    return bool(job["table"] or job.get("failure"))


def header(report: dict[str, Any], title: str) -> Iterator[str]:
    """Yield the title, the period that it covers, and its sources."""
    yield f"<h1>{escape(title)}</h1>"
    said = [f"from {', '.join(report['sources'])}", f"made {when(report['finished'][:19])} UTC"]
    first, last = report["first_ns"], report["last_ns"]
    if first is not None:
        ends = [_time(first), _time(last)]
        if ends[0][:10] == ends[1][:10]:
            ends[1] = ends[1][11:]
        said.insert(0, f"{' to '.join(ends)} UTC ({duration(last - first)})")
    yield f'<p class="muted">{escape(" · ".join(said))}</p>'


def _time(unix_ns: int) -> str:
    moment = datetime.datetime.fromtimestamp(unix_ns // 1_000_000_000, datetime.UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def answered(report: dict[str, Any]) -> Iterator[str]:
    """Yield the list of answers at the top."""
    found = [
        f'<li class="{kind}">{escape(text)}</li>' if kind else f"<li>{escape(text)}</li>"
        for kind, text in report["answers"]
    ]
    if found:
        yield f'<ul class="answers">{"".join(found)}</ul>'


def contents(report: dict[str, Any]) -> str:
    """Return links to the sections."""
    links = (
        f'<a href="#{escape(name)}">{escape(TITLES[name])}</a>'
        for name, job in report["jobs"].items()
        if has_section(job)
    )
    return f"<nav>{' '.join(links)}</nav>"


def unanswered(report: dict[str, Any]) -> str:
    """Return one line with the sections that have no data."""
    jobs = report["jobs"].items()
    titles = [escape(TITLES[name]) for name, job in jobs if not has_section(job)]
    if not titles:
        return ""
    return f'<p class="muted">No data was kept for: {"; ".join(titles)}.</p>'


def records(report: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the rows of a table as they are shown, by column name; none if it did not run."""
    job = report["jobs"].get(name, {"columns": [], "table": []})
    rows = [dict(zip(job["columns"], row, strict=True)) for row in job["table"]]
    return [shown_hop(row) for row in rows if took_time(row)] if name == "hops" else rows


def shown_hop(row: dict[str, Any]) -> dict[str, Any]:
    """Return a hop as a table shows it: if the clocks disagree, without its values."""
    if not clock_differs(row):
        return row
    return {name: None if name.endswith("_ns") else value for name, value in row.items()}


def html_table(report: dict[str, Any], name: str) -> str:
    """Return a table of a page, folded if it is long. On a narrow page each row is a card."""
    job = report["jobs"][name]
    shown, cells = table_cells(report, name)
    kinds = ["n" if each.number else "w" for each in shown]
    head = "".join(
        f'<th class="{kind}">{escape(each.title)}</th>'
        for kind, each in zip(kinds, shown, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{kind}" data-title="{escape(each.title)}">{escape(cell)}</td>'
            for cell, kind, each in zip(row, kinds, shown, strict=True)
        )
        + "</tr>"
        for row in cells
    )
    table = (
        f'<div class="wide"><table class="cards"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
    more = job["rows"] - len(cells)
    if more > 0:
        table += f'<p class="muted small">{more:,} more rows are in gold/{escape(name)}.</p>'
    if len(cells) <= ROWS_OPEN:
        return table
    return f"<details><summary>{job['rows']:,} rows</summary>{table}</details>"


def footer(report: dict[str, Any]) -> str:
    """Return what ran and how long each job took."""
    names = ("master", "spark", "parameters")
    about: Sequence[tuple[str, str]] = [
        *((name, str(report[name])) for name in names),
        *(
            (name, f"{job['rows']:,} rows, {job['seconds']:.1f} s")
            for name, job in report["jobs"].items()
        ),
    ]
    lines = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in about
    )
    return f'<h2>About this run</h2><div class="wide"><table>{lines}</table></div>'
