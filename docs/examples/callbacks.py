"""A strategy as an object with a method per kind of record, and with all order books.

python docs/examples/callbacks.py ring:NAME
"""

import sys

import udpfast


class Strategy:
    """Prints what it gets. A kind of record without a method costs nothing."""

    def __init__(self, books: udpfast.Books) -> None:
        self.books = books

    def on_book(self, record: udpfast.ReadRecord) -> None:
        """Print the best prices of the book after this update."""
        book = self.books[record.exchange, record.symbol]
        print(record.symbol, "stale" if book.stale else book.best(), flush=True)

    def on_trade(self, record: udpfast.ReadRecord) -> None:
        """Print the traded quantity of one summary."""
        print(record.symbol, "traded", record.rows["quantity"].sum(), flush=True)

    def on_gap(self, record: udpfast.ReadRecord) -> None:
        """Print how many messages were lost; the books know which of them are stale."""
        print("lost", record.data["count"], "messages", flush=True)


def main(address: str) -> None:
    """Run until the ring is closed."""
    books = udpfast.Books()
    with udpfast.Reader(address, start="oldest") as reader:
        udpfast.Callbacks(reader, Strategy(books), books=books).run()


if __name__ == "__main__":
    main(sys.argv[1])
