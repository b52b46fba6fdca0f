"""The report of a run: every gold table in words, as JSON, and as one HTML page with figures.

It reads what the run has left, so it needs no Spark and no Java. Of a table that grows it shows the
first rows and says how many there are.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from udpfast.page.document import cells_of, document
from udpfast.page.words import channel, figure, literal
from udpfast.spark.gold import Gold

__all__ = ["page", "read_report", "text_tables"]

#: Of a table of a page, and of one on a terminal.
ROWS_MAX = 50
ROWS_OF_TERMINAL = 12
#: Roq's stream of snapshots.
SNAPSHOT = 1

Table = dict[str, Any]


def read_report(gold: Gold, rows: int = ROWS_MAX) -> dict[str, Any]:
    """Return what ran, and at most `rows` rows of each table, for `json.dumps`."""
    run = gold.run()
    tables = {}
    for name, ran in run["jobs"].items():
        table = gold.table(name, rows)
        tables[name] = {
            **ran,
            "columns": table.column_names,
            "table": [[plain(value) for value in row.values()] for row in table.to_pylist()],
        }
    return {**run, "jobs": tables}


def plain(value: Any) -> Any:
    """Return a value as JSON has it: times in ISO 8601, what is no number as null."""
    if isinstance(value, datetime.datetime):
        return value.isoformat().replace("+00:00", "Z")
    return None if isinstance(value, float) and not math.isfinite(value) else value


def word(column: str, value: Any) -> str:
    """Return a cell for people."""
    if value is None:
        return ""
    if isinstance(value, str):
        return literal(value.replace("T", " ").removesuffix("Z") if column in TIMES else value)
    if isinstance(value, bool):
        return str(value)
    if column in RATES:
        return f"{value:.3%}"
    if column.endswith("_ns") and column not in STAMPS:
        return f"{figure(value / 1e3)} us" if abs(value) < 1e9 else f"{value / 1e9:,.3f} s"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.10g}" if abs(value) >= 1e-4 or value == 0 else f"{value:.4g}"


TIMES = {"hour", "time"}
RATES = {"loss", "win_rate"}
STAMPS = {"received_ns", "at"}


def text_tables(report: dict[str, Any], rows: int = ROWS_OF_TERMINAL) -> Iterator[str]:
    """Yield the tables for a terminal, line by line."""
    for name, job in report["jobs"].items():
        yield ""
        yield f"{name}: {job['question']}"
        if not job["table"]:
            yield "  (nothing)"
            continue
        cells = [[*map(word, job["columns"], row)] for row in job["table"][:rows]]
        widths = [max(map(len, column)) for column in zip(job["columns"], *cells, strict=True)]
        for line in (job["columns"], *cells):
            padded = (
                value.rjust(width) if right else value.ljust(width)
                for value, width, right in zip(line, widths, numeric(job), strict=True)
            )
            yield "  " + "  ".join(padded).rstrip()
        if job["rows"] > rows:
            yield f"  ... {job['rows'] - min(rows, len(cells)):,} more"


def numeric(job: Table) -> list[bool]:
    """Return for each column whether it holds numbers."""
    return [
        any(isinstance(value, int | float) for value in column)
        for column in zip(*job["table"], strict=True)
    ]


def page(gold: Gold) -> str:
    """Return the whole page."""
    from udpfast.page.drawing import Plot, to_svg
    from udpfast.spark.figures import find_figures

    report = read_report(gold)
    figures: dict[str, list[Plot]] = {}
    for plot in find_figures(gold):
        figures.setdefault(plot.section, []).append(plot)
    feeds = dict.fromkeys(row["feed"] for row in records(report, "losses"))
    title = f"udpfast: {', '.join(feeds) or 'what was kept'}"
    parts = [*header(report, title)]
    for name, job in report["jobs"].items():
        parts.append(f'<h2 id="{escape(name)}">{escape(name)}</h2><p>{escape(job["question"])}</p>')
        for plot in figures.get(name, ()):
            caption = f"<figcaption>{escape(plot.caption)}</figcaption>"
            parts.append(f"<figure>{to_svg(plot)}{caption}</figure>")
        parts.append(html_table(job))
    parts.append(footer(report))
    return document(title, "\n".join(parts))


def header(report: dict[str, Any], title: str) -> Iterator[str]:
    """Yield the title, and in one line each what the feed lost and who won."""
    yield f"<h1>{escape(title)}</h1>"
    yield (
        f'<p class="muted">{escape(report["finished"])} · from '
        f"{escape(', '.join(report['sources']))}</p>"
    )
    losses = records(report, "losses")
    if losses:
        messages = sum(row["messages"] for row in losses)
        lost, gaps = (sum(row[name] for row in losses) for name in ("lost", "gaps"))
        kind = "good" if lost == 0 else "bad"
        yield (
            f"<p>{messages:,} messages in order, once each; "
            f'<b class="{kind}">{lost:,} lost</b> in {gaps:,} gaps.</p>'
        )
    for row in records(report, "races"):
        if row["stream"] != SNAPSHOT:
            stream = f" {channel(row['stream'])}," if row["stream"] else ""
            yield (
                f"<p>{escape(row['feed'])}{stream} line {row['line']} was first with "
                f"{row['win_rate']:.1%} of all datagrams, {row['only_copy']:,} of which no other "
                "line brought.</p>"
            )


def records(report: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the rows of a table by column name; none if it did not run."""
    job = report["jobs"].get(name, {"columns": [], "table": []})
    return [dict(zip(job["columns"], row, strict=True)) for row in job["table"]]


def html_table(job: Table) -> str:
    """Return a table of a page."""
    if not job["table"]:
        return '<p class="muted">Nothing was kept that would answer this.</p>'
    kinds = ["n" if number else "w" for number in numeric(job)]
    lines = [cells_of("th", [escape(column) for column in job["columns"]], kinds)]
    for row in job["table"]:
        cells = [escape(cell) for cell in map(word, job["columns"], row)]
        lines.append(cells_of("td", cells, kinds))
    more = job["rows"] - len(job["table"])
    said = f'<p class="muted small">{more:,} more rows are in the table.</p>' if more > 0 else ""
    return f'<div class="wide"><table>{"".join(lines)}</table></div>{said}'


def footer(report: dict[str, Any]) -> str:
    """Return what ran, and how long each job took."""
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
    return f'<h2>What ran</h2><div class="wide"><table>{lines}</table></div>'
