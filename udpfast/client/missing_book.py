"""Explain that a book does not exist, and suggest similar names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from udpfast.errors import similar

if TYPE_CHECKING:
    from udpfast.client.books import Books

__all__ = ["missing_book"]

#: Names that an error suggests.
_SHOWN = 3

#: Names that are compared letter by letter at most: the comparison of 10,000 takes a long time.
_COMPARED = 250


def _compared(symbol: str, named: list[tuple[str, str]]) -> list[str]:
    """Return names worth a comparison: of many (symbol, name), those that begin most alike."""
    size = 1
    while len(named) > _COMPARED and size <= len(symbol):
        begin = symbol[:size]
        named = [each for each in named if each[0].startswith(begin)] or named[:_COMPARED]
        size += 1
    return [name for _, name in named[:_COMPARED]]


def missing_book(books: Books, key: object) -> str:
    """Return why a key leads to no book, and which names are similar."""
    names = {":".join(map(str, name)): name for name in books}
    if isinstance(key, tuple) and len(key) == 2:
        # The same symbol on another exchange is the best guess, however the exchange is spelled.
        near = [name for name in names.values() if name[1] == key[1]][:_SHOWN]
        if not near:
            some = _compared(str(key[1]), [(str(name[1]), each) for each, name in names.items()])
            near = [names[each] for each in similar(":".join(map(str, key)), some, _SHOWN)]
        said = f"no book of {key!r}" + (f" among {len(names):,}" if names else "")
    else:
        symbols = {str(symbol): (exchange, symbol) for exchange, symbol in books}
        some = _compared(str(key), [(each, each) for each in symbols])
        near = [symbols[each] for each in similar(str(key), some, _SHOWN)]
        said = f"a book's key must be (exchange, symbol), was {key!r}"
    if not names:
        said += ": there is no book yet, because no update of one was read"
    if near:
        said += f"; did you mean {' or '.join(map(repr, near))}?"
    return said
