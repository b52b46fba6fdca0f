"""What is valid of a journal: a function of its files, for whoever opens and whoever checks it."""

from dataclasses import dataclass

from libc.stdint cimport uint64_t

from udpfast.shm.segment cimport (
    LOOK_END, SEAL_DURABLE, Segment, SegmentWriter)

from udpfast.core.oserr cimport check
from udpfast.errors import RegionError
from udpfast.shm.segment import list_segments, segment_path

__all__ = ["Recovery"]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was found when a journal was opened for writing.

    Attributes
    ----------
    position, index : int
        Of the next record.
    segments : int
        That are left.
    cut_bytes : int
        Written behind the last valid record, and cut off.
    cut_segments : int
        Removed because nothing valid leads to them.
    notes : tuple of str
        What was wrong; empty if the journal ended as it should.
    """

    position: int
    index: int
    segments: int
    cut_bytes: int
    cut_segments: int
    notes: tuple[str, ...]


cdef Segment recover(directory, layout_hash, SegmentWriter* w, int64_t unix_ns, list found):
    # Truncate the journal to its valid prefix. Returns the segment to go on with (None: a new
    # one), leaves the writer behind the last valid record, and appends a Recovery to `found`.
    #
    # Sealed segments are taken at their word: they were on the disk when they were sealed, and
    # damage that came later is no reason to throw away what lies behind it; readers step over it.
    # What comes behind the last sealed one is read to its last byte.
    cdef Segment segment, active = None
    cdef int end = LOOK_END
    cdef uint64_t cut_bytes = 0
    numbers = list_segments(directory)
    opened, notes = _open_from_sealed(directory, numbers)
    kept = len(numbers) - len(opened)
    w.position = w.index = 0
    if opened and opened[0] is not None and _is_sealed(opened[0]):
        segment = opened[0]
        _check_layout(segment, layout_hash)
        w.position, w.index = segment.seal.position, segment.seal.index
        kept += 1
    for segment in opened[kept + len(opened) - len(numbers):]:
        if segment is None or end != LOOK_END:
            break
        _check_layout(segment, layout_hash)
        if kept and (segment.header.position, segment.header.index) != (w.position, w.index):
            notes.append(f"{segment.path}: expected position {w.position}, "
                         f"found {segment.header.position}")
            break
        kept += 1
        segment.start(w, True)
        with nogil:
            end = segment.scan(w)
        if end == LOOK_END:
            # Whoever ended it did not live to seal it.
            check(segment.sync(), "sync", str(segment.path))
            segment.write_seal(w, unix_ns, SEAL_DURABLE, 0, 0)
            continue
        cut_bytes = segment.cut(w)
        if cut_bytes:
            notes.append(f"{segment.path}: cut {cut_bytes} bytes behind position {w.position}")
        check(segment.sync(), "sync", str(segment.path))
        active = segment
    cut_bytes += _remove(directory, numbers[kept:], notes)
    for segment in opened:
        if segment is not None and segment is not active:
            segment.close()
    found.append(Recovery(
        position=w.position, index=w.index, segments=kept, cut_bytes=cut_bytes,
        cut_segments=len(numbers) - kept, notes=tuple(notes)))
    return active


def _open_from_sealed(directory, numbers):
    # The last sealed segment and all behind it; None for one that cannot be opened.
    opened, notes = [], []
    for number in reversed(numbers):
        try:
            segment = Segment.open(segment_path(directory, number), writable=True)
        except RegionError as problem:
            opened.append(None)
            notes.append(str(problem))
            continue
        opened.append(segment)
        if _is_sealed(segment):
            break
    return opened[::-1], notes[::-1]


def _is_sealed(Segment segment):
    return segment.sealed()


def _check_layout(Segment segment, layout_hash):
    if segment.header.layout_hash != layout_hash:
        raise RegionError(f"{segment.path}: expected layout hash {layout_hash:016x}, found "
                          f"{segment.header.layout_hash:016x}: record to another directory")


def _remove(directory, numbers, notes):
    # Segments that nothing valid leads to. The bytes that were written there count.
    count = 0
    for number in numbers:
        path = segment_path(directory, number)
        written = len(path.read_bytes().rstrip(b"\0"))
        notes.append(f"{path}: removed, {written} bytes")
        path.unlink()
        count += written
    return count
