"""Find a ring's record in a journal by its index in the ring."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

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


class Recorded(Struct, frozen=True):
    """Place of a ring's record in a journal.

    Attributes
    ----------
    segment : SegmentInfo
        The segment in which the search began.
    position, journal_index : int
        Position and index of the record in the journal.
    index : int
        Index of the record in the ring's log.
    published_ns : int
        When the record was published, UNIX ns.
    """

    segment: SegmentInfo
    position: int
    journal_index: int
    index: int
    published_ns: int


def segments_of(directory: Path, source: bytes) -> list[SegmentInfo]:
    """Return the segments that begin with records of a ring's log, in order."""
    return [info for info in _segments(directory) if info.source == source]


def find_later(directory: Path, passed: set[bytes], layouts: Layouts) -> Iterator[Recorded]:
    """Yield the first record of each log that a journal has after certain others, in order.

    Parameters
    ----------
    directory : Path
    passed : set of bytes
        Identities of the earlier logs.
    layouts : Layouts
        Layouts in which the records are read.

    Yields
    ------
    Recorded
        The first record of each log; logs without a record are skipped.
    """
    order = logs_of(directory)
    behind = max((order.index(each) for each in passed if each in order), default=-1)
    for each in order[behind + 1 :]:
        found = find_recorded(directory, each, 0, layouts)
        if found is not None:
            yield found


def logs_of(directory: Path) -> list[bytes]:
    """Return the identities of the logs that a journal has records of, in order."""
    return list(dict.fromkeys(info.source for info in _segments(directory)))


def _segments(directory: Path) -> list[SegmentInfo]:
    found = []
    for number in list_segments(directory):
        with contextlib.suppress(FileNotFoundError, RegionError):
            found.append(Segment.open(segment_path(directory, number)).info())
    return found


def find_recorded(directory: Path, source: bytes, index: int, layouts: Layouts) -> Recorded | None:
    """Return where a journal has the first record of a ring's log at or after an index.

    Parameters
    ----------
    directory : Path
    source : bytes
        Identity of the log.
    index : int
        Index of the record in that log.
    layouts : Layouts
        Layouts in which the records are read.

    Returns
    -------
    Recorded or None
        If that record is missing, the place of the next later one. None: there is none.
    """
    segments = segments_of(directory, source)
    if not segments:
        return None
    # If several segments share a source_index, the first may say what is missing before it.
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
        Layouts in which the records are read.

    Returns
    -------
    tuple of int and bool
        The index, and whether it is exact: damage may hide later records. (0, True) if the
        journal does not have the log.
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
