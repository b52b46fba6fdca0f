"""How readers, batches, records, books and measurements look in a notebook: small tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from udpfast.core.layout import Kind
from udpfast.market.notebook import book_state, html_table, price_word

if TYPE_CHECKING:
    from udpfast.client.batch import Batch
    from udpfast.client.books import Books
    from udpfast.client.reader import Reader
    from udpfast.client.record import ReadRecord

__all__ = [
    "batch_html",
    "books_html",
    "counters_html",
    "latency_html",
    "reader_html",
    "record_html",
]

#: Books that a table shows; its caption says how many there are.
BOOKS_SHOWN = 100


def reader_html(reader: Reader) -> str:
    """Return a table of a reader's address, position, lag and missed records."""
    if reader.closed:
        return html_table(("closed",), [], f"Reader {reader.address}")
    rows = [
        ("next index", reader.index),
        ("lag, records", reader.lag),
        ("missed, records", reader.lapped),
        ("writer", reader.state.upper() if reader.state in ("failed", "dead") else reader.state),
    ]
    return html_table(("", ""), rows, f"Reader {reader.address}")


def batch_html(batch: Batch) -> str:
    """Return a table of a batch's records by kind: how many, and the first and last index."""
    try:
        headers = batch.headers
    except ValueError as error:  # its reader has looked for more
        return html_table((), [], str(error))
    rows = []
    for kind in Kind:
        own = headers[headers["kind"] == kind]
        if len(own):
            rows.append((kind.name, len(own), own["index"][0].item(), own["index"][-1].item()))
    missed = f", {batch.lapped:,} missed before" if batch.lapped else ""
    caption = f"{len(batch):,} records{missed}"
    return html_table(("kind", "records", "first index", "last index"), rows, caption)


def record_html(record: ReadRecord) -> str:
    """Return a table of every field of a record."""
    from udpfast.client.record_words import describe_record

    fields = describe_record(record)
    rows = [
        (name, "; ".join(_row(each) for each in value) if isinstance(value, list) else str(value))
        for name, value in fields.items()
        if value is not None and name != "kind"
    ]
    return html_table(("field", "value"), rows, f"{fields['kind']}")


def books_html(books: Books) -> str:
    """Return a table of the best levels of each book, whether it is stale or not."""
    rows = []
    for (exchange, symbol), book in list(books.items())[:BOOKS_SHOWN]:
        bid, bid_quantity, ask, ask_quantity = book.best()
        bids, asks = book.levels
        below = (price_word(bid_quantity), price_word(bid)) if bids else ("", "")
        above = (price_word(ask), price_word(ask_quantity)) if asks else ("", "")
        rows.append((exchange, symbol, *below, *above, bids, asks, book_state(book)))
    columns = ("exchange", "symbol", "bid quantity", "bid", "ask", "ask quantity")
    stale = sum(book.stale for book in books.values())
    behind = books._behind()
    left = f", {behind:,} records behind" if behind else ""
    return html_table(
        (*columns, "bids", "asks", "state"), rows, f"{len(books):,} books, {stale:,} stale{left}"
    )


def counters_html(values: Mapping[str, Mapping[str, int]]) -> str:
    """Return a table of the counters that are not 0, by scope."""
    rows = [
        (scope, name, count)
        for scope, counts in values.items()
        for name, count in counts.items()
        if count
    ]
    return html_table(("scope", "counter", "count"), rows, "counters that are not 0")


def latency_html(values: Mapping[str, Mapping[str, int]]) -> str:
    """Return a table of each hop's percentiles, in microseconds."""
    names = ("p50", "p90", "p99", "p99_9", "max")
    rows = [
        (hop, each["count"], *(f"{each[name] / 1e3:,.2f}" for name in names), each["below"])
        for hop, each in values.items()
    ]
    columns = ("hop", "count", *(name.replace("_", ".") for name in names), "below 0")
    return html_table(columns, rows, "latency, us")


def _row(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={each}" for name, each in value.items() if each not in (None, ""))
    return str(value)
