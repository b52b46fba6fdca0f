"""Files beside the records that a bus's daemon shares with the apps and tools of its host."""

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
from udpfast.shm.lock import mode_below, process_alive
from udpfast.shm.mapping import store_word

__all__ = [
    "Live",
    "LiveState",
    "copy_directory",
    "describe_composite",
    "describe_store",
    "described_by",
    "is_sign_of_life",
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

#: Layout as BusLive (archive/live.pxd): first what is written at every turn, then what is written
#: once.
_FIELDS = struct.Struct("<QQQQQQQQQQQ")
_ONCE = struct.Struct("<Q40x32s3928s")
#: Behind the first field of the latter: about the feed that writes the store.
_FEED = struct.Struct("<QQQ")
_FEED_AT = _FIELDS.size + 8
_FEED_END_AT = _FEED_AT + _FEED.size
_FEED_FAILED_AT = _FEED_END_AT + 8
_RUNS = (1 << 64) - 1
#: An operator's request that this host write the store. Whoever removes the file decides about it.
_WISH = "bus.promote"
#: Files with the state of a store have a multiple of this size.
_BLOCK = 4096
_MAGIC = 0x4556494C53554255  # "UBUSLIVE"
_SIZE = _FIELDS.size + _ONCE.size


class LiveState(NamedTuple):
    """State of a host's copy of a store, as its daemon last published it.

    Attributes
    ----------
    alive_ns : int
        When it was published, monotonic ns.
    end, synced, released, kept : int
        Positions.
    epoch, promised : int
    cuts : int
        Number of times that records were, or may have been, set aside; a daemon's start adds one.
    following : bool
        The stream arrives, from another host or from this host's own sequencer.
    gate : int
        Number of copies that must have a record before readers see it; 0: readers see everything.
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
    """The file `bus.live` of a store's directory, which has the state of this host's copy.

    Parameters
    ----------
    directory : pathlib.Path
    create : bool
        Open it for writing, and create it if needed; otherwise for reading.
    """

    def __init__(self, directory: Path, *, create: bool = False) -> None:
        path = directory / "bus.live"
        if create and not (path.exists() and path.stat().st_size == _SIZE):
            # The file appears at its full size. Later daemons reuse it, because apps have mapped
            # it.
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
        """Write the name of this host, the directory of outboxes, and whether a feed writes."""
        said = _ONCE.pack(by_feed, host.encode(), os.fsencode(shared))
        self.memory[_FIELDS.size :] = said

    @property
    def shared(self) -> Path | None:
        """Directory in which the daemon looks for outboxes; None: not written yet, or damaged."""
        _, _, shared = _ONCE.unpack_from(self.memory, _FIELDS.size)
        path, _, rest = shared.partition(b"\0")
        return Path(os.fsdecode(path)) if path and not rest.strip(b"\0") else None

    def write(self, state: LiveState) -> None:
        """Publish a state."""
        self.memory[: _FIELDS.size] = _FIELDS.pack(_MAGIC, *state)

    def begin_feed(self, epoch: int, position: int, index: int) -> None:
        """Publish, for the agents beside it, that a feed writes the store from its RESTART on."""
        _FEED.pack_into(self.memory, _FEED_AT, epoch, position, index)
        store_word(self.memory, _FEED_END_AT, _RUNS)  # who sees it sees the three before it

    def end_feed(self, position: int, failed: bool = False) -> None:
        """Publish that the feed has ended at a position, by an error or in good order."""
        store_word(self.memory, _FEED_FAILED_AT, failed)
        store_word(self.memory, _FEED_END_AT, position)  # who sees the end sees what became of it

    def read(self) -> LiveState:
        """Return the last published state.

        Raises
        ------
        FileNotFoundError
            None has been published yet.
        """
        magic, *values, following, gate = _FIELDS.unpack_from(self.memory)
        if magic != _MAGIC:
            raise FileNotFoundError("bus.live has not been written yet")
        alive, end, synced, released, kept, epoch, promised, cuts = values
        return LiveState(
            alive, end, synced, released, kept, epoch, promised, cuts, bool(following), gate
        )

    @property
    def cuts(self) -> int:
        """The last published value of `LiveState.cuts`; 0: there is none."""
        try:
            return self.read().cuts
        except FileNotFoundError:
            return 0

    def silent_s(self) -> float | None:
        """Return how long the daemon has been silent, in seconds; None: since before this boot."""
        silent_ns = time.monotonic_ns() - self.read().alive_ns
        return silent_ns / 1e9 if silent_ns >= 0 else None

    def is_alive(self) -> bool:
        """Return whether the daemon published a state within the last second."""
        return is_sign_of_life(self.silent_s())


def is_sign_of_life(silent_s: float | None) -> bool:
    """Return whether a daemon that has been silent for so long (`Live.silent_s`) is alive."""
    return silent_s is not None and silent_s < 1


def shared_directory(store: Path) -> Path:
    """Return the directory in shared memory that apps and readers of a store use with its daemon.

    It has outboxes, what wakes sleeping readers, and an entry for each reader. The records are in
    the store's directory.
    """
    mark = hashlib.sha256(os.fspath(store).encode()).hexdigest()[:16]
    return instance_root() / SHARED / mark


def bell_path(shared: Path) -> Path:
    """Return the path of the FIFO with which apps wake a store's daemon."""
    return shared / "bell"


def make_shared(store: Path, group: str | None = None) -> Path:
    """Create the directory that `shared_directory` names; return it.

    Parameters
    ----------
    store : pathlib.Path
    group : str or None
        As for `instance_directory`.

    Raises
    ------
    ConfigError, PermissionError, RegionError
        As for `instance_directory`.
    """
    shared = shared_directory(store)
    for above in (instance_root(), shared.parent):
        above.mkdir(mode=0o700, exist_ok=True)
        instance_directory(above)
    return instance_directory(shared, create=True, group=group)


def take_outboxes(store: Path, before: Path | None) -> int:
    """Move outboxes to where the daemon of a store that was moved looks; return their number.

    Parameters
    ----------
    store : pathlib.Path
    before : pathlib.Path or None
        Where its daemon looked before. Apps that have an outbox open continue to use it.
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
    """Write the state of a store to `bus.json` in its directory, even if the disk is full.

    Two files alternate and keep their disk space: the one that is not shown is overwritten.
    """
    path = directory / "bus.json"
    spare, shown = path.with_name("bus.json.next"), path.with_name("bus.json.last")
    content = (json.dumps(description, indent=1) + "\n").encode()
    fd = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, mode_below(directory))
        blocks = -(-len(content) // _BLOCK) * _BLOCK
        file.write(content.ljust(max(blocks, os.fstat(fd).st_size)))
    shown.unlink(missing_ok=True)  # left by a killed process
    with contextlib.suppress(OSError):  # no file yet, or a file system without hard links
        shown.hardlink_to(path)
    spare.replace(path)
    with contextlib.suppress(FileNotFoundError):
        shown.replace(spare)


def read_description(directory: Path) -> dict[str, Any]:
    """Return the state that `describe_store` wrote.

    Raises
    ------
    FileNotFoundError, RegionError
        There is no file, or it is damaged.
    """
    path = directory / "bus.json"
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as problem:
        raise RegionError(
            f"{path}: expected the state of a store as its daemon writes it, found: {problem}"
        ) from None
    return found


def described_by(description: dict[str, Any]) -> int:
    """Return the pid of the daemon that wrote a description, if its process is there; else 0.

    It may stand still. A process of another container is not seen.
    """
    pid, start, namespace = (description.get(f"pid{what}") for what in ("", "_start", "_namespace"))
    if not (isinstance(pid, int) and isinstance(start, int) and isinstance(namespace, int)):
        return 0  # of an earlier version
    return pid if process_alive(pid, start, namespace, -1) else 0


def make_wish(directory: Path) -> str:
    """Ask the daemon of a store to make this host the writer; return the request's identity.

    Raises
    ------
    FileExistsError
        There is a request already.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(directory / _WISH, flags, 0o600)
    try:
        return _which(os.fstat(fd))
    finally:
        os.close(fd)


def read_wish(directory: Path) -> str:
    """Return the identity of the request that is there; empty: there is none."""
    try:
        return _which((directory / _WISH).lstat())
    except FileNotFoundError:
        return ""


def take_wish(directory: Path) -> bool:
    """Remove a request, to carry it out or to withdraw it; return whether it was still there."""
    try:
        (directory / _WISH).unlink()
    except FileNotFoundError:
        return False
    return True


def _which(status: os.stat_result) -> str:
    return f"{status.st_ino}-{status.st_mtime_ns}"


def describe_composite(directory: Path, inputs: list[Path]) -> None:
    """Write the directories of a composite's inputs to `composite.json` beside its order log."""
    paths = [os.path.relpath(each, directory) for each in inputs]
    replace_file(directory / "composite.json", (json.dumps(paths) + "\n").encode())


def read_composite(directory: Path) -> list[Path]:
    """Return the directories that `describe_composite` wrote."""
    found: list[str] = json.loads((directory / "composite.json").read_text())
    return [(directory / each).resolve() for each in found]


def copy_directory(order_log: Path) -> Path:
    """Return the default directory for a copy of a composite's records."""
    return order_log / "composite"


def named_store(name: str) -> Path:
    """Return the directory of a store, given its name or path.

    If a feed keeps its store elsewhere, the instance of that name knows the directory.

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
    """Return the directory of the journal at an address.

    Parameters
    ----------
    address : str
        A journal's name or path, also after "journal:"; "store:NAME", which is a journal; or
        "composite:NAME" for the composite's copy (`udpfast record composite:NAME`).

    Raises
    ------
    FileNotFoundError
        There is no such journal, or no copy of the composite yet.
    """
    prefix, colon, name = address.partition(":")
    if not colon or prefix not in ("store", "composite"):
        return journal_directory(name if colon and prefix == "journal" else address)
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
    """Return the directories of this user's stores on this host, sorted, even without a daemon.

    These are the stores below the journals' directory, and others that still have shared memory.
    """
    found = {path.parent for path in _entries(journal_root(), "*/bus.json")}
    for shared in _entries(instance_root() / SHARED, "*"):
        with contextlib.suppress(OSError, ValueError):  # not ours, or not a path
            store = noted_store(shared)
            if store is not None and (store / "bus.json").exists():
                found.add(store)
    return sorted(found)


def _entries(directory: Path, pattern: str) -> list[Path]:
    try:
        return list(directory.glob(pattern))
    except OSError:  # removed meanwhile, or not readable for this user
        return []


def note_store(instance: Path, store: Path | None) -> None:
    """Write the path of its store into an instance's or shared directory; None: it has none."""
    path = instance / "store"
    if store is None:
        path.unlink(missing_ok=True)
        return
    replace_file(path, os.fspath(store).encode())


def noted_store(instance: Path) -> Path | None:
    """Return the directory that `note_store` wrote; None: there is none."""
    try:
        return Path((instance / "store").read_text())
    except OSError:
        return None
