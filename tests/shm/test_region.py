"""Regions: which files are refused, with which message, and who may write."""

import errno
import fcntl
import gc
import mmap
import os
import signal
import time
from pathlib import Path

import pytest

from udpfast.errors import RegionError, WriterExistsError
from udpfast.shm import region as region_module
from udpfast.shm.lock import process_start
from udpfast.shm.region import Region

SIZE = 8192
HASH = 0x1234_5678_9ABC_DEF0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "region"


@pytest.fixture
def region(path):
    with Region.create(path, "TEST", SIZE, HASH) as region:
        region.mark_ready()
        yield region


def overwrite(path, offset, data):
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_region_created_can_be_attached_and_read(region, path):
    region.view()[4096:4100] = b"data"
    with Region.attach(path, "TEST", HASH) as seen:
        assert seen.view()[4096:4100] == b"data"
        assert (seen.size_bytes, seen.writable, seen.path) == (SIZE, False, path)
        assert (seen.writer_pid, seen.created_ns) == (os.getpid(), region.created_ns)
        assert seen.writer_alive()


def test_region_header_has_its_literal_bytes(region, path):
    header = path.read_bytes()[:72]
    assert header[:16] == b"UDPFAST\0\x01\0\0\0TEST"
    assert header[16:24] == HASH.to_bytes(8, "little")
    assert header[24:32] == SIZE.to_bytes(8, "little")
    assert header[32:40] == region.created_ns.to_bytes(8, "little")
    assert header[40:48] == os.getpid().to_bytes(8, "little")
    assert header[48:56] == process_start(os.getpid()).to_bytes(8, "little")
    assert header[56:64] == (1).to_bytes(8, "little")
    assert header[64:72] == bytes(8)


def test_region_attached_is_mapped_read_only(region, path):
    with Region.attach(path, "TEST", HASH) as seen, pytest.raises(TypeError):
        seen.view()[4096:4100] = b"data"


@pytest.mark.parametrize(
    ("offset", "data", "message"),
    [
        (0, b"x", r"expected magic b'UDPFAST\\x00', found b'xDPFAST\\x00'"),
        (8, b"\x02", "expected version 1, found 2: it is of another version"),
        (12, b"REST", "expected kind b'TEST', found b'REST'"),
        (
            16,
            b"\xf1",
            "expected layout hash '123456789abcdef0', found '123456789abcdef1': it is of another",
        ),
        (24, b"\x01", "expected size 8193, found 8192"),
        (56, b"\x00", "expected ready 1, found 0"),
    ],
)
def test_region_with_another_header_is_refused(region, path, offset, data, message):
    overwrite(path, offset, data)
    with pytest.raises(RegionError, match=message):
        Region.attach(path, "TEST", HASH)


def test_region_truncated_is_refused(region, path):
    os.truncate(path, 4096)
    with pytest.raises(RegionError, match="expected size 8192, found 4096"):
        Region.attach(path, "TEST", HASH)
    os.truncate(path, 100)
    with pytest.raises(RegionError, match="expected at least 128 bytes, found 100"):
        Region.attach(path, "TEST", HASH)


def test_region_not_ready_yet_is_refused(path):
    with (
        Region.create(path, "TEST", SIZE, HASH),
        pytest.raises(RegionError, match="expected ready 1, found 0"),
    ):
        Region.attach(path, "TEST", HASH)


def test_region_behind_a_symbolic_link_is_refused(region, path, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(path)
    for attempt in (
        lambda: Region.attach(link, "TEST", HASH),
        lambda: Region.reopen_for_write(link, "TEST", HASH),
        lambda: Region.create(link, "TEST", SIZE, HASH, replace=True),
    ):
        with pytest.raises(RegionError, match="found a symbolic link"):
            attempt()
    with pytest.raises(FileExistsError):
        Region.create(link, "TEST", SIZE, HASH)
    assert link.is_symlink()


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_region_that_is_no_regular_file_is_refused(path, make):
    make(path)
    with pytest.raises(RegionError, match="expected a regular file"):
        Region.attach(path, "TEST", HASH)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_region_that_others_may_write_is_refused(region, path, mode):
    path.chmod(mode)
    with pytest.raises(RegionError, match=rf"owner .*mode {mode:04o}"):
        Region.attach(path, "TEST", HASH)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_region_of_another_user_is_refused(region, path):
    os.chown(path, 12345, -1)
    with pytest.raises(RegionError, match=r"expected owner 0 \(or root\), found 12345"):
        Region.attach(path, "TEST", HASH)
    region.close()
    with pytest.raises(RegionError, match="found 12345"):
        Region.create(path, "TEST", SIZE, HASH, replace=True)
    assert path.exists()


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_region_mode_is_exact_whatever_the_umask(path, mode):
    before = os.umask(0)
    try:
        with Region.create(path, "TEST", SIZE, HASH, mode=mode):
            assert path.stat().st_mode & 0o7777 == mode
    finally:
        os.umask(before)


def test_region_left_to_the_end_of_the_interpreter_closes_its_files(path, monkeypatch):
    gc.collect()  # it would close files of earlier tests meanwhile
    files = set(Path("/proc/self/fd").iterdir())
    region = Region.create(path, "TEST", SIZE, HASH)
    assert set(Path("/proc/self/fd").iterdir()) != files
    monkeypatch.setattr(region_module, "_close_all", None)  # names go first, in any order
    del region
    assert set(Path("/proc/self/fd").iterdir()) == files


def test_region_existing_is_not_created_again(region, path):
    with pytest.raises(FileExistsError):
        Region.create(path, "TEST", SIZE, HASH)


def test_region_of_a_living_writer_is_neither_replaced_nor_reopened(region, path):
    message = f"expected no writer, found process {os.getpid()}"
    with pytest.raises(WriterExistsError, match=message):
        Region.create(path, "TEST", SIZE, HASH, replace=True)
    with pytest.raises(WriterExistsError, match=message):
        Region.reopen_for_write(path, "TEST", HASH)
    assert not region.replaced()


def test_region_of_a_dead_writer_is_reopened_with_its_contents(region, path):
    region.view()[4096:4100] = b"data"
    region.close()
    with Region.reopen_for_write(path, "TEST", HASH) as second:
        assert second.view()[4096:4100] == b"data"
        assert second.writable


def test_region_lock_outlives_views_but_not_its_writer(region, path):
    view = region.view()
    region.close()
    with Region.reopen_for_write(path, "TEST", HASH):
        assert view[:7] == b"UDPFAST"


def test_region_reopened_with_another_layout_is_refused_and_unlocked(region, path):
    region.close()
    with pytest.raises(RegionError, match="layout hash"):
        Region.reopen_for_write(path, "TEST", 5)
    Region.reopen_for_write(path, "TEST", HASH).close()


def test_region_replaced_says_so_to_who_still_holds_it(region, path):
    region.close()
    old = Region.attach(path, "TEST", HASH)
    assert not old.replaced()
    with Region.create(path, "TEST", SIZE, HASH, replace=True) as new:
        assert not old.replaced()
        new.mark_ready()
        assert old.replaced()
        assert not new.replaced()
    path.unlink()
    assert old.replaced()


@pytest.mark.parametrize("why", ["closed", "dropped", "no room", "killed"])
def test_region_never_made_ready_leaves_what_was_there(region, path, monkeypatch, why):
    region.view()[128:132] = b"kept"
    region.close()
    before = path.stat()
    if why == "no room":
        monkeypatch.setattr(os, "posix_fallocate", raise_no_space)
        with pytest.raises(OSError, match="reserve"):
            Region.create(path, "TEST", SIZE, HASH, replace=True)
    elif why == "killed":
        child = os.fork()
        if child == 0:
            _new = Region.create(path, "TEST", SIZE, HASH, replace=True)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        assert len(list(path.parent.iterdir())) == 2
    else:
        new = Region.create(path, "TEST", SIZE, HASH, replace=True)
        new.close() if why == "closed" else None
        del new
    after = path.stat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    with Region.attach(path, "TEST", HASH) as seen:
        assert bytes(seen.view()[128:132]) == b"kept"
    monkeypatch.undo()
    with Region.create(path, "TEST", 2 * SIZE, HASH, replace=True) as new:
        new.mark_ready()
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_region_of_no_use_to_anybody_makes_room_for_the_next(region, path):
    region.close()
    with Region.create(path, "TEST", SIZE, HASH, replace=True, keep=False) as new:
        assert not path.exists()
        new.mark_ready()
        assert path.exists()


def test_two_that_replace_one_region_meet_at_its_lock(region, path):
    region.close()
    with Region.create(path, "TEST", SIZE, HASH, replace=True) as new:
        with pytest.raises(WriterExistsError):
            Region.create(path, "TEST", SIZE, HASH, replace=True)
        with pytest.raises(WriterExistsError):
            Region.reopen_for_write(path, "TEST", HASH)
        new.mark_ready()
        with pytest.raises(WriterExistsError, match=f"found process {os.getpid()}"):
            Region.create(path, "TEST", SIZE, HASH, replace=True)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_child_forked_by_the_writer_holds_no_lock_when_that_is_gone(path):
    ready, tell = os.pipe()
    parent = os.fork()
    if parent == 0:
        region = Region.create(path, "TEST", SIZE, HASH, replace=True)
        region.mark_ready()
        if os.fork() == 0:
            os.write(tell, b"%d" % os.getpid())
        time.sleep(60)
        os._exit(0)
    child = int(os.read(ready, 20))
    try:
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        Region.reopen_for_write(path, "TEST", HASH).close()
    finally:
        os.kill(child, signal.SIGKILL)


def test_lock_that_outlives_its_writer_is_said_to_be_whose_it_is(path):
    keep, tell = os.pipe()
    parent = os.fork()
    if parent == 0:
        region = Region.create(path, "TEST", SIZE, HASH, replace=True)
        region.mark_ready()
        # Lock the file by a descriptor that is not the region's, so that the child keeps it.
        fd = os.open(path, os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_UN)
        region.close()
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fork() == 0:
            os.write(tell, b"%d" % os.getpid())
        time.sleep(60)
        os._exit(0)
    child = int(os.read(keep, 20))
    try:
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        with pytest.raises(
            WriterExistsError,
            match=rf"{parent}.* dead.* process {child} .*holds",
        ):
            Region.reopen_for_write(path, "TEST", HASH)
    finally:
        os.kill(child, signal.SIGKILL)


def test_writer_killed_is_seen_as_dead_and_its_region_is_free(path):
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        child = Region.create(path, "TEST", SIZE, HASH)
        child.mark_ready()
        os.write(write_end, b"1")
        signal.pause()
    os.read(read_end, 1)
    seen = Region.attach(path, "TEST", HASH)
    assert seen.writer_pid == pid
    assert seen.writer_alive()
    with pytest.raises(WriterExistsError, match=f"found process {pid}"):
        Region.reopen_for_write(path, "TEST", HASH)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert not seen.writer_alive()
    with Region.reopen_for_write(path, "TEST", HASH):
        assert seen.writer_pid == os.getpid()
        assert seen.writer_alive()


def test_writer_in_sight_lives_for_who_may_not_open_its_file_any_more(region, path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, "the directory was closed to the group")

    with Region.attach(path, "TEST", HASH) as seen:
        monkeypatch.setattr(region_module, "open_existing", refuse)
        assert seen.writer_alive()


def test_writer_stopped_keeps_its_region(path):
    """A process that is stopped by SIGSTOP still owns its region: nobody else can take it over."""
    pid = os.fork()
    if pid == 0:
        child = Region.create(path, "TEST", SIZE, HASH)
        child.mark_ready()
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(pid, os.WUNTRACED)
    try:
        with pytest.raises(WriterExistsError, match=f"found process {pid}"):
            Region.reopen_for_write(path, "TEST", HASH)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def raise_no_space(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_region_larger_than_its_file_system_names_need_and_free_space(path, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", raise_no_space)
    with pytest.raises(OSError, match=r"reserve 8192 bytes \(\d+ free\).*No space left") as caught:
        Region.create(path, "TEST", SIZE, HASH)
    assert caught.value.errno == errno.ENOSPC
    assert not path.exists()


def test_region_in_dev_shm_beyond_its_size_is_refused_at_create():
    free = os.statvfs("/dev/shm")
    need = 2 * free.f_blocks * free.f_frsize
    path = Path(f"/dev/shm/udpfast-test-{os.getpid()}")
    with pytest.raises(OSError, match=f"reserve {need} bytes"):
        Region.create(path, "TEST", need, HASH)
    assert not path.exists()


def test_region_memory_is_there_before_it_is_used(region, path):
    status = path.stat()
    assert status.st_blocks * 512 >= SIZE
    assert status.st_size % mmap.PAGESIZE == 0


def test_region_description_is_read_back(region, path):
    region.describe({"lines": ["A", "é"]})
    with Region.attach(path, "TEST", HASH) as seen:
        assert seen.description() == {"lines": ["A", "é"]}
    with pytest.raises(ValueError, match="description must fit 3968 bytes, has 40"):
        region.describe({"x": "y" * 4000})


@pytest.mark.parametrize(
    ("size", "text", "message"),
    [
        (5000, b"", "at most 3968 bytes, found 5000"),
        (3, b"{,}", "a JSON desc"),
        (3000, 3000 * b"[", "a JSON desc"),
        (2, b"[]", "a JSON ob"),
    ],
)
def test_region_description_damaged_is_refused(region, path, size, text, message):
    overwrite(path, 64, size.to_bytes(8, "little"))
    overwrite(path, 128, text)
    with pytest.raises(RegionError, match=message):
        region.description()


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_region_closed_while_it_is_being_closed_closes_its_files_once(path, monkeypatch, mode):
    region = Region.create(path, "TEST", SIZE, HASH, mode=mode)
    close, closed = os.close, []

    def close_and_be_overtaken(descriptor):
        close(descriptor)
        closed.append(descriptor)
        region.close()  # as another thread may do just now

    monkeypatch.setattr(os, "close", close_and_be_overtaken)
    region.close()
    monkeypatch.undo()
    assert len(closed) == len(set(closed)) == (1 if mode == 0o600 else 2)


def test_region_after_close_refuses_everything(region):
    region.close()
    region.close()
    assert region.closed
    for attempt in (region.view, region.mark_ready, region.writer_alive, region.description):
        with pytest.raises(ValueError, match="is closed"):
            attempt()


@pytest.mark.parametrize("kind", ["", "ABC", "ABCDE"])
def test_kind_of_another_length_is_refused(path, kind):
    with pytest.raises(ValueError, match="kind must have 4 characters"):
        Region.create(path, kind, SIZE, HASH)
    assert not path.exists()


def test_process_start_names_processes_for_good():
    assert process_start(os.getpid()) > 0
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert process_start(pid) == 0  # a zombie is dead
    os.waitpid(pid, 0)
    assert process_start(pid) == 0
