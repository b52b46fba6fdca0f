"""A slice of the seam of journals and rings; `udpfast lab seamcheck` runs as many as wanted."""

import pytest

from lab.seamcheck import check
from tests.cases import nightly


@pytest.mark.filterwarnings("ignore")  # readers say which writers died and what was damaged
@pytest.mark.parametrize("first", [1, *nightly(11, 21, 31)])
def test_each_record_comes_once_or_is_said_to_be_missing(first):
    assert sum(check(seed)["records"] for seed in range(first, first + 10)) > 0
