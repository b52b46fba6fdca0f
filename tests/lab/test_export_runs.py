"""A few seeds of the check of exports that are run again; the program runs any number of them."""

import pytest

from lab.export_runs import check_seed
from tests.cases import nightly


@pytest.mark.parametrize("seed", [1, *nightly(2)])
def test_exports_run_again_hold_what_was_written(seed: int) -> None:
    check_seed(seed)
