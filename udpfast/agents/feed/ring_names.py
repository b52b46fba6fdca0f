"""The names beside a ring, or in a store, as bytes, for who hands them on."""

from __future__ import annotations

from pathlib import Path

from udpfast.archive.names import RingTable
from udpfast.market.names import name_text

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
    mark : int
        Of the table that the records go by, as their ring says; 0: it does not.
    texts : list of bytes
        `texts[id - 1]` is the name.
    number : int
        Of the table: another one's ids mean other names.
    """

    def __init__(self, directory: Path) -> None:
        self.texts: list[bytes] = []
        self.number = 0
        self.path = directory / "names"
        self.mark = 0
        self._own = RingTable()
        self._look_ns = 0

    def renew(self) -> bool:
        """Attach if there is no table yet, or a new one; return whether it did.

        At the start, and after a restart: a new writer may have begun a new table.
        """
        if not self._own.renew(self.path, self.mark):
            return False
        region = self._own.region
        self.number = 0 if region is None else region.created_ns & 0xFFFFFFFF
        self.texts = []
        return True

    def learn(self, now_ns: int) -> bool:
        """Take what was published since; return whether there was something.

        After records were read: the names that they carry were published before them.
        """
        if self._own.table is None:
            if now_ns < self._look_ns:
                return False
            self._look_ns = now_ns + _LOOK_NS
            self.renew()
        table = self._own.table
        if table is None:
            return False
        known, published = len(self.texts), len(table)
        for name_id in range(known + 1, published + 1):
            text = table.bytes(name_id)
            assert text is not None
            self.texts.append(text)
        return published > known

    def text(self, name_id: int) -> str:
        """Return a name, "" if it is not known."""
        if not 0 < name_id <= len(self.texts):
            return ""
        return name_text(self.texts[name_id - 1])
