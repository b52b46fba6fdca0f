"""Lines in the logs of programs: time, severity and text."""

import os
import subprocess
import sys

import pytest

from udpfast.core.log import Level, log_line

AT_NS = 1_764_000_000_123_456_789


@pytest.mark.parametrize("level", list(Level))
def test_line_has_its_time_and_level(level: Level) -> None:
    line = log_line(level, "udpfast: x: text", AT_NS, journal=False)
    assert line == f"2025-11-24T16:00:00.123Z {level.name} udpfast: x: text"


@pytest.mark.parametrize("level", list(Level))
def test_line_for_systemd_begins_with_its_level_alone(level: Level) -> None:
    line = log_line(level, "text", AT_NS, journal=True)
    assert line == f"<{ {'ERROR': 3, 'WARNING': 4, 'INFO': 6}[level.name] }>text"


@pytest.mark.parametrize("shown", list(Level))
@pytest.mark.parametrize("read_by", ["nobody", "systemd", "another"])
def test_what_is_less_bad_than_asked_for_is_not_said(shown: Level, read_by: str) -> None:
    program = (
        "from udpfast.core.log import *\n"
        f"set_level(Level.{shown.name})\n"
        "say_info('i'); say_warning('w'); say_error('e')\n"
    )
    read_end, write_end = os.pipe()
    status = os.fstat(write_end)
    named = {"nobody": "", "systemd": f"{status.st_dev}:{status.st_ino}", "another": "1:2"}
    environment = os.environ | {"JOURNAL_STREAM": named[read_by]}
    subprocess.run([sys.executable, "-c", program], stderr=write_end, env=environment, check=True)
    os.close(write_end)
    with os.fdopen(read_end) as said:
        lines = said.read().splitlines()
    words = {Level.ERROR: "e", Level.WARNING: "w", Level.INFO: "i"}
    expected = [level for level in (Level.INFO, Level.WARNING, Level.ERROR) if level <= shown]
    assert [line[-1] for line in lines] == [words[level] for level in expected]
    marked = [
        line.startswith(f"<{level.value}>") for line, level in zip(lines, expected, strict=True)
    ]
    assert marked == [read_by == "systemd"] * len(expected)
