"""A slice of the lives of an instance; `python -m lab.lives` runs as many as wanted."""

import random
from dataclasses import replace

import pytest

from lab.life import Life, race, run
from lab.lives import run_seed
from tests.cases import nightly


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_lives_of_an_instance_account_for_all_that_was_written(seed, monkeypatch):
    monkeypatch.setenv("UDPFAST_SHM", "")  # set by the run, restored behind it
    assert run_seed(seed)["lives"] > 3


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("seed", [0, 1, *nightly(*range(2, 6))])
def test_of_starts_at_one_time_exactly_one_comes_by(seed, damaged, tmp_path):
    rng = random.Random(seed)
    tmp_path.chmod(0o700)
    left = Life(1 << 22, 1024, 50, 0, "killed", 0, "")
    run(tmp_path, left, 0, [])
    if damaged:  # nobody can go on in it
        with (tmp_path / "ring").open("r+b") as ring:
            ring.seek(4096)
            ring.write(b"\xff" * (1 << 22))
    capacities = rng.choice(((1 << 22, 1 << 22), (1 << 22, 1 << 23), (1 << 23, 1 << 23)))
    lives = [replace(left, capacity=capacity) for capacity in capacities]
    assert len(race(tmp_path, lives, rng)) == 1, f"seed {seed}"
