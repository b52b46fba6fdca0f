"""The copy of names beside a journal, which the keeper's thread syncs while another renews it."""

import os
from pathlib import Path
from typing import Any

import pytest

from udpfast.agents.feed import name_copy
from udpfast.agents.feed.name_copy import NameCopy
from udpfast.archive.names import journal_names
from udpfast.market.names import NameTable, name_table_size
from udpfast.shm.names import create_names, names_table
from udpfast.shm.region import Region

CAPACITY = 64


class Feed:
    """A directory of an instance that has names, and takes others, as a feed begun anew does."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700)
        self.region: Region | None = None

    def begin(self, *names: str) -> NameTable:
        if self.region is not None:
            self.region.close()
        self.region = create_names(self.directory / "names", name_table_size(CAPACITY))
        self.table = NameTable(names_table(self.region), capacity=CAPACITY)
        for name in names:
            self.table.intern(name)
        self.region.mark_ready()
        return self.table


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "feed")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    (tmp_path / "journal").mkdir()
    return tmp_path / "journal"


def test_sync_amid_the_making_of_another_file(
    feed: Feed, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = NameCopy(feed.directory, journal, feed.begin("ONE", "TWO").mark)
    copy.sync()
    feed.begin("OTHER")
    making: list[str] = []

    def make_table(memory: memoryview, **options: Any) -> NameTable:
        making.append("capacity" if "capacity" in options else "attach")
        copy.sync()  # as the other thread may at any time
        return NameTable(memory, **options)

    monkeypatch.setattr(name_copy, "NameTable", make_table)
    assert copy.renew(feed.table.mark)
    assert "capacity" in making, "no file was made: the test shows nothing"
    copy.sync()
    copy.close()
    assert copy.number == 2
    assert journal_names(journal, 2, copy.mark).bytes(1) == b"OTHER"


@pytest.mark.parametrize("late", [0, 1], ids=["all synced", "one more name"])
def test_disk_takes_the_last_names_of_a_table_that_was_replaced(
    feed: Feed, journal: Path, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    synced: list[str] = []
    real = os.fsync

    def note(fd: int) -> None:
        real(fd)
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)

    monkeypatch.setattr(os, "fsync", note)
    before = feed.begin("ONE")
    copy = NameCopy(feed.directory, journal, before.mark)
    copy.sync()
    for number in range(late):
        before.intern(f"LATE-{number}")
    feed.begin("OTHER")
    assert copy.renew(feed.table.mark)
    copy.sync()
    copy.sync()  # the disk has it
    copy.close()
    assert synced == ["00000001.names"] * (1 + late) + ["00000002.names"]
    assert len(journal_names(journal, 1, 0)) == 1 + late
