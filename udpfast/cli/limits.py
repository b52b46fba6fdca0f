"""Tables of a feed that were full, in words: what is missing, and which setting makes room."""

from __future__ import annotations

__all__ = ["reached_limits"]

_LIMITS = {
    "names_full": "times a name had no room in the table, so that a record names no exchange or no "
    "symbol: raise ring.names, which keeps the names of sessions that are over",
    "names_long": "times a name was longer than the 120 bytes that the table holds, so that a "
    "record names no exchange or no symbol",
    "objects_full": "messages were dropped, of objects beyond objects.max: raise it",
}


def reached_limits(feed: dict[str, int]) -> dict[str, str]:
    """Return a sentence for each limit that a feed reached, by the counter that says so."""
    return {name: f"{feed[name]:,} {text}" for name, text in _LIMITS.items() if feed.get(name)}
