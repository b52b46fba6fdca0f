"""Wanted names that a journal does not have: a misspelt one gives nothing, without a word."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from udpfast.archive.names import known_names
from udpfast.client.filter import Filter

__all__ = ["describe_unpublished"]


def describe_unpublished(
    journal: Path, exchanges: Sequence[str], symbols: Sequence[str]
) -> str | None:
    """Return sentences about wanted names that a journal has not published; None: it has all.

    Parameters
    ----------
    journal : Path
        Directory of the journal.
    exchanges, symbols : sequence of str
        The wanted names; empty: all.
    """
    if not exchanges and not symbols:
        return None
    known = (names - {"", None} for names in known_names(journal))
    names = Filter(exchanges=exchanges or None, symbols=symbols or None)
    return names.describe_unknown(*known)
