"""A result as one HTML file: no other file, no script, no network; light or dark as the reader's.

Host and build first, then for each benchmark its question, topology, a table of all rows (goals
with what became of them, what a peer does less, what was verified) and figures.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from udpfast.page.document import cells_of, document
from udpfast.page.words import figure

from .drawing import Plot, to_svg
from .plots import find_plots
from .result import Result, Row, text

__all__ = ["write_report"]


def write_report(result: Result, path: Path) -> list[Plot]:
    """Write the page; return the figures that are in it."""
    plots = list(find_plots(result.rows))
    title = f"udpfast on {result.host.get('cpu', 'this host')}"
    body = "\n".join([header(result, title), *sections(result, plots), footer(result)])
    path.write_text(document(title, body))
    return plots


def header(result: Result, title: str) -> str:
    """Return the title, the sum of the goals, failures and notes."""
    goals = [row.met() for row in result.rows if row.goal]
    host = result.host
    commit = f"{host.get('commit') or 'no commit'}{' (changed)' if host.get('dirty') else ''}"
    words = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="muted">{escape(str(host.get("date", "")))} · Linux '
        f"{escape(str(host.get('kernel', '')))} · udpfast {escape(str(host.get('version', '')))}, "
        f"{escape(commit)}</p>",
    ]
    if goals:
        words.append(
            f'<p>Goals: <b class="good">{goals.count(True)} met</b>, '
            f'<b class="{"bad" if goals.count(False) else "muted"}">{goals.count(False)} not met'
            f"</b>{f', {goals.count(None)} without a figure' if None in goals else ''}. "
            "Ratios are medians of rounds in which both took their turn, of one placement: "
            "NEAR if a cache line went from core to core in under 60 ns, else FAR.</p>"
        )
    for failure in result.failures:
        reason = f"{failure['benchmark']}: {failure['reason']}"
        words.append(f'<p class="bad"><b>failed</b> {escape(reason)}</p>')
    for note in result.notes:
        words.append(f'<p class="muted">{escape(note["benchmark"])}: {escape(note["note"])}</p>')
    if result.end is None:
        words.append('<p class="bad">The run was broken off.</p>')
    return "\n".join(words)


def footer(result: Result) -> str:
    """Return the host and the build, and what the machine did meanwhile."""
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
        for name, value in result.host.items()
    )
    return (
        f'<h2>Host and build</h2><div class="wide"><table>{rows}</table></div>'
        '<h2>What the machine took away</h2><p class="muted">A pinned thread that only spins was '
        "stopped this often, before each benchmark and at the end.</p>"
        f'<div class="wide">{jitter_table(result.jitter)}</div>'
    )


def jitter_table(jitter: Sequence[dict[str, Any]]) -> str:
    """Return a row per look at the machine and core."""
    names = ("core", "time lost", "over 10 us, per s", "over 1 ms, per s", "longest, us")
    head = "".join(f'<th class="n">{name}</th>' for name in names)
    body = [f"<table><tr><th>before</th>{head}</tr>"]
    for look in jitter:
        for core in look.get("cores", ()):
            share = core["lost_ns"] / core["elapsed_ns"]
            cells = [
                *(str(core["core"]), f"{share:.2%}"),
                *(f"{core['over_10us_per_s']:,.0f}", f"{core['over_1ms_per_s']:,.0f}"),
                f"{core['longest_ns'] / 1e3:,.0f}",
            ]
            numbers = "".join(f'<td class="n">{cell}</td>' for cell in cells)
            body.append(f"<tr><td>{escape(look['before'] or '(the end)')}</td>{numbers}</tr>")
    return "".join(body) + "</table>"


def sections(result: Result, plots: Sequence[Plot]) -> Iterator[str]:
    """Yield each benchmark: question, topology, tables, figures."""
    for name in dict.fromkeys(row.benchmark for row in result.rows):
        about = result.benchmarks.get(name, {})
        yield f'<h2 id="{escape(name)}">{escape(name)}</h2>'
        yield f"<p>{escape(about.get('question', ''))}</p>"
        if about.get("topology"):
            yield f"<pre>{escape(textwrap.dedent(about['topology']).strip())}</pre>"
        own = [row for row in result.rows if row.benchmark == name]
        yield from tables(own)
        for plot in plots:
            if plot.section == name:
                caption = f"<figcaption>{escape(plot.caption)}</figcaption>"
                yield f"<figure>{to_svg(plot)}{caption}</figure>"


def tables(rows: list[Row]) -> Iterator[str]:
    """Yield a table per set of parameters; one for all if few rows stand side by side."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        words = ", ".join(f"{key} {text(value)}" for key, value in row.parameters.items())
        found.setdefault((words, row.unit), []).append(row)
    units = {unit for _, unit in found}
    if len(found) > 2 and len(units) == 1 and max(map(len, found.values())) <= 2:
        words_of_rows = [words for (words, _), group in found.items() for _ in group]
        yield table([row for group in found.values() for row in group], words_of_rows)
    else:
        for (words, _), group in found.items():
            yield (f"<h3>{escape(words)}</h3>" if words else "") + table(group)


def table(rows: list[Row], parameters: list[str] | None = None) -> str:
    """Return rows as a table; columns that nobody fills are left out."""
    latency = any(row.latency for row in rows)
    columns = [
        ("", [named(row) for row in rows]),
        ("", [escape(words) for words in parameters or [""] * len(rows)]),
        ("", [row.placement for row in rows]),
        (rows[0].unit, [figure(row.median) for row in rows]),
        ("trials", [spread(row) for row in rows]),
        ("ratio", ratios(rows)),
    ]
    if latency:
        for name in ("p50", "p90", "p99", "p99.9", "max"):
            columns.append((f"{name} us", [microseconds(row, name) for row in rows]))
        counts = [f"{row.latency['count']:,.0f}" if row.latency else "" for row in rows]
        columns.append(("count", counts))
    columns += [
        ("goal", [goal(row) for row in rows]),
        ("does less", [escape(row.less) for row in rows]),
    ]
    kept = [(name, cells) for name, cells in columns if any(cells)]
    whole = {"trials", "goal"}
    numeric = {rows[0].unit, "ratio", "count"} | {name for name, _ in kept if name.endswith(" us")}
    kinds = ["n" if name in numeric else "w" if name in whole else "" for name, _ in kept]
    lines = [cells_of("th", [escape(name) for name, _ in kept], kinds)]
    for place, row in enumerate(rows):
        cells = [column[place] for _, column in kept]
        lines.append(cells_of("td", cells, kinds, "" if row.less or row.version else "own"))
    return f'<div class="wide"><table>{"".join(lines)}</table></div>{verified(rows)}'


def ratios(rows: list[Row]) -> list[str]:
    """Return the ratios; to what, if they do not all refer to the same base."""
    bases = {row.base for row in rows if row.ratio is not None}
    found = []
    for row in rows:
        to = f' <span class="muted">of {escape(row.base)}</span>' if len(bases) > 1 else ""
        found.append("" if row.ratio is None else f"{row.ratio:.2f}{to}")
    return found


def verified(rows: list[Row]) -> str:
    """Return what was checked, once for all variants of which it is true."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        found.setdefault(row.verified, {})[row.variant] = None
    lines = [
        (f"{escape(' · '.join(names))}: " if len(found) > 1 else "") + escape(words)
        for words, names in found.items()
    ]
    return f'<p class="muted small">Verified: {"; ".join(lines)}.</p>'


def named(row: Row) -> str:
    """Return a variant with its version."""
    version = f' <span class="muted">{escape(row.version)}</span>' if row.version else ""
    return escape(row.variant) + version


def spread(row: Row) -> str:
    """Return how many trials there were, and between what they lay."""
    dropped = f", {row.dropped} dropped" if row.dropped else ""
    count = len(row.values)
    if count == 1:
        return f"1{dropped}"
    return f"{count}: {figure(min(row.values))} to {figure(max(row.values))}{dropped}"


def microseconds(row: Row, name: str) -> str:
    """Return a percentile."""
    return figure(row.latency[name] / 1e3) if row.latency else ""


def goal(row: Row) -> str:
    """Return the goal with what became of it."""
    met = row.met()
    if met is None:
        return escape(row.goal)
    kind, words = ("good", "met") if met else ("bad", "not met")
    return f'{escape(row.goal)} <b class="{kind}">{words}</b>'
