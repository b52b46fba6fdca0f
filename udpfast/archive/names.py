"""What name ids mean: beside a ring, and in a journal's files `00000001.names`, `00000002.names`.

Ids are those of the ring's own table, and that begins anew when the host does. A ring says by a
mark which table its records go by. A journal has a file of names for each table that its records
ever went by; a segment's header says which.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from udpfast.errors import FormatError, NotReadyError
from udpfast.market.names import NameTable
from udpfast.shm.names import attach_names, names_table
from udpfast.shm.region import Region

__all__ = ["RingTable", "journal_names", "known_names", "names_path"]


class RingTable:
    """The table of names that the records of a ring go by, never one that took its place.

    Attributes
    ----------
    table : NameTable or None
        None: the ring has none, or it is lost.
    region : Region or None
        Where it lies.
    """

    def __init__(self) -> None:
        self.table: NameTable | None = None
        self.region: Region | None = None

    def renew(self, path: Path, mark: int = 0) -> bool:
        """Attach if there is no table yet, or another one; return whether it is another one now.

        At the start, behind a RESTART, and where one may have been missed.

        Parameters
        ----------
        path : Path
            Of the file with the table.
        mark : int
            Of the table that the records to come go by, as their ring says; 0: it does not.
        """
        table, region = self.table, self.region
        own = table is not None and mark in (0, table.mark)
        if own and region is not None and region.path == path and not region.replaced():
            return False
        try:
            region = attach_names(path)
        except (FileNotFoundError, NotReadyError):  # a new writer's: its RESTART comes after it
            if own or table is None:
                return False
        else:
            found = NameTable(names_table(region))
            if mark in (0, found.mark):
                self.table, self.region = found, region
                return True
            if own or table is None:
                return False
        self.table = self.region = None
        return True


def names_path(directory: Path, number: int) -> Path:
    """Return the path of a journal's file of names."""
    return directory / f"{number:08}.names"


def journal_names(directory: str | os.PathLike[str], number: int, mark: int) -> NameTable:
    """Return a journal's file of names, as its segments refer to it.

    Parameters
    ----------
    directory : str or path
        The journal's.
    number : int
        Of the file, as a segment has it.
    mark : int
        Of its table, as a segment has it; 0: the segment does not say.

    Raises
    ------
    FileNotFoundError
        There is none.
    FormatError
        It is torn, or of another journal.
    """
    path = names_path(Path(directory), number)
    table = NameTable(names_table(attach_names(path)))
    if mark and table.mark != mark:
        raise FormatError(
            f"{path}: expected names with mark {mark:08x}, as in the segments, found "
            f"{table.mark:08x}: the file is damaged, or another journal's"
        )
    return table


def known_names(directory: str | os.PathLike[str]) -> set[str]:
    """Return all names that any record of a journal or store may carry; of damaged files, none."""
    found: set[str] = set()
    for path in Path(directory).glob("*.names"):
        with contextlib.suppress(FileNotFoundError, FormatError):
            table = NameTable(names_table(attach_names(path)))
            found.update(table[each] or "" for each in range(1, len(table) + 1))
    return found
