"""The region of names: where an instance, and each file of names of a journal, has its table.

The table itself is in `market.names`.
"""

from __future__ import annotations

import os

from udpfast.shm.region import Region

__all__ = [
    "NAMES_KIND",
    "NAMES_LAYOUT",
    "attach_names",
    "create_names",
    "names_table",
    "reopen_names",
]

#: Kind and layout of the region.
NAMES_KIND = "NAME"
NAMES_LAYOUT = 1  # version of the table's header and entries
#: Offset of the table.
NAMES_TABLE = 4096


def attach_names(path: str | os.PathLike[str], writable: bool = False) -> Region:
    """Attach to the names at a path, as `Region.attach` does."""
    return Region.attach(path, NAMES_KIND, NAMES_LAYOUT, writable=writable)


def create_names(path: str | os.PathLike[str], table_bytes: int, *, huge: bool = False) -> Region:
    """Create a region with room for a table. An existing file is replaced at `mark_ready`.

    `huge` asks for pages of 2 MiB, as `Region.create` does.
    """
    return Region.create(
        path, NAMES_KIND, NAMES_TABLE + table_bytes, NAMES_LAYOUT, replace=True, huge=huge
    )


def reopen_names(path: str | os.PathLike[str], claim: bool = True) -> Region:
    """Become the writer of the names at a path, as `Region.reopen_for_write` does."""
    return Region.reopen_for_write(path, NAMES_KIND, NAMES_LAYOUT, claim=claim)


def names_table(region: Region) -> memoryview:
    """Return the memory of a region's table of names."""
    return region.view()[NAMES_TABLE:]
