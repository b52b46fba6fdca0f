"""The ledger: every unit, and every datagram without one, has one verdict, and sums are equal."""

from __future__ import annotations

from msgspec import Struct

from udpfast.core.counter import VERDICTS

__all__ = ["Ledger", "LineLedger", "ledger_of"]

Counters = dict[str, dict[str, int]]


class LineLedger(Struct, frozen=True):
    """Datagrams of one line, their units beyond the first, and the sum of the verdicts."""

    datagrams: int
    units_more: int
    verdicts: int
    adds_up: bool


class Ledger(Struct, frozen=True):
    """The same of all lines: by verdict, and by line."""

    datagrams: int
    units_more: int
    verdicts: int
    adds_up: bool
    by_verdict: dict[str, int]
    lines: dict[str, LineLedger]


def ledger_of(counters: Counters) -> Ledger:
    """Compare each line's units with the sum of its verdicts.

    Parameters
    ----------
    counters : dict
        As `udpfast.counters(name)` returns them; lines are the scopes with a dot.
    """
    names = [info.name for info in VERDICTS]
    lines = {}
    for scope, values in counters.items():
        if "." in scope:
            datagrams, more = values["datagrams"], values["units_more"]
            verdicts = sum(values[name] for name in names)
            lines[scope] = LineLedger(datagrams, more, verdicts, datagrams + more == verdicts)
    totals = {name: sum(counters[scope][name] for scope in lines) for name in names}
    return Ledger(
        datagrams=sum(line.datagrams for line in lines.values()),
        units_more=sum(line.units_more for line in lines.values()),
        verdicts=sum(totals.values()),
        adds_up=all(line.adds_up for line in lines.values()),
        by_verdict=totals,
        lines=lines,
    )
