"""The registry of readers: their entries, which disappear when they die."""

import gc
import os
import random
import signal
import tempfile
from pathlib import Path

import pytest

from udpfast.core.layout import Kind
from udpfast.log import readers
from udpfast.log.cursor import RingCursor
from udpfast.log.readers import (
    READERS_MAX,
    ReaderInfo,
    ReaderRegistration,
    list_readers,
    reader_histograms,
    remove_dead_readers,
)
from udpfast.log.ring import Ring
from udpfast.shm import lock, region
from udpfast.shm.histogram import VALUE_MAX


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


def test_reader_that_is_dropped_leaves_as_well(tmp_path):
    registration = ReaderRegistration.create(tmp_path, "strategy")
    path = registration.region.path
    child = os.fork()
    if child == 0:
        del registration
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    assert path.exists()
    del registration
    gc.collect()
    assert not path.exists()


# --- entries that are not valid ----------------------------------------------------------------


def entry_of(registration):
    """Return the path of the entry of a reader."""
    return registration.region.path


@pytest.mark.parametrize("size", [0, 1, 127, 128, 4096, 541_183, 541_185, 1 << 40])
def test_entry_of_another_size_is_passed_over(tmp_path, size):
    with (
        ReaderRegistration.create(tmp_path, "good"),
        ReaderRegistration.create(tmp_path, "bad") as bad,
    ):
        path = entry_of(bad)
        bad.region.close()
        os.truncate(path, size)
        assert [info.name for info in list_readers(tmp_path)] == ["good"]
        assert [info.name for info, _ in reader_histograms(tmp_path)] == ["good"]
        assert remove_dead_readers(tmp_path) == 0  # by the name of the entry, its process lives


def test_entry_with_garbage_fails_no_tool(tmp_path):
    rng = random.Random(7)
    with Ring.create(tmp_path, 4096), ReaderRegistration.create(tmp_path, "bad") as bad:
        fd = os.open(entry_of(bad), os.O_RDWR)
        header = os.pread(fd, 128, 0)
        for n in range(300):
            start = rng.choice((0, 8, 12, 16, 24, 40, 48, 56, 128, 192, 256, 384))
            os.pwrite(fd, rng.randbytes(rng.choice((1, 8, 64, 4096))), start)
            if n % 3:
                os.pwrite(fd, header, 0)  # so that it looks like an entry
            for info, histograms in reader_histograms(tmp_path):
                assert info.name.isprintable()
                for histogram in histograms.values():
                    assert 0 <= histogram.percentile(99) <= VALUE_MAX + 1
            list_readers(tmp_path)
        os.close(fd)


def test_entry_counts_that_cannot_be_are_shown_as_none(tmp_path):
    with ReaderRegistration.create(tmp_path, "bad") as bad:
        with entry_of(bad).open("r+b") as file:
            file.seek(256 + 128 + 8 * 100)
            file.write((-5).to_bytes(8, "little", signed=True))
            file.write((1 << 62).to_bytes(8, "little"))
        ((_, histograms),) = reader_histograms(tmp_path)
        assert histograms["loop_to_strategy"].total == 0


def test_entry_names_nothing_that_steers_a_terminal(tmp_path):
    with ReaderRegistration.create(tmp_path, "\x1b[2J\nok\u202e"):
        assert list_readers(tmp_path)[0].name == "?[2J?ok?"


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.symlink_to("/etc/passwd"),
        lambda path: path.symlink_to(path),
        os.mkfifo,
        Path.touch,
    ],
    ids=["link", "loop", "pipe", "empty"],
)
def test_entry_that_is_no_file_blocks_nobody_and_goes(tmp_path, make):
    (tmp_path / "readers").mkdir()
    make(tmp_path / "readers" / "99999999-0")
    assert list_readers(tmp_path) == []
    with ReaderRegistration.create(tmp_path, "next"):
        assert [path.name for path in (tmp_path / "readers").iterdir()] == [f"{os.getpid()}-0"]
    assert Path("/etc/passwd").exists()


def test_entry_that_is_a_directory_stays_and_disturbs_nobody(tmp_path):
    (tmp_path / "readers" / "99999999-0").mkdir(parents=True)
    with ReaderRegistration.create(tmp_path, "next"):
        assert [info.name for info in list_readers(tmp_path)] == ["next"]


def test_entries_in_a_flood_are_looked_at_in_portions_and_all_go():
    with tempfile.TemporaryDirectory(prefix="udpfast-test-", dir="/dev/shm") as directory:
        readers = Path(directory) / "readers"
        readers.mkdir()
        for number in range(10_000):
            os.mknod(readers / f"99999999-{number}")
        assert remove_dead_readers(directory) == READERS_MAX
        with ReaderRegistration.create(directory, "next"):
            while remove_dead_readers(directory):
                pass
            assert [info.name for info in list_readers(directory)] == ["next"]


def test_entry_of_a_dead_reader_whose_child_lives_goes(tmp_path):
    """A fork holds the descriptor, and with it the lock, of an entry that is not its own."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        held = ReaderRegistration.create(tmp_path, "parent")
        child = os.fork()
        if child == 0:
            os.close(write_end)
            signal.pause()
        os.write(write_end, child.to_bytes(8, "little"))
        assert held
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    child = int.from_bytes(os.read(read_end, 8), "little")
    try:
        assert remove_dead_readers(tmp_path) == 1
    finally:
        os.kill(child, signal.SIGKILL)


def test_entry_that_names_a_process_of_another_user_is_dead(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to give an entry away")
    with ReaderRegistration.create(tmp_path, "liar") as liar:
        assert list_readers(tmp_path)[0].alive
        os.chown(entry_of(liar), 12_345, -1)
        assert not list_readers(tmp_path)[0].alive


def test_reader_where_processes_are_hidden_lives_by_its_lock_alone(tmp_path, monkeypatch):
    for module in (lock, readers, region):
        monkeypatch.setattr(module, "process_namespace", lambda: 0)
    with ReaderRegistration.create(tmp_path, "elsewhere") as registration:
        with entry_of(registration).open("r+b") as file:
            file.seek(40)  # RegionHeader.writer_pid
            file.write((1 << 30).to_bytes(8, "little"))  # no process has this id
        assert [info.alive for info in list_readers(tmp_path)] == [True]
        assert remove_dead_readers(tmp_path) == 0


def test_flood_of_files_that_name_a_living_process_hides_no_reader(tmp_path):
    with Ring.create(tmp_path, 4096), ReaderRegistration.create(tmp_path, "strategy"):
        for number in range(READERS_MAX + 100):
            path = tmp_path / "readers" / f"1-{number}"
            path.touch()
            os.utime(path, (0, 0))
        assert [info.name for info in list_readers(tmp_path)] == ["strategy"]
        assert [remove_dead_readers(tmp_path) for _ in range(3)] == [READERS_MAX, 100, 0]
        assert [info.name for info in list_readers(tmp_path)] == ["strategy"]
