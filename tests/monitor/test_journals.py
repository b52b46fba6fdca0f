"""Journals and disks: of writers that live, ended or died; damaged, foreign, removed."""

import os
import signal
from pathlib import Path

import msgspec
import pytest

from tests.waiting import wait_until
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.archive.feed_settings import write_feed
from udpfast.config import parse_feed
from udpfast.core.layouts import CONTROL_LAYOUTS
from udpfast.log.journal import Journal
from udpfast.monitor import journals
from udpfast.monitor.journals import (
    DiskStatus,
    JournalStatus,
    feed_journals,
    list_journals,
    read_journals,
)
from udpfast.shm.instance import instance_directory


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "journals"))


def opened(directory: Path, unix_ns: int = 0) -> Journal:
    directory.mkdir(mode=0o700, parents=True)
    journal = Journal.open(directory, CONTROL_LAYOUTS, segment_bytes=1 << 18)
    while not journal.ready:
        journal.prepare()
    journal.roll(1, unix_ns=unix_ns)
    return journal


def write(journal: Journal, count: int, published_ns: int = 0) -> None:
    for _ in range(count):
        journal.append(1, bytes(56), published_ns=published_ns)
    journal.flush(7)


def killed(directory: Path) -> None:
    """Leave what a writer leaves that was killed."""
    pid = os.fork()
    if pid == 0:
        write(opened(directory), 3)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


def test_journal_that_is_written_says_how_far_it_is_and_how_fast_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journals" / "deribit"
    now_ns = [0]
    monkeypatch.setattr(journals, "realtime_ns", lambda: now_ns[0])

    def look(age_s: float) -> JournalStatus:
        now_ns[0] = begun_ns + int(age_s * 1e9)
        return read_journals([path]).found[str(path)]

    begun_ns = 10**18
    with opened(path, begun_ns) as journal:
        write(journal, 10, begun_ns + 95 * 10**9)
        assert list_journals() == [path]
        first = look(9.0)
        assert (first.state, first.records, first.segments) == ("writing", 10, 1)
        assert first.written_bytes == first.kept_bytes == first.unsynced_bytes > 0
        assert (first.bytes_per_s, first.synced_unix_ns) == (None, 0)
        journal.sync(8)
        write(journal, 10, begun_ns + 95 * 10**9)
        second = look(20.0)
        assert second.unsynced_bytes == first.written_bytes == second.written_bytes / 2
        assert second.bytes_per_s == second.written_bytes / 20
        (disk,) = read_journals(list_journals()).disks
        assert disk.bytes_per_s == second.bytes_per_s
        assert disk.full_s == disk.free_bytes / disk.bytes_per_s
        assert 0 < disk.free_bytes <= disk.size_bytes
        while not journal.ready:
            journal.prepare()
        journal.roll(1, unix_ns=begun_ns + 100 * 10**9)
        write(journal, 10)
        assert look(105.0).bytes_per_s == 3 * first.written_bytes / 105  # the new file is too young
        assert look(130.0).bytes_per_s == 3 * first.written_bytes / 130
        assert look(200.0).bytes_per_s == first.written_bytes / 100
    assert look(200.0).bytes_per_s == 0  # nothing more comes


def test_journal_that_another_writer_goes_on_with_is_not_said_to_have_grown_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journals" / "deribit"
    begun_ns = 10**18
    with opened(path, begun_ns) as journal:
        write(journal, 10, begun_ns + 10**9)
    with Journal.open(path, CONTROL_LAYOUTS, segment_bytes=1 << 18) as journal:
        while not journal.ready:
            journal.prepare()
        journal.roll(1, unix_ns=begun_ns + 86_400 * 10**9)
        write(journal, 10)
        monkeypatch.setattr(journals, "realtime_ns", lambda: begun_ns + 86_420 * 10**9)
        found = read_journals([path]).found[str(path)]
        assert found.bytes_per_s == found.written_bytes / 2 / 20


def test_journals_whose_writer_ended_or_died_are_told_apart(tmp_path: Path) -> None:
    ended, dead = (tmp_path / "journals" / name for name in ("ended", "dead"))
    with opened(ended) as journal:
        write(journal, 2)
    killed(dead)
    found = read_journals(list_journals()).found
    assert {Path(path).name: (each.state, each.records) for path, each in found.items()} == {
        "ended": ("closed", 2),
        "dead": ("dead", 3),
    }


def test_damaged_foreign_and_removed_journals_are_said_and_hide_no_other(tmp_path: Path) -> None:
    root = tmp_path / "journals"
    for name in ("cut", "foreign", "open", "sound", "removed", "zeros"):
        with opened(root / name) as journal:
            write(journal, 1)
    for name, content in (("cut", b"x"), ("foreign", b"\x1b[2J" * 4096), ("zeros", bytes(8192))):
        (root / name / "journal").write_bytes(content)
    (root / "open").chmod(0o777)
    places = list_journals()
    (root / "removed").rename(tmp_path / "elsewhere")
    read = read_journals(places)
    assert {Path(path).name for path in read.found} == {"sound"}
    assert {Path(path).name for path in read.unreadable} == {
        *("cut", "foreign", "open", "removed", "zeros")
    }
    assert all(read.unreadable.values())


def test_disks_are_told_apart_and_what_grows_on_one_is_summed() -> None:
    def journal(device: int, rate: float | None) -> journals.JournalStatus:
        counts = dict.fromkeys(journals.JournalStatus.__struct_fields__, 0)
        return msgspec.convert(
            counts | {"directory": "/", "state": "writing", "device": device, "bytes_per_s": rate},
            journals.JournalStatus,
        )

    found = list(journals._disks([journal(1, 5.0), journal(2, None), journal(1, 7.0)]))
    assert [(disk.device, disk.bytes_per_s) for disk in found] == [(1, 12.0), (2, None)]
    assert found[1].full_s is None
    assert DiskStatus("/", 1, 100, 0, 0.0).full_s is None


@pytest.mark.parametrize(
    ("what", "expected"),
    [("records", ["x"]), ("raw", ["x/raw"]), ("both", ["x", "x/raw"])],
)
def test_journals_of_a_feed_are_those_of_its_recorder(
    tmp_path: Path, what: str, expected: list[str]
) -> None:
    lines = [{"name": "A", "address": "127.0.0.1:0"}]
    settings = {"name": "x", "incremental": {"lines": lines}}
    settings |= {"record": {"enabled": True, "what": what}}
    instance = instance_directory("x", create=True)
    write_feed(parse_feed(settings), instance)
    assert feed_journals(instance) == []  # its recorder has not begun one yet
    with Subscriber(settings):
        root = tmp_path / "journals"
        wait_until(
            lambda: feed_journals(instance) == [root / each for each in expected], "journals"
        )
    (instance / "feed.json").write_bytes(b"{")
    assert feed_journals(instance) == []
    (instance / "feed.json").unlink()
    assert feed_journals(instance) == []


def test_journal_of_a_feed_with_a_store_is_the_store(tmp_path: Path) -> None:
    lines = [{"name": "A", "address": "127.0.0.1:0"}]
    with Subscriber({"name": "x", "output": "store", "incremental": {"lines": lines}}):
        assert feed_journals(tmp_path / "shm" / "x") == [tmp_path / "journals" / "x"]
    (found,) = read_journals(feed_journals(tmp_path / "shm" / "x")).found.values()
    assert found.state == "closed"
