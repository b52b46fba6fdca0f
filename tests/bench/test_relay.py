"""The relay's benchmark at a tiny size: that it runs, and counts what it sent."""

import pytest

from bench import bench_relay
from bench.trials import Settings

pytestmark = pytest.mark.system


def test_relay_benchmark_runs_and_verifies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_relay, "UPDATES", 640)
    monkeypatch.setattr(bench_relay, "ALONE", 40)
    settings = Settings(quick=False, rounds=1, cores=(0, 0))
    rows = {(row.variant, row.parameters["batch"]): row for row in bench_relay.run(settings)}
    assert len(rows) == 2 * (1 + len(bench_relay.VARIANTS))
    for (variant, batch), row in rows.items():
        count = 40 if batch == 1 else 640
        words = "sent" if variant == bench_relay.FLOOR else "updates passed on"
        assert row.verified.startswith(f"{count} {words} = {count} received")
