"""An app on a bus: it reads the stream of a store and sends messages into it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import tempfile
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from udpfast.archive.bus_files import (
    Live,
    bell_path,
    make_shared,
    read_description,
    shared_directory,
)
from udpfast.bus.outbox import Outbox, OutboxState
from udpfast.client.appearing import deadline_of, time_left, when_there
from udpfast.client.reader import Reader
from udpfast.client.record import ReadRecord
from udpfast.core.idle import IdleStrategy
from udpfast.core.layout import Kind
from udpfast.errors import (
    ConfigError,
    NotReadyError,
    OutboxFullError,
    RegionError,
    WriterExistsError,
    shown,
)
from udpfast.log.segment import set_aside
from udpfast.shm.instance import journal_directory

__all__ = ["App"]

#: Records that one `poll` returns at most.
_RECORDS = 4096
#: Room for a name in a store's records of senders (`SenderEntry`), less its end.
_NAME_BYTES_MAX = 31
#: Attempts to lock an outbox, a millisecond apart.
_LOCK_TRIES = 50


class App:
    """An app on the message bus: it reads the messages of all apps in one order, and can `send`.

    The host's daemon (`udpfast bus run`) must have run once. While it does not run, messages are
    accepted and wait.

    Parameters
    ----------
    address : str
        "store:NAME" or "store:/path/to/store": the copy of the store on this host.
    name : str
        Name of the sender: 1 to 31 printable bytes of UTF-8 without '/'. Only one app at a time
        can use a name.
    start : int, optional
        Position in the stream at which to begin: the `position` of an earlier app whose state this
        one continues. None: the oldest record. A position at which no record begins or ends is
        refused: its records were taken back, or have not reached this host yet.
    idle : {"spin", "yield", "backoff", "sleep"}
        How an iteration waits, as in a `Reader`.
    slots, capacity_bytes : int
        Most messages (a power of two), and most bytes of messages, that may be in the outbox at a
        time. Used only when the outbox is created.
    anew : bool
        True: if the outbox is one whose `send` raises SupersededError or OutboxLostError, set it
        aside and begin a new one, whose numbers start at 1.
    timeout : float or None
        Seconds to wait until the host's daemon has run. 0: do not wait; None: forever.

    Raises
    ------
    ConfigError
        The address is not that of a store, or a feed writes the store; the name is not a sender's
        name; the daemon has another $UDPFAST_SHM; or records from `start` on were removed.
    NotReadyError
        The host's daemon had not run within `timeout` seconds.
    PermissionError
        The daemon runs as another user.
    RegionError
        The file at the outbox's path is not an outbox.
    WriterExistsError
        A living process on this host sends under this name.
    """

    _fd = -1  # holds the outbox's lock; -1: closed

    def __init__(
        self,
        address: str,
        name: str,
        *,
        start: int | None = None,
        idle: str | IdleStrategy = "backoff",
        slots: int = 1 << 16,
        capacity_bytes: int = 64 << 20,
        anew: bool = False,
        timeout: float | None = 0.0,
    ) -> None:
        prefix, _, target = address.partition(":") if isinstance(address, str) else ("", "", "")
        if prefix != "store" or not target or "\0" in target:
            raise ConfigError(
                f"address must be 'store:NAME' or 'store:/path', was {shown(address)}"
            )
        if not _can_be_a_sender(name):
            raise ConfigError(
                f"name must be 1 to {_NAME_BYTES_MAX} printable bytes of UTF-8 without '/', was "
                f"{shown(name)}"
            )
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout must be 0 or more seconds, or None, was {shown(timeout)}")
        self.name = name
        self.address = address
        deadline_s = deadline_of(timeout)
        try:
            self._directory, described = when_there(lambda: _described(target), deadline_s)
        except FileNotFoundError:
            raise NotReadyError(
                f"{address}: expected a store whose daemon has run on this host, found none: "
                "start `udpfast bus run`"
            ) from None
        if described.get("by_feed"):
            raise ConfigError(
                f"address must name a store that apps write, was {address!r}, which a feed writes"
            )
        self._host = described["host"]
        self._reader = Reader(
            address,
            idle=idle,
            start="begin" if start is None else ("position", start),
            timeout=time_left(deadline_s),
        )
        self._position = start
        self._outbox = self._open(slots, capacity_bytes)
        _APPS.add(self)
        if anew and self._outbox.state in (OutboxState.SUPERSEDED, OutboxState.LOST):
            set_aside(self._path)
            self._let_go()
            self._outbox = self._open(slots, capacity_bytes)

    def _open(self, slots: int, capacity: int) -> Outbox:
        owner = self._directory.stat().st_uid
        if owner != os.geteuid():
            # The daemon maps the outbox, too: a user who may write it could crash the daemon.
            raise PermissionError(
                errno.EPERM,
                f"expected to run as the daemon's user, {owner}, found {os.geteuid()}: a user who "
                "may only read a store (access.group) cannot send to it",
                str(self._directory),
            )
        self._live = Live(self._directory)
        shared, own = self._live.shared, shared_directory(self._directory)
        if shared not in (None, own):
            raise ConfigError(
                "UDPFAST_SHM: expected the daemon's directory, which looks for outboxes in "
                f"{shared}, found one with {own}"
            )
        folder = make_shared(self._directory)
        path = self._path = folder / f"{self.name}.outbox"
        if not path.exists():
            self._make(path, slots, capacity)
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            outbox = self._locked_and_mapped(fd)
            # Open it for reading, too: without any reader, a write into a FIFO would fail.
            with contextlib.suppress(FileNotFoundError):
                outbox.bell = os.open(bell_path(folder), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        return outbox

    def _locked_and_mapped(self, fd: int) -> Outbox:
        # The daemon takes the lock for a moment whenever it checks whether an app holds it.
        if not any(_locked(fd) for _ in range(_LOCK_TRIES)):
            raise WriterExistsError(
                f"{self._path}: another app, of this process or another, sends as {self.name!r}"
            )
        try:
            # A mapping keeps its open file alive, and a forked child inherits the mapping. So the
            # mapping gets an open file of its own: it must not keep the lock of `fd` held.
            with Path(f"/proc/self/fd/{fd}").open("r+b") as file:
                return Outbox(mmap.mmap(file.fileno(), 0))
        except ValueError as problem:
            raise RegionError(
                f"{self._path}: expected an outbox, found a file that is not one ({problem}): move "
                "it away to begin a new outbox, without the messages of the old one"
            ) from None

    def _make(self, path: Path, slots: int, capacity: int) -> None:
        fd, made = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
        try:
            os.posix_fallocate(fd, 0, Outbox.size_bytes(slots, capacity))
            memory = mmap.mmap(fd, 0)
            nonce = int.from_bytes(os.urandom(8), "little") | 1
            Outbox.create(memory, self.name, self._host, nonce, slots, capacity)
            # link() instead of rename(): another process may have made and locked one meanwhile.
            with contextlib.suppress(FileExistsError):
                os.link(made, path)
        finally:
            Path(made).unlink()
            os.close(fd)

    @property
    def outbox(self) -> Outbox:
        """The outbox that `send` writes into, for Cython code (`outbox_send` needs no GIL)."""
        return self._outbox

    @property
    def reader(self) -> Reader:
        """The reader of the stream, for Cython code and for reading in batches.

        Records that are read through it do not advance `position`.
        """
        return self._reader

    def send(self, payload: bytes, type: int = 0, *, timeout: float = 0.0) -> int:
        """Put a message into the outbox, and return its number; numbers count from 1.

        The message appears in the stream as (`name`, number).

        Parameters
        ----------
        payload : bytes-like
            At most 1,388 bytes.
        type : int
            0 to 65,535; its meaning is up to the apps.
        timeout : float
            Seconds to wait while the outbox is full; 0: do not wait.

        Raises
        ------
        OutboxFullError
            The outbox stayed full. The message was not accepted; no other was dropped.
        SupersededError, OutboxLostError
            This outbox can no longer deliver messages: see `anew`.
        TypeError
            `type` is not an integer.
        ValueError
            The message is too large (the error states both sizes), or the app was closed.
        WriterExistsError
            This process is a forked child of the one that opened the app.
        """
        until = time.monotonic() + timeout
        while True:
            try:
                return self._outbox.send(payload, type)
            except OutboxFullError as full:
                if time.monotonic() >= until:
                    raise OutboxFullError(f"{full}: {_why_full(self._directory)}") from None
                time.sleep(0.001)

    def __repr__(self) -> str:
        state = "closed"
        if self._fd >= 0:
            state = " ".join(f"{word}={count}" for word, count in self.counts().items())
        return f"<App {self.name} of {self.address} {state}>"

    @property
    def position(self) -> int | None:
        """Position of the next record: pass it as `start` to an app that continues from here."""
        return self._position

    @property
    def alive(self) -> bool:
        """Whether the daemon takes what `send` accepts: it works, and reaches the store's writer.

        False as soon as it has given no sign of life for a second. Messages are accepted all the
        same, and delivered when the daemon is back, however late that is: `counts` tells how many
        are accepted and not yet seen in the stream.
        """
        return self._live.is_alive() and self._live.read().following

    def counts(self) -> dict[str, int]:
        """Return how many messages were accepted, seen in the stream and freed."""
        return self._outbox.counts()

    def poll(self) -> list[ReadRecord]:
        """Return the records that have arrived since the last call; does not wait."""
        found: list[ReadRecord] = []
        while len(found) < _RECORDS and self._reader.wait(0):
            found.append(self._noted(next(self._reader)))
        return found

    def __iter__(self) -> Iterator[ReadRecord]:
        """Yield records as they arrive, until `close`; block while there are none.

        A message has `sender`, `number`, `type` and `payload`. A record of `Kind.ROLLBACK` states
        how many of the last records have been taken back out of the stream.
        """
        for record in self._reader:
            yield self._noted(record)

    def _noted(self, record: ReadRecord) -> ReadRecord:
        self._position = record.position
        if record.kind not in (Kind.ROLLBACK, Kind.LAPPED):
            self._position += (len(bytes(record)) + 7) & ~7
        return record

    def close(self) -> None:
        """Close the outbox; its messages are still delivered."""
        self._reader.close()
        self._let_go()

    def _let_go(self) -> None:
        if self._fd < 0:
            return
        self._outbox.closed = True  # before another process can take the lock
        if self._outbox.pid == os.getpid():
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # a child that C code forked may hold `_fd`, too
        os.close(self._fd)
        self._fd = -1
        if self._outbox.bell >= 0:
            os.close(self._outbox.bell)
            self._outbox.bell = -1

    def __del__(self) -> None:
        self._let_go()

    def __enter__(self) -> App:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Apps of this process. A forked child inherits their descriptors: if it kept them, both processes
# would number messages alike, and the child would hold the names after this process has ended.
_APPS: weakref.WeakSet[App] = weakref.WeakSet()


def _leave_in_child() -> None:
    for app in list(_APPS):
        app._let_go()
    _APPS.clear()


os.register_at_fork(after_in_child=_leave_in_child)


def _why_full(directory: Path) -> str:
    # Say what the messages wait for, as far as this host knows.
    try:
        if not Live(directory).is_alive():
            return "the bus daemon of this host does not run, or stands still"
        said = read_description(directory)
    except (OSError, RegionError) as problem:
        return str(problem)
    if said["stopped"]:
        return f"this host's copy has stopped ({said['stopped']}): see `udpfast bus stat`"
    if not said["following"]:
        return "this host's daemon does not reach the host that writes the store"
    if not said["writer"]:
        return f"`udpfast bus stat` on {said['writer_host']} shows what they wait for"
    if said["waits_for"]:
        return f"they wait for copies on {', '.join(said['waits_for'])} (release)"
    return "they wait for the disk of this host"


def _described(target: str) -> tuple[Path, dict[str, Any]]:
    """Return the directory of a store, and what its daemon wrote about it."""
    directory = journal_directory(target)
    return directory, read_description(directory)


def _can_be_a_sender(name: object) -> bool:
    # Sender names are printed on one line and are part of a file name.
    if not isinstance(name, str) or not name.isprintable() or "/" in name:
        return False
    return 0 < len(name.encode()) <= _NAME_BYTES_MAX  # a surrogate cannot be printed


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(0.001)
        return False
    return True
