"""The tables of names of a store: its files of names, written by a feed or copied from its host."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

from udpfast.archive.names import journal_names, names_path
from udpfast.errors import FormatError
from udpfast.log.segment import set_aside
from udpfast.market.names import NameTable, name_table_size
from udpfast.shm.names import create_names, names_table, reopen_names
from udpfast.shm.region import Region

__all__ = ["StoreNames", "last_names"]

_FILE = re.compile(r"([0-9]{8,19})\.names")
#: Number of the table, its capacity in names, its key, id of the first name that follows, their
#: number.
_HEAD = struct.Struct("<QQ16sQQ")
_SIZE = struct.Struct("<H")
#: Most bytes of one frame: at 200 kbit/s it arrives before the link counts as silent.
_SAID_BYTES = 1 << 14


def last_names(directory: Path) -> int:
    """Return the number of the last file of names; 0: there is none."""
    found = (_FILE.fullmatch(path.name) for path in directory.iterdir())
    return max((int(each[1]) for each in found if each), default=0)


class StoreNames:
    """The tables of names of one host's copy of a store.

    Parameters
    ----------
    directory : pathlib.Path
        The store's directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._tables: dict[int, NameTable] = {}
        self._writing: tuple[int, Region] | None = None
        self._synced: dict[int, int] = {}

    def table(self, number: int) -> NameTable:
        """Return a table, which grows with its file.

        Raises
        ------
        FileNotFoundError, FormatError
            There is no table of that number, or it is damaged.
        """
        found = self._tables.get(number)
        if found is None:
            found = self._tables[number] = journal_names(self._directory, number, 0)
        return found

    def check(self, marks: dict[int, int]) -> list[str]:
        """Set damaged files aside, to be copied again; return what is wrong, as sentences.

        Parameters
        ----------
        marks : dict of int
            The mark of each table by its number, from the segment headers; 0: not stated.
        """
        notes = []
        for number, mark in marks.items():
            path = names_path(self._directory, number)
            try:
                if number:
                    _check_whole(path, journal_names(self._directory, number, mark))
            except FileNotFoundError:
                notes.append(f"{path}: expected the names of this store's records, found no file")
            except FormatError as problem:
                notes.append(f"{problem}: set aside as {set_aside(path).name}")
        return notes

    def since(self, number: int, known: int) -> tuple[bytes, int]:
        """Return a frame with the names behind the first `known`, and the number then known.

        Empty if there are no more. A copy has no file for a table without names.
        """
        try:
            table = self.table(number)
        except FileNotFoundError:
            return b"", known
        if len(table) <= known:
            return b"", known
        first, parts, size = known + 1, [], 0
        while known < len(table) and size < _SAID_BYTES:
            known += 1
            text = table.bytes(known) or b""
            parts.append(_SIZE.pack(len(text)) + text)
            size += len(parts[-1])
        head = _HEAD.pack(number, table.capacity, table.key, first, len(parts))
        return head + b"".join(parts), known

    def take(self, said: bytes) -> None:
        """Keep names from another host's copy, as `since` returned them there.

        Raises
        ------
        ValueError
            The frame is invalid, or its names differ from those of this copy.
        """
        try:
            number, capacity, key, first, count = _HEAD.unpack_from(said)
            names, at = [], _HEAD.size
            for _ in range(count):
                (size,) = _SIZE.unpack_from(said, at)
                names.append(said[at + 2 : at + 2 + size])
                at += 2 + size
        except struct.error:
            raise ValueError(f"expected a complete NAMES frame, found {len(said)} bytes") from None
        if at > len(said) or not 0 < number < 1 << 32:
            raise ValueError(f"expected a complete NAMES frame, found {len(said)} bytes")
        table = self._open(number, capacity, key)
        for at, name in enumerate(names, first):
            if at > len(table) + 1:
                raise ValueError(
                    f"expected a NAMES frame from name {len(table) + 1}, found one from {at}"
                )
            own = table.bytes(at) if at <= len(table) else name
            if own != name or (at > len(table) and table.intern(name) != at):
                raise ValueError(f"expected name {at} to be {own!r}, as it is here, found {name!r}")

    def _open(self, number: int, capacity: int, key: bytes) -> NameTable:
        # Open, for writing, the table of a copy to which names are added.
        path = names_path(self._directory, number)
        if self._writing is None or self._writing[0] != number:
            self.close()
            try:
                region = reopen_names(path)
                table = NameTable(names_table(region))
            except FileNotFoundError:
                region = create_names(path, name_table_size(capacity))
                table = NameTable(names_table(region), capacity=capacity, key=key)
                region.mark_ready()
            self._writing = number, region
            self._tables[number] = table
        table = self._tables[number]
        if (table.capacity, table.key) != (capacity, key):
            raise ValueError(f"{path}: expected the source's table of names, found another")
        return table

    def sync(self) -> None:
        """Write all names to the disk; called before the records that use them are synced."""
        for number, table in list(self._tables.items()):
            count = len(table)
            if self._synced.get(number) == count:
                continue
            fd = os.open(names_path(self._directory, number), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            self._synced[number] = count

    def begin(self, capacity: int, used: int = 0) -> tuple[int, Region]:
        """Return number and region of the table of names for a feed: the last table or a new one.

        A new table is made if the capacity changes or the last one is damaged; it begins with the
        names of the last one. The caller owns the region and writes it.

        Parameters
        ----------
        capacity : int
            Room for this many names.
        used : int
            Number of the table of the last segment. A copy may have no file for it, and a new table
            must not get its number.

        Raises
        ------
        ValueError
            The store has more names than that already.
        """
        self.close()  # it was written as a copy; from now on the feed writes it
        number = max(last_names(self._directory), used)
        known: list[bytes] = []
        if names_path(self._directory, number).exists():
            try:
                last = self.table(number)
                known = [last.bytes(each) or b"" for each in range(1, len(last) + 1)]
                if last.capacity == capacity:
                    return number, reopen_names(names_path(self._directory, number))
            except FormatError:
                self._tables.pop(number, None)
        if len(known) > capacity:
            raise ValueError(
                f"at least {len(known)}, the number of names that the store has already"
            )
        path = names_path(self._directory, number + 1)
        region = create_names(path, name_table_size(capacity))
        table = NameTable(names_table(region), capacity=capacity)
        for name in known:
            table.intern(name)
        region.mark_ready()
        return number + 1, region

    def mark(self, number: int) -> int:
        """Return the mark that identifies a table in segment headers."""
        return self.table(number).mark

    def close(self) -> None:
        """Release the table that is being written. Idempotent."""
        if self._writing is not None:
            self._writing[1].close()
            self._writing = None


def _check_whole(path: Path, table: NameTable) -> None:
    # Check that each of the names that the table counts is there.
    for number in range(1, len(table) + 1):
        if table.bytes(number) is None:
            raise FormatError(f"{path}: expected {len(table)} names, found none for id {number}")
