"""A slice of the lives of an instance; `python -m udpfast.testing.lives` runs as many as wanted."""

import pytest

from udpfast.testing.lives import run_seed


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_lives_of_an_instance_account_for_all_that_was_written(seed, monkeypatch):
    monkeypatch.setenv("UDPFAST_SHM", "")  # set by the run, restored behind it
    assert run_seed(seed) > 3
