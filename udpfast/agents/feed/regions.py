"""The files of an instance that its engine maps: kept, put in their places together, unmapped."""

from __future__ import annotations

from typing import Protocol

from udpfast.shm.region import Region

__all__ = ["Regions"]


class _Mapped(Protocol):
    def close(self) -> None: ...


class Regions:
    """What an engine has mapped.

    Parameters
    ----------
    huge_pages : bool
        The large ones shall have huge pages.
    """

    def __init__(self, huge_pages: bool) -> None:
        self.huge_pages = huge_pages
        self._mapped: list[_Mapped] = []
        self._made: list[Region] = []
        self._pages: list[tuple[str, int, int, str]] = []  # name, bytes wanted, got, why not

    def keep(self, owner: _Mapped, made: Region | None = None) -> None:
        """Close `owner` with the rest; `made` takes its place when all do."""
        self._mapped.append(owner)
        if made is not None:
            self._made.append(made)

    def put_later(self, made: Region) -> None:
        """Have a region that its owner closes take its place when all do."""
        self._made.append(made)

    def collapse(self, name: str, region: Region) -> None:
        """Give a region huge pages, if any shall have them."""
        if self.huge_pages:
            self._pages.append((name, *region.collapse()))

    def missing_pages(self) -> list[str]:
        """Return a sentence for each region that did not get the huge pages that were asked for."""
        return [
            f"huge pages for the {name}: got {got:,} of {wanted:,} bytes ({reason}); the rest is "
            "on ordinary pages, which are slower"
            for name, wanted, got, reason in self._pages
            if reason
        ]

    def put(self) -> None:
        """Put what was made in its places."""
        for region in self._made:
            region.mark_ready()
        self._made = []

    def close(self) -> None:
        """Unmap all. Idempotent."""
        for owner in self._mapped:
            owner.close()
        self._mapped = []
