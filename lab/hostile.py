"""Readers that do all they may, and try what they may not.

    udpfast lab hostile --kills 100

    writer -> ring -> survivor, who checks every byte
                 \\-> hostile reader after hostile reader, each killed at a random moment
                                  ^ its entry is listed, read and freed meanwhile

Forbidden: a torn, repeated or unexplained record at the survivor, a tool that fails, an entry that
stays, a region changed. As root the hostile ones are another user, let in by `access.group`; as
anybody else they are the same user, and leave alone what a user may do to itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from udpfast.core.clock import realtime_ns
from udpfast.log.cursor import RingCursor
from udpfast.log.readers import (
    ReaderRegistration,
    list_readers,
    reader_histograms,
    remove_dead_readers,
)
from udpfast.shm.instance import instance_directory

from .program import program
from .ringcheck import Child, Report, find_faults, read_all, write_until_told
from .ringload import LoadResult, read_load

__all__ = ["ACTS", "check_hostile_readers", "main"]

#: A victim lives between 0 and this long: through its attach, its registration, its act.
LIFE_MAX_NS = 8_000_000

USER, GROUP = 64_341, 64_350  # of the hostile ones, where this is root
FLOOD = 50


def read(directory: Path, rng: random.Random) -> None:
    """Read as fast as it can: killed within a run of records."""
    read_all(directory, _Silent())


def cut(directory: Path, rng: random.Random) -> None:
    """Cut the own entry short, and let it grow beyond all memory."""
    path = _own_entry(directory)
    while True:
        os.truncate(path, rng.choice((0, 1, 127, 128, 4096, 541_000, 1 << 40)))


def spoil(directory: Path, rng: random.Random) -> None:
    """Write garbage over the own entry: all of it, or behind a header that is right."""
    fd = os.open(_own_entry(directory), os.O_RDWR)
    while True:
        os.pwrite(fd, rng.randbytes(4096), rng.choice((0, 40, 128, 256, 4096)))


def lie(directory: Path, rng: random.Random) -> None:
    """Say to be another process, far ahead, of a name that steers terminals."""
    fd = os.open(_own_entry(directory), os.O_RDWR)
    while True:
        os.pwrite(fd, rng.choice((1, os.getppid(), 1 << 63)).to_bytes(8, "little"), 40)
        os.pwrite(fd, b"\x1b[2J\x1b]0;owned\x07\xff\x00", 128)
        os.pwrite(fd, b"\xff" * 48, 192)


def litter(directory: Path, rng: random.Random) -> None:
    """Put what is no entry among the entries."""
    ring = directory / "ring"
    kinds: tuple[Callable[[Path], Any], ...] = (
        lambda path: path.symlink_to(ring),
        lambda path: path.symlink_to(path),
        lambda path: path.hardlink_to(ring),
        lambda path: path.write_bytes(rng.randbytes(300)),
        os.mkfifo,
        os.mkdir,
        os.unlink,
        os.rmdir,
    )
    while True:
        name = f"{rng.choice((1, os.getpid(), 4_000_000))}-{rng.randrange(50)}"
        with contextlib.suppress(OSError):
            rng.choice(kinds)(directory / "readers" / name)


def flood(directory: Path, rng: random.Random) -> None:
    """Make many entries, of the right size and none of them ready."""
    for number in range(FLOOD):
        with (
            contextlib.suppress(OSError),
            (directory / "readers" / f"{os.getpid()}-{number}").open("wb") as file,
        ):
            file.truncate(541_184)
    signal.pause()


def lock(directory: Path, rng: random.Random) -> None:
    """Lock all that can be opened, and sit on it."""
    for path in [*directory.iterdir(), *(directory / "readers").iterdir()]:
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    signal.pause()


def fork(directory: Path, rng: random.Random) -> None:
    """Let two processes share one cursor and one entry."""
    parent = os.getpid()
    with (
        RingCursor.attach(directory) as cursor,
        ReaderRegistration.create(directory, "fork") as registration,
    ):
        os.fork()
        while os.getpid() == parent or os.getppid() == parent:
            read_load(cursor, LoadResult(), idle_polls_max=10)
            registration.report(cursor, realtime_ns())
        os._exit(0)


def assault(directory: Path, rng: random.Random) -> None:
    """Try to change every file that is not its own; what succeeds is a breach."""
    files = [path for path in directory.iterdir() if path.name != "readers"]
    attempts: tuple[Callable[[Path], Any], ...] = (
        lambda path: os.open(path, os.O_RDWR),
        lambda path: os.truncate(path, 0),
        lambda path: path.unlink(),
        lambda path: path.rename(path.with_name("mine")),
        lambda path: path.chmod(0o666),
        lambda path: (path.parent / "new").touch(),
        lambda path: path.parent.chmod(0o777),
        lambda path: os.kill(os.getppid(), signal.SIGKILL),
    )
    while True:
        with contextlib.suppress(PermissionError):
            rng.choice(attempts)(rng.choice(files))
            (directory / "readers" / "breach").touch()


#: What a hostile reader does, by name; `assault` is only for another user.
ACTS: dict[str, Callable[[Path, random.Random], None]] = {
    act.__name__: act for act in (read, cut, spoil, lie, litter, flood, lock, fork, assault)
}


def check_hostile_readers(
    directory: Path, kills: int, seed: int, capacity_bytes: int = 1 << 16
) -> Report:
    """Kill hostile reader after hostile reader; writer, survivor and tools must not notice.

    Parameters
    ----------
    directory : pathlib.Path
        For the instance; removed by the caller.
    kills : int
    seed : int
        Of the acts and the moments (what a moment hits is up to the machine).
    capacity_bytes : int
    """
    rng = random.Random(seed)
    is_root = os.geteuid() == 0
    acts = [act for act in ACTS.values() if is_root or act is not assault]
    if is_root:
        directory.parent.chmod(0o711)
    instance_directory(directory, create=True, group=str(GROUP if is_root else os.getegid()))
    writer = Child(lambda child: write_until_told(directory, capacity_bytes, child))
    writer.wait_started()
    survivor = Child(lambda child: read_all(directory, child))
    survivor.wait_started()
    before = _regions(directory)
    for _ in range(kills):
        reader = Child(partial(_turn, rng.choice(acts), directory, random.Random(rng.random())))
        deadline_ns = time.monotonic_ns() + rng.randrange(LIFE_MAX_NS)
        while time.monotonic_ns() < deadline_ns:
            list_readers(directory)
        reader_histograms(directory)
        reader.kill_within(0)
        remove_dead_readers(directory)
    faults = _look(directory, before)
    os.kill(writer.pid, signal.SIGTERM)
    written = writer.answer()["written"]
    result = LoadResult(**survivor.answer())
    written -= result.first
    faults += find_faults(result, written)
    return Report(f"{kills} hostile readers, seed {seed}", written, result, 0, tuple(faults))


def _turn(
    act: Callable[[Path, random.Random], None], directory: Path, rng: random.Random, _: Child
) -> dict[str, Any]:
    if os.geteuid() == 0:
        os.setgroups([GROUP])
        os.setgid(USER)
        os.setuid(USER)
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - what it dies of is its own affair
        os.dup2(nowhere.fileno(), 2)
    act(directory, rng)
    return {}


def _look(directory: Path, before: dict[str, tuple[int, ...]]) -> list[str]:
    faults = []
    while remove_dead_readers(directory):  # a flood may take more than one look
        pass
    left = [info.name for info in list_readers(directory)]
    if left != ["check"]:
        faults.append(f"expected the entry of the survivor, found {left}")
    if (directory / "readers" / "breach").exists():
        faults.append("a reader changed what is not its own")
    if _regions(directory) != before:
        faults.append(f"expected the regions {before}, found {_regions(directory)}")
    return faults


def _regions(directory: Path) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for path in directory.iterdir():
        status = path.lstat()
        size = 0 if path.is_dir() else status.st_size
        found[path.name] = (status.st_ino, status.st_mode, status.st_uid, status.st_gid, size)
    return found


def _own_entry(directory: Path) -> Path:
    return ReaderRegistration.create(directory, "hostile").region.path


class _Silent(Child):
    """For `read_all`: tells nobody that it has begun."""

    def __init__(self) -> None:
        pass

    def started(self) -> None:
        """Say nothing."""


@program
@click.option("--kills", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
def main(kills: int, seed: int) -> tuple[str, ...]:
    """Run the check; return the faults."""
    root = Path(tempfile.mkdtemp(prefix="udpfast-hostile-", dir="/dev/shm"))
    try:
        report = check_hostile_readers(root / "instance", kills, seed)
    finally:
        shutil.rmtree(root)
    click.echo(report)
    return report.faults
