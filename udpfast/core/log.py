"""Log lines of long-running programs on stderr, with time and level.

The line that says that a program is there goes to stdout, where scripts wait for it.

If systemd's journal reads them, which adds the time, a line begins with its level in the format of
sd-daemon(3).
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from enum import IntEnum
from typing import TextIO

from udpfast.core.clock import realtime_ns

__all__ = [
    "Level",
    "in_journal",
    "is_log",
    "is_shown",
    "log_line",
    "say_error",
    "say_info",
    "say_start",
    "say_warning",
    "set_level",
]


class Level(IntEnum):
    """Severity, with the numbers of syslog(3)."""

    ERROR = 3
    WARNING = 4
    INFO = 6


class _Log:
    level: Level | None = None  # the least severe that is written; None: stderr is no log, all are


def set_level(level: Level) -> None:
    """Write only lines that are at least this severe; from now on stderr is a log."""
    _Log.level = level


def is_shown(level: Level) -> bool:
    """Return whether lines of this level are written."""
    return _Log.level is None or level <= _Log.level


def is_log() -> bool:
    """Return whether stderr is a log: the program runs long, or systemd's journal reads it."""
    return _Log.level is not None or in_journal(sys.stderr)


def log_line(level: Level, text: str, unix_ns: int, *, journal: bool) -> str:
    """Return a log line; `journal`: systemd's journal reads it."""
    if journal:
        return f"<{level.value}>{text}"
    when = datetime.fromtimestamp(unix_ns // 1_000_000_000, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{unix_ns // 1_000_000 % 1000:03}Z {level.name} {text}"


def say_info(text: str) -> None:
    """Log an ordinary event."""
    _say(Level.INFO, text, sys.stderr)


def say_start(text: str) -> None:
    """Say that what the program is there for can be used, whatever level is written."""
    _write(Level.INFO, text, sys.stdout)


def say_warning(text: str) -> None:
    """Log something that somebody should look at."""
    _say(Level.WARNING, text, sys.stderr)


def say_error(text: str) -> None:
    """Log a failure."""
    _say(Level.ERROR, text, sys.stderr)


def _say(level: Level, text: str, stream: TextIO) -> None:
    if is_shown(level):
        _write(level, text, stream)


def _write(level: Level, text: str, stream: TextIO) -> None:
    # Whoever reads a log takes each of its lines by itself.
    now_ns, journal = realtime_ns(), in_journal(stream)
    try:
        for line in text.splitlines():
            print(log_line(level, line, now_ns, journal=journal), file=stream)
        stream.flush()
    except OSError as error:
        if _Log.level is None:
            raise
        if isinstance(error, BrokenPipeError):
            _go_on_without(stream)


def _go_on_without(stream: TextIO) -> None:
    # Nobody reads this log any more, as when `tee` was killed: the program goes on, and what it
    # would say, or the stream still holds, goes nowhere. Of a disk that is full, lines are kept
    # until it has room.
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def in_journal(stream: TextIO) -> bool:
    """Return whether systemd's journal reads a stream, by what systemd.exec(5) names of it."""
    named = os.environ.get("JOURNAL_STREAM", "")
    if not named:
        return False
    try:
        own = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return named == f"{own.st_dev}:{own.st_ino}"
