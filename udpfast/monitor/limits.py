"""Tables that were full, in words: what is missing, and which setting makes room."""

from __future__ import annotations

from pathlib import Path

from udpfast.errors import UdpfastError
from udpfast.market.state_bytes import ENTRY_HASH, read_mark
from udpfast.shm.image import ImageView

__all__ = ["feed_counts", "reached_limits", "read_image"]

_LIMITS = {
    "names_full": "times a name had no room in the table, so that a record names no exchange or no "
    "symbol: raise ring.names, which keeps the names of sessions that are over",
    "names_long": "times a name was longer than the 120 bytes that the table holds, so that a "
    "record names no exchange or no symbol",
    "stream_refused": "units were refused, of streams beyond wire.streams_max: raise it",
    "objects_full": "messages were dropped, of objects beyond objects.max: raise it",
    "books_full": "orders or levels had no room in the books, and put a book that was sound in "
    "doubt: raise books.orders_max",
    "objects_refused": "records were of objects beyond image.objects: the image has none of them, "
    "raise it",
    "values_refused": "records were of values beyond the 1,024 that the image keeps of an object, "
    "or of one whose text was cut: a reader is told that their objects wait",
}


def feed_counts(counters: dict[str, dict[str, int]]) -> dict[str, int]:
    """Return the feed's counters, and what its lines count of its limits, summed."""
    lines = [values for scope, values in counters.items() if "." in scope]
    return counters["feed"] | {"stream_refused": sum(one["stream_refused"] for one in lines)}


def reached_limits(feed: dict[str, int], image: dict[str, int] | None = None) -> dict[str, str]:
    """Return a sentence for each limit that a feed or its image reached, by what counts it."""
    counts = feed | (image or {})
    return {name: f"{counts[name]:,} {text}" for name, text in _LIMITS.items() if counts.get(name)}


def read_image(directory: Path, epoch: int) -> dict[str, int] | None:
    """Return what the image of a ring's writer says of itself (`read_mark`); None: it has none."""
    try:
        with ImageView.attach(directory, ENTRY_HASH) as view:
            entry = view.entry(0)
    except (FileNotFoundError, UdpfastError):
        return None
    mark = None if entry is None else read_mark(entry)
    return mark if mark is not None and mark["epoch"] == epoch else None
