"""A few seeds of the check of exports; the program runs any number of them."""

import pytest

from lab.exportcheck import check_seed
from tests.cases import nightly


@pytest.mark.parametrize("seed", [1, *nightly(104, 5012)])
def test_every_record_is_exported_once_or_said_to_be_missing(seed: int) -> None:
    check_seed(seed)
