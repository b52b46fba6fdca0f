"""The wall clock is set back and forward, by up to a day, under everything that a feed runs."""

import json
import subprocess
import sys

import pytest

from tests.shared import ROOT
from tests.system.wall_clock import SOURCE
from tests.waiting import PATIENCE_S
from udpfast.net.ports import free_ports

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("clock") / "clock.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(path)]
    try:
        subprocess.run(command, input=SOURCE, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("no C compiler to build a clock with")
    return path


@pytest.mark.parametrize("seed", [1, 2])
def test_clock_that_jumps_loses_nothing_and_silences_nobody(library, tmp_path, monkeypatch, seed):
    offset = tmp_path / "offset"
    offset.write_bytes(bytes(8))
    for name, value in {
        "UDPFAST_SHM": tmp_path / "shm",
        "CLOCK_OFFSET": offset,
        "LD_PRELOAD": library,
        "PYTHONPATH": ROOT,
    }.items():
        monkeypatch.setenv(name, str(value))
    command = ["-m", "tests.system.wall_clock", *map(str, free_ports(2)), str(seed)]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    for name, seqnos in found["seqnos"].items():
        assert seqnos == list(range(1, found["sent"] + 1)), (seed, name)
    # One CONNECTION each: that of the beginning.
    for name, others in found["others"].items():
        assert others == {"SESSION": 1, "CONNECTION": 1}, (seed, name)
    assert found["restarts"] == 0, f"seed {seed}"
