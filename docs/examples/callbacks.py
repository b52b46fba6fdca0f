"""A strategy as an object: a method per kind of record, every book kept beside it.

python docs/examples/callbacks.py ring:NAME
"""

import sys

import udpfast


class Strategy:
    """Says what it sees; methods that are not there cost nothing."""

    def __init__(self, books: udpfast.Books) -> None:
        self.books = books

    def on_book(self, record: udpfast.ReadRecord) -> None:
        """Look at the book as it is after this update."""
        book = self.books[record.exchange, record.symbol]
        print(record.symbol, "stale" if book.stale else book.best(), flush=True)

    def on_trade(self, record: udpfast.ReadRecord) -> None:
        """Look at the trades of one summary."""
        print(record.symbol, "traded", record.rows["quantity"].sum(), flush=True)

    def on_gap(self, record: udpfast.ReadRecord) -> None:
        """Hear that messages were lost: books say which of them are stale."""
        print("lost", record.data["count"], "messages", flush=True)


def main(address: str) -> None:
    """Run until the ring is closed."""
    books = udpfast.Books()
    with udpfast.Reader(address, start="oldest") as reader:
        udpfast.Callbacks(reader, Strategy(books), books=books).run()


if __name__ == "__main__":
    main(sys.argv[1])
