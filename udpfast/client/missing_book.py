"""Explain that a book or its single orders do not exist, and suggest similar names."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from udpfast.archive.feed_settings import read_feed
from udpfast.errors import FormatError, similar

if TYPE_CHECKING:
    from udpfast.client.books import Books

__all__ = ["missing_book", "missing_orders"]

#: An exchange and a symbol.
_Name = tuple[str | None, str | None]

#: Names that an error suggests.
_SHOWN = 3

#: Names that are compared letter by letter at most: the comparison of 10,000 takes a long time.
_COMPARED = 250

#: Why a feed may publish nothing of instruments that trade.
_SINCE = (
    "a feed that joined in the middle of a session publishes an instrument's once the venue has "
    "sent its definition (of ITCH the stock directory, when the session begins) or a snapshot"
)


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
    if isinstance(key, tuple) and len(key) == 2:
        names = list(books)
        said = f"no book of {key!r}" + (f" among {len(names):,}" if names else "")
        near = _near(key, names)
    else:
        symbols = {str(symbol): (exchange, symbol) for exchange, symbol in books}
        some = _compared(str(key), [(each, each) for each in symbols])
        near = [symbols[each] for each in similar(str(key), some, _SHOWN)]
        said = f"a book's key must be (exchange, symbol), was {key!r}"
    if not len(books):
        said += f": there is no book yet, because no update of one was read; {_SINCE}"
    return said + _meant(near)


def missing_orders(books: Books, key: _Name) -> str:
    """Return why there are no single orders of an instrument, and which names are similar."""
    names = [
        (each.exchange, each.symbol)
        for each in books.instruments()
        if each.orders_stale is not None
    ]
    if not names:
        return (
            f"no orders of {key!r}: no single orders were read so far; {_switched(books)}if the "
            f"venue's messages have them, {_SINCE}"
        )
    said = f"no orders of {key!r} among those of {len(names):,}"
    if key in books:
        said += ": none were read so far; they come with their next update or snapshot"
    return said + _meant(_near(key, names))


def _switched(books: Books) -> str:
    # Blame the settings only where they do not ask for orders, or nobody knows them.
    feed = None
    directory = getattr(books.reader, "directory", None)
    if directory is not None:
        with suppress(FormatError):
            feed = read_feed(directory)
    if feed is not None and feed.books.orders:
        return "its feed has books.orders = true and publishes them "
    return "a feed publishes them with books.orders = true, "


def _near(key: tuple[object, object], names: list[_Name]) -> list[_Name]:
    # The same names in the other order, or the same symbol on another exchange, however that is
    # spelled, are the best guess.
    near = [name for name in names if name in (key, key[::-1]) or name[1] == key[1]][:_SHOWN]
    if not near:
        by_text = {":".join(map(str, name)): name for name in names}
        some = _compared(str(key[1]), [(str(name[1]), each) for each, name in by_text.items()])
        near = [by_text[each] for each in similar(":".join(map(str, key)), some, _SHOWN)]
    return near


def _meant(near: list[_Name]) -> str:
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
