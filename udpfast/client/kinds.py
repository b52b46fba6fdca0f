"""Kinds as a user may give them: a member of `Kind`, its name in any case, or its table's name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from udpfast.core.layout import Kind
from udpfast.errors import ConfigError, did_you_mean, shown

__all__ = ["kind_of", "kinds_of"]


#: Tables of an export (docs/tables.md) that hold one kind under another name than the kind's.
_TABLES = {
    "GAPS": Kind.GAP,
    "INSTRUMENTS": Kind.REFERENCE_DATA,
    "LEVELS": Kind.BOOK,
    "MERGES": Kind.ORDER,
    "STATUS": Kind.MARKET_STATUS,
    "TOPS": Kind.TOP_OF_BOOK,
}

#: Tables of an export that hold no kind, or several, and what to do instead.
_NOT_A_KIND = {
    "EVENTS": "that table has doubts (SESSION, STALE, RECOVERED, CONNECTION, DISAGREEMENT, "
    "RESTART, LAPPED), which a reader of any kinds gets",
    "LATENCY": "that table is made by an export, from the times of all records",
    "MESSAGES": "that table has the records of all kinds: name none",
    "RACES": "that table is made by an export, from captured datagrams",
}

#: What else the trade calls a kind: suggested, not taken.
_ALIASES = {
    Kind.BOOK: "mbp depth book_depth l2 level2 price_levels order_book orderbook lob",
    Kind.ORDERS: "mbo l3 level3 market_by_order full_order_book",
    Kind.TOP_OF_BOOK: "tob bbo nbbo l1 level1 quote quotes best ticker top_of_the_book touch",
    Kind.TRADES: "trade tick ticks print prints last tas time_and_sales execution executions",
    Kind.STATISTICS: "stats statistic open_interest settlement",
    Kind.REFERENCE_DATA: "definition definitions secdef security_definition symbols refdata",
    Kind.MARKET_STATUS: "trading_status halt halts auction phase",
}
_SUGGESTED = {alias: kind.name for kind, text in _ALIASES.items() for alias in text.split()}


def kind_of(value: object) -> Kind:
    """Return the kind for a member of `Kind`, its number, its name, or the name of its table.

    Raises
    ------
    ConfigError
        There is no such kind.
    """
    if isinstance(value, str):
        kind = Kind.__members__.get(value.upper()) or _TABLES.get(value.upper())
        if kind is not None:
            return kind
        hint = _hint(value)
    else:
        if value in list(Kind):
            return Kind(value)  # type: ignore[arg-type]
        hint = ""
    raise ConfigError(
        f"a kind must be a member of Kind, its name or an export's table, was {shown(value)}{hint}"
    )


def kinds_of(values: object) -> Iterator[Kind]:
    """Yield the kind of a value, or of each value of an iterable."""
    several = isinstance(values, Iterable) and not isinstance(values, str)
    for value in values if several else [values]:  # type: ignore[attr-defined]
        yield kind_of(value)


def _hint(value: str) -> str:
    # The end of an error about text that is no kind.
    several = [each for each in re.split(r"[,;|+\s]+", value) if each]
    if len(several) > 1:
        return f"; pass a list, such as kinds={several}"
    alias = _SUGGESTED.get(re.sub(r"[- ]", "_", value.strip().lower()))
    if alias is not None:
        return f"; did you mean {alias!r}?"
    if (reason := _NOT_A_KIND.get(value.upper())) is not None:
        return f"; {reason}"
    known = [*(name for name in Kind.__members__ if name != "PAD"), *_TABLES]
    return did_you_mean(value.upper(), known) or f"; there are {', '.join(known)}"
