"""Markets of any density through a hindered gateway: a slice of the seeds."""

import pytest

from lab.dense_markets import check_gateway


@pytest.mark.parametrize("seed", range(12))
def test_gateway_goes_on_and_its_books_are_the_levels_nearest_the_touch(seed: int) -> None:
    check_gateway(seed)
