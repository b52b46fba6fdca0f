"""Warn a user who opens what has no writer any more, or from a time that is yet to come."""

from __future__ import annotations

import time
import warnings
from contextlib import suppress
from pathlib import Path

from udpfast.archive.replay_note import read_replay
from udpfast.core.moment import moment_text
from udpfast.errors import FormatError

__all__ = ["warn_of_later_start", "warn_of_no_ring_writer", "warn_of_no_writer"]

# Whoever starts at the present is later than the last record, too: by a silence of the market.
_PRESENT_NS = 60_000_000_000


def warn_of_later_start(where: object, start_ns: int, last_ns: int) -> None:
    """Warn that a reader waits for a time that is more than a minute behind the last record.

    Parameters
    ----------
    where : object
        The feed's or journal's file, directory or address.
    start_ns, last_ns : int
        Where the reader starts, and when the last record was published, UNIX ns; 0: there is none.
    """
    if 0 < last_ns < start_ns - _PRESENT_NS:
        warnings.warn(
            f"{where}: start is {moment_text(start_ns)}, but the last record was published at "
            f"{moment_text(last_ns)}; the reader leaves out all records until then",
            RuntimeWarning,
            stacklevel=3,
        )


def warn_of_no_writer(where: object, what: str, last_ns: int, start: str, then: str) -> None:
    """Warn that a feed has no writer, and when it last wrote.

    Parameters
    ----------
    where : object
        The feed's file or directory.
    what : str
        What became of the writer, as the predicate of the sentence.
    last_ns : int
        When it last wrote, in UNIX ns.
    start : str
        Where the reader starts; "tail": behind what was left; "image": with its values.
    then : str
        What the reader does behind all that was left.
    """
    _warn(where, what + _last(last_ns), start, then)


def warn_of_no_ring_writer(
    where: object,
    ring: tuple[Path, bytes, int],
    what: str,
    last_ns: int,
    start: str,
    then: str,
) -> None:
    """Warn likewise of a ring. For a replay, name its source, because its times are recorded ones.

    Parameters
    ----------
    where, what, last_ns, start, then : object, str, int, str, str
        As for `warn_of_no_writer`.
    ring : tuple of Path, bytes and int
        The ring's directory, log and epoch.
    """
    replay = None
    with suppress(OSError, FormatError):  # if it is damaged, treat the ring like any other
        replay = read_replay(*ring)
    since = _last(last_ns) if replay is None else f": a replay of {replay.source}"
    _warn(where, what + since, start, then)


def _last(last_ns: int) -> str:
    last = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(last_ns // 1_000_000_000))
    return f", and wrote last at {last}"


def _warn(where: object, what: str, start: str, then: str) -> None:
    gets = {"tail": "begins behind", "image": "begins with the values of"}.get(start, "gets")
    warnings.warn(
        f"{where}: {what}; the reader {gets} the records that it left, and then {then}",
        RuntimeWarning,
        stacklevel=3,
    )
