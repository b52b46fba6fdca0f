"""The benchmark of many groups in one loop."""

import os

import numpy as np

from bench import bench_groups
from bench.trials import Settings


def test_benchmark_compares_many_sockets_with_one() -> None:
    core = min(os.sched_getaffinity(0))
    rows = list(bench_groups.run(Settings(rounds=1, quick=True, cores=(core, core))))
    assert {row.parameters["queued"] for row in rows} == {512, 1}
    assert {row.variant for row in rows} == {
        "one socket",
        "64 sockets",
        "64 sockets, each asked",
    }
    assert {row.goal.partition(":")[0] for row in rows if row.goal} == {"P37"}
    assert all(np.isfinite(row.median) for row in rows)
