"""The range that a journal covers, and the refusal of a part that lies outside it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct

from udpfast.core.moment import moment_text
from udpfast.errors import ConfigError
from udpfast.log.journal_map import journal_map

__all__ = ["Place", "Span", "check_part", "journal_span"]

#: Where to begin or end: at a time in UNIX ns, or at a position (in a journal: bytes; in a capture
#: file: the number of a frame).
Place = tuple[Literal["time", "position"], int]


class Span(Struct, frozen=True):
    """The range of a journal's records.

    Attributes
    ----------
    first_ns, last_ns : int
        Earliest and latest publication, UNIX ns; unknown for lost records.
    position, end_position : int
        Position of the first record, and behind the last.
    """

    first_ns: int
    last_ns: int
    position: int
    end_position: int

    def __str__(self) -> str:
        return (
            f"{moment_text(self.first_ns)} to {moment_text(self.last_ns)}, positions "
            f"{self.position} to {self.end_position}"
        )


def journal_span(directory: Path) -> Span | None:
    """Return the range that a journal covers now; None: it has no record.

    Sealed segments are trusted; the others are read.
    """
    parts = [part for part in journal_map(directory).parts if part.first_ns <= part.last_ns]
    if not parts:
        return None
    return Span(
        min(part.first_ns for part in parts),
        max(part.last_ns for part in parts),
        parts[0].position,
        parts[-1].end_position,
    )


def check_part(
    directory: Path, start: Place | None, end: Place | None, *, grows: bool = False
) -> Span | None:
    """Refuse a part of a journal that contains no record; return what the journal covers.

    Parameters
    ----------
    directory : Path
    start, end : Place, optional
        Where the part begins, and where it ends (exclusive).
    grows : bool
        The reader waits for records still to be written, so `start` may lie in the future.

    Returns
    -------
    Span or None
        None: it has no record, or neither `start` nor `end` is given.

    Raises
    ------
    ConfigError
        The part is empty; the message says what the journal covers.
    """
    if start is not None and end is not None and start[0] == end[0] and start[1] >= end[1]:
        raise ConfigError(f"expected an end after {_named(start)}, found {_named(end)}")
    if (start is None and end is None) or (span := journal_span(directory)) is None:
        return None
    if end is not None and end[1] <= (span.first_ns if end[0] == "time" else span.position):
        raise ConfigError(f"{directory} covers {span}: it has nothing before {_named(end)}")
    if start is not None and not grows:
        behind = start[1] > span.last_ns if start[0] == "time" else start[1] >= span.end_position
        if behind:
            raise ConfigError(f"{directory} covers {span}: it has nothing from {_named(start)} on")
    return span


def _named(place: Place) -> str:
    return moment_text(place[1]) if place[0] == "time" else f"position {place[1]}"
