"""Where a journal has a record of its ring, by the record's index there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from udpfast.core.layouts import Layouts
from udpfast.errors import RegionError
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.recorded_runs import RecordedRuns
from udpfast.log.segment import Segment, SegmentInfo, list_segments, segment_path

__all__ = [
    "Recorded",
    "find_later",
    "find_recorded",
    "logs_of",
    "recorded_end",
    "segments_of",
]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Where a journal has a record of its ring.

    Attributes
    ----------
    segment : SegmentInfo
        Where the look for it began.
    position, journal_index : int
        In the journal.
    index : int
        In the ring's log.
    published_ns : int
    """

    segment: SegmentInfo
    position: int
    journal_index: int
    index: int
    published_ns: int


def segments_of(directory: Path, source: bytes) -> list[SegmentInfo]:
    """Return the segments that have records of a ring's log, in their order."""
    return [info for info in _segments(directory) if info.source == source]


def find_later(directory: Path, passed: set[bytes], layouts: Layouts) -> Iterator[Recorded]:
    """Yield where the logs begin that a journal has behind some others, in their order.

    Parameters
    ----------
    directory : Path
    passed : set of bytes
        Identities of the logs before.
    layouts : Layouts
        Of the records.

    Yields
    ------
    Recorded
        The first record of each; a log without one is left out.
    """
    order = logs_of(directory)
    behind = max((order.index(each) for each in passed if each in order), default=-1)
    for each in order[behind + 1 :]:
        found = find_recorded(directory, each, 0, layouts)
        if found is not None:
            yield found


def logs_of(directory: Path) -> list[bytes]:
    """Return the identities of the logs that a journal has records of, in their order."""
    return list(dict.fromkeys(info.source for info in _segments(directory)))


def _segments(directory: Path) -> list[SegmentInfo]:
    found = []
    for number in list_segments(directory):
        with contextlib.suppress(FileNotFoundError, RegionError):
            found.append(Segment.open(segment_path(directory, number)).info())
    return found


def find_recorded(directory: Path, source: bytes, index: int, layouts: Layouts) -> Recorded | None:
    """Return where a journal has the first record of a ring's log from an index on.

    Parameters
    ----------
    directory : Path
    source : bytes
        Identity of the log.
    index : int
        Of the record in it.
    layouts : Layouts
        Of the records.

    Returns
    -------
    Recorded or None
        Of a later record, if that one is missing. None: it has none from there on.
    """
    segments = segments_of(directory, source)
    if not segments:
        return None
    # The first of those that begin with one record may say what is missing before it.
    first = max(
        (each for each in segments if each.source_index <= index),
        key=lambda each: (each.source_index, -each.number),
        default=segments[0],
    )
    with JournalCursor.attach(
        directory, ("position", first.position), follow=False, layouts=layouts
    ) as cursor:
        runs = RecordedRuns(cursor, source, first.source_index, first.index)
        for headers in runs:
            if runs.log != source:
                return None
            if runs.index + len(headers) > index:
                at = max(0, index - runs.index)
                found = headers[at]
                return Recorded(
                    first,
                    int(found["position"]),
                    int(found["index"]),
                    runs.index + at,
                    int(found["published_ns"]),
                )
    return None


def recorded_end(directory: Path, source: bytes, layouts: Layouts) -> tuple[int, bool]:
    """Return the index behind the last record of a ring's log that a journal knows of.

    Parameters
    ----------
    directory : Path
    source : bytes
        Identity of the log.
    layouts : Layouts
        Of the records.

    Returns
    -------
    tuple of int and bool
        And whether that is known: damage may hide that it is a later one. Of a log that the journal
        does not have, 0.
    """
    segments = _segments(directory)
    last = next((each for each in reversed(segments) if each.source == source), None)
    if last is None:
        return 0, True
    end = next((each.position for each in segments if each.number > last.number), None)
    with JournalCursor.attach(
        directory,
        ("position", last.position),
        None if end is None else ("position", end),
        follow=False,
        layouts=layouts,
    ) as cursor:
        runs = RecordedRuns(cursor, source, last.source_index, last.index)
        for _ in runs:
            pass
        return runs.index, runs.exact
