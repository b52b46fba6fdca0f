"""The settings that a feed runs with, beside what it publishes and beside what is kept of it.

A replay of raw capture does what the feed did only with the feed's own windows and timeouts.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from udpfast.config import FeedConfig
from udpfast.errors import FormatError
from udpfast.shm.files import replace_file

__all__ = ["copy_feed", "read_feed", "write_feed"]

_NAME = "feed.json"


def write_feed(config: FeedConfig, directory: Path) -> None:
    """Write a feed's settings into a directory; what was there is replaced as a whole."""
    replace_file(directory / _NAME, msgspec.json.encode(config))


def copy_feed(source: Path, directory: Path) -> None:
    """Copy the settings that are in one directory to another, if there are any."""
    try:
        content = (source / _NAME).read_bytes()
    except FileNotFoundError:
        return
    replace_file(directory / _NAME, content)


def read_feed(directory: Path) -> FeedConfig | None:
    """Return the settings that are in a directory; None if there are none.

    Raises
    ------
    FormatError
        They are not those of a feed, or of another version.
    """
    path = directory / _NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=FeedConfig)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise FormatError(f"{path}: expected the settings of a feed: {error}") from None
