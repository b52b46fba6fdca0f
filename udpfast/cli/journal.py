"""The journal that a verb is given, by name or directory."""

from __future__ import annotations

import contextlib
from pathlib import Path

from udpfast.archive.bus_files import stored_journal
from udpfast.archive.feed_settings import noted_journal
from udpfast.core.log import say_warning
from udpfast.errors import FormatError, UdpfastError
from udpfast.log.segment import list_segments
from udpfast.shm.instance import instance_directory

__all__ = ["find_journal", "unknown_text"]


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
    name = address.removeprefix("journal:")
    if "/" not in name:
        _warn_of_another(name, directory)
    return directory


def _warn_of_another(feed: str, directory: Path) -> None:
    # The journal of a feed's name may be an earlier one: `record.directory` has another now.
    with contextlib.suppress(OSError, UdpfastError):  # no feed has the name
        present = noted_journal(instance_directory(feed))
        if present not in (None, directory):
            say_warning(f"udpfast: the feed {feed} records to {present}, and this is {directory}")


def unknown_text(times: int) -> str:
    """Return what `unknown_losses` of a journal means, in words."""
    how_often = "once" if times == 1 else f"{times:,} times"
    return (
        f"{how_often} an unknown number of records: the feed began another log before all of the "
        "last one was recorded (LAPPED of reason UNKNOWN)"
    )
