"""What name ids mean in a journal: its files `00000001.names`, `00000002.names`, ...

Ids are those of the ring's own table, and that begins anew when the host does. So a journal has a
file of names for each table that its records ever went by; a segment's header says which.
"""

from __future__ import annotations

import os
from pathlib import Path

from udpfast.errors import FormatError
from udpfast.market.names import NAMES_REGION_KIND, NameTable
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.region import Region

__all__ = ["REGION_PAGE", "journal_names", "names_path"]

#: Bytes of a region before its table.
REGION_PAGE = 4096


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
    region = Region.attach(path, NAMES_REGION_KIND, PAYLOAD_HASH)
    table = NameTable(region.view()[REGION_PAGE:])
    if mark and table.mark != mark:
        raise FormatError(
            f"{path}: expected names with mark {mark:08x}, as the segments have it, found "
            f"{table.mark:08x}: they are another journal's, or damaged"
        )
    return table
