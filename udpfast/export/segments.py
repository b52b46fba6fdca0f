"""A journal's segments as an export takes them: which are finished, and what is in them."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from udpfast.errors import FormatError, RegionError
from udpfast.export.block import Block
from udpfast.export.columns import Names
from udpfast.market.names import NAMES_REGION_KIND, NameTable
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.journal import journal_state
from udpfast.shm.journal_cursor import JournalCursor
from udpfast.shm.region import Region
from udpfast.shm.segment import Segment, SegmentInfo, list_segments, segment_path

__all__ = [
    "Blocks",
    "Part",
    "Place",
    "is_closed",
    "journal_begin",
    "journal_head",
    "journal_names",
    "journal_parts",
    "journal_place",
]

#: Records of one block: 16 MiB of headers and short payloads, which a second-level cache does not
#: hold anyway; larger ones gain nothing.
BLOCK_RECORDS = 1 << 16

_NAMES_AT = 4096  # of the table in its region
_POSITION_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place between two records of a journal: the position and the index of the second."""

    position: int
    index: int


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
    opened_ns : int
        When the segment was begun, UNIX ns.
    first_ns, last_ns : int
        Earliest and latest `published_ns`.
    finished : bool
        Nothing more will come behind it.
    name : str
        Of the instance.
    """

    number: int
    position: int
    end_position: int
    index: int
    end_index: int
    opened_ns: int
    first_ns: int
    last_ns: int
    finished: bool
    name: str


def is_closed(directory: str | os.PathLike[str], dead: bool = False) -> bool:
    """Return whether a journal's writer closed it; with `dead`, or died (and may come back)."""
    try:
        state = journal_state(directory)
    except (FileNotFoundError, FormatError):
        return dead
    return state.closed or (dead and not state.alive)


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
    found = []
    for number in list_segments(directory):
        if number in known:
            continue
        try:
            segment = Segment.open(segment_path(directory, number))
        except (RegionError, FileNotFoundError):  # torn by a power cut; or removed just now
            continue
        info = segment.info()
        segment.close()
        part = _part(info, directory, closed)
        if part.end_position > part.position:
            found.append(part)
    return found


def journal_begin(directory: str | os.PathLike[str]) -> Place:
    """Return the place of the oldest record that is still there."""
    for number in list_segments(directory):
        try:
            info = Segment.open(segment_path(directory, number)).info()
        except (RegionError, FileNotFoundError):
            continue
        return Place(info.position, info.index)
    return Place(0, 0)


def journal_head(directory: str | os.PathLike[str], synced: bool = True) -> Place:
    """Return the place behind the last record that is to be read.

    Parameters
    ----------
    directory : str or path
    synced : bool
        While the journal is written and synced, that is the last record that the disk has: what is
        beyond may be another one after a power cut. Without it, the last one at all.
    """
    try:
        state = journal_state(directory)
    except (FileNotFoundError, FormatError):
        state = None
    if state is not None and state.alive and synced and state.synced_ns:
        return Place(state.synced_position, state.synced_index)
    if state is not None and (state.alive or state.closed):
        return Place(state.position, state.index)
    with JournalCursor.attach(directory, "tail", follow=False) as cursor:
        while cursor.poll():
            pass
        return Place(cursor.position, cursor.index)


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
            best = Place(int(near["position"][-1]), int(near["index"][-1]))
        if len(entries) and entries["index"][0] > start.index + records:
            break
    with JournalCursor.attach(directory, ("position", best.position), follow=False) as cursor:
        while rest := start.index + records - best.index:
            if not cursor.poll(min(rest, BLOCK_RECORDS)):
                break
            best = Place(cursor.position, cursor.index)
    return best


def _part(info: SegmentInfo, directory: str | os.PathLike[str], closed: bool) -> Part:
    sealed = info.end_position is not None
    seal = (info.end_position, info.end_index, info.first_ns, info.last_ns)
    end, end_index, first_ns, last_ns = seal if sealed else _look_through(info, directory)
    return Part(
        info.number,
        info.position,
        end,
        info.index,
        end_index,
        info.opened_ns,
        first_ns,
        last_ns,
        sealed or closed,
        info.name,
    )


def _look_through(info: SegmentInfo, directory: str | os.PathLike[str]) -> tuple[int, ...]:
    # What a seal would say: behind the last record, earliest and latest time.
    end, end_index, first_ns, last_ns = info.position, info.index, _POSITION_MAX, 0
    with JournalCursor.attach(directory, ("position", info.position), follow=False) as cursor:
        while (count := cursor.poll()) and cursor.number == info.number:
            headers = cursor.headers[:count]
            end = int(headers[-1]["position"]) + (int(headers[-1]["length"]) + 7 & ~7)
            end_index = int(headers[-1]["index"]) + 1
            first_ns = min(first_ns, int(headers["published_ns"].min()))
            last_ns = max(last_ns, int(headers["published_ns"].max()))
    return end, end_index, first_ns, last_ns


def journal_names(directory: str | os.PathLike[str], number: int) -> Names:
    """Return what the name ids of records mean that go by a file of names; 0: nothing."""
    if number:
        path = Path(directory) / f"{number:08}.names"
        try:
            region = Region.attach(path, NAMES_REGION_KIND, PAYLOAD_HASH)
            return Names(NameTable(region.view()[_NAMES_AT:]))
        except (FileNotFoundError, ValueError, FormatError):
            pass  # removed, or torn by a power cut: the records are what they are
    return Names()


class Blocks:
    """The records of a journal between two places, block by block.

    Parameters
    ----------
    directory : str or path
    start, end : (str, int)
        As `JournalCursor.attach` has them.
    raw : bool
        Of a raw capture: its records have no updates.
    records : int
        Of one block, at most.

    Attributes
    ----------
    misses : list of (int, int)
        Where records came again behind damaged ones, and how many those were.
    position : int
        Behind the last record that came, or that should have.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        start: tuple[Literal["position", "time"], int],
        end: tuple[Literal["position", "time"], int] = ("position", _POSITION_MAX),
        *,
        raw: bool = False,
        records: int = BLOCK_RECORDS,
    ) -> None:
        self.misses: list[tuple[int, int]] = []
        self.position = 0
        self._directory = directory
        self._arguments = (start, end)
        self._hash = 0 if raw else PAYLOAD_HASH
        self._records = records

    def __iter__(self) -> Iterator[tuple[Block, Names]]:
        """Yield blocks, each valid until the next, and what their name ids mean."""
        start, end = self._arguments
        names, number = Names(), 0
        with JournalCursor.attach(
            self._directory,
            start,
            end,
            follow=False,
            limit=self._records,
            payload_hash=self._hash,
        ) as cursor:
            while True:
                count = cursor.poll()
                if cursor.missed:
                    again = cursor.headers[0]["position"] if count else cursor.position
                    self.misses.append((int(again), cursor.missed))
                    self.position = cursor.position
                if count == 0:
                    return
                if cursor.names != number:
                    number = cursor.names
                    names = journal_names(self._directory, number)
                self.position = cursor.position
                yield Block(cursor.headers, cursor.offsets, cursor.payloads, count), names

    @property
    def missing(self) -> int:
        """Records that should have been among those that came: damaged ones."""
        return sum(count for _, count in self.misses)
