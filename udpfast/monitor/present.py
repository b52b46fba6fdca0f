"""The order books of a feed as they are now, out of its image."""

from __future__ import annotations

from udpfast.client.books import Books
from udpfast.client.reader import Reader

__all__ = ["present_books"]


def present_books(name: str, exchange: str | None = None, symbol: str | None = None) -> Books:
    """Return the books of instance `name` as its image has them, or only those of a symbol.

    Copies the whole image: for a look now and then, by who does not follow the feed.

    Raises
    ------
    ImageError
        The feed keeps none.
    UdpfastError, OSError
        There is no such instance, or it is not ours to read.
    """
    books = Books()
    with Reader(
        f"ring:{name}", image=True, name="monitor", exchanges=exchange, symbols=symbol
    ) as reader:
        while reader.joining:
            books.apply_batch(reader.poll())
    return books
