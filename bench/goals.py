"""Which goals a run met: a Markdown table for the documentation."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from udpfast.errors import FormatError
from udpfast.page.words import figure

from .result import Result, Row, joined, text

__all__ = ["TRIALS_MIN", "goal_table", "replace_part"]

#: Ratios of fewer trials tell nothing; they are left out of the table.
TRIALS_MIN = 3
BEGIN = "<!-- goals -->"
END = "<!-- end of goals -->"
HEAD = "| goal | what | found | met |\n|---|---|---|---|\n"


def goal_table(results: Sequence[Result]) -> str:
    """Return what was run on which host, then a table: a row per goal and variant.

    Of several results, of one host, the newer rows count. Found are ratios, or values if the goal
    has a unit; NEAR unless stated otherwise.
    """
    for result in results:
        for name in ("cpu", "cores", "kernel", "python", "date", "commit", "dirty"):
            if name not in result.host:
                raise FormatError(f"{result.path}: expected the host's {name!r}, found it not")
    told = [row for row in joined(results).rows if row.goal and row.met() is not None]
    enough = [row for row in told if row.goal_in_units or len(row.values) >= TRIALS_MIN]
    rows = sorted(enough, key=order)
    lines = [line(list(same)) for _, same in groupby(rows, key=order)]
    return f"{origin(results)}\n\n{HEAD}" + "".join(lines)


def origin(results: Sequence[Result]) -> str:
    """Return host, versions, dates and commits in a sentence."""
    host = results[-1].host
    first, *again = [moment(result) for result in results]
    for result, words in zip(results[1:], again, strict=True):
        first += f" ({', '.join(dict.fromkeys(row.benchmark for row in result.rows))}: {words})"
    return (
        f"{host['cpu']}, {host['cores']} cores, Linux {host['kernel'].split('-')[0]}, "
        f"{host['python']}, {first}; ratios of at least {TRIALS_MIN} trials, NEAR unless stated "
        "otherwise:"
    )


def moment(result: Result) -> str:
    """Return when a run began, and with which commit."""
    begun = datetime.datetime.fromisoformat(result.host["date"])
    changed = " with changes" if result.host["dirty"] else ""
    return f"{begun:%Y-%m-%d %H:%M} UTC, commit {result.host['commit'][:8]}{changed}"


def order(row: Row) -> tuple[str, int, str, str, str]:
    """Return what rows of one line have in common, so that goals sort by their numbers."""
    name = row.goal.partition(":")[0]
    number = re.search(r"\d+", name)
    letters = name[: number.start()] if number else name
    return letters, int(number[0]) if number else 0, row.goal, row.benchmark, row.variant


def line(rows: list[Row]) -> str:
    """Return the table's line of the rows of one goal and variant."""
    first = rows[0]
    met = [bool(row.met()) for row in rows]
    verdict = "yes" if all(met) else f"{sum(met)} of {len(met)}" if any(met) else "**no**"
    against = f" / {first.base}" if first.base and not first.goal_in_units else ""
    found = "; ".join(found_words(rows))
    return f"| {first.goal} | {first.benchmark}: {first.variant}{against} | {found} | {verdict} |\n"


def found_words(rows: list[Row]) -> Iterator[str]:
    """Return each row's figure, with the parameters in which the rows differ."""
    for row in rows:
        words = [
            f"{name} {text(value)}"
            for name, value in row.parameters.items()
            if any(other.parameters.get(name) != value for other in rows)
        ]
        words += ["FAR"] * (row.placement == "FAR")
        value = f"{figure(row.median)} {row.unit}" if row.goal_in_units else f"{row.ratio:.2f}"
        yield f"{' '.join(words)}: {value}" if words else value


def replace_part(page: Path, part: str) -> None:
    """Put the table between the marks of a Markdown page.

    Raises
    ------
    FormatError
        The page lacks one of the marks; it is left as it was.
    """
    words = page.read_text()
    before, begin, rest = words.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise FormatError(f"{page}: expected the lines {BEGIN} and {END}, found them not")
    page.write_text(f"{before}{BEGIN}\n{part}{END}{after}")
