"""Where a journal goes on: a function of its files, for whoever opens it for writing.

Nothing is deleted. A file that is not of the journal, or that nobody can read, gets another name.
Where records are damaged or lost, their positions and indices stay theirs: the journal goes on
behind them, and readers say how many are missing.
"""

from dataclasses import dataclass

from libc.stdint cimport uint64_t

from udpfast.log.segment cimport (
    IDENTITY_SIZE, SEAL_DAMAGED, SEAL_DURABLE, SEAL_LAST, Segment, SegmentWriter, Survey)

from udpfast.core.oserr cimport check
from udpfast.errors import RegionError
from udpfast.log.segment import list_segments, segment_path, set_aside

__all__ = ["Recovery"]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was found when a journal was opened for writing.

    Attributes
    ----------
    position, index : int
        Of the next record.
    segments : int
        Of the journal.
    cut_bytes : int
        Of a record that its writer did not live to finish: cut off.
    missing : int
        Records that are damaged or lost behind the last sealed segment; readers say so.
    set_aside : int
        Files that got another name: damaged, or of another journal.
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
    # Put the writer behind all that was ever written. Returns the segment to go on with (None: a
    # new one), and appends a Recovery to `found`.
    #
    # Sealed segments are taken at their word: they were on the disk when they were sealed. What
    # comes behind the last of them is read to its last byte.
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
    # Put the writer behind its last whole record; returns how many bytes behind that are cut off.
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
    # Whoever ended it did not live to seal it, it is damaged or of other layouts: it stays.
    check(segment.sync(), "sync", str(segment.path))
    segment.write_seal(
        &survey.writer, unix_ns, SEAL_DURABLE | (SEAL_DAMAGED if survey.missing else 0),
        kept.oldest_position, kept.oldest_index)
    check(segment.sync(), "sync", str(segment.path))
    if survey.missing:
        notes.append(f"{segment.path}: {survey.missing} records are damaged from position "
                     f"{survey.damaged_position} on")


cdef bint _is_behind(const WrittenMark* written, const SegmentWriter* w) noexcept:
    # Whether more was written than was found.
    return written.position > w.position and written.index > w.index


def _own_segments(directory, identity, notes):
    # Paths of the journal's segments, the oldest first. All others get another name, unless none
    # can be read: then it is the reader who does not know them.
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
    # The last sealed segment and all behind it, open for writing.
    cdef Segment segment
    opened = []
    for path in reversed(paths):
        segment = Segment.open(path, writable=True)
        opened.append(segment)
        if segment.sealed():
            break
    return opened[::-1]
