"""The benchmark of snapshots beside changes."""

import os

import numpy as np
import pytest

from bench import bench_recovery
from bench.trials import Settings


def test_benchmark_compares_changes_beside_snapshots_with_changes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_recovery, "RATE", 2_000)
    monkeypatch.setattr(bench_recovery, "OPENING", 200)
    monkeypatch.setattr(bench_recovery, "CHANGES", (300, 300))
    core = min(os.sched_getaffinity(0))
    failed: list[str] = []
    rows = list(
        bench_recovery.run(Settings(rounds=1, quick=True, cores=(core, core), fail=failed.append))
    )
    assert failed == []
    assert {row.variant for row in rows} == {bench_recovery.ALONE, bench_recovery.BESIDE}
    assert {row.parameters["percentile"] for row in rows} == {"p50", "p99"}
    assert {row.goal.partition(":")[0] for row in rows if row.goal} == {"P36"}
    assert all(np.isfinite(row.median) for row in rows)
