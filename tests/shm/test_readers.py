"""The registry of readers: what they say of themselves, and that the dead leave no trace."""

import os
import signal

import pytest

from udpfast.core.layout import Kind
from udpfast.shm.cursor import RingCursor
from udpfast.shm.readers import (
    ReaderInfo,
    ReaderRegistration,
    list_readers,
    remove_dead_readers,
)
from udpfast.shm.ring import Ring


def test_reader_registered_is_listed_with_what_it_reported(tmp_path):
    with (
        Ring.create(tmp_path, 4096) as ring,
        RingCursor.attach(tmp_path, start="begin") as cursor,
        ReaderRegistration.create(tmp_path, "strategy") as registration,
    ):
        for _ in range(100):
            ring.append(Kind.MESSAGE, b"x" * 64)
        count = cursor.poll(3)
        registration.report(cursor, now_ns=123)
        expected = ReaderInfo(
            pid=os.getpid(),
            name="strategy",
            position=cursor.position,
            index=cursor.index,
            lapped=cursor.lapped_total,
            polled_ns=123,
            alive=True,
            began_index=0,
            read=0,
        )
        assert list_readers(tmp_path) == [expected]
        assert cursor.index == count + cursor.lapped_total
    assert list_readers(tmp_path) == []


def test_readers_of_one_process_have_entries_of_their_own(tmp_path):
    with ReaderRegistration.create(tmp_path, "a"), ReaderRegistration.create(tmp_path, "b"):
        assert [info.name for info in list_readers(tmp_path)] == ["a", "b"]


def test_reader_name_longer_than_the_entry_is_cut(tmp_path):
    with ReaderRegistration.create(tmp_path, "é" * 40):
        assert list_readers(tmp_path)[0].name == "é" * 32


def register_and_die(directory, mark_ready=True):
    """Register in a child that is killed before it can remove its entry."""
    pid = os.fork()
    if pid == 0:
        registration = ReaderRegistration.create(directory, "doomed")
        if not mark_ready:
            with registration.region.path.open("r+b") as file:
                file.seek(56)  # RegionHeader.ready
                file.write(bytes(8))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("mark_ready", [True, False])
def test_reader_killed_is_removed_by_the_next(tmp_path, mark_ready):
    register_and_die(tmp_path, mark_ready)
    assert [info.alive for info in list_readers(tmp_path)] == [False] * mark_ready
    with ReaderRegistration.create(tmp_path, "next"):
        assert [info.name for info in list_readers(tmp_path)] == ["next"]
        assert len(list((tmp_path / "readers").iterdir())) == 1


def test_dead_readers_are_counted_and_living_ones_stay(tmp_path):
    with ReaderRegistration.create(tmp_path, "alive"):
        register_and_die(tmp_path)
        assert remove_dead_readers(tmp_path) == 1
        assert remove_dead_readers(tmp_path) == 0
        assert [info.name for info in list_readers(tmp_path)] == ["alive"]


def test_directory_without_readers_has_none(tmp_path):
    assert list_readers(tmp_path) == []
    assert remove_dead_readers(tmp_path) == 0


def test_registration_after_close_refuses_to_report(tmp_path):
    with Ring.create(tmp_path, 4096), RingCursor.attach(tmp_path) as cursor:
        registration = ReaderRegistration.create(tmp_path, "x")
        registration.close()
        registration.close()
        with pytest.raises(ValueError, match="is closed"):
            registration.report(cursor, 0)


def test_close_in_a_forked_child_leaves_the_entry(tmp_path):
    with ReaderRegistration.create(tmp_path, "strategy") as registration:
        child = os.fork()
        if child == 0:
            registration.close()
            os._exit(0)
        assert os.waitpid(child, 0) == (child, 0)
        assert [reader.name for reader in list_readers(tmp_path)] == ["strategy"]
