"""The ledger: every datagram has one verdict, and the sums are equal. Computed, then shown."""

from __future__ import annotations

from typing import Any

import click

from udpfast.core.counter import VERDICTS

__all__ = ["ledger_sums", "print_ledger"]

Counters = dict[str, dict[str, int]]


def ledger_sums(counters: Counters) -> dict[str, Any]:
    """Compare each line's datagrams with the sum of its verdicts.

    Parameters
    ----------
    counters : dict
        As `udpfast.counters(name)` returns them; lines are the scopes with a dot.

    Returns
    -------
    dict
        `datagrams`, `verdicts` (their sum), `adds_up`, `by_verdict`, `lines` (the same per line).
    """
    names = [info.name for info in VERDICTS]
    lines = {}
    for scope, values in counters.items():
        if "." in scope:
            verdicts = sum(values[name] for name in names)
            lines[scope] = {
                "datagrams": values["datagrams"],
                "verdicts": verdicts,
                "adds_up": values["datagrams"] == verdicts,
            }
    totals = {name: sum(counters[scope][name] for scope in lines) for name in names}
    return {
        "datagrams": sum(line["datagrams"] for line in lines.values()),
        "verdicts": sum(totals.values()),
        "adds_up": all(line["adds_up"] for line in lines.values()),
        "by_verdict": totals,
        "lines": lines,
    }


def print_ledger(counters: Counters, ledger: dict[str, Any]) -> None:
    """Print a table: a row per verdict, a column per line, and the sums."""
    scopes = list(ledger["lines"])
    width = max([16, *(len(scope) for scope in scopes)])
    click.echo(
        f"{'verdict':<22}" + "".join(f"{scope:>{width}}" for scope in scopes) + f"{'all':>12}"
    )
    for name, total in ledger["by_verdict"].items():
        if total:
            click.echo(
                f"{name:<22}"
                + "".join(f"{counters[scope][name]:>{width},}" for scope in scopes)
                + f"{total:>12,}"
            )
    for name, total in (("sum of verdicts", "verdicts"), ("datagrams", "datagrams")):
        click.echo(
            f"{name:<22}"
            + "".join(f"{ledger['lines'][scope][total]:>{width},}" for scope in scopes)
            + f"{ledger[total]:>12,}"
        )
    click.echo("the sums are equal" if ledger["adds_up"] else "THE SUMS DIFFER")
