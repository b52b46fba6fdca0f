"""Verify a journal record by record: find what is valid, damaged and missing."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from msgspec import Struct

from udpfast.core.layout import LAPPED, Kind, LappedReason
from udpfast.errors import RegionError
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.journal_state import JournalState, journal_state
from udpfast.log.segment import (
    Segment,
    SegmentInfo,
    list_segments,
    segment_path,
    segments_identity,
)

__all__ = ["SegmentCheck", "unknown_losses", "verify_segments"]


class SegmentCheck(Struct, frozen=True):
    """Result of verifying one segment.

    Attributes
    ----------
    path : pathlib.Path
    info : SegmentInfo or None
        Contents of its header and seal; None if the header is damaged.
    records : int
        Number of valid records.
    end_position, end_index : int
        Position and index behind the last valid record.
    missing : int
        Records that should be there but are not valid. Indices behind damage tell their number.
    cut_bytes : int
        Bytes written behind the last valid record of a segment that is not sealed. Opening the
        journal for writing cuts them off.
    problems : tuple of str
        What is wrong; empty if the segment is as it was written.
    """

    path: Path
    info: SegmentInfo | None
    records: int
    end_position: int
    end_index: int
    missing: int
    cut_bytes: int
    problems: tuple[str, ...]


def verify_segments(directory: str | os.PathLike[str]) -> Iterator[SegmentCheck]:
    """Yield a `SegmentCheck` for each segment of a journal, the oldest first.

    Nothing is changed. If the journal is being written, it is verified up to its writer.
    """
    directory = Path(directory)
    try:
        state = journal_state(directory)
    except (FileNotFoundError, RegionError):
        state = None
    identity = segments_identity(directory) if state is None else state.identity
    expected = None if state is None else (state.oldest_position, state.oldest_index)
    numbers = list_segments(directory)
    for at, number in enumerate(numbers):
        path = segment_path(directory, number)
        try:
            segment = Segment.open(path)
            found = segment.info().identity
            if found != identity:
                whose = f"journal {identity.hex()}" if identity else "the segments of one journal"
                raise RegionError(f"expected {whose}, found {found.hex()}")
        except FileNotFoundError:
            continue
        except RegionError as problem:
            yield SegmentCheck(path, None, 0, 0, 0, 0, 0, (str(problem),))
            continue
        check = _verify(segment, expected, None if at + 1 < len(numbers) else state)
        expected = check.end_position, check.end_index
        yield check


def _verify(
    segment: Segment, expected: tuple[int, int] | None, state: JournalState | None
) -> SegmentCheck:
    # state: of the journal if this is its last segment, else None.
    end_position = end_index = 0
    written = state is not None and state.alive
    info = segment.info()
    problems = []
    before = 0
    if expected is not None and (info.position, info.index) != expected:
        problems.append(
            f"begins with record {info.index} at position {info.position}, expected record "
            f"{expected[1]} at {expected[0]}"
        )
        before = max(0, info.index - expected[1])
    if state is not None and state.position - info.position <= info.capacity_bytes:
        end_position, end_index = state.position, state.index
    survey = segment.read_to_end(end_position, end_index, not written, rest=not written)
    if survey.missing:
        problems.append(
            f"damaged from position {survey.damaged_position} on: {survey.missing} "
            f"records in {survey.places} places"
        )
    if survey.rest_bytes:
        problems.append(
            f"{survey.rest_bytes} bytes from position {survey.end_position} on are not a record"
        )
    return SegmentCheck(
        path=info.path,
        info=info,
        records=survey.end_index - info.index - survey.missing,
        end_position=survey.end_position,
        end_index=survey.end_index,
        missing=before + survey.missing,
        cut_bytes=survey.rest_bytes,
        problems=tuple(problems),
    )


def unknown_losses(directory: str | os.PathLike[str]) -> int:
    """Return how often a journal's recorder lacks an unknown number of records.

    So it is where the feed began another log before all of the last one was recorded: no count of
    the journal has them, and a LAPPED of reason UNKNOWN is the first record of the other log's
    first segment. Damaged segments are left out.
    """
    found, source = 0, b""
    for number in list_segments(Path(directory)):
        try:
            info = Segment.open(segment_path(Path(directory), number)).info()
        except (FileNotFoundError, RegionError):
            continue
        if info.source != source:
            found += _begins_unknown(Path(directory), info)
        source = info.source
    return found


def _begins_unknown(directory: Path, info: SegmentInfo) -> bool:
    try:
        cursor = JournalCursor.attach(directory, ("position", info.position), follow=False, limit=1)
    except (FileNotFoundError, RegionError):
        return False
    try:
        if not cursor.poll() or cursor.headers[0]["kind"] != Kind.LAPPED:
            return False
        lapped = np.frombuffer(cursor.payloads, LAPPED, 1, int(cursor.offsets[0]))[0]
        return bool(lapped["reason"] == LappedReason.UNKNOWN)
    finally:
        cursor.close()
