"""The order books of a feed as they are now, from its image."""

from __future__ import annotations

from udpfast.client.books import Books
from udpfast.client.reader import Reader
from udpfast.client.ring_source import open_source

__all__ = ["present_books"]

#: Records that one poll takes.
BATCH = 1024


def present_books(name: str, exchange: str | None = None, symbol: str | None = None) -> Books:
    """Return the books of instance `name` as its image has them, or only those of a symbol.

    Copies the whole image: for a look now and then, by who does not follow the feed.

    Parameters
    ----------
    name : str
        The instance's name, or its directory's path.
    exchange, symbol : str, optional
        The books of this exchange, and of this symbol, alone.

    Raises
    ------
    ImageError
        The feed keeps none.
    UdpfastError, OSError
        There is no such instance, or it is not ours to read.
    """
    books = Books()
    # Nothing of the ring is read: touching all of it would take most of the time. That nobody
    # writes it is shown beside the books.
    source = open_source(
        name, start="tail", batch=BATCH, buffer_bytes=None, timeout=0.0, name="monitor",
        image=True, populate=False, tell=False,
    )  # fmt: skip
    with Reader(source, batch=BATCH, exchanges=exchange, symbols=symbol) as reader:
        while reader.joining:
            books.apply_batch(reader.poll())
    return books
