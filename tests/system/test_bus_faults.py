"""A few faults of each kind in a bus of real daemons; `udpfast lab bus-faults` tries many."""

from pathlib import Path

import pytest

from lab.bus_faults import ROWS, UnavailableError
from tests.cases import nightly

pytestmark = pytest.mark.system

#: How often each row is tried here: once for each of the kinds that take turns, or once or twice.
#: `make nightly` tries each far more often, with seeds of the day.
TIMES = {
    "B1": 6, "B2": 1, "B3": 1, "B7": 1, "B8": 1, "B9": 1, "B11": 2, "B12": 3, "B20": 8,
    "chain": 2, "aside": 1, "moved": 1, "backup": 2, "mixed": 1, "order": 1, "damage": 3,
    "feed": 1, "recorder": 1, "feed-disk": 1, "recorder-disk": 1,
}  # fmt: skip

#: Rows that are tried here. The others at night: tests/lab/test_bus.py has most of their faults,
#: without processes.
HERE = ("B12", "mixed")


@pytest.mark.parametrize("row", [*HERE, *nightly(*(row for row in ROWS if row not in HERE))])
def test_nothing_is_lost_or_twice_and_copies_are_equal(row: str, tmp_path: Path) -> None:
    try:
        found = ROWS[row][0](tmp_path, TIMES[row], 1)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    assert found["gone" if row == "B9" else "messages"] > 0
