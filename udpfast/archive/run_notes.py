"""What `udpfast run` notes of a feed where the feed's own directory cannot say it.

`.runs/NAME.json` below the root of all instances says that the last start failed, or that the
feed's files were removed while it runs. It is there as long as that is so: the next start that
succeeds removes it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from udpfast.archive.groups import GroupFeed, make_folder, read_said
from udpfast.core.clock import realtime_ns
from udpfast.errors import RegionError
from udpfast.shm.files import replace_file
from udpfast.shm.instance import RUNS, instance_root

__all__ = ["RunNote", "forget_run", "is_removed", "list_runs", "note_run", "read_run"]

_BYTES_MAX = 1 << 16


class RunNote(msgspec.Struct, frozen=True):
    """What is wrong with a feed's run.

    Attributes
    ----------
    what : str
        "failed": the last start failed; "removed": the feed runs, but its files are gone.
    pid : int
        Of the process that says so.
    at_ns : int
        When it last said so, UNIX ns.
    times : int
        How many starts have failed, one after the other.
    reason : str
        In words.
    """

    what: Literal["failed", "removed"]
    pid: int
    at_ns: int
    times: int
    reason: str


def note_run(name: str, what: Literal["failed", "removed"], reason: str) -> None:
    """Note what is wrong with a feed's run. If that is impossible, the log alone says it."""
    with suppress(OSError, RegionError):
        path = make_folder(RUNS) / f"{name}.json"
        before = read_run(name)
        times = 1 + (before.times if before is not None and before.what == what else 0)
        note = RunNote(what, os.getpid(), realtime_ns(), times, reason)
        replace_file(path, msgspec.json.encode(note) + b"\n")
        path.chmod(0o644)


def forget_run(name: str) -> None:
    """Remove the note: the feed runs, or was stopped in good order."""
    with suppress(OSError):
        (instance_root() / RUNS / f"{name}.json").unlink()


def read_run(name: str) -> RunNote | None:
    """Return what is wrong with a feed's run; None: nothing, or it cannot be read."""
    path = instance_root() / RUNS / f"{name}.json"
    try:
        return msgspec.json.decode(read_said(path, _BYTES_MAX), type=RunNote)
    except (OSError, RegionError, msgspec.MsgspecError):
        return None


def is_removed(feed: GroupFeed, runs: Mapping[str, RunNote]) -> bool:
    """Return whether a feed of a group runs, but its files are gone."""
    note = runs.get(feed.name)
    return note is not None and note.what == "removed" and note.pid == feed.pid


def list_runs() -> dict[str, RunNote]:
    """Return all notes of this user on this host, by the feeds' names."""
    try:
        names = sorted(path.stem for path in Path(instance_root() / RUNS).glob("*.json"))
    except OSError:
        return {}
    return {name: note for name in names if (note := read_run(name)) is not None}
