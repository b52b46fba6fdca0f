"""The image benchmark at a tiny size: that it runs, verifies, and notices what is wrong."""

from pathlib import Path

import pytest

from bench import bench_image
from bench.trials import Settings
from tests.shared import shared

pytestmark = pytest.mark.system


def test_image_benchmark_runs_and_verifies(monkeypatch: pytest.MonkeyPatch) -> None:
    shared("wire", "capture", bench_image.CAPTURE)
    monkeypatch.setattr(bench_image, "OBJECTS", (6,))
    monkeypatch.setattr(bench_image, "RATES", (0,))
    rows = {
        row.variant: row for row in bench_image.run(Settings(quick=True, rounds=1, cores=(0, 0)))
    }
    assert rows["image and books"].verified == "6 books in the image, all sound"
    assert "the keeper read all" in rows["feed, keeper"].verified


def test_image_benchmark_missing_object_is_refused(tmp_path: Path) -> None:
    with bench_image.filled(tmp_path, 5), pytest.raises(ValueError, match="6 sound books, found 5"):
        bench_image.attach(0, tmp_path, 6, "books")
