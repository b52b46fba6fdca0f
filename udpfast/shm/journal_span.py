"""What a journal covers, for who asks for a part of it that is not there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from udpfast.errors import ConfigError
from udpfast.shm.journal_cursor import JournalCursor
from udpfast.shm.segment import Segment, list_segments, segment_path

__all__ = ["Place", "Span", "check_part", "journal_span"]

#: Where to begin or end: at a time (UNIX ns), or at a position: of a journal in bytes, of a file
#: the number of a frame.
Place = tuple[Literal["time", "position"], int]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Span:
    """From where to where the records of a journal are.

    Attributes
    ----------
    first_ns, last_ns : int
        When the first and the last were published, UNIX ns.
    position, end_position : int
        Of the first, and behind the last.
    """

    first_ns: int
    last_ns: int
    position: int
    end_position: int

    def __str__(self) -> str:
        return (
            f"{_text(self.first_ns)} to {_text(self.last_ns)}, positions {self.position} to "
            f"{self.end_position}"
        )


def journal_span(directory: Path) -> Span | None:
    """Return what a journal covers now; None: it has no record.

    Its first record and its last stride are read; of what lies between its segments know.
    """
    first = None
    with JournalCursor.attach(directory, follow=False, limit=1) as cursor:
        while first is None and not cursor.ended:
            if cursor.poll():
                header = cursor.headers[0]
                first = int(header["published_ns"]), int(header["position"])
    if first is None:
        return None
    latest, stride = _latest(directory)
    with JournalCursor.attach(directory, ("position", stride), follow=False) as cursor:
        while not cursor.ended:
            if count := cursor.poll():
                latest.append(int(cursor.headers["published_ns"][:count].max()))
        return Span(first[0], max(latest), first[1], cursor.position)


def check_part(
    directory: Path, start: Place | None, end: Place | None, *, grows: bool = False
) -> None:
    """Refuse a part of a journal in which there is no record.

    Parameters
    ----------
    directory : Path
    start, end : Place, optional
        Where to begin, and the first that is left out.
    grows : bool
        Who reads it waits for what is still written: `start` may be to come.

    Raises
    ------
    ConfigError
        Nothing lies there; says what the journal covers.
    """
    if start is not None and end is not None and start[0] == end[0] and start[1] >= end[1]:
        raise ConfigError(f"expected an end behind {_named(start)}, found {_named(end)}")
    if (start is None and end is None) or (span := journal_span(directory)) is None:
        return
    if end is not None and end[1] <= (span.first_ns if end[0] == "time" else span.position):
        raise ConfigError(f"{directory} covers {span}: nothing of it lies before {_named(end)}")
    if start is not None and not grows:
        behind = start[1] > span.last_ns if start[0] == "time" else start[1] >= span.end_position
        if behind:
            raise ConfigError(
                f"{directory} covers {span}: nothing of it lies at or behind {_named(start)}"
            )


def _latest(directory: Path) -> tuple[list[int], int]:
    # Latest times that the segments know themselves, and from where on nobody has looked.
    latest, stride = [], 0
    for number in list_segments(directory):
        segment = Segment.open(segment_path(directory, number))
        info, entries = segment.info(), segment.index()
        if info.last_ns:
            latest.append(info.last_ns)
        elif len(entries) > 1:  # before the first there is nothing yet
            latest.append(int(entries["before_ns"][-1]))
        stride = int(entries["position"][-1]) if len(entries) else info.position
    return latest, stride


def _named(place: Place) -> str:
    return _text(place[1]) if place[0] == "time" else f"position {place[1]}"


def _text(time_ns: int) -> str:
    try:
        when = _EPOCH + timedelta(seconds=time_ns // 10**9)
    except OverflowError:
        return f"{time_ns} ns"
    return f"{when:%Y-%m-%dT%H:%M:%S}.{time_ns % 10**9:09}Z"
