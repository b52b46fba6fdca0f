"""A journal's segments for an export: which are finished, and their records."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from udpfast.archive.names import journal_names
from udpfast.core.layout import LAPPED, RECORD, Kind, LappedReason, Stream
from udpfast.core.layouts import CONTROL_LAYOUTS
from udpfast.errors import FormatError, RegionError
from udpfast.export.columns import Names
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.journal_state import JournalState, journal_identity, journal_state
from udpfast.log.segment import Segment, SegmentInfo, list_segments, segment_path
from udpfast.market.block import Block
from udpfast.market.updates import LAYOUTS

__all__ = [
    "Blocks",
    "Hole",
    "Part",
    "Place",
    "after",
    "check_journal",
    "is_closed",
    "is_end_known",
    "journal_begin",
    "journal_first",
    "journal_head",
    "journal_parts",
    "journal_place",
    "last_record",
    "state_of",
]

#: Most records per block: 16 MiB of headers and short payloads. That exceeds a second-level cache
#: anyway, and larger blocks gain nothing.
BLOCK_RECORDS = 1 << 16

_POSITION_MAX = (1 << 63) - 1


class Place(Struct, frozen=True):
    """A place between two records of a journal: position and index of the second one.

    Attributes
    ----------
    position, index : int
        Position in bytes, and in records.
    journal : str
        The journal's identity in hexadecimal digits, which no other journal has.
    """

    position: int
    index: int
    journal: str


class Part(Struct, frozen=True):
    """A segment or a part of one: the records between two positions.

    Attributes
    ----------
    number : int
        Number of the segment.
    position, end_position : int
        Position of the first record, and behind the last.
    index, end_index : int
        The same counted in records; the difference is the number of records it should have.
    first_ns, last_ns : int
        Earliest and latest `published_ns`.
    sealed : bool
        The segment itself states where it ends.
    finished : bool
        No records will be appended at present; if it is not sealed, a later writer may append.
    last : bool
        The writer closed the journal behind it.
    name : str
        Name of the instance.
    journal : str
        As in `Place`.
    before : tuple of (int, int) or None
        Position and index behind the record before it, if records between the two are lost.
    behind : int or None
        For the last part of a closed journal whose end is lost: the index at which it ended.
    """

    number: int
    position: int
    end_position: int
    index: int
    end_index: int
    first_ns: int
    last_ns: int
    sealed: bool
    finished: bool
    last: bool
    name: str
    journal: str
    before: tuple[int, int] | None = None
    behind: int | None = None


class Hole(Struct, frozen=True):
    """Records that are missing in a journal: damaged ones, or those of a lost segment.

    Attributes
    ----------
    position, index : int
        Position and index of the first missing record.
    records : int
        Number of missing records.
    at_ns : int
        When the record behind them was published; if there is none, the one before.
    """

    position: int
    index: int
    records: int
    at_ns: int

    def block(self) -> Block:
        """Return the LAPPED record that readers of the journal get instead."""
        payload = np.zeros(1, LAPPED)
        payload["missed"], payload["reason"] = self.records, LappedReason.DAMAGE
        header = np.zeros(1, RECORD)
        header["length"] = RECORD.itemsize + LAPPED.itemsize
        header["kind"], header["stream"] = Kind.LAPPED, Stream.NONE
        header["position"], header["index"] = self.position, self.index
        header["received_ns"] = header["published_ns"] = self.at_ns
        header["flight_ns"] = np.iinfo(np.int32).min
        return Block(header, np.zeros(1, np.uint64), payload.view(np.uint8), 1)


def is_closed(directory: str | os.PathLike[str], dead: bool = False) -> bool:
    """Return whether a journal's writer closed it; with `dead`, also whether the writer died."""
    state = state_of(directory)
    return dead if state is None else state.closed or (dead and not state.alive)


def state_of(directory: str | os.PathLike[str]) -> JournalState | None:
    """Return the state that a journal's writer last stated; None: it cannot be read."""
    try:
        return journal_state(directory)
    except (FileNotFoundError, FormatError):
        return None


def journal_parts(
    directory: str | os.PathLike[str], *, dead: bool = True, known: Container[int] = ()
) -> list[Part]:
    """Return the parts of a journal in order, without empty ones.

    A segment that is not sealed is read record by record; it is finished if the journal is closed.

    Parameters
    ----------
    directory : str or path
        Directory of the journal.
    dead : bool
        True: it is also finished if the journal's writer died, although another writer may append.
    known : container of int
        Numbers of segments to leave out.
    """
    closed = is_closed(directory, dead)  # read before the segments, which can only grow
    state = state_of(directory)
    identity = journal_identity(directory)
    found = []
    for number in list_segments(directory):
        info = None if number in known else _info(directory, number)
        if info is None or info.identity != identity:
            continue
        part = _part(info, directory, closed)
        if part.end_position > part.position:
            found.append(part)
    if found and state is not None and state.closed and state.index > found[-1].end_index:
        found[-1] = replace(found[-1], behind=state.index)
    return found


def after(part: Part, position: int, index: int) -> Part:
    """Return a part with `before` set, if records before it are missing."""
    return replace(part, before=(position, index)) if index < part.index else part


def is_end_known(state: JournalState | None, parts: Sequence[Part]) -> bool:
    """Return whether a journal's end is known, from its writer's file or its last segment."""
    return state is not None or (bool(parts) and parts[-1].last)


def journal_begin(directory: str | os.PathLike[str]) -> Place:
    """Return the place of the oldest record that was not removed to make room."""
    identity = journal_identity(directory)
    state = state_of(directory)
    if state is not None:
        return Place(state.oldest_position, state.oldest_index, identity.hex())
    infos = (_info(directory, number) for number in list_segments(directory))
    known = [
        (info.oldest_position, info.oldest_index)
        for info in infos
        if info is not None and info.identity == identity
    ]
    return Place(*max(known, default=(0, 0)), identity.hex())


def journal_first(directory: str | os.PathLike[str]) -> Place:
    """Return the place of the oldest record that exists, or the journal's end if none does."""
    identity = journal_identity(directory)
    for number in list_segments(directory):
        info = _info(directory, number)
        if info is not None and info.identity == identity:
            return Place(info.position, info.index, identity.hex())
    return journal_head(directory, synced=False)


def journal_head(directory: str | os.PathLike[str], synced: bool = True) -> Place:
    """Return the place behind the last record to read.

    Parameters
    ----------
    directory : str or path
        Directory of the journal.
    synced : bool
        True: while a synced journal is being written, use its last record that is on the disk,
        because later ones may change with a power cut. False: use its last record.
    """
    identity = journal_identity(directory).hex()
    state = state_of(directory)
    if state is not None and state.alive and synced and state.synced_ns:
        return Place(state.synced_position, state.synced_index, identity)
    if state is not None and (state.alive or state.closed):
        return Place(state.position, state.index, identity)
    with JournalCursor.attach(directory, "tail", follow=False) as cursor:
        while cursor.poll():
            pass
        return Place(cursor.position, cursor.index, identity)


def journal_place(directory: str | os.PathLike[str], start: Place, records: int) -> Place:
    """Return the place `records` records behind another, or the journal's end if that is first."""
    best = start
    for number in list_segments(directory):
        try:
            segment = Segment.open(segment_path(directory, number))
        except (RegionError, FileNotFoundError):
            continue
        entries = segment.index()
        segment.close()
        near = entries[
            (entries["index"] > best.index) & (entries["index"] <= start.index + records)
        ]
        if len(near):
            best = replace(best, position=int(near["position"][-1]), index=int(near["index"][-1]))
        if len(entries) and entries["index"][0] > start.index + records:
            break
    with JournalCursor.attach(directory, ("position", best.position), follow=False) as cursor:
        while (rest := start.index + records - best.index) > 0:
            count = cursor.poll(min(rest, BLOCK_RECORDS))
            best = replace(best, position=cursor.position, index=cursor.index)
            if not count:  # the journal's end
                break
    return best


def _info(directory: str | os.PathLike[str], number: int) -> SegmentInfo | None:
    # Return None if its header is damaged, or it has just been removed.
    try:
        segment = Segment.open(segment_path(directory, number))
    except (RegionError, FileNotFoundError):
        return None
    info = segment.info()
    segment.close()
    return info


def _part(info: SegmentInfo, directory: str | os.PathLike[str], closed: bool) -> Part:
    if info.end_position is not None and info.end_index is not None:
        seal = (info.end_position, info.end_index, info.first_ns, info.last_ns)
    else:
        seal = _look_through(info, directory)
    end, end_index, first_ns, last_ns = seal
    sealed = info.end_position is not None
    return Part(
        info.number,
        info.position,
        end,
        info.index,
        end_index,
        first_ns,
        last_ns,
        sealed,
        sealed or closed,
        info.last,
        info.name,
        info.identity.hex(),
    )


def _look_through(
    info: SegmentInfo, directory: str | os.PathLike[str]
) -> tuple[int, int, int, int]:
    # Return what a seal would state: the end in bytes and records, earliest and latest time.
    end, end_index, first_ns, last_ns = info.position, info.index, _POSITION_MAX, 0
    with (
        suppress(RegionError),  # callers report that the journal's end is unknown
        JournalCursor.attach(directory, ("position", info.position), follow=False) as cursor,
    ):
        while (count := cursor.poll()) and cursor.number == info.number:
            headers = cursor.headers[:count]
            end = int(headers[-1]["position"]) + (int(headers[-1]["length"]) + 7 & ~7)
            end_index = int(headers[-1]["index"]) + 1
            first_ns = min(first_ns, int(headers["published_ns"].min()))
            last_ns = max(last_ns, int(headers["published_ns"].max()))
    return end, end_index, first_ns, last_ns


def _names(directory: str | os.PathLike[str], number: int, mark: int) -> Names:
    # Return the names of a file of names; none if it is missing, damaged or of another journal.
    if not number:
        return Names()
    try:
        return Names(journal_names(directory, number, mark))
    except (FileNotFoundError, FormatError):
        return Names()


class Blocks:
    """The records of a journal between two positions, block by block.

    Parameters
    ----------
    directory : str or path
        Directory of the journal.
    journal : str
        Expected identity of the journal, as in `Place`.
    position, end_position : int
        Position of the first record, and behind the last.
    raw : bool
        Whether it is a raw capture, whose records have no updates.
    part : Part, optional
        The part that the records are of, to find holes in it; None: do not look for holes.

    Attributes
    ----------
    records : int
        Number of records yielded so far.
    holes : list of Hole
        Holes found since the caller last emptied the list: those before a block are added before
        it is yielded, those behind the last block at the end.
    nameless : bool
        Names of some records are missing or damaged, so that their instruments are unknown.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        journal: str,
        position: int,
        end_position: int = _POSITION_MAX,
        *,
        raw: bool = False,
        part: Part | None = None,
    ) -> None:
        self.records = 0
        self.holes: list[Hole] = []
        self._part = part
        self.nameless = False
        self._directory = directory
        self._journal = journal
        self._bounds = (position, end_position)
        self._raw = raw

    def __iter__(self) -> Iterator[tuple[Block, Names]]:
        """Yield blocks, each valid until the next, with the names for their ids.

        Raises
        ------
        FormatError
            The directory has another journal now.
        """
        names, number = Names(), 0
        check_journal(self._directory, self._journal)
        position, end_position = self._bounds
        at = self._part
        if at is not None and at.before is not None:
            at = replace(at, position=at.before[0], index=at.before[1])
        with JournalCursor.attach(
            self._directory,
            ("position", position),
            ("position", end_position),
            follow=False,
            limit=BLOCK_RECORDS,
            layouts=CONTROL_LAYOUTS if self._raw else LAYOUTS,
        ) as cursor:
            while count := cursor.poll():
                if cursor.names != number:
                    number = cursor.names
                    names = _names(self._directory, number, cursor.names_mark)
                self.records += count
                block = Block(cursor.headers, cursor.offsets, cursor.payloads, count)
                at = self._look_for_hole(at, block)
                if number and not self._raw:
                    self.nameless |= not names.has(block.ids())
                yield block, names
        if at is not None and (missing := (at.behind or at.end_index) - at.index) > 0:
            self.holes.append(Hole(at.position, at.index, missing, at.first_ns))

    def _look_for_hole(self, rest: Part | None, block: Block) -> Part | None:
        # `rest` is the remainder of the part before this block; return the remainder behind it.
        if rest is None:
            return None
        first, last = block.headers[0], block.headers[-1]
        missing = int(first["index"]) - rest.index
        if missing > 0:
            at_ns = int(first["published_ns"])
            self.holes.append(Hole(rest.position, rest.index, missing, at_ns))
        return replace(
            rest,
            position=int(last["position"]) + (int(last["length"]) + 7 & ~7),
            index=int(last["index"]) + 1,
            first_ns=int(last["published_ns"]),
        )


def last_record(block: Block, part: Part) -> tuple[int, int] | None:
    """Return position and checksum of a part's last record, if a block has it."""
    headers = block.headers
    at = part.end_index - 1 - int(headers[0]["index"])  # the indices in a block are consecutive
    if not 0 <= at < len(headers):
        return None
    return int(headers[at]["position"]), int(headers[at]["checksum"])


def check_journal(directory: str | os.PathLike[str], journal: str) -> None:
    """Check that a directory still has the expected journal.

    Raises
    ------
    FormatError
        It has another journal now.
    """
    found = journal_identity(directory).hex()
    if found != journal:
        raise FormatError(
            f"{directory}: expected the journal {journal}, found another one, {found}: it was "
            "removed and started again"
        )
