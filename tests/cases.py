"""Cases of `pytest.mark.parametrize` that only `make nightly` runs."""

from typing import Any

import pytest


def nightly(*cases: Any) -> list[Any]:
    """Return cases that `make test` leaves out: they take long, and tell little more than others.

    A case of several arguments is a tuple.
    """
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.nightly)
        for case in cases
    ]
