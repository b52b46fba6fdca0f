"""The name of the feed that a record is of, as exports and frames have it in `feed`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from udpfast.archive.bus_files import read_composite
from udpfast.archive.copied_sessions import copied_input

__all__ = ["FEED_NAME", "feed_name", "feed_of", "input_names"]

#: What the name of a feed may be; it is part of names of files.
FEED_NAME = re.compile(r"[A-Za-z0-9._-]+")


def feed_name(recorded: str, journal: Path) -> str:
    """Return the name of a journal's feed: that of the instance, or of the journal's directory.

    Parameters
    ----------
    recorded : str
        The name of the instance, as a segment states it.
    journal : Path
        Directory of the journal.
    """
    return recorded if FEED_NAME.fullmatch(recorded) else journal.resolve().name


def input_names(journal: Path) -> tuple[str, ...]:
    """Return the names of a composite's inputs if the journal is its copy; otherwise none."""
    try:
        return tuple(each.name for each in read_composite(journal))
    except FileNotFoundError:
        return ()


def feed_of(feed: str, inputs: Sequence[str], session: int) -> str:
    """Return the feed of a record: the journal's, or in a composite's copy "feed/input".

    Only for records that a feed made; those of a bus itself belong to the journal's feed.
    """
    at = copied_input(session) if inputs else None
    return feed if at is None or at >= len(inputs) else f"{feed}/{inputs[at]}"
