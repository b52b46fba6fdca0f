"""The benchmark of books at a tiny size: that it runs, verifies, and tells all ways apart."""

import pytest

from bench import bench_books
from bench.trials import Settings


def test_books_benchmark_runs_and_verifies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_books, "SHAPES", ((3, 50),))
    monkeypatch.setattr(bench_books, "MESSAGES", 20_000)
    rows = list(bench_books.run(Settings(quick=True, rounds=1, cores=(0, 0))))
    assert {row.variant for row in rows} == {"C tables", "decode", "books", "levels", "orders"}
    assert all(row.verified.endswith("as they should") for row in rows)
