"""A journal's segments for an export: which are finished, and their contents."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from udpfast.archive.names import journal_names
from udpfast.core.layout import LAPPED, RECORD, Kind, LappedReason, Stream
from udpfast.core.layouts import CONTROL_LAYOUTS
from udpfast.errors import FormatError, RegionError
from udpfast.export.block import Block
from udpfast.export.columns import Names
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.journal_state import JournalState, journal_identity, journal_state
from udpfast.log.segment import Segment, SegmentInfo, list_segments, segment_path
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

#: Records of one block: 16 MiB of headers and short payloads, which a second-level cache does not
#: hold anyway; larger ones gain nothing.
BLOCK_RECORDS = 1 << 16

_POSITION_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Place:
    """A place between two records of a journal: the position and the index of the second.

    Attributes
    ----------
    position, index : int
    journal : str
        Its identity, in hexadecimal digits: no two journals have one, whatever they are called.
    """

    position: int
    index: int
    journal: str


@dataclass(frozen=True, slots=True)
class Part:
    """A segment, or what there is of one: records from a position to a position.

    Attributes
    ----------
    number : int
        Of the segment.
    position, end_position : int
        Of its first record; behind its last one.
    index, end_index : int
        The same, counted in records: so many it should have.
    first_ns, last_ns : int
        Earliest and latest `published_ns`.
    sealed : bool
        It says itself where it ends.
    finished : bool
        Nothing more will come behind it now; if it is not sealed, a next writer may append.
    last : bool
        The writer closed the journal behind it.
    name : str
        Of the instance.
    journal : str
        As in `Place`.
    before : tuple of (int, int) or None
        Position and index behind what the journal has before it, where that is not where it begins:
        what was between is lost.
    behind : int or None
        Of the last part of a journal that its writer closed, if the end of it is lost: the index at
        which it ended.
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


@dataclass(frozen=True, slots=True)
class Hole:
    """Records that a journal should have and has not: damaged ones, or those of a lost segment.

    Attributes
    ----------
    position, index : int
        Of the first of them.
    records : int
        How many they are.
    at_ns : int
        When the record behind them was published, or the one before, if there is none.
    """

    position: int
    index: int
    records: int
    at_ns: int

    def block(self) -> Block:
        """Return the LAPPED that every reader of the journal is told instead."""
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
    """Return whether a journal's writer closed it; with `dead`, or died (and may come back)."""
    state = state_of(directory)
    return dead if state is None else state.closed or (dead and not state.alive)


def state_of(directory: str | os.PathLike[str]) -> JournalState | None:
    """Return what a journal's writer said last; None: nothing that can be read."""
    try:
        return journal_state(directory)
    except (FileNotFoundError, FormatError):
        return None


def journal_parts(
    directory: str | os.PathLike[str], *, dead: bool = True, known: Container[int] = ()
) -> list[Part]:
    """Return the parts of a journal, in their order; empty ones are left out.

    A segment that is not sealed is looked at record by record; it is finished if the journal is
    closed.

    Parameters
    ----------
    directory : str or path
    dead : bool
        It is finished too if the journal's writer died, and whatever a next one may append to it
        is of no interest now.
    known : container of int
        Numbers of segments to leave out.
    """
    closed = is_closed(directory, dead)  # before the segments: what follows can only be more
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
    """Return a part that knows where what the journal has before it ends."""
    return replace(part, before=(position, index)) if index < part.index else part


def is_end_known(state: JournalState | None, parts: Sequence[Part]) -> bool:
    """Whether somebody says where a journal ends: its writer's file, or its last segment."""
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
    """Return the place of the oldest record that is still there: the journal's end, if none is."""
    identity = journal_identity(directory)
    for number in list_segments(directory):
        info = _info(directory, number)
        if info is not None and info.identity == identity:
            return Place(info.position, info.index, identity.hex())
    return journal_head(directory, synced=False)


def journal_head(directory: str | os.PathLike[str], synced: bool = True) -> Place:
    """Return the place behind the last record that is to be read.

    Parameters
    ----------
    directory : str or path
    synced : bool
        While the journal is written and synced, that is the last record that the disk has: what is
        beyond may be another one after a power cut. Without it, the last one at all.
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
    """Return the place so many records behind another, or the journal's end before it."""
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
            if not count:  # the end, behind what is missing there
                break
    return best


def _info(directory: str | os.PathLike[str], number: int) -> SegmentInfo | None:
    # None: its header is damaged; or it was removed just now.
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
    # What a seal would say: behind the last record, earliest and latest time.
    end, end_index, first_ns, last_ns = info.position, info.index, _POSITION_MAX, 0
    with (
        suppress(RegionError),  # that nobody can say whether this was all is said by others
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
    # What name ids mean in records that go by a file of names; nothing if that is gone, torn or
    # another journal's.
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
    journal : str
        Which one must be there: its identity, as in `Place`.
    position, end_position : int
        Of the first record, and of the first behind the last one.
    raw : bool
        Of a raw capture: its records have no updates.
    part : Part, optional
        What the records are of, if holes in it are of interest.

    Attributes
    ----------
    records : int
        That came.
    holes : list of Hole
        Found since the list was last emptied; those before a block come before it, those behind
        the last one at the end. Looked for between `index` and `end_index`, where these are given.
    nameless : bool
        Some of them go by names that are gone or damaged: nobody knows their instruments.
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
        """Yield blocks, each valid until the next, and what their name ids mean.

        Raises
        ------
        FormatError
            Another journal is there.
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
        # `rest`: of the part, what no block has had yet. Returns what is left behind this one.
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
    at = part.end_index - 1 - int(headers[0]["index"])  # they follow each other without a hole
    if not 0 <= at < len(headers):
        return None
    return int(headers[at]["position"]), int(headers[at]["checksum"])


def check_journal(directory: str | os.PathLike[str], journal: str) -> None:
    """Compare a journal's identity with what is expected.

    Raises
    ------
    FormatError
        It is another one.
    """
    found = journal_identity(directory).hex()
    if found != journal:
        raise FormatError(
            f"{directory}: expected the journal {journal}, found another one, {found}: it was "
            "removed and started again"
        )
