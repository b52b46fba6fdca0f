"""What name ids mean in a journal: its files `00000001.names`, `00000002.names`, ...

Ids are those of the ring's own table, and that begins anew when the host does. So a journal has a
file of names for each table that its records ever went by; a segment's header says which.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from udpfast.errors import FormatError
from udpfast.market.names import NameTable
from udpfast.shm.names import attach_names, names_table

__all__ = ["journal_names", "known_names", "names_path"]


def names_path(directory: Path, number: int) -> Path:
    """Return the path of a journal's file of names."""
    return directory / f"{number:08}.names"


def journal_names(directory: str | os.PathLike[str], number: int, mark: int) -> NameTable:
    """Return a journal's file of names, as its segments refer to it.

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
