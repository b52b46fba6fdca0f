"""The benchmark of SBE messages reads what it says, and has a figure for each way."""

from bench import bench_sbe
from bench.trials import Settings


def test_sbe_rows_are_one_for_each_way() -> None:
    rows = list(bench_sbe.run(Settings(quick=True, rounds=1)))
    assert {row.variant for row in rows} == {
        *("walk", "walk, blocks", "tables", "numpy views", "dicts"),
    }
    assert set(bench_sbe.GOALS) <= {row.variant for row in rows}
