"""What a journal has, from its oldest record to its end: its segments and what is lost between."""

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from udpfast.errors import RegionError
from udpfast.log.journal_state import JournalState, journal_state
from udpfast.log.segment import (
    Segment,
    SegmentInfo,
    list_segments,
    segment_path,
    segments_identities,
    segments_identity,
)

__all__ = ["JournalMap", "JournalPart", "journal_map"]

#: Earliest and latest time where it is not known: any.
ANY_NS = -(1 << 63), (1 << 63) - 1
#: And where there is no record.
NO_NS = ANY_NS[::-1]


class JournalPart(Struct, frozen=True):
    """Records of one segment, or records that are lost.

    Attributes
    ----------
    number : int
        Number of the segment; 0: the records are lost.
    path : pathlib.Path or None
        The segment's file; None: the records are lost.
    position, index : int
        Position and index of the first record.
    end_position, end_index : int
        Position and index behind the last record, sealed or not.
    first_ns, last_ns : int
        Earliest and latest `published_ns`. If there is no record, the earliest is later than
        the latest. For lost or damaged records they are the least and greatest int64.
    sealed : bool
        No record will be appended to it.
    names : int
        Number of the file of names that the records use; 0: none.
    opened_ns : int
        When the segment was begun, UNIX ns.
    name : str
        Name of the instance.
    missing : int
        Damaged or lost records. Sealed segments are not read, so theirs do not count.
    problem : str
        Why records are missing; empty if none are.
        Why records are lost; empty if none are.
    """

    number: int
    path: Path | None
    position: int
    index: int
    end_position: int
    end_index: int
    first_ns: int
    last_ns: int
    sealed: bool
    names: int
    opened_ns: int
    name: str
    missing: int
    problem: str

    @property
    def lost(self) -> bool:
        """Whether no segment has these records."""
        return self.path is None

    @property
    def records(self) -> int:
        """Number of records, present or lost."""
        return self.end_index - self.index


class JournalMap(Struct, frozen=True):
    """The parts of a journal.

    Attributes
    ----------
    identity : bytes
        The journal's identity, 16 bytes.
    state : JournalState or None
        Last state that its writer published; None: the file `journal` is lost or damaged.
    parts : tuple of JournalPart
        The parts in order; each begins where the previous one ends.
    ignored : tuple of str
        Segment files that are unreadable or of another journal, and why.
    """

    identity: bytes
    state: JournalState | None
    parts: tuple[JournalPart, ...]
    ignored: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether no record will be appended, unless a writer opens the journal again."""
        return self.state is None or self.state.closed or not self.state.alive


def journal_map(directory: str | os.PathLike[str]) -> JournalMap:
    """Return what a journal has now.

    Sealed segments are trusted; the others are read.

    Raises
    ------
    FileNotFoundError
        There is no journal.
    RegionError
        Nothing of it is readable, or its file `journal` belongs to another journal.
    """
    directory = Path(directory)
    state: JournalState | None
    try:
        state = journal_state(directory)  # first: records can only be added meanwhile
        identity = state.identity
    except (FileNotFoundError, RegionError):
        state, majority = None, segments_identity(directory)
        if majority is None:
            raise
        identity = majority
    found: list[tuple[Segment, SegmentInfo]] = []
    ignored: list[str] = []
    others = index = 0
    for number in list_segments(directory):
        path = segment_path(directory, number)
        try:
            segment = Segment.open(path)
        except FileNotFoundError:
            continue  # removed meanwhile
        except RegionError as problem:
            ignored.append(str(problem))
            continue
        info = segment.info()
        if info.identity != identity:
            others += 1
            ignored.append(
                f"{path}: expected journal {identity.hex()}, found {info.identity.hex()}"
            )
        elif info.index < index:
            ignored.append(f"{path}: expected record {index} or a later one, found {info.index}")
        else:
            index = info.index if info.end_index is None else info.end_index
            found.append((segment, info))
    if others and not found:
        (like, _), *_ = segments_identities(directory).most_common()
        raise RegionError(
            f"{directory / 'journal'}: expected journal {like.hex()}, like the segments, "
            f"found {identity.hex()}"
        )
    return JournalMap(identity, state, tuple(_parts(found, state, ignored)), tuple(ignored))


def _parts(
    found: list[tuple[Segment, SegmentInfo]], state: JournalState | None, ignored: list[str]
) -> Iterator[JournalPart]:
    oldest = [(info.oldest_position, info.oldest_index) for _, info in found]
    if state is not None:
        oldest = [(state.oldest_position, state.oldest_index)]
    position, index = max(oldest, default=(0, 0))
    written = (0, 0) if state is None else (state.position, state.index)
    for at, (segment, info) in enumerate(found):
        if info.index > index:
            yield _lost(position, index, info.position, info.index, ignored)
        following = found[at + 1][1] if at + 1 < len(found) else None
        end = written if following is None else (following.position, following.index)
        part = _part(segment, info, end, state is None or not state.alive)
        yield part
        position, index = part.end_position, part.end_index
    if written[1] > index:
        yield _lost(position, index, *written, ignored)


def _part(segment: Segment, info: SegmentInfo, end: tuple[int, int], dead: bool) -> JournalPart:
    missing, problem = 0, ""
    if info.end_position is None or info.end_index is None:
        survey = segment.read_to_end(*end, dead)
        end_position, end_index = survey.end_position, survey.end_index
        first_ns, last_ns = survey.first_ns, survey.last_ns
        missing = survey.missing
        if missing:
            problem = f"{info.path}: damaged from position {survey.damaged_position} on"
            first_ns, last_ns = ANY_NS
    else:
        end_position, end_index = info.end_position, info.end_index
        first_ns, last_ns = info.first_ns, info.last_ns
        if end_index == info.index:
            first_ns, last_ns = NO_NS
    return JournalPart(
        info.number,
        info.path,
        info.position,
        info.index,
        end_position,
        end_index,
        first_ns,
        last_ns,
        info.end_position is not None,
        info.names,
        info.opened_ns,
        info.name,
        missing,
        problem,
    )


def _lost(
    position: int, index: int, end_position: int, end_index: int, ignored: list[str]
) -> JournalPart:
    problem = f"records {index} to {end_index - 1} are lost: they are in no segment"
    return JournalPart(
        0,
        None,
        position,
        index,
        end_position,
        end_index,
        *ANY_NS,
        True,
        0,
        0,
        "",
        end_index - index,
        "; ".join([problem, *ignored]),
    )
