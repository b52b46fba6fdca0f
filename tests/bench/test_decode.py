"""The decode benchmark and the micro level at a tiny size: they run, and their checks can fail."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench import bench_decode
from bench.decode_ways import (
    OTHER_LOOPS,
    book_event,
    decode_loops,
    kind_loops,
    other_loops,
    updates,
)
from bench.loops.feed_cost import WindowLoop
from bench.loops.micro import DecodeLoop
from bench.micro import instructions
from bench.trials import Settings
from udpfast.core.layout import Kind
from udpfast.market.updates import view_update

ROOT = Path(__file__).parents[2]


def test_run_measures_every_loop_and_says_what_it_checked() -> None:
    failures: list[str] = []
    settings = Settings(quick=True, rounds=1, cores=(0, 0), fail=failures.append)
    rows = list(bench_decode.run(settings))
    assert not failures
    found = {row.variant: row for row in rows}
    assert {*decode_loops(), *kind_loops(), *OTHER_LOOPS} <= set(found)
    for row in rows:
        row.check()
        assert row.verified
        assert min(row.values) > 0
    assert found["book of 10"].ratio is not None
    assert set(bench_decode.GOALS) <= set(found)


def test_book_event_has_its_levels_and_about_as_many_removals() -> None:
    [update] = updates([book_event(random.Random(3), 100, removals=0.3)])
    rows = view_update(Kind.BOOK, update).rows
    assert len(rows) == 100
    assert 15 < (rows["quantity"] == 0).sum() < 45


def test_loop_whose_operation_fails_is_an_error(tmp_path) -> None:
    loop = DecodeLoop([book_event(random.Random(1), 10), bytes(64)])
    assert loop.run(1) > 0
    with pytest.raises(ValueError, match="expected 2 operations, 1 were done"):
        loop.run(2)
    with pytest.raises(ValueError, match="expected 1 operations, 0 were done"):
        WindowLoop(bytes(8)).run(1)
    assert other_loops(tmp_path)["ring, 64 B"].run(20_000) > 0  # more than once around


def test_micro_level_is_timed_by_pytest_benchmark() -> None:
    pytest.importorskip("pytest_benchmark")
    command = [sys.executable, "-m", "pytest", "-q", "bench/micro/test_window.py"]
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    assert "test_window[window, 80 B]" in done.stdout


def test_instructions_of_a_book_lie_between_top_of_book_and_the_general_path() -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    chosen = ["book of 10", "book of 10, general path", "top of book"]
    counts = instructions.count_instructions(chosen)
    assert list(counts) == chosen
    assert 100 < counts["top of book"] < counts["book of 10"] < counts["book of 10, general path"]
