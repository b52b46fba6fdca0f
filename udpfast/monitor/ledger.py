"""The ledger: every datagram has one verdict, and the sums are equal."""

from __future__ import annotations

from msgspec import Struct

from udpfast.core.counter import VERDICTS

__all__ = ["Ledger", "LineLedger", "ledger_of"]

Counters = dict[str, dict[str, int]]


class LineLedger(Struct, frozen=True):
    """Datagrams of one line, and the sum of their verdicts."""

    datagrams: int
    verdicts: int
    adds_up: bool


class Ledger(Struct, frozen=True):
    """Datagrams of all lines, and the sum of their verdicts: by verdict, and by line."""

    datagrams: int
    verdicts: int
    adds_up: bool
    by_verdict: dict[str, int]
    lines: dict[str, LineLedger]


def ledger_of(counters: Counters) -> Ledger:
    """Compare each line's datagrams with the sum of its verdicts.

    Parameters
    ----------
    counters : dict
        As `udpfast.counters(name)` returns them; lines are the scopes with a dot.
    """
    names = [info.name for info in VERDICTS]
    lines = {}
    for scope, values in counters.items():
        if "." in scope:
            datagrams, verdicts = values["datagrams"], sum(values[name] for name in names)
            lines[scope] = LineLedger(datagrams, verdicts, datagrams == verdicts)
    totals = {name: sum(counters[scope][name] for scope in lines) for name in names}
    return Ledger(
        datagrams=sum(line.datagrams for line in lines.values()),
        verdicts=sum(totals.values()),
        adds_up=all(line.adds_up for line in lines.values()),
        by_verdict=totals,
        lines=lines,
    )
