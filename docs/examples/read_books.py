"""Keep every order book of a running instance, and print the best prices whenever one changes.

The books are complete from the first record on, however late this starts, because the feed's file
has [image] enabled = true.

python docs/examples/read_books.py ring:NAME
"""

import sys

import udpfast


def main(address: str) -> None:
    """Apply every record to the books, and print the state of each changed book."""
    books = udpfast.Books()
    with udpfast.Reader(address, image=True, timeout=30.0) as reader:
        for record in reader:
            book = books.apply(record)
            if record.kind is udpfast.Kind.LAPPED:
                print(f"too slow: {record.lapped} records missed, all books are stale")
            elif book is not None:
                state = "stale" if book.stale else "sound"
                print(record.exchange, record.symbol, state, book.best())


if __name__ == "__main__":
    main(sys.argv[1])
