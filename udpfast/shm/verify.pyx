"""A journal looked at record by record: what is valid, what is damaged, what is missing."""

from dataclasses import dataclass
from pathlib import Path

from libc.stdint cimport uint64_t

from udpfast.shm.segment cimport LOOK_END, Segment, SegmentWriter

from udpfast.errors import RegionError
from udpfast.shm.journal import journal_state
from udpfast.shm.segment import SegmentInfo, list_segments, segment_path

__all__ = ["SegmentCheck", "verify_segments"]


@dataclass(frozen=True, slots=True)
class SegmentCheck:
    """What one segment turned out to be.

    Attributes
    ----------
    path : pathlib.Path
    info : SegmentInfo or None
        What it says of itself; None if its header is damaged.
    records : int
        Valid ones.
    end_position, end_index : int
        Behind the last valid one.
    missing : int
        Records that should be there, and are not valid: behind damage, indices count on.
    cut_bytes : int
        Written behind the last valid record, in a segment that is not sealed: what opening the
        journal for writing cuts off.
    problems : tuple of str
        Empty if it is as it was written.
    """

    path: Path
    info: SegmentInfo | None
    records: int
    end_position: int
    end_index: int
    missing: int
    cut_bytes: int
    problems: tuple[str, ...]


def verify_segments(directory):
    """Yield a `SegmentCheck` for each segment of a journal, the oldest first.

    Nothing is changed. A journal that is written meanwhile is valid up to where its writer is.
    """
    expected = None
    written = _is_written(directory)
    for number in list_segments(directory):
        path = segment_path(directory, number)
        try:
            segment = Segment.open(path)
        except FileNotFoundError:
            continue
        except RegionError as problem:
            yield SegmentCheck(path, None, 0, 0, 0, 0, 0, (str(problem),))
            continue
        found = _verify(segment, expected, written)
        expected = found.end_position, found.end_index
        yield found


def _is_written(directory):
    # Whether a writer lives: bytes behind the last record are then the record that it writes.
    try:
        return journal_state(directory).alive
    except (FileNotFoundError, RegionError):
        return False


def _verify(Segment segment, expected, written):
    cdef SegmentWriter w
    cdef uint64_t index = 0, position = 0, missing = 0, cut = 0
    cdef int end
    cdef bint sealed = segment.sealed()
    info = segment.info()
    problems = []
    if expected is not None and (info.position, info.index) != expected:
        problems.append(f"begins with record {info.index} at position {info.position}, expected "
                        f"record {expected[1]} at {expected[0]}")
        missing = max(0, info.index - expected[1])
    segment.start(&w, False)
    while True:
        with nogil:
            end = segment.scan(&w)
        if end == LOOK_END or (sealed and w.position == segment.seal.position):
            break
        if not segment.find_behind(w.position, &position, &index) or not sealed:
            if sealed:
                position, index = segment.seal.position, segment.seal.index
            else:
                cut = 0 if written else segment.written_behind(w.position)
                if cut:
                    problems.append(f"{cut} bytes behind position {w.position} are no record")
                break
        problems.append(f"damaged from position {w.position} to {position}: "
                        f"{index - w.index} records")
        missing += index - w.index
        w.position, w.index = position, index
    if sealed and w.position != segment.seal.position:
        problems.append(f"ends at position {w.position}, sealed at {segment.seal.position}")
    return SegmentCheck(
        path=info.path, info=info, records=w.index - info.index - _within(missing, expected, info),
        end_position=w.position, end_index=w.index, missing=missing, cut_bytes=cut,
        problems=tuple(problems))


def _within(missing, expected, info):
    # Of what is missing, the part inside the segment.
    before = 0 if expected is None else max(0, info.index - expected[1])
    return missing - before
