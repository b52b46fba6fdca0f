"""Tables of names, which say what name ids mean: those of a ring and those of a journal.

Ids are those of the ring's own table, which begins anew when the host does. A ring names the table
of its records by a mark. A journal has a file (`00000001.names`, ...) for each table that its
records ever used; the header of a segment says which one.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from udpfast.errors import FormatError, NotReadyError
from udpfast.market.names import NameTable
from udpfast.shm.names import attach_names, names_table
from udpfast.shm.region import Region

__all__ = [
    "RingTable",
    "damaged_names",
    "journal_names",
    "known_names",
    "names_by_role",
    "names_path",
]


class RingTable:
    """The table of names that the records of a ring use, even if the file has been replaced.

    Attributes
    ----------
    table : NameTable or None
        None: the ring has none, or it is lost.
    region : Region or None
        The region of the table.
    """

    def __init__(self) -> None:
        self.table: NameTable | None = None
        self.region: Region | None = None

    def renew(self, path: Path, mark: int = 0) -> bool:
        """Attach to the table if there is none yet or another one; return whether it changed.

        Call it at the start, behind a RESTART, and where a RESTART may have been missed.

        Parameters
        ----------
        path : Path
            The file with the table.
        mark : int
            Mark of the table that the next records use, as their ring states it; 0: not stated.
        """
        table, region = self.table, self.region
        own = table is not None and mark in (0, table.mark)
        if own and region is not None and region.path == path and not region.replaced():
            return False
        try:
            region = attach_names(path)
        except (FileNotFoundError, NotReadyError):  # a new writer's, which comes before its RESTART
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
    """Return a table of names that segments of a journal use.

    Parameters
    ----------
    directory : str or path
        The journal's directory.
    number : int
        Number of the file, from a segment's header.
    mark : int
        Mark of the table, from a segment's header; 0: not stated there.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    FormatError
        The file is damaged, or belongs to another journal.
    """
    path = names_path(Path(directory), number)
    table = NameTable(names_table(attach_names(path)))
    if mark and table.mark != mark:
        raise FormatError(
            f"{path}: expected names with mark {mark:08x}, as in the segments, found "
            f"{table.mark:08x}: the file is damaged, or another journal's"
        )
    return table


def damaged_names(table: NameTable) -> int:
    """Return how many names of a table are damaged, so that their ids have none."""
    return sum(table.bytes(each) is None for each in range(1, len(table) + 1))


def names_by_role(table: NameTable) -> tuple[set[str], set[str]]:
    """Return the exchanges and the symbols of a table; all names as both if it does not say."""
    names = [table[each] or "" for each in range(1, len(table) + 1)]
    exchanges = {names[each - 1] for each in table.exchanges}
    return (exchanges, set(names) - exchanges) if exchanges else (set(names), set(names))


def known_names(directory: str | os.PathLike[str]) -> tuple[set[str], set[str]]:
    """Return all exchanges and symbols that records of a journal or store may name.

    Damaged files are left out.
    """
    exchanges: set[str] = set()
    symbols: set[str] = set()
    for path in Path(directory).glob("*.names"):
        with contextlib.suppress(FileNotFoundError, FormatError):
            found = names_by_role(NameTable(names_table(attach_names(path))))
            exchanges |= found[0]
            symbols |= found[1]
    return exchanges, symbols
