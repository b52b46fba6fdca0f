"""The journal that a verb is given, by name or directory."""

from __future__ import annotations

from pathlib import Path

from udpfast.archive.bus_files import stored_journal
from udpfast.errors import FormatError
from udpfast.log.segment import list_segments

__all__ = ["find_journal"]


def find_journal(address: str) -> Path:
    """Return the directory of a journal that has been begun; see `stored_journal`.

    Raises
    ------
    FormatError
        The directory is there, and nothing of a journal is in it.
    """
    directory = stored_journal(address)
    places = [place for place in (directory, directory / "raw") if place.is_dir()]
    if not any((place / "journal").exists() or list_segments(place) for place in places):
        raise FormatError(f"{directory}: expected a journal, found none of a journal's files")
    return directory
