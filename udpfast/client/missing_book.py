"""Explain that a book does not exist, and suggest similar names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from udpfast.errors import similar

if TYPE_CHECKING:
    from udpfast.client.books import Books

__all__ = ["missing_book"]

#: Names that an error suggests.
_SHOWN = 3


def missing_book(books: Books, key: object) -> str:
    """Return why a key leads to no book, and which names are similar."""
    names = {":".join(map(str, name)): name for name in books}
    if isinstance(key, tuple) and len(key) == 2:
        # The same symbol on another exchange is the best guess, however the exchange is spelled.
        near = [name for name in names.values() if name[1] == key[1]][:_SHOWN] or [
            names[each] for each in similar(":".join(map(str, key)), names, _SHOWN)
        ]
        said = f"no book of {key!r}" + (f" among {len(names):,}" if names else "")
    else:
        symbols = {str(symbol): (exchange, symbol) for exchange, symbol in books}
        near = [symbols[each] for each in similar(str(key), symbols, _SHOWN)]
        said = f"a book's key must be (exchange, symbol), was {key!r}"
    if not names:
        said += ": there is no book yet, because no update of one was read"
    if near:
        said += f"; did you mean {' or '.join(map(repr, near))}?"
    return said
