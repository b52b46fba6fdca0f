"""The journal that a verb is given, by name or directory."""

from __future__ import annotations

from pathlib import Path

from udpfast.errors import FormatError
from udpfast.log.segment import list_segments
from udpfast.shm.instance import journal_directory

__all__ = ["find_journal"]


def find_journal(name_or_path: str) -> Path:
    """Return the directory of a journal that somebody began to write.

    Raises
    ------
    FormatError
        The directory is there, and nothing of a journal is in it.
    """
    directory = journal_directory(name_or_path)
    places = [place for place in (directory, directory / "raw") if place.is_dir()]
    if not any((place / "journal").exists() or list_segments(place) for place in places):
        raise FormatError(f"{directory}: expected a journal, found none of its files")
    return directory
