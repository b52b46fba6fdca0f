"""Faults of a bus of real daemons, a few of each; `udpfast lab bus-faults` tries many."""

from pathlib import Path

import pytest

from lab.bus_faults import ROWS, UnavailableError

pytestmark = pytest.mark.system

#: How often each row is tried here.
TIMES = {
    "B1": 12, "B2": 1, "B3": 2, "B7": 1, "B8": 1, "B9": 3, "B11": 4, "B12": 4, "B20": 16,
    "chain": 3, "aside": 1, "moved": 1, "backup": 2, "mixed": 1, "order": 2, "damage": 6,
    "feed": 2, "recorder": 2, "feed-disk": 1, "recorder-disk": 1,
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_nothing_is_lost_or_twice_and_copies_are_equal(row: str, tmp_path: Path) -> None:
    try:
        found = ROWS[row][0](tmp_path, TIMES[row], 1)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    assert found["gone" if row == "B9" else "messages"] > 0
