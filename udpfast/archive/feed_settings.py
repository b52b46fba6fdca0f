"""The settings of a feed, stored beside what it publishes and beside what is kept of it.

A replay of a raw capture reproduces the feed only with the feed's own windows and timeouts.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from udpfast.config import FeedConfig
from udpfast.errors import FormatError
from udpfast.log.segment import list_segments
from udpfast.shm.files import replace_file

__all__ = [
    "copy_feed",
    "has_datagrams_only",
    "note_journal",
    "noted_journal",
    "other_feed",
    "read_feed",
    "write_feed",
]

_NAME = "feed.json"


class _Named(msgspec.Struct):
    name: str = ""


def write_feed(config: FeedConfig, directory: Path) -> None:
    """Write a feed's settings to a directory, replacing earlier ones atomically."""
    replace_file(directory / _NAME, msgspec.json.encode(config))


def copy_feed(source: Path, directory: Path) -> None:
    """Copy the settings of a feed from one directory to another, if there are any."""
    try:
        content = (source / _NAME).read_bytes()
    except FileNotFoundError:
        return
    replace_file(directory / _NAME, content)


def note_journal(instance: Path, journal: Path) -> None:
    """Note in an instance where its records are kept, for readers that begin with history."""
    # It may be another user's directory: they do without.
    with contextlib.suppress(OSError):
        replace_file(instance / "journal", str(journal).encode())


def noted_journal(instance: Path) -> Path | None:
    """Return the directory that `note_journal` wrote; None: there is none."""
    try:
        return Path((instance / "journal").read_text())
    except (OSError, ValueError):
        return None


def other_feed(journal: Path, name: str) -> str:
    """Return which other feed a journal is of; "": it is of the feed `name`, or nobody can tell."""
    for directory in (journal, journal / "raw"):
        # Another version may have written it.
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            found = msgspec.json.decode((directory / _NAME).read_bytes(), type=_Named).name
            if found not in ("", name):
                return found
    return ""


def has_datagrams_only(journal: Path) -> bool:
    """Return whether a journal never had records: its feed was to keep datagrams only."""
    if (journal / "journal").exists() or list_segments(journal):
        return False
    try:
        kept = read_feed(journal / "raw")
    except (OSError, FormatError):
        return False
    return kept is not None and kept.record.what == "raw"


def read_feed(directory: Path) -> FeedConfig | None:
    """Return the settings stored in a directory; None if there are none.

    Raises
    ------
    FormatError
        The file does not hold a feed's settings, or those of another version.
    """
    path = directory / _NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=FeedConfig)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise FormatError(f"{path}: expected the settings of a feed: {error}") from None
