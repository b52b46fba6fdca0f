"""The benchmark of a day of orders, at a tiny size: that it runs and verifies."""

from pathlib import Path

import pytest

from bench import bench_day
from bench.trials import Settings


def test_day_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_day, "DATAGRAMS", (3_000, 3_000))
    (row,) = bench_day.run(Settings(quick=True, cores=(0, 0)))
    assert row.parameters == {"messages": 180_000}
    assert row.verified.endswith("MiB more memory than a thirtieth")


def test_day_of_which_messages_are_missing_is_refused(tmp_path: Path) -> None:
    recording = bench_day.record(tmp_path / "small.pcap", 2)
    with recording.path.open("r+b") as file:
        file.truncate(recording.path.stat().st_size - (16 + 42 + 20 + 30 * 38))
    with pytest.raises(ValueError, match="delivered and lost"):
        bench_day.take(0, recording)


def test_memory_that_grows_with_the_messages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter([1_000.0, 100.0])
    monkeypatch.setattr(bench_day, "peak_mib", lambda work: next(peaks))
    with pytest.raises(ValueError, match="grew by 900 MiB"):
        bench_day.memory_growth(lambda: None, lambda: None)
