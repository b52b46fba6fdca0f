"""Find where a journal continues. The result depends on its files alone.

Nothing is deleted: a file that is unreadable or not the journal's is renamed. Damaged and lost
records keep their positions and indices: the journal continues behind them, and readers report how
many are missing.
"""

from msgspec import Struct

from libc.stdint cimport uint64_t

from udpfast.log.segment cimport (
    IDENTITY_SIZE, SEAL_DAMAGED, SEAL_DURABLE, SEAL_LAST, Segment, SegmentWriter, Survey)

from udpfast.core.oserr cimport check
from udpfast.errors import RegionError
from udpfast.log.segment import list_segments, segment_path, set_aside

__all__ = ["Recovery"]


class Recovery(Struct, frozen=True):
    """What opening a journal for writing found.

    Attributes
    ----------
    position, index : int
        Position and index of the next record.
    segments : int
        Number of the journal's segments.
    cut_bytes : int
        Bytes of an unfinished record that were cut off.
    missing : int
        Damaged or lost records behind the last sealed segment. Readers report them.
    set_aside : int
        Files that were renamed because they are damaged or of another journal.
    notes : tuple of str
        What was wrong; empty if the journal ended as it should.
    """

    position: int
    index: int
    segments: int
    cut_bytes: int
    missing: int
    set_aside: int
    notes: tuple[str, ...]


cdef Segment recover(
        directory, identity, layout_hash, const WrittenMark* written, const KeptMark* kept,
        SegmentWriter* w, int64_t unix_ns, list notes, list found):
    # Put the writer behind everything that was ever written. Returns the segment to continue in
    # (None: a new one) and appends a Recovery to `found`.
    #
    # Sealed segments are trusted, because they were on the disk when they were sealed. Everything
    # behind the last of them is read to its last byte.
    cdef Segment segment, following, active = None
    cdef Survey survey
    cdef uint64_t end_position, end_index, cut_bytes = 0, missing = 0
    cdef bint last
    segments = _own_segments(directory, identity, notes)
    tail = _from_sealed(segments)
    w.position, w.index = kept.oldest_position, kept.oldest_index
    for at, segment in enumerate(tail):
        if segment.sealed():
            _pass_sealed(segment, w)
            continue
        last = at + 1 == len(tail)
        if last:
            end_position, end_index = written.position, written.index
        else:
            following = tail[at + 1]
            end_position, end_index = following.header.position, following.header.index
        with nogil:
            segment.survey(end_position, end_index, True, &survey)
        if (last and not survey.ended and not survey.missing
                and segment.header.layout_hash == layout_hash
                and not _is_behind(written, &survey.writer)):
            cut_bytes = _go_on_in(segment, w, notes)
            active = segment
        else:
            w.position, w.index = survey.writer.position, survey.writer.index
            _seal_ended(segment, &survey, kept, unix_ns, notes)
            missing += survey.missing
    if _is_behind(written, w):
        missing += written.index - w.index
        notes.append(
            f"{directory}: ends with record {w.index}, although {written.index} were written: "
            "continues after the latter")
        w.position, w.index = written.position, written.index
    for segment in tail:
        if segment is not active:
            segment.close()
    found.append(Recovery(
        position=w.position, index=w.index, segments=len(segments), cut_bytes=cut_bytes,
        missing=missing, set_aside=sum(": set aside as " in note for note in notes),
        notes=tuple(notes)))
    return active


cdef _pass_sealed(Segment segment, SegmentWriter* w):
    w.position, w.index = segment.seal.position, segment.seal.index
    if segment.seal.flags & SEAL_LAST:
        segment.seal_as_earlier()
        check(segment.sync(), "sync", str(segment.path))


cdef uint64_t _go_on_in(Segment segment, SegmentWriter* w, list notes) except? 0:
    # Put the writer behind the segment's last complete record; return how many bytes behind it are
    # cut off.
    cdef uint64_t cut_bytes
    segment.start(w, True)
    with nogil:
        segment.scan(w)
    cut_bytes = segment.cut(w)
    check(segment.sync(), "sync", str(segment.path))
    if cut_bytes:
        notes.append(f"{segment.path}: cut {cut_bytes} bytes from position {w.position} on")
    return cut_bytes


cdef _seal_ended(
        Segment segment, const Survey* survey, const KeptMark* kept, int64_t unix_ns, list notes):
    # Seal a segment that nobody will append to, because it was ended, is damaged or has other
    # layouts.
    check(segment.sync(), "sync", str(segment.path))
    segment.write_seal(
        &survey.writer, unix_ns, SEAL_DURABLE | (SEAL_DAMAGED if survey.missing else 0),
        kept.oldest_position, kept.oldest_index)
    check(segment.sync(), "sync", str(segment.path))
    if survey.missing:
        notes.append(f"{segment.path}: {survey.missing} records are damaged from position "
                     f"{survey.damaged_position} on")


cdef bint _is_behind(const WrittenMark* written, const SegmentWriter* w) noexcept:
    # Return whether more records were written than were found.
    return written.position > w.position and written.index > w.index


def _own_segments(directory, identity, notes):
    # Return the paths of the journal's segments, the oldest first, and rename all others. If none
    # can be read because of its version, refuse instead: then this program is too old.
    cdef Segment segment
    own, problems = [], []
    end = 0
    for number in list_segments(directory):
        path = segment_path(directory, number)
        try:
            segment = Segment.open(path)
        except RegionError as problem:
            problems.append((path, str(problem)))
            continue
        if segment.header.identity[:IDENTITY_SIZE] != identity:
            problems.append((path, f"{path}: expected journal {identity.hex()}, found "
                                   f"{segment.header.identity[:IDENTITY_SIZE].hex()}"))
        elif segment.header.position < end:
            problems.append((path, f"{path}: expected position {end} or more, found "
                                   f"{segment.header.position}"))
        else:
            end = segment.seal.position if segment.sealed() else segment.header.position
            own.append(path)
    if problems and not own and all("expected version" in problem for _, problem in problems):
        raise RegionError(problems[0][1])
    for path, problem in problems:
        notes.append(f"{problem}: set aside as {set_aside(path).name}")
    return own


def _from_sealed(paths):
    # Open the last sealed segment and all behind it for writing.
    cdef Segment segment
    opened = []
    for path in reversed(paths):
        segment = Segment.open(path, writable=True)
        opened.append(segment)
        if segment.sealed():
            break
    return opened[::-1]
