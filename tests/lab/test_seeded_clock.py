"""Time by a seed: looks and sleeps take as long as the seed says, in every run alike."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.shared import ROOT

PROGRAM = """
import time
from lab.seeded_clock import seeded_time, with_seeded_time
with_seeded_time()
before = time.monotonic_ns()
for step in (1_000, 5_000_000):
    with seeded_time(step):
        first, unix = time.monotonic_ns(), time.time_ns()
        time.sleep(3600.0)
        print(time.monotonic_ns() - first, unix - first)
print(0 <= time.monotonic_ns() - before < 3_600_000_000_000)
"""


def output(*arguments: str) -> str:
    """Return what a process says, without the warnings."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, check=True,
    ).stdout  # fmt: skip


@pytest.fixture(autouse=True)
def compiler() -> None:
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("no C compiler on this host")


def test_looks_and_sleeps_take_what_the_seed_says_and_end_with_it() -> None:
    said = [line.split() for line in output("-c", PROGRAM).splitlines()]
    assert said[2] == ["True"]
    for (slept, apart), step in zip(said[:2], (1_000, 5_000_000), strict=True):
        # time.sleep looks at the clock as well.
        assert 3_600_000_000_000 <= int(slept) - 2 * step <= 3_600_000_000_000 + 4 * step
        assert int(apart) == 2_000_000_000_000_000_000 - 1_000_000_000_000 + step


def test_seed_is_the_same_history_each_time() -> None:
    seeds = ("-m", "udpfast", "lab", "seamcheck", "--seeds", "1", "--seed", "527")
    first = output(*seeds)
    assert first == output(*seeds)
    assert first.startswith("1 seeds from 527, 0 failed")
