"""Clocks compared by round trips: the estimate, and that it is never more wrong than it says."""

import numpy as np
import pytest

from udpfast.probe.control import Clock
from udpfast.probe.offset import Offset, Trips, find_offset

BEGIN = 1_700_000_000_000_000_000


def trips(
    offset_ns: float,
    drift_ppm: float,
    out_ns: float,
    back_ns: float,
    *,
    seed: int,
    seconds: float = 20,
) -> Trips:
    """Return the stamps of round trips between clocks that are this far apart."""
    chance = np.random.default_rng(seed)
    sent = BEGIN + np.sort(chance.integers(0, int(seconds * 1e9), 4000))
    ahead = offset_ns + (sent - BEGIN - seconds * 5e8) * drift_ppm * 1e-6
    out = out_ns + chance.exponential(out_ns / 5, len(sent))
    back = back_ns + chance.exponential(back_ns / 5, len(sent))
    reached = sent + (ahead + out).astype(np.int64)
    turned = reached + 5_000
    returned = sent + (out + 5_000 + back).astype(np.int64)
    return Trips(sent, reached, turned, returned)


def true_error(found: Offset, stamps: Trips, offset_ns: float, drift_ppm: float) -> float:
    middle = BEGIN + 10 * 10**9
    true = offset_ns + (stamps.sent - middle) * drift_ppm * 1e-6
    estimated = found.remove(np.zeros(len(true), np.int64), stamps.sent, -1)
    return float(np.abs(estimated - true).max())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("drift_ppm", [0.0, 40.0, -3.0])
@pytest.mark.parametrize("offset_ns", [0.0, 1e6, -(2.0**59)])
def test_offset_is_never_more_wrong_than_it_says(
    seed: int, drift_ppm: float, offset_ns: float
) -> None:
    # The way back takes a fifth longer, which nobody can see from the ends.
    stamps = trips(offset_ns, drift_ppm, 4e6, 4.8e6, seed=seed)
    found = find_offset([stamps], Clock(), Clock())
    assert found.method == "round trips"
    # A float of 2^59 has steps of 64 ns.
    assert true_error(found, stamps, offset_ns, drift_ppm) <= found.error_ns + 200
    assert found.error_ns < 4.6e6
    assert found.drift_ppm == pytest.approx(drift_ppm, abs=2)


def crowded(seed: int) -> Trips:
    """Return a quarter of a second between equal clocks, towards whose end a host is busy."""
    chance = np.random.default_rng(seed)
    sent = BEGIN + np.sort(chance.integers(0, 250_000_000, 500))
    busy = sent - BEGIN > chance.integers(0, 250_000_000)
    waits = busy * chance.choice([0, 1_000_000, 10_000_000, 100_000_000]) * chance.random((2, 500))
    out, back = (20_000 + chance.exponential(30_000, (2, 500)) + waits).astype(np.int64)
    return Trips(sent, sent + out, sent + out + 5_000, sent + out + 5_000 + back)


def test_offset_of_a_host_that_becomes_busy_is_not_more_wrong_than_it_says() -> None:
    for seed in range(300):
        stamps = crowded(seed)
        found = find_offset([stamps], Clock(), Clock())
        estimated = found.remove(np.zeros(len(stamps.sent), np.int64), stamps.sent, -1)
        assert np.abs(estimated).max() <= found.error_ns + 1, seed


def test_offset_a_host_that_becomes_busy_has_one_clock_still() -> None:
    for seed in range(300):
        found = find_offset([crowded(seed)], Clock("a"), Clock("a"))
        assert (found.method, found.refuted) == ("same clock", False), seed


def test_offset_the_fastest_line_narrows_the_error_of_all() -> None:
    slow = trips(500_000, 10, 8e6, 8e6, seed=1)
    fast = trips(500_000, 10, 1e5, 1e5, seed=2)
    both = find_offset([slow, fast], Clock(), Clock())
    alone = find_offset([slow], Clock(), Clock())
    assert both.error_ns < 2e5
    assert alone.error_ns > 3e6
    assert true_error(both, fast, 500_000, 10) <= both.error_ns


def test_offset_symmetric_ways_give_it_exactly() -> None:
    found = find_offset([trips(123_456, 0, 1e6, 1e6, seed=3)], Clock(), Clock())
    assert found.offset_ns == pytest.approx(123_456, abs=2e4)


def test_offset_a_clock_that_is_set_widens_the_error() -> None:
    before, after = (trips(each, 0, 1e5, 1e5, seed=4, seconds=20) for each in (0, 10_000_000))
    half = before.sent < BEGIN + 10 * 10**9
    stamps = Trips(
        *(np.where(half, getattr(before, name), getattr(after, name))
          for name in ("sent", "reached", "turned", "back"))
    )  # fmt: skip
    found = find_offset([stamps], Clock(), Clock())
    assert found.error_ns > 1_000_000


def synchronised(error_ns: int, host: str = "") -> Clock:
    return Clock(host, "chrony", True, error_ns, "chrony")


def test_offset_own_word_counts_if_it_promises_more() -> None:
    found = find_offset([trips(300, 0, 4e6, 4e6, seed=5)], synchronised(500), synchronised(700))
    assert (found.method, found.offset_ns, found.error_ns) == ("own word", 0, 1200)
    assert not found.refuted


def test_offset_own_word_that_cannot_be_true_is_refuted() -> None:
    found = find_offset([trips(5e6, 0, 1e5, 1e5, seed=6)], synchronised(500), synchronised(700))
    assert found.method == "round trips"
    assert found.refuted
    assert "impossible" in found.sentence()


def test_offset_one_host_has_one_clock() -> None:
    found = find_offset([], synchronised(500, "a"), synchronised(700, "a"))
    assert (found.method, found.error_ns) == ("same clock", 0)


def test_offset_twins_of_one_boot_have_two_clocks() -> None:
    twin = Clock("a")
    assert find_offset([trips(0, 0, 1e4, 1e4, seed=7)], twin, twin).method == "same clock"
    found = find_offset([trips(5e6, 0, 1e4, 1e4, seed=7)], twin, twin)
    assert (found.method, found.refuted) == ("round trips", True)


@pytest.mark.parametrize(
    ("offset_ns", "says"),
    [(3e9, "is 3 s ahead,"), (0.0, "is 0 ns ahead,"), (-3e9, "is 3 s behind,")],
)
def test_offset_says_in_words_which_clock_is_ahead(offset_ns: float, says: str) -> None:
    found = Offset("round trips", offset_ns, float("nan"), 5.0)
    assert f"the listener's clock {says} by round trips" in found.sentence()


def test_offset_nothing_came_back_is_unknown_or_their_own_word() -> None:
    assert find_offset([], Clock(), Clock()).method == "unknown"
    assert np.isnan(find_offset([], Clock(), synchronised(1)).error_ns)
    assert find_offset([], synchronised(1), synchronised(2)).error_ns == 3
