"""Keep what name ids mean beside a journal's records, as it is recorded."""

from __future__ import annotations

import os
import re
from pathlib import Path

from udpfast.archive.names import names_path
from udpfast.errors import FormatError
from udpfast.market.names import NameTable, name_table_size
from udpfast.shm.names import attach_names, create_names, names_table, reopen_names
from udpfast.shm.region import Region

__all__ = ["NameCopy"]

_FILE = re.compile(r"([0-9]{8,19})\.names")


class NameCopy:
    """A copy of an instance's names in a journal's directory, which grows as they do.

    Parameters
    ----------
    instance : Path
        Directory of the instance.
    directory : Path
        Of the journal.

    Attributes
    ----------
    number : int
        Of the file of names; 0: the instance has none.
    mark : int
        By which that file is told from others of this number: segments name both.
    source : NameTable or None
        The instance's own.
    copied : int
        Names that the file has.
    """

    def __init__(self, instance: Path, directory: Path) -> None:
        self.number = 0
        self.mark = 0
        self.copied = 0
        self.source: NameTable | None = None
        self._instance = instance
        self._directory = directory
        self._synced = 0
        self._region: Region | None = None
        self._target_region: Region | None = None
        self.renew()

    def renew(self) -> bool:
        """Go on with the table that took the place of this one, if any did; return whether."""
        if self._region is not None and not self._region.replaced():
            return False
        try:
            region = attach_names(self._instance / "names")
        except FileNotFoundError:
            return False
        if self._region is not None:
            self.copy()  # what the old one got last
        self.close()
        self._region = region
        self.source = NameTable(names_table(region))
        names = (_FILE.fullmatch(path.name) for path in self._directory.iterdir())
        self.number = max((int(found[1]) for found in names if found), default=0)
        if not self.number or not self._continue_target(self.source):
            self.number += 1
            self._create_target(self.source.capacity)
        self.mark = self._target.mark
        self.copy()
        return True

    def _continue_target(self, source: NameTable) -> bool:
        # Whether the last file's names are the first ones of this table, in the same order.
        try:
            region = reopen_names(names_path(self._directory, self.number))
            target = NameTable(names_table(region))
        except FormatError:  # torn by a power cut
            return False
        if (
            target.capacity >= source.capacity
            and len(source) >= len(target)
            and all(target.bytes(each) == source.bytes(each) for each in range(1, len(target) + 1))
        ):
            self._target_region, self._target, self.copied = region, target, len(target)
            self._synced = 0
            return True
        region.close()
        return False

    def _create_target(self, capacity: int) -> None:
        path = names_path(self._directory, self.number)
        self._target_region = create_names(path, name_table_size(capacity))
        self._target = NameTable(names_table(self._target_region), capacity=capacity)
        self._target_region.mark_ready()
        self.copied = self._synced = 0

    def copy(self) -> None:
        """Copy what is new."""
        assert self.source is not None
        count = len(self.source)
        for each in range(self.copied + 1, count + 1):
            self._target.intern(self.source.bytes(each) or b"")
        self.copied = count

    def sync(self) -> None:
        """Have the disk take what was copied."""
        region, copied = self._target_region, self.copied
        if region is None or copied == self._synced:
            return
        fd = os.open(region.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        if region is self._target_region:  # not another one by now
            self._synced = copied

    def close(self) -> None:
        """Let go of both tables. Idempotent."""
        for region in (self._region, self._target_region):
            if region is not None:
                region.close()
