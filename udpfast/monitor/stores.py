"""Stores of a bus on this host: how far each copy is, who copies from it, and who sends into it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from udpfast.archive.bus_files import (
    Live,
    described_by,
    is_sign_of_life,
    read_description,
    shared_directory,
)
from udpfast.bus.outbox import OUTBOX_HEADER, outbox_facts
from udpfast.errors import RegionError, UdpfastError, sentence
from udpfast.log.journal_cursor import JournalCursor
from udpfast.page.words import moment
from udpfast.shm.instance import journal_directory

__all__ = [
    "OutboxStatus",
    "ReplicaStatus",
    "StoreFeed",
    "StoreReader",
    "StoreStatus",
    "Stores",
    "read_store",
    "read_stores",
]


#: A daemon says something within this time after its process began.
STARTING_S = 10.0


class ReplicaStatus(Struct, frozen=True):
    """A copy on another host, as far as this host's daemon heard of it.

    Attributes
    ----------
    connected : bool
    acked : int or None
        Position before which it has everything; None: nothing was heard of it since the daemon
        began, and the lags are None, too.
    lag_records, lag_bytes : int or None
    lag_ms : int or None
        Age of the first record that it lacks.
    """

    connected: bool
    acked: int | None = None
    lag_records: int | None = None
    lag_bytes: int | None = None
    lag_ms: int | None = None


class OutboxStatus(Struct, frozen=True):
    """What one sender of this host has on its way into a store.

    Attributes
    ----------
    accepted, seen, freed : int
        Messages that were taken from the app, that are in the stream, and that were let go.
    datagrams, resent : int
        Datagrams sent; messages sent again.
    state : str
        registered, or why what is in it does not get into the stream: new, name_in_use,
        superseded, lost.
    waiting, slots : int
        Messages that were not let go, and as many as may be.
    waiting_bytes, capacity_bytes : int
        The same in bytes.
    """

    accepted: int
    seen: int
    freed: int
    datagrams: int
    resent: int
    state: str
    waiting: int
    slots: int
    waiting_bytes: int
    capacity_bytes: int

    @property
    def full(self) -> float:
        """The part of it that is taken, 0 to 1: of its messages or its bytes, what is more."""
        return max(self.waiting / self.slots, self.waiting_bytes / max(self.capacity_bytes, 1))


class StoreReader(Struct, frozen=True):
    """A reader of this host's copy, as its daemon saw it: lags as in `ReplicaStatus`."""

    name: str
    pid: int
    alive: bool
    index: int
    read: int
    missed: int
    lag_records: int
    lag_bytes: int
    lag_ms: int


class StoreFeed(Struct, frozen=True):
    """The feed that writes a store: its state in lower case, and its last failure."""

    state: str
    failure: str


class _Said(Struct, frozen=True):
    # bus.json: what a daemon says of its store (agents/bus/store_disk, agents/bus/bus_host).
    store: str
    host: str
    pid: int
    by_feed: bool
    writer: bool
    writer_host: str
    epoch: str
    promised: str
    end: int
    records: int
    synced: int
    released: int
    kept: int
    let_go: int
    unprotected: int
    away: list[str]
    waits_for: list[str]
    following: bool
    source_end: int | None
    reconnects: int
    damaged: int
    quarantined: int
    unauthentic: int
    dropped: int
    removed: int
    removed_lacked: int
    clock_steps: int
    waits: str
    stopped: str
    problem: str
    consumers: dict[str, ReplicaStatus]
    readers: list[StoreReader]
    verdicts: dict[str, int]
    feed: StoreFeed | None
    said: list[str]
    wish: str = ""
    outcome: list[str] = []
    received: int = 0
    source_gone_ns: int | None = None
    source_left: str = ""
    held: int = 0
    ended: bool = False


class StoreStatus(_Said, frozen=True, kw_only=True):
    """A host's copy of a store, as its daemon said last.

    Positions are bytes from the store's beginning. What the daemon says has the names of
    docs/bus.md ("What `stat` shows").

    Attributes
    ----------
    directory : str
    alive : bool
        The daemon said something within the last second, and not that it ended.
    stuck : bool
        It is not alive, and did not end, but its process is there: it stands still.
    starting : bool
        The same, but its process has just begun, and has not said anything yet.
    silent_s : float or None
        For how many seconds it said nothing; None: since before this host began.
    outboxes : dict of OutboxStatus
        Of apps on this host, by sender: as they are now, whether the daemon lives or not.
    unreadable : dict of str
        Files that should be outboxes, and why they cannot be read.
    """

    directory: str
    alive: bool
    stuck: bool
    starting: bool
    silent_s: float | None
    outboxes: dict[str, OutboxStatus]
    unreadable: dict[str, str]

    @property
    def source_gone(self) -> str:
        """Since when nothing came from who writes the store; empty: it comes, or not asked for."""
        if self.source_gone_ns is None or not self.alive:
            return ""
        return moment(self.source_gone_ns)

    @property
    def lag_bytes(self) -> int | None:
        """How far a copy is behind the host that it copies from; None: it follows nobody."""
        return None if self.source_end is None else max(self.source_end - self.end, 0)


class Stores(Struct, frozen=True):
    """Stores by directory, and why nothing is known of others."""

    found: dict[str, StoreStatus]
    unreadable: dict[str, str]


def read_stores(directories: Iterable[Path]) -> Stores:
    """Return how stores are; of those that are damaged, why they cannot be read."""
    found, unreadable = {}, {}
    for directory in directories:
        try:
            found[str(directory)] = read_store(directory)
        except (OSError, UdpfastError) as error:
            unreadable[str(directory)] = sentence(error)
    return Stores(found, unreadable)


def read_store(path: Path) -> StoreStatus:
    """Return how a store is, of a daemon that is dead, too.

    Raises
    ------
    FileNotFoundError
        No daemon ever described a store there.
    RegionError
        What it said is damaged, or of another version; or others may write there.
    """
    directory = journal_directory(path)
    found = read_description(directory)
    try:
        said = msgspec.convert(found, _Said)
    except msgspec.ValidationError as problem:
        raise RegionError(
            f"{directory / 'bus.json'}: expected what a daemon of this version says, found: "
            f"{problem}"
        ) from None
    alive, silent_s, shared = _life(directory)
    alive = alive and not said.ended
    # What was killed had no time to say how far it was.
    kept = {} if alive or said.ended else _kept(directory, said.end)
    outboxes, unreadable = _outboxes(shared)
    there = not alive and not said.ended and described_by(found) != 0
    starting = there and _starts(found["pid_start"], silent_s)
    return StoreStatus(
        **{**msgspec.structs.asdict(said), **kept},
        directory=str(path),
        alive=alive,
        stuck=there and not starting,
        starting=starting,
        silent_s=silent_s,
        outboxes=outboxes,
        unreadable=unreadable,
    )


def _starts(pid_start: int, silent_s: float | None) -> bool:
    # Whether a daemon's process, by its beginning in ticks, is young, and was silent ever since.
    up_s = float(Path("/proc/uptime").read_text().split()[0])
    age_s = up_s - pid_start / os.sysconf("SC_CLK_TCK")
    return age_s < STARTING_S and (silent_s is None or silent_s > age_s)


def _life(directory: Path) -> tuple[bool, float | None, Path]:
    # Whether the daemon lives, for how long it was silent, and where apps share memory with it.
    own = shared_directory(directory)
    try:
        live = Live(directory)
        silent_s = live.silent_s()  # once: it may say that it lives in between
        return is_sign_of_life(silent_s), silent_s, live.shared or own
    except FileNotFoundError:  # never written: it said what it is, and died
        return False, None, own


def _kept(directory: Path, end: int) -> dict[str, int]:
    # Where a dead daemon's records end, looked for from where it said that they do.
    try:
        with JournalCursor.attach(directory, ("position", end), follow=False) as cursor:
            while cursor.poll():
                pass
            return {"end": cursor.position, "records": cursor.index}
    except (OSError, UdpfastError, ValueError, OverflowError):  # then all there is is what it said
        return {}


def _outboxes(shared: Path) -> tuple[dict[str, OutboxStatus], dict[str, str]]:
    found, unreadable = {}, {}
    try:
        paths = sorted(shared.glob("*.outbox"))
    except (OSError, ValueError):  # another user's; no path at all
        return {}, {}
    for path in paths:
        try:
            with path.open("rb") as file:
                header = file.read(OUTBOX_HEADER)
            facts = outbox_facts(header, path.stat().st_size)
        except FileNotFoundError:  # set aside meanwhile
            continue
        except (OSError, ValueError) as error:
            unreadable[path.name] = sentence(error)
            continue
        sender = facts.pop("sender")
        found[sender] = OutboxStatus(**facts)
    return found, unreadable
