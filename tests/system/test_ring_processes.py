"""The ring between real processes, at a reduced size: `udpfast lab ringcheck` is the
full one. A failing seed repeats the moments of the kills, not what the machine did in them.
"""

import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from lab.ringcheck import (
    check_load,
    check_reader_kills,
    check_writer_kills,
    main,
)
from lab.ringload import LoadResult, read_load, write_load
from udpfast.log.cursor import RingCursor
from udpfast.log.ring import Ring

pytestmark = pytest.mark.system


@pytest.fixture
def directory():
    """Return a path in /dev/shm, where rings live: a disk would write the file back meanwhile."""
    with tempfile.TemporaryDirectory(prefix="udpfast-test-", dir="/dev/shm") as root:
        yield Path(root) / "instance"


@pytest.mark.parametrize("capacity_bytes", [1 << 12, 1 << 16, 1 << 26])
def test_reader_at_full_speed_gets_records_whole_or_told_how_many_it_missed(
    directory, capacity_bytes
):
    report = check_load(directory, 300_000, capacity_bytes)
    assert report.faults == (), str(report)
    assert report.written == 300_000


def test_writers_killed_at_random_are_taken_over_without_a_torn_record(directory):
    report = check_writer_kills(directory, kills=20, seed=3)
    assert report.faults == (), str(report)


def test_readers_killed_at_random_disturb_nobody_and_leave_nothing(directory):
    report = check_reader_kills(directory, kills=20, seed=4)
    assert report.faults == (), str(report)


def test_ringcheck_reports_each_check_and_exits_0():
    result = CliRunner().invoke(main, ["--records", "2000", "--kills", "1"])
    assert result.exit_code == 0
    assert result.output.count("torn 0, repeated 0, skipped 0") == 7


def test_load_reader_finds_a_torn_record(tmp_path):
    """What the checks above rely on: one wrong bit in any field that the load fills."""
    with (
        Ring.create(tmp_path, 1 << 20) as ring,
        RingCursor.attach(tmp_path, start="begin") as cursor,
    ):
        for offset in (6, 24, 32, 42, 49, 64, 71, 72, 75):
            position = ring.position
            write_load(ring, 1, 13, 13)
            at = 4096 + position + offset
            ring.region.view()[at] ^= 1
        result = LoadResult()
        read_load(cursor, result, idle_polls_max=10)
        assert (result.received, result.torn) == (9, 9)
