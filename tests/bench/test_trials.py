"""Variants take turns; what crosses the classes is dropped; ratios are of one round and class."""

import math
from collections.abc import Iterator

import pytest

from bench import trials
from bench.trials import Outcome, Settings, Trial, Trials, Unavailable, interleave
from tests.bench.fakes import ONE_CORE
from udpfast.shm.histogram import LatencyHistogram

TWO_CORES = Settings(rounds=3, cores=(0, 1))


@pytest.fixture
def pings(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Answer the measurements of the placement from a list, then with 30 ns."""
    answers: list[float] = []
    monkeypatch.setattr(
        trials.hostprobe, "core_to_core_ns", lambda *_: answers.pop(0) if answers else 30.0
    )
    return answers


def test_interleave_three_variants_rotates_the_order() -> None:
    order: list[str] = []
    interleave({name: lambda name=name: order.append(name) or 1.0 for name in "ABC"}, ONE_CORE)
    assert "".join(order) == "ABC" + "BCA" + "CAB"


def test_interleave_one_core_measures_no_placement(pings: list[float]) -> None:
    pings.append(30.0)
    found = interleave({"A": lambda: 1.0}, ONE_CORE)
    assert [trial.placement for trial in found.kept] == ["", "", ""]
    found = interleave({"A": lambda: 1.0}, TWO_CORES, two_cores=False)
    assert [trial.placement for trial in found.kept] == ["", "", ""]
    assert pings == [30.0]


def test_interleave_placement_that_crosses_is_taken_once_more(pings: list[float]) -> None:
    pings += [30, 200, 200, 200]
    found = interleave({"A": lambda: 1.0}, TWO_CORES, rounds=1)
    assert [trial.placement for trial in found.kept] == ["FAR"]
    assert found.dropped["A"] == 0


def test_interleave_placement_that_crosses_twice_is_dropped(pings: list[float]) -> None:
    pings += [59.9, 60.0, 60.0, 59.9, 50, 50]
    found = interleave({"A": lambda: 1.0}, TWO_CORES, rounds=2)
    assert [(trial.round, trial.placement) for trial in found.kept] == [(1, "NEAR")]
    assert found.dropped["A"] == 1


def test_interleave_placement_that_cannot_be_measured_is_dropped(pings: list[float]) -> None:
    pings += [math.nan] * 4
    found = interleave({"A": lambda: 1.0}, TWO_CORES, rounds=1)
    assert not found.kept and found.dropped["A"] == 1


def test_interleave_absent_and_failing_variants_leave_the_others() -> None:
    notes, failures = [], []
    settings = Settings(rounds=2, cores=(0, 0), note=notes.append, fail=failures.append)
    turns = iter([1.0])

    def absent() -> float:
        raise Unavailable("lcm is not installed")

    found = interleave(
        {"A": lambda: 1.0, "absent": absent, "fails": lambda: next(turns)}, settings, label="80 B"
    )
    assert [trial.variant for trial in found.kept] == ["A", "A"]
    assert notes == ["absent left out: lcm is not installed"]
    assert len(failures) == 1 and failures[0].startswith("80 B, fails: StopIteration")


def kept(*trials: tuple[str, int, str, float]) -> Trials:
    """Return trials: variant, round, placement, value."""
    names = tuple(dict.fromkeys(name for name, *_ in trials))
    return Trials(names, [Trial(n, r, p, Outcome(v)) for n, r, p, v in trials])


def rows_of(trials: Trials, **more: object) -> Iterator[trials.Row]:
    """Return the rows, by variant and placement."""
    found = trials.rows("drain", "ns", {"size": 80}, verified="all", **more)
    return {(row.variant, row.placement): row for row in found}


def test_rows_ratio_is_of_the_same_round_and_class() -> None:
    found = rows_of(
        kept(
            *(("C", 0, "NEAR", 100.0), ("C", 1, "FAR", 300.0), ("C", 2, "NEAR", 200.0)),
            *(("A", 0, "NEAR", 110.0), ("A", 1, "NEAR", 999.0), ("A", 2, "NEAR", 240.0)),
        ),
        base="C",
    )
    assert found["A", "NEAR"].ratio == pytest.approx(1.15)
    assert found["A", "NEAR"].ratios == pytest.approx([1.1, 1.2])
    assert found["A", "NEAR"].values == [110.0, 999.0, 240.0]
    assert found["C", "NEAR"].ratio == found["C", "FAR"].ratio == 1.0
    assert ("A", "FAR") not in found


def test_rows_without_a_round_in_common_have_no_ratio() -> None:
    found = rows_of(kept(("C", 0, "FAR", 300.0), ("A", 0, "NEAR", 110.0)), base="C")
    assert found["A", "NEAR"].ratio is None and not found["A", "NEAR"].ratios


def test_rows_goal_may_differ_by_placement() -> None:
    found = rows_of(
        kept(("A", 0, "NEAR", 1.0), ("A", 1, "FAR", 2.0)),
        goals={"A": {"NEAR": "P1: <= 1.15", "FAR": "P1: <= 1.3"}},
    )
    assert found["A", "NEAR"].goal == "P1: <= 1.15"
    assert found["A", "FAR"].goal == "P1: <= 1.3"


def test_rows_histograms_of_a_class_are_merged() -> None:
    def outcome(*values: int) -> Outcome:
        histogram = LatencyHistogram()
        for value in values:
            histogram.record(value)
        return Outcome(float(values[0]), histogram, "3 read", {"kernel to loop": histogram})

    found = interleave({"A": lambda: outcome(100, 200, 5000)}, ONE_CORE, rounds=2)
    row = next(found.rows("latency", "ns", {}))
    assert row.latency["count"] == 6 and row.latency["p50"] == 200
    assert row.latency["max"] == pytest.approx(5000, rel=0.001)  # the end of its slot
    assert sum(count for _, count in row.counts) == 6
    assert row.hops["kernel to loop"]["count"] == 6
    assert row.verified == "3 read"
