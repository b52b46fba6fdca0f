"""Log lines of long-running programs on stderr, with time and level.

If systemd's journal reads them, which adds the time, a line begins with its level in the format of
sd-daemon(3).
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from enum import IntEnum

from udpfast.core.clock import realtime_ns

__all__ = ["Level", "is_shown", "log_line", "say_error", "say_info", "say_warning", "set_level"]


class Level(IntEnum):
    """Severity, with the numbers of syslog(3)."""

    ERROR = 3
    WARNING = 4
    INFO = 6


_shown = {Level.ERROR, Level.WARNING, Level.INFO}


def set_level(level: Level) -> None:
    """Write only lines that are at least this severe."""
    _shown.clear()
    _shown.update(each for each in Level if each <= level)


def is_shown(level: Level) -> bool:
    """Return whether lines of this level are written."""
    return level in _shown


def log_line(level: Level, text: str, unix_ns: int, *, journal: bool) -> str:
    """Return a log line; `journal`: systemd's journal reads it."""
    if journal:
        return f"<{level.value}>{text}"
    when = datetime.fromtimestamp(unix_ns // 1_000_000_000, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{unix_ns // 1_000_000 % 1000:03}Z {level.name} {text}"


def say_info(text: str) -> None:
    """Log an ordinary event."""
    _say(Level.INFO, text)


def say_warning(text: str) -> None:
    """Log something that somebody should look at."""
    _say(Level.WARNING, text)


def say_error(text: str) -> None:
    """Log a failure."""
    _say(Level.ERROR, text)


def _say(level: Level, text: str) -> None:
    if level not in _shown:
        return
    print(log_line(level, text, realtime_ns(), journal=_is_journal()), file=sys.stderr, flush=True)


def _is_journal() -> bool:
    # systemd names device and inode of the stream that its journal reads (systemd.exec(5)).
    named = os.environ.get("JOURNAL_STREAM", "")
    if not named:
        return False
    try:
        own = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return named == f"{own.st_dev}:{own.st_ino}"
