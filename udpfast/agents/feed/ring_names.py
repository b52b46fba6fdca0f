"""The names beside a ring, or in a store, as bytes, for who hands them on."""

from __future__ import annotations

from pathlib import Path

from udpfast.errors import NotReadyError
from udpfast.market.names import NameTable, name_text
from udpfast.shm.names import attach_names, names_table
from udpfast.shm.region import Region

__all__ = ["RingNames"]

#: A ring that its owner gave no names never has any: they are not looked for at every record.
_LOOK_NS = 50_000_000


class RingNames:
    """Names by id, as far as they were published.

    Parameters
    ----------
    directory : Path
        The instance's.

    Attributes
    ----------
    path : Path
        Of the file with the table, of which `renew` takes notice.
    texts : list of bytes
        `texts[id - 1]` is the name.
    number : int
        Of the table: another one's ids mean other names.
    """

    def __init__(self, directory: Path) -> None:
        self.texts: list[bytes] = []
        self.number = 0
        self.path = directory / "names"
        self._region: Region | None = None
        self._table: NameTable | None = None
        self._look_ns = 0

    def renew(self) -> bool:
        """Attach if there is no table yet, or a new one; return whether it did.

        At the start, and after a restart: a new writer may have begun a new table.
        """
        region = self._region
        if region is not None and region.path == self.path and not region.replaced():
            return False
        try:
            region = attach_names(self.path)
        except (FileNotFoundError, NotReadyError):  # a new writer's: its RESTART comes after it
            return False
        self._region = region
        self._table = NameTable(names_table(region))
        self.number = region.created_ns & 0xFFFFFFFF
        self.texts = []
        return True

    def learn(self, now_ns: int) -> bool:
        """Take what was published since; return whether there was something.

        After records were read: the names that they carry were published before them.
        """
        if self._table is None:
            if now_ns < self._look_ns:
                return False
            self._look_ns = now_ns + _LOOK_NS
            self.renew()
            if self._table is None:
                return False
        known, published = len(self.texts), len(self._table)
        for name_id in range(known + 1, published + 1):
            text = self._table.bytes(name_id)
            assert text is not None
            self.texts.append(text)
        return published > known

    def text(self, name_id: int) -> str:
        """Return a name, "" if it is not known."""
        if not 0 < name_id <= len(self.texts):
            return ""
        return name_text(self.texts[name_id - 1])
