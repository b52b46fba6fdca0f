"""Warn whoever opens a feed that nobody writes any more."""

from __future__ import annotations

import time
import warnings
from contextlib import suppress
from pathlib import Path

from udpfast.archive.replay_note import read_replay
from udpfast.errors import FormatError

__all__ = ["warn_of_no_ring_writer", "warn_of_no_writer"]


def warn_of_no_writer(where: object, what: str, last_ns: int, then: str) -> None:
    """Warn that there is no writer, and since when nothing came.

    Parameters
    ----------
    where : object
        The file or directory.
    what : str
        What became of it.
    last_ns : int
        When it wrote last, in UNIX ns.
    then : str
        What the reader does behind what it left.
    """
    _warn(where, what + _last(last_ns), then)


def warn_of_no_ring_writer(
    where: object, ring: tuple[Path, bytes, int], what: str, last_ns: int, then: str
) -> None:
    """Warn the same of a ring: a replay's records have recorded times, so none is named.

    Parameters
    ----------
    where, what, last_ns, then : object, str, int, str
        As for `warn_of_no_writer`.
    ring : tuple of Path, bytes and int
        The ring's directory, log and epoch.
    """
    replay = None
    with suppress(OSError, FormatError):  # damaged: then it is a ring like any other
        replay = read_replay(*ring)
    since = _last(last_ns) if replay is None else f": a replay of {replay.source}"
    _warn(where, what + since, then)


def _last(last_ns: int) -> str:
    last = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(last_ns // 1_000_000_000))
    return f", and wrote last at {last}"


def _warn(where: object, what: str, then: str) -> None:
    warnings.warn(
        f"{where}: {what}; the reader gets what it left, as it was then, and then {then}",
        RuntimeWarning,
        stacklevel=3,
    )
