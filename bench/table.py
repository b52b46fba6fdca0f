"""Rows as a table for a terminal: one per benchmark and set of parameters."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import click

from udpfast.page.words import figure

from .compare import Comparison
from .result import Row, text

__all__ = ["print_comparisons", "print_rows", "verdict"]


def verdict(row: Row) -> str:
    """Return the goal with what became of it."""
    met = row.met()
    return row.goal if met is None else f"{row.goal}: {'met' if met else 'NOT MET'}"


def print_rows(rows: Iterable[Row]) -> None:
    """Print a table per benchmark: value, ratio to its base, goal, and what a peer does less."""
    rows = list(rows)
    for benchmark in dict.fromkeys(row.benchmark for row in rows):
        own = [row for row in rows if row.benchmark == benchmark]
        click.echo(f"\n{click.style(benchmark, bold=True)}")
        for parameters, group in groupby(own, key=lambda row: row.parameters):
            same = list(group)
            heading = ", ".join(f"{name} {text(value)}" for name, value in parameters.items())
            if heading:
                click.echo(f"  {heading}")
            for row in same:
                click.echo("    " + line(row))


def line(row: Row) -> str:
    """Return one row: what was measured first, what to know about it last."""
    ratio = "" if row.ratio is None or row.variant == row.base else f"x {row.ratio:.2f}"
    count = f"{len(row.values)} trials" + (f", {row.dropped} dropped" if row.dropped else "")
    about = "; ".join(filter(None, [verdict(row), row.less and f"less: {row.less}"]))
    measured = f"{row.variant:<34} {row.placement:<5}{figure(row.median):>12} {row.unit:<15}"
    return f"{measured}{ratio:<9}{count:<12} {about}".rstrip()


def print_comparisons(comparisons: Iterable[Comparison]) -> None:
    """Print a line per row: before, after, the change with its noise, the verdict.

    A reason that holds for every row is printed once.
    """
    comparisons = list(comparisons)
    reasons = {item.verdict for item in comparisons}
    if len(comparisons) > 1 and len(reasons) == 1 and "not comparable" in "".join(reasons):
        click.echo(f"{len(comparisons)} rows {reasons.pop()}")
        return
    width = max((len(item.row.title) for item in comparisons), default=0)
    for benchmark in dict.fromkeys(item.row.benchmark for item in comparisons):
        click.echo(f"\n{click.style(benchmark, bold=True)}")
        for item in comparisons:
            if item.row.benchmark == benchmark:
                click.echo(f"    {item.row.title:<{width}}  {change_line(item)}")


def change_line(item: Comparison) -> str:
    """Return what changed in one row, in words and numbers."""
    if item.verdict.startswith("not comparable"):
        return item.verdict
    against = f" of {item.base}" if item.base else ""
    peer = "" if item.own else " (peer)"
    return (
        f"{figure(item.before)} -> {figure(item.after)} {item.row.unit}, x {item.ratio:.3f}"
        f"{against} [{item.low:.3f}, {item.high:.3f}]  {item.verdict}{peer}"
    )
