"""Kinds as a user may give them: a member of `Kind`, its name in any case, or its table's name."""

from __future__ import annotations

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
        known = [*(name for name in Kind.__members__ if name != "PAD"), *_TABLES]
        hint = did_you_mean(value.upper(), known) or f"; there are {', '.join(known)}"
    else:
        if value in list(Kind):
            return Kind(value)  # type: ignore[arg-type]
        hint = ""
    raise ConfigError(f"a kind must be a member of Kind or its name, was {shown(value)}{hint}")


def kinds_of(values: object) -> Iterator[Kind]:
    """Yield the kind of a value, or of each value of an iterable."""
    several = isinstance(values, Iterable) and not isinstance(values, str)
    for value in values if several else [values]:  # type: ignore[attr-defined]
        yield kind_of(value)
