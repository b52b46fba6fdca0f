"""Writers and readers in another pid namespace, as in containers that share /dev/shm."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from udpfast.errors import WriterExistsError
from udpfast.log.cursor import RingCursor
from udpfast.log.readers import ReaderRegistration, list_readers, remove_dead_readers
from udpfast.log.ring import Ring

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]
ALONE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")

REGISTER = """
from udpfast.log.readers import ReaderRegistration
held = ReaderRegistration.create(sys.argv[1], "contained")
"""
WRITE = """
from udpfast.log.ring import Ring
held = Ring.create(sys.argv[1], 4096)
"""
# Which processes outside the container a process within it sees.
LOOK = """
from udpfast.log.readers import list_readers, remove_dead_readers
from udpfast.log.cursor import RingCursor
print(remove_dead_readers(sys.argv[1]))
print([reader.name for reader in list_readers(sys.argv[1]) if reader.alive])
print(RingCursor.attach(sys.argv[1]).region.writer_alive())
"""


@pytest.fixture(scope="module", autouse=True)
def namespaces() -> None:
    if shutil.which("unshare") is None or subprocess.run((*ALONE, "true"), check=False).returncode:
        pytest.skip("no pid namespaces here")


def contained(code: str, directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (*ALONE, sys.executable, "-c", f"import sys\n{code}", str(directory)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@contextmanager
def holding(code: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    process = contained(code + "print('ready', flush=True)\nsys.stdin.read()\n", directory)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()  # kills the child as well, before it could tidy up
        process.communicate()


def test_reader_in_another_pid_namespace_stays_until_it_dies(tmp_path: Path) -> None:
    with holding(REGISTER, tmp_path):
        assert remove_dead_readers(tmp_path) == 0
        assert [(reader.name, reader.alive) for reader in list_readers(tmp_path)] == [
            ("contained", True)
        ]
    assert [reader.alive for reader in list_readers(tmp_path)] == [False]
    assert remove_dead_readers(tmp_path) == 1


def test_reader_with_the_pid_of_one_in_another_namespace_has_its_own_entry(tmp_path: Path) -> None:
    with holding(REGISTER, tmp_path), holding(REGISTER, tmp_path):
        names = sorted(path.name for path in (tmp_path / "readers").iterdir())
        assert names == ["1-0", "1-1"]  # each is process 1 of its own
        assert remove_dead_readers(tmp_path) == 0


def test_writer_in_another_pid_namespace_is_seen_alive_until_it_dies(tmp_path: Path) -> None:
    with holding(WRITE, tmp_path):
        cursor = RingCursor.attach(tmp_path)
        assert cursor.region.writer_alive()
        with pytest.raises(WriterExistsError):
            Ring.create(tmp_path, 4096)
        assert cursor.region.writer_alive()
    assert not cursor.region.writer_alive()
    with Ring.create(tmp_path, 4096) as ring:  # this namespace takes over
        assert ring.restarted
        assert cursor.region.writer_alive()
    cursor.close()


def test_reader_that_may_not_open_the_ring_any_more_sees_its_writer_die(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, _: int) -> int:
        raise PermissionError(errno.EACCES, "its group was changed", str(path))

    with holding(WRITE, tmp_path):
        cursor = RingCursor.attach(tmp_path)
        monkeypatch.setattr("udpfast.shm.region.open_existing", refused)
        assert cursor.region.writer_alive()
    assert not cursor.region.writer_alive()
    cursor.close()


def test_processes_outside_are_seen_alive_from_another_pid_namespace(tmp_path: Path) -> None:
    with Ring.create(tmp_path, 4096), ReaderRegistration.create(tmp_path, "outside"):
        answer, _ = contained(LOOK, tmp_path).communicate()
        assert answer == "0\n['outside']\nTrue\n"


def test_region_that_a_reader_has_locked_is_not_alive_for_it(tmp_path: Path) -> None:
    # Only a lock for writing proves anything, and only those who may write can hold one.
    with holding(WRITE, tmp_path):
        cursor = RingCursor.attach(tmp_path)
    locked = subprocess.Popen(
        (
            sys.executable,
            "-c",
            "import fcntl, struct, sys\n"
            "file = open(sys.argv[1], 'rb')\n"
            "fcntl.flock(file, fcntl.LOCK_SH)\n"
            "lock = struct.pack('hhqqi4x', fcntl.F_RDLCK, 0, 0, 1, 0)\n"
            "fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)\n"
            "print('ready', flush=True)\n"
            "sys.stdin.read()\n",
            str(tmp_path / "ring"),
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert locked.stdout is not None
    assert locked.stdout.readline() == "ready\n"
    assert not cursor.region.writer_alive()
    locked.communicate()
    cursor.close()


def test_writer_of_which_nobody_can_tell_is_not_called_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, flags: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    with holding(WRITE, tmp_path), RingCursor.attach(tmp_path) as cursor:
        with monkeypatch.context() as patched:
            patched.setattr("udpfast.shm.region.open_existing", refuse)
            assert cursor.region.writer_alive()
        assert cursor.region.writer_alive()
        (tmp_path / "ring").unlink()
        assert not cursor.region.writer_alive()
