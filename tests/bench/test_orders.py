"""The benchmark of single orders through a socket, at a tiny size."""

import os

import pytest

from bench import bench_orders
from bench.trials import Settings


def test_benchmark_takes_orders_through_sockets_into_books(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_orders, "SHAPES", ((3, 8), (1, 1)))
    monkeypatch.setattr(bench_orders, "STOCKS", 5)
    monkeypatch.setattr(bench_orders, "LIVE", 60)
    core = min(os.sched_getaffinity(0))
    rows = list(bench_orders.run(Settings(rounds=1, quick=True, cores=(core, core))))
    assert {row.variant for row in rows} >= {"no books", "levels", "orders"}
    assert {row.parameters["queued"] for row in rows} == {8, 1}
    assert {row.goal for row in rows if row.variant == "orders"} == {
        "P34: <= 150 ns",
        "P34: <= 1.3",
    }
