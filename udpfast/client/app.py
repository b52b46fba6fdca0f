"""An app of a bus: reads the one stream, and sends into it."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from udpfast.archive.bus_files import Live, outbox_directory, read_description
from udpfast.archive.store import StoreView
from udpfast.bus.log import BusKind
from udpfast.bus.outbox import Outbox, OutboxFullError
from udpfast.errors import ConfigError, NotReadyError, WriterExistsError
from udpfast.shm.instance import journal_directory

__all__ = ["App", "BusRecord"]

_HEADER = struct.Struct("<iBBHQQqqQIiHHI")
_ENTRY = struct.Struct("<IIQQQQ32s32s")
#: How many records an app can find its way back over, when some are set aside.
_BACK = 1 << 16


@dataclass(frozen=True, slots=True)
class BusRecord:
    """A record of a bus's stream.

    Attributes
    ----------
    kind : int
        `BusKind.BUS` for a message; SENDER, SENDERS, RESTART (9) for what the sequencer says;
        `BusKind.ROLLBACK`, made here: the last `number` records are not in the stream any more.
    position, index : int
        In the store; of ROLLBACK, from where on the stream is another one.
    stamp_ns : int
        The sequencer's time, UNIX ns; grows with each record.
    sender : str
        Name of the app that sent it; empty if it is no message.
    number : int
        The sender's, from 1.
    incarnation : int
    type : int
        As given to `send`.
    payload : bytes
    """

    kind: int
    position: int
    index: int
    stamp_ns: int
    sender: str
    number: int
    incarnation: int
    type: int
    payload: bytes


class App:
    """One app of a host: everyone's messages in the one order, and `send`.

    The host's daemon (`udpfast bus run`) must have run once; while it does not, messages are
    accepted and wait.

    Parameters
    ----------
    address : str
        "store:NAME" or "store:/path/to/it": this host's copy.
    name : str
        Of the sender: 1 to 31 bytes; one app at a time has it.
    start : int, optional
        Position in the stream; None: its oldest record.
    slots, capacity_bytes : int
        Messages, a power of two, and bytes of them that may be on their way. Of a new outbox.

    Raises
    ------
    ConfigError
        The address is none of a store.
    NotReadyError
        The host's daemon has not run.
    WriterExistsError
        A living process of this host sends under this name.
    """

    def __init__(
        self,
        address: str,
        name: str,
        *,
        start: int | None = None,
        slots: int = 1 << 16,
        capacity_bytes: int = 64 << 20,
    ) -> None:
        prefix, _, target = address.partition(":")
        if prefix != "store" or not target:
            raise ConfigError(f"address must be 'store:NAME' or 'store:/path', was {address!r}")
        self.name = name
        self._directory = journal_directory(target)
        try:
            self._live = Live(self._directory)
            self._host = read_description(self._directory)["host"]
        except FileNotFoundError:
            raise NotReadyError(f"{self._directory}: no daemon of a bus has run here") from None
        self._fd = -1
        self._outbox = self._open(slots, capacity_bytes)
        self._view = StoreView(self._directory)
        self._position = start
        self._cuts: tuple[int, int] | None = None
        self._senders: dict[int, str] = {}
        self._back: deque[tuple[int, int]] = deque(maxlen=_BACK)
        self._closed = False

    def _open(self, slots: int, capacity: int) -> Outbox:
        folder = outbox_directory(self._directory)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{self.name}.outbox"
        if not path.exists():
            self._make(path, slots, capacity)
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            self._fd = -1
            raise WriterExistsError(f"{path}: another process sends as {self.name!r}") from None
        self._memory = mmap.mmap(self._fd, os.fstat(self._fd).st_size)
        return Outbox(self._memory)

    def _make(self, path: Path, slots: int, capacity: int) -> None:
        made = path.with_name(f"{path.name}.{os.getpid()}")
        fd = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, Outbox.size_bytes(slots, capacity))
            memory = mmap.mmap(fd, 0)
            nonce = int.from_bytes(os.urandom(8), "little") | 1
            Outbox.create(memory, self.name, self._host, nonce, slots, capacity)
            made.rename(path)
        except BaseException:
            made.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)

    def send(self, payload: bytes, type: int = 0, *, timeout: float = 0.0) -> int:
        """Accept a message for the stream; return its number, from 1.

        It comes back in the stream as (`name`, number).

        Parameters
        ----------
        payload : bytes-like
            At most 1,420 bytes.
        type : int
            0 to 65,535, as the apps agreed.
        timeout : float
            Seconds to wait while the outbox is full.

        Raises
        ------
        OutboxFullError
            It stayed full. Nothing was dropped.
        SupersededError, OutboxLostError
            What is in this outbox does not come into the stream any more.
        ValueError
            The message is too large; the error has both sizes.
        """
        until = time.monotonic() + timeout
        while True:
            try:
                return self._outbox.send(payload, type)
            except OutboxFullError:
                if time.monotonic() >= until:
                    raise
                time.sleep(0.001)

    @property
    def position(self) -> int | None:
        """Where the next record is: `start` of an app that goes on from its state."""
        return self._position

    def counts(self) -> dict[str, int]:
        """Return how many of its messages were accepted, seen, let go; see `Outbox.counts`."""
        return self._outbox.counts()

    def poll(self) -> list[BusRecord]:
        """Return the records that are new, none if there are none."""
        try:
            state = self._live.read()
        except FileNotFoundError:
            return []
        found: list[BusRecord] = []
        if self._position is None:
            first, _ = self._view.first()
            if first >= state.released:
                return []
            self._position = first
        if self._cuts is not None and self._cuts[0] != state.cuts:
            self._find_back(found)
        self._cuts = (state.cuts, 0)
        for content in self._view.records(self._position, state.released, 4096):
            record = self._record(content)
            self._back.append((record.position, int.from_bytes(content[60:64], "little")))
            self._position = record.position + len(content)
            found.append(record)
        return found

    def _find_back(self, found: list[BusRecord]) -> None:
        # Some records were set aside: those that were read and are not there any more are told.
        self._view.forget()
        gone = 0
        while self._back and self._view.checksum_at(self._back[-1][0]) != self._back[-1][1]:
            self._position = self._back.pop()[0]
            gone += 1
        if gone:
            assert self._position is not None
            found.append(BusRecord(BusKind.ROLLBACK, self._position, 0, 0, "", gone, 0, 0, b""))

    def _record(self, content: bytes) -> BusRecord:
        length, kind, _, _, position, index, _, stamp, number, sender, incarnation, type_, *_ = (
            _HEADER.unpack_from(content)
        )
        payload = content[64:length]
        if kind in (BusKind.SENDER, BusKind.SENDERS):
            for at in range(0, len(payload), _ENTRY.size):
                entry = _ENTRY.unpack_from(payload, at)
                self._senders[entry[0]] = entry[6].rstrip(b"\0").decode()
        message = kind == BusKind.BUS
        return BusRecord(
            kind, position, index, stamp, self._senders.get(sender, "") if message else "",
            number if message else 0, incarnation & 0xFFFFFFFF if message else 0,
            type_ if message else 0, payload,
        )  # fmt: skip

    def __iter__(self) -> Iterator[BusRecord]:
        """Yield records as they come, for ever; waits when there is none."""
        while not self._closed:
            records = self.poll()
            yield from records
            if not records:
                time.sleep(0.0005)

    def close(self) -> None:
        """Let go of the outbox; what is in it is still brought into the stream."""
        self._closed = True
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> App:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
