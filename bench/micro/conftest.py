"""How an operation is timed: its loop runs without the GIL, pytest-benchmark times the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ..decode_ways import Operation

pytest.importorskip("pytest_benchmark")

COUNT = 2_000


@pytest.fixture
def measure(benchmark: Any) -> Callable[[Operation], None]:
    """Time a loop; the figure for one operation is in `extra_info`, in ns."""

    def run(loop: Operation) -> None:
        loop.run(COUNT)
        benchmark.pedantic(loop.run, args=(COUNT,), rounds=50)
        benchmark.extra_info["ns_per_operation"] = benchmark.stats.stats.median * 1e9 / COUNT

    return run
