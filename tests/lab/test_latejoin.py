"""Late joiners against a feed that runs, at reduced size."""

import pytest

from lab.latejoin import Attach, Check, judge, run

pytestmark = pytest.mark.system


def test_late_joiners_are_never_wrong_and_read_nothing_twice() -> None:
    found = run(60, 3, events=12_000, market=None, seconds=4.0, capacity_bytes=1 << 23)
    assert found["attaches"] == 60
    assert found["books_compared"] > 100
    assert found["records_followed"] > 100


def test_check_that_differs_from_the_oracle_is_found() -> None:
    with pytest.raises(AssertionError, match="at record 0: expected"):
        judge([Attach(1, 1, 0, 0, [Check(0, {"x:y": 1})])], [])


def test_check_beyond_the_last_record_is_found() -> None:
    with pytest.raises(AssertionError, match="1 checks, compared 0"):
        judge([Attach(1, 1, 0, 0, [Check(9, {})])], [])
