"""The roster: the agents of an instance and their states, readable while it runs and afterwards.

The region `roster` has one row per agent. Its one writer is the thread that watches the agents,
several times a second; tools read it. A row that is read while it is written may mix old and new
values: it is meant for people.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from msgspec import Struct

from udpfast.core.layout import layout_hash
from udpfast.errors import RegionError
from udpfast.shm.region import Region

__all__ = ["AgentEntry", "AgentState", "Roster", "read_roster"]

_KIND = "ROST"
_FIRST = 4096
_ENTRY = np.dtype(
    [
        ("name", "S16"),
        ("state", "<u4"),
        ("restarts", "<u4"),
        ("pid", "<i8"),
        ("changed_ns", "<i8"),
        ("looked_ns", "<i8"),
        ("cycles", "<i8"),
        ("failure", "S200"),
        ("down_ns", "<i8"),
        ("down_records", "<i8"),
        ("lost_recent", "<i8"),
        ("disagreements_recent", "<i8"),
    ]
)
_LAYOUT_HASH = layout_hash(_ENTRY)


class AgentState(IntEnum):
    """State of an agent."""

    STARTING = 0  # it has made no turn yet
    RUNNING = 1
    STUCK = 2  # its thread is alive but has made no turn for seconds
    WAITING = 3  # it ended with an error and will be restarted
    FAILED = 4  # it ended with an error, for good
    ENDED = 5  # it had nothing left to do, or was stopped


class AgentEntry(Struct):
    """One agent of an instance.

    Attributes
    ----------
    name : str
        "feed", or the name of its table in the feed's file.
    state : AgentState
    restarts : int
        Number of restarts.
    pid : int
        Process that it runs in; 0: none.
    changed_ns : int
        Since when it is in this state, UNIX ns: running, since the first turn after its last start;
        stuck, since its last turn.
    cycles : int
        Turns of its loop.
    failure : str
        What ended it last; empty: nothing did.
    looked_ns : int
        When it was last checked, UNIX ns.
    down_ns : int
        When it failed, UNIX ns, until it has worked for `run.restart_steady_ms` again; 0: it works.
    down_records : int
        Number of records that the feed had published by then.
    lost_recent, disagreements_recent : int
        Of the feed: messages lost, and fragments whose copies differ, in the last 15 minutes.
    """

    name: str
    state: AgentState = AgentState.STARTING
    restarts: int = 0
    pid: int = 0
    changed_ns: int = 0
    cycles: int = 0
    failure: str = ""
    looked_ns: int = 0
    down_ns: int = 0
    down_records: int = 0
    lost_recent: int = 0
    disagreements_recent: int = 0


class Roster:
    """The writing end of a roster. From `publish` on it replaces a dead writer's.

    Parameters
    ----------
    directory : Path
        The instance's directory.
    size : int
        Number of agents.
    """

    def __init__(self, directory: Path, size: int) -> None:
        self.region = Region.create(
            directory / "roster",
            _KIND,
            _FIRST + max(size, 1) * _ENTRY.itemsize,
            _LAYOUT_HASH,
            replace=True,
        )
        self._rows = np.frombuffer(self.region.view(), _ENTRY, size, _FIRST)

    def publish(self) -> None:
        """Let tools find it."""
        self.region.mark_ready()

    def write(self, entries: Sequence[AgentEntry], now_ns: int) -> None:
        """Publish the state of all agents."""
        for row, entry in zip(self._rows, entries, strict=True):
            row["name"] = entry.name.encode()
            row["state"] = entry.state
            row["restarts"] = entry.restarts
            row["pid"] = entry.pid
            row["changed_ns"] = entry.changed_ns
            row["cycles"] = entry.cycles
            row["failure"] = entry.failure.encode()[: _ENTRY["failure"].itemsize]
            row["looked_ns"] = now_ns
            row["down_ns"] = entry.down_ns
            row["down_records"] = entry.down_records
            row["lost_recent"] = entry.lost_recent
            row["disagreements_recent"] = entry.disagreements_recent

    def close(self) -> None:
        """Release the roster. The file stays for tools."""
        self.region.close()

    def __enter__(self) -> Self:
        """Return the roster itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()


def read_roster(directory: str | os.PathLike[str]) -> list[AgentEntry]:
    """Return the agents of an instance, as they were when last checked.

    Empty if nobody watched them, as in an instance of an older version.

    Raises
    ------
    RegionError
        The region is of another version, or not safe to read.
    """
    try:
        region = Region.attach(Path(directory) / "roster", _KIND, _LAYOUT_HASH)
    except FileNotFoundError:
        return []
    with region:
        if (region.size_bytes - _FIRST) % _ENTRY.itemsize:
            raise RegionError(f"{region.path}: expected whole rows, found {region.size_bytes}")
        rows = np.frombuffer(region.view(), _ENTRY, offset=_FIRST).copy()
        if rows["state"].max(initial=0) > max(AgentState):
            raise RegionError(f"{region.path}: expected states of agents, found {rows['state']}")
    return [
        AgentEntry(
            name=row["name"].decode(errors="replace"),
            state=AgentState(int(row["state"])),
            restarts=int(row["restarts"]),
            pid=int(row["pid"]),
            changed_ns=int(row["changed_ns"]),
            cycles=int(row["cycles"]),
            failure=row["failure"].decode(errors="replace"),
            looked_ns=int(row["looked_ns"]),
            down_ns=int(row["down_ns"]),
            down_records=int(row["down_records"]),
            lost_recent=int(row["lost_recent"]),
            disagreements_recent=int(row["disagreements_recent"]),
        )
        for row in rows
        if row["name"]
    ]
