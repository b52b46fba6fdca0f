"""Keep what name ids mean beside a journal's records, as it is recorded."""

from __future__ import annotations

import re
from pathlib import Path

from udpfast.archive.names import RingTable, names_path
from udpfast.errors import FormatError
from udpfast.market.names import NameTable, name_table_size
from udpfast.shm.files import sync_path
from udpfast.shm.names import create_names, names_table, reopen_names
from udpfast.shm.region import Region

__all__ = ["NameCopy"]

_FILE = re.compile(r"([0-9]{8,19})\.names")


class NameCopy:
    """A copy of an instance's names in a journal's directory, which grows as they do.

    `sync` may be called from another thread than the rest.

    Parameters
    ----------
    instance : Path
        Directory of the instance.
    directory : Path
        Of the journal.
    ring_mark : int
        Of the table that the ring's records go by, as it says; 0: it does not.

    Attributes
    ----------
    number : int
        Of the file of names; 0: the records have none.
    mark : int
        By which that file is told from others of this number: segments name both.
    copied : int
        Names that the file has.
    """

    def __init__(self, instance: Path, directory: Path, ring_mark: int) -> None:
        self.number = 0
        self.mark = 0
        self.copied = 0
        self._own = RingTable()
        self._instance = instance
        self._directory = directory
        self._synced = 0
        self._unsynced: list[Path] = []  # files before this one that the disk has not all of
        self._target_region: Region | None = None
        self.renew(ring_mark)

    @property
    def source(self) -> NameTable | None:
        """The instance's own table."""
        return self._own.table

    def renew(self, ring_mark: int) -> bool:
        """Go on with the table that took the place of this one, if any did; return whether.

        With none, where the one that the ring speaks of is lost.
        """
        before = self._own.region, self._own.table
        if not self._own.renew(self._instance / "names", ring_mark):
            return False
        if before[1] is not None:
            self._copy(before[1])  # what the old one got last
        if self._target_region is not None and self.copied != self._synced:
            self._unsynced.append(self._target_region.path)
        for region in (before[0], self._target_region):
            if region is not None:
                region.close()
        self._target_region = None
        self.number = self.mark = self.copied = 0
        if self.source is not None:
            self._open_target(self.source)
            self.copy()
        return True

    def _open_target(self, source: NameTable) -> None:
        names = (_FILE.fullmatch(path.name) for path in self._directory.iterdir())
        self.number = max((int(found[1]) for found in names if found), default=0)
        if not self.number or not self._continue_target(source):
            self.number += 1
            self._create_target(source.capacity)
        self.mark = self._target.mark

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
        region = create_names(path, name_table_size(capacity))
        try:
            self._target = NameTable(names_table(region), capacity=capacity)
            region.mark_ready()
        except BaseException:
            region.close()
            raise
        self.copied = self._synced = 0
        self._target_region = region  # only now is there a file to sync

    def copy(self) -> None:
        """Copy what is new."""
        assert self.source is not None
        self._copy(self.source)

    def _copy(self, source: NameTable) -> None:
        count = len(source)
        exchanges = set(source.exchanges)
        for each in range(self.copied + 1, count + 1):
            self._target.intern(source.bytes(each) or b"", each in exchanges)
        self.copied = count

    def sync(self) -> None:
        """Have the disk take what was copied."""
        while self._unsynced:
            sync_path(self._unsynced[0])
            del self._unsynced[0]
        region, copied = self._target_region, self.copied
        if region is None or copied == self._synced:
            return
        sync_path(region.path)
        if region is self._target_region:  # not another one by now
            self._synced = copied

    def close(self) -> None:
        """Let go of both tables. Idempotent."""
        for region in (self._own.region, self._target_region):
            if region is not None:
                region.close()
