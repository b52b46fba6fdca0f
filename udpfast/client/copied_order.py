"""How far the copy of a composite agrees with its order log, which may have lost its end since.

Entries are compared by place, bytes and stamp, to find those that the log has lost. The records of
each input are counted: an entry states where a run begins, and the records behind it are that run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from msgspec import Struct

from udpfast.archive.store import StoreView
from udpfast.core.layout import LAPPED, ORDER_ENTRY, ROLLBACK, Kind
from udpfast.log.journal_cursor import JournalCursor
from udpfast.market.updates import LAYOUTS

__all__ = ["CopiedEntry", "CopiedOrder", "has_entry"]

_BACK = 1  # OrderFlag


class CopiedEntry(Struct, frozen=True):
    """An entry of the order log, as a copy has it.

    Attributes
    ----------
    place : int
        Its position in the order log.
    taken_ns : int
        When the writer of the order log decided it, UNIX ns.
    content : bytes
        Its payload.
    """

    place: int
    taken_ns: int
    content: bytes

    @property
    def back(self) -> bool:
        """Whether the entry takes records back."""
        return bool(_row(self.content, ORDER_ENTRY)["flags"] & _BACK)


class CopiedOrder:
    """The order that a copy contains, read from its beginning to its end.

    Parameters
    ----------
    directory : path
        Directory of the copy.
    inputs : int
        Number of inputs of the composite.

    Attributes
    ----------
    entries : list of CopiedEntry
        The entries that the copy does not take back later.
    next_index : list of int
        By input: the index behind the last record that the copy has and does not take back.
    """

    def __init__(self, directory: Path, inputs: int) -> None:
        self.entries: list[CopiedEntry] = []
        self.next_index = [0] * inputs
        self._known = [False] * inputs
        self._input = 0
        with JournalCursor.attach(directory, follow=False, limit=4096, layouts=LAYOUTS) as cursor:
            while count := cursor.poll():
                self._take(cursor, count)

    def common_end(self, order: Path) -> int | None:
        """Return the position behind the last entry that the order log has, too; None: no entry."""
        view = StoreView(order)
        for entry in reversed(self.entries):
            size = has_entry(view, entry)
            if size:
                return entry.place + size
        return None

    def _take(self, cursor: JournalCursor, count: int) -> None:
        kinds = cursor.headers["kind"][:count]
        begin = 0
        rare = np.isin(kinds, (Kind.ORDER, Kind.LAPPED, Kind.ROLLBACK))
        for at in np.flatnonzero(rare).tolist():
            self.next_index[self._input] += at - begin
            begin = at + 1
            payload = cursor.payload(at)
            if kinds[at] == Kind.ORDER:
                header = cursor.headers[at]
                self._take_entry(
                    CopiedEntry(int(header["number"]), int(header["published_ns"]), bytes(payload))
                )
            elif kinds[at] == Kind.LAPPED:
                self.next_index[self._input] += int(_row(bytes(payload), LAPPED)["missed"])
            else:
                self.next_index[self._input] -= int(_row(bytes(payload), ROLLBACK)["records"])
        self.next_index[self._input] += count - begin

    def _take_entry(self, entry: CopiedEntry) -> None:
        row = _row(entry.content, ORDER_ENTRY)
        self._input, first = int(row["input"]), int(row["first_index"])
        if not self._known[self._input]:
            self.next_index[self._input] = first
        self._known[self._input] = True
        while self.entries and self.entries[-1].place >= entry.place:
            self.entries.pop()  # the log lost it, and put this entry in its place
        self.entries.append(entry)


def has_entry(view: StoreView, entry: CopiedEntry) -> int:
    """Return the size of an entry in the order log in bytes; 0: the log no longer has it."""
    if view.checksum_at(entry.place) is None:
        return 0
    for record in view.records(entry.place, entry.place + 1):
        taken_ns = int.from_bytes(record[32:40], "little", signed=True)
        if taken_ns == entry.taken_ns and record[64:].startswith(entry.content):
            return len(record)
    return 0


def _row(payload: bytes | np.ndarray, dtype: np.dtype) -> np.void:
    row: np.void = np.frombuffer(payload, dtype, 1)[0]
    return row
