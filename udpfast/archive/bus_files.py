"""What a bus's daemon and the apps of its host share beside the records: files and their places."""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import struct
import time
from pathlib import Path
from typing import Any, NamedTuple

from udpfast.errors import RegionError
from udpfast.shm.files import replace_file
from udpfast.shm.instance import (
    SHARED,
    instance_directory,
    instance_root,
    journal_directory,
    journal_root,
)
from udpfast.shm.lock import mode_below

__all__ = [
    "Live",
    "LiveState",
    "copy_directory",
    "describe_composite",
    "describe_store",
    "list_stores",
    "make_shared",
    "make_wish",
    "named_store",
    "note_store",
    "noted_store",
    "read_composite",
    "read_description",
    "read_wish",
    "shared_directory",
    "stored_journal",
    "take_outboxes",
    "take_wish",
]

#: As BusLive (archive/live.pxd) has them: what is said at every turn, and once.
_FIELDS = struct.Struct("<QQQQQQQQQQQ")
_ONCE = struct.Struct("<Q40x32s3928s")
#: Behind the first field of what is said once: of the feed that writes the store.
_FEED = struct.Struct("<QQQ")
_FEED_AT = _FIELDS.size + 8
_FEED_END = struct.Struct("<Q")
_FEED_END_AT = _FEED_AT + _FEED.size
_FEED_FAILED_AT = _FEED_END_AT + _FEED_END.size
_RUNS = (1 << 64) - 1
#: An operator's wish that this host write the store. Who removes it decides what becomes of it.
_WISH = "bus.promote"
#: What is shown of a store is written in files of so many bytes, or a multiple.
_BLOCK = 4096
_MAGIC = 0x4556494C53554255  # "UBUSLIVE"
_SIZE = _FIELDS.size + _ONCE.size


class LiveState(NamedTuple):
    """How far a host's copy of a store is, as its daemon said last.

    Attributes
    ----------
    alive_ns : int
        Monotonic.
    end, synced, released, kept : int
        Positions.
    epoch, promised : int
    cuts : int
        How often records were, or may have been, set aside: it also grows when a daemon starts.
    following : bool
        The stream arrives, from another host or from this host's own sequencer.
    gate : int
        0: readers may see everything.
    """

    alive_ns: int
    end: int
    synced: int
    released: int
    kept: int
    epoch: int
    promised: int
    cuts: int
    following: bool
    gate: int


class Live:
    """The file `bus.live` of a store's directory: how far this host is.

    Parameters
    ----------
    directory : pathlib.Path
    create : bool
        Write it, rather than read it.
    """

    def __init__(self, directory: Path, *, create: bool = False) -> None:
        path = directory / "bus.live"
        if create and not (path.exists() and path.stat().st_size == _SIZE):
            # Whole when it is seen. Later daemons go on in it: apps have it mapped.
            replace_file(path, bytes(_SIZE))
        fd = os.open(path, (os.O_RDWR if create else os.O_RDONLY) | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            if size < _SIZE:
                raise RegionError(f"{path}: expected {_SIZE} bytes, found {size}: it is damaged")
            access = mmap.ACCESS_WRITE if create else mmap.ACCESS_READ
            self.memory = mmap.mmap(fd, _SIZE, access=access)
        finally:
            os.close(fd)

    def introduce(self, host: str, shared: Path, *, by_feed: bool) -> None:
        """Say which host this is, where its apps' outboxes lie, and whether apps can send."""
        said = _ONCE.pack(by_feed, host.encode(), os.fsencode(shared))
        self.memory[_FIELDS.size :] = said

    @property
    def shared(self) -> Path | None:
        """Where its daemon looks for outboxes; None: it did not say so, or it is damaged."""
        _, _, shared = _ONCE.unpack_from(self.memory, _FIELDS.size)
        path, _, rest = shared.partition(b"\0")
        return Path(os.fsdecode(path)) if path and not rest.strip(b"\0") else None

    def write(self, state: LiveState) -> None:
        """Say how far it is."""
        self.memory[: _FIELDS.size] = _FIELDS.pack(_MAGIC, *state)

    def begin_feed(self, epoch: int, position: int, index: int) -> None:
        """Say that a feed writes the store from its RESTART on: for the agents beside it."""
        _FEED.pack_into(self.memory, _FEED_AT, epoch, position, index)
        _FEED_END.pack_into(self.memory, _FEED_END_AT, _RUNS)

    def end_feed(self, position: int, failed: bool = False) -> None:
        """Say that the feed has ended, and where; by an error or in good order."""
        _FEED_END.pack_into(self.memory, _FEED_FAILED_AT, failed)  # first: read behind the end
        _FEED_END.pack_into(self.memory, _FEED_END_AT, position)

    def read(self) -> LiveState:
        """Return what was said last."""
        magic, *values, following, gate = _FIELDS.unpack_from(self.memory)
        if magic != _MAGIC:
            raise FileNotFoundError("bus.live has not been written yet")
        alive, end, synced, released, kept, epoch, promised, cuts = values
        return LiveState(
            alive, end, synced, released, kept, epoch, promised, cuts, bool(following), gate
        )

    @property
    def cuts(self) -> int:
        """As was said last; 0: nothing was."""
        try:
            return self.read().cuts
        except FileNotFoundError:
            return 0

    def silent_s(self) -> float | None:
        """For how many seconds the daemon said nothing; None: since before this host began."""
        silent_ns = time.monotonic_ns() - self.read().alive_ns
        return silent_ns / 1e9 if silent_ns >= 0 else None

    def is_alive(self) -> bool:
        """Whether the daemon said something within the last second."""
        return time.monotonic_ns() - self.read().alive_ns < 1_000_000_000


def shared_directory(store: Path) -> Path:
    """Return where apps and readers of a store share memory with its daemon.

    Outboxes, what wakes readers that sleep, and an entry for each reader; the records lie in the
    store's directory.
    """
    mark = hashlib.sha256(os.fspath(store).encode()).hexdigest()[:16]
    return instance_root() / SHARED / mark


def bell_path(shared: Path) -> Path:
    """Return the FIFO by which apps wake a store's daemon."""
    return shared / "bell"


def make_shared(store: Path, group: str | None = None) -> Path:
    """Make the directory that `shared_directory` names, and return it.

    Parameters
    ----------
    store : pathlib.Path
    group : str or None
        As `instance_directory` has it.

    Raises
    ------
    ConfigError, PermissionError, RegionError
        As `instance_directory` does.
    """
    shared = shared_directory(store)
    for above in (instance_root(), shared.parent):
        above.mkdir(mode=0o700, exist_ok=True)
        instance_directory(above)
    return instance_directory(shared, create=True, group=group)


def take_outboxes(store: Path, before: Path | None) -> int:
    """Bring outboxes to where the daemon of a store that was moved looks; return how many.

    Parameters
    ----------
    store : pathlib.Path
    before : pathlib.Path or None
        Where its daemon looked last. Apps that have one open send on into it.
    """
    shared = shared_directory(store)
    if before is None or before == shared or not before.is_dir():
        return 0
    taken = 0
    for path in before.glob("*.outbox"):
        if not (shared / path.name).exists():
            path.rename(shared / path.name)
            taken += 1
    return taken


def describe_store(directory: Path, description: dict[str, Any]) -> None:
    """Write `bus.json` into a store's directory: what its daemon is, and says; on a full disk, too.

    Two files take turns, and keep their space: the one that is not shown is written in place.
    """
    path = directory / "bus.json"
    spare, shown = path.with_name("bus.json.next"), path.with_name("bus.json.last")
    content = (json.dumps(description, indent=1) + "\n").encode()
    fd = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, mode_below(directory))
        blocks = -(-len(content) // _BLOCK) * _BLOCK
        file.write(content.ljust(max(blocks, os.fstat(fd).st_size)))
    shown.unlink(missing_ok=True)  # left by one that was killed
    with contextlib.suppress(OSError):  # the first time; a file system without links
        shown.hardlink_to(path)
    spare.replace(path)
    with contextlib.suppress(FileNotFoundError):
        shown.replace(spare)


def read_description(directory: Path) -> dict[str, Any]:
    """Return what `describe_store` wrote.

    Raises
    ------
    FileNotFoundError, RegionError
        There is none, or it is damaged.
    """
    path = directory / "bus.json"
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as problem:
        raise RegionError(
            f"{path}: expected a description by the store's daemon, found: {problem}"
        ) from None
    return found


def make_wish(directory: Path) -> str:
    """Leave the wish that this host write a store, for its daemon; return which one it is.

    Raises
    ------
    FileExistsError
        There is one already.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(directory / _WISH, flags, 0o600)
    try:
        return _which(os.fstat(fd))
    finally:
        os.close(fd)


def read_wish(directory: Path) -> str:
    """Return which wish is there; empty: there is none."""
    try:
        return _which((directory / _WISH).lstat())
    except FileNotFoundError:
        return ""


def take_wish(directory: Path) -> bool:
    """Remove a wish: to carry it out, or to withdraw it; return whether it was there still."""
    try:
        (directory / _WISH).unlink()
    except FileNotFoundError:
        return False
    return True


def _which(status: os.stat_result) -> str:
    return f"{status.st_ino}-{status.st_mtime_ns}"


def describe_composite(directory: Path, inputs: list[Path]) -> None:
    """Write `composite.json` beside an order log: where the stores lie that it orders."""
    paths = [os.path.relpath(each, directory) for each in inputs]
    replace_file(directory / "composite.json", (json.dumps(paths) + "\n").encode())


def read_composite(directory: Path) -> list[Path]:
    """Return what `describe_composite` was given."""
    found: list[str] = json.loads((directory / "composite.json").read_text())
    return [(directory / each).resolve() for each in found]


def copy_directory(order_log: Path) -> Path:
    """Return where a composite's records are copied to unless somebody says where else."""
    return order_log / "composite"


def named_store(name: str) -> Path:
    """Return the directory of a store, by its name or its path.

    Of a feed whose file puts its store elsewhere, the instance of that name knows where.

    Raises
    ------
    FileNotFoundError
        There is no such store.
    """
    try:
        return journal_directory(name, what="store")
    except FileNotFoundError:
        elsewhere = None
        if "/" not in name:
            with contextlib.suppress(FileNotFoundError, RegionError):
                elsewhere = noted_store(instance_directory(name))
        if elsewhere is None:
            raise
        return journal_directory(elsewhere, what="store")


def stored_journal(address: str) -> Path:
    """Return the directory of the journal that an address names.

    Parameters
    ----------
    address : str
        A journal's name or path; "store:NAME", which is one; "composite:NAME": its copy
        (`udpfast record composite:NAME`).

    Raises
    ------
    FileNotFoundError
        There is no such journal; of a composite, or none was made of it yet.
    """
    prefix, colon, name = address.partition(":")
    if not colon or prefix not in ("store", "composite"):
        return journal_directory(address)
    if prefix == "store":
        return named_store(name)
    directory = journal_directory(name)
    copy = copy_directory(directory)
    if not copy.is_dir():
        raise FileNotFoundError(
            f"{directory}: expected a copy of the composite's records in {copy.name}/, found "
            f"none: make one with udpfast record {address} --end"
        )
    return copy


def list_stores() -> list[Path]:
    """Return where the stores of this user on this host lie, sorted; of dead daemons, too.

    Those below the journals' directory, and all others whose shared memory is there still.
    """
    found = {path.parent for path in _entries(journal_root(), "*/bus.json")}
    for shared in _entries(instance_root() / SHARED, "*"):
        with contextlib.suppress(OSError, ValueError):  # not ours, or no path
            store = noted_store(shared)
            if store is not None and (store / "bus.json").exists():
                found.add(store)
    return sorted(found)


def _entries(directory: Path, pattern: str) -> list[Path]:
    try:
        return list(directory.glob(pattern))
    except OSError:  # removed meanwhile, or not ours to see
        return []


def note_store(instance: Path, store: Path | None) -> None:
    """Write into an instance's, or shared, directory which store is its; None: a ring."""
    path = instance / "store"
    if store is None:
        path.unlink(missing_ok=True)
        return
    replace_file(path, os.fspath(store).encode())


def noted_store(instance: Path) -> Path | None:
    """Return the store's directory that `note_store` was given; None: it cannot be read."""
    try:
        return Path((instance / "store").read_text())
    except OSError:
        return None
