"""Histograms, compared slot by slot with the Python implementation of HdrHistogram."""

import random

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram

from udpfast.errors import RegionError
from udpfast.shm.histogram import VALUE_MAX, LatencyBlock, LatencyHistogram

PERCENTS = [0, 0.001, 1, 10, 25, 50, 75, 90, 99, 99.9, 99.99, 99.999, 100]


def oracle() -> HdrHistogram:
    return HdrHistogram(1, VALUE_MAX, 3)


def values_of(seed: int, count: int) -> list[int]:
    """Return values of every magnitude, with the edges of slots and of powers of two among them."""
    rng = random.Random(seed)
    values = [1 << bit for bit in range(42) if 1 << bit <= VALUE_MAX]
    values += [value - 1 for value in values] + [VALUE_MAX, 2047, 2048, 2049]
    while len(values) < count:
        values.append(min(int(2 ** rng.uniform(0, 41.7)), VALUE_MAX))
    return values


@pytest.mark.parametrize("seed", range(5))
def test_histogram_agrees_with_hdr_in_every_slot_and_percentile(seed):
    mine, theirs = LatencyHistogram(), oracle()
    for value in values_of(seed, 3000):
        mine.record(value)
        assert theirs.record_value(value)
    counts = mine.counts()
    assert counts.tolist() == [theirs.get_count_at_index(i) for i in range(len(counts))]
    assert len(counts) == theirs.counts_len
    assert mine.total == theirs.get_total_count()
    assert mine.percentiles(PERCENTS) == [theirs.get_value_at_percentile(p) for p in PERCENTS]


def test_values_are_the_first_of_their_slots():
    theirs = oracle()
    values = LatencyHistogram.values()
    expected = [theirs.get_value_from_index(i) for i in range(0, len(values), 37)]
    assert values[::37].tolist() == expected
    assert np.all(np.diff(values) > 0)


def test_percentile_is_at_most_a_thousandth_too_high():
    for value in values_of(7, 500):
        histogram = LatencyHistogram()
        histogram.record(value)
        found = histogram.percentile(50)
        assert value <= found <= value + max(value // 1000, 0)


def test_histogram_empty_has_zeros():
    histogram = LatencyHistogram()
    assert histogram.percentiles([0, 50, 100]) == [0, 0, 0]
    assert (histogram.total, histogram.minimum, histogram.maximum) == (0, 0, 0)


def test_values_out_of_range_are_clamped_and_counted():
    histogram = LatencyHistogram()
    for value in (-5, 0, VALUE_MAX, VALUE_MAX + 1, 2**63 - 1, -(2**63)):
        histogram.record(value)
    assert (histogram.below, histogram.above, histogram.total) == (2, 2, 6)
    assert (histogram.minimum, histogram.maximum) == (0, VALUE_MAX)
    counts = histogram.counts()
    assert counts[0] == 3
    assert counts.sum() == 6


def test_minimum_and_maximum_are_the_ends_of_their_slots():
    histogram = LatencyHistogram()
    for value in (1_234_567, 1_239_999, 1_231_001):
        histogram.record(value)
    assert 1_231_001 - 1_024 < histogram.minimum <= 1_231_001
    assert 1_239_999 <= histogram.maximum < 1_239_999 + 1_024


@pytest.mark.parametrize(("first", "second"), [(0, 500), (500, 0), (300, 500)])
def test_merge_is_as_if_one_had_recorded_all(first, second):
    a, b, both = LatencyHistogram(), LatencyHistogram(), LatencyHistogram()
    for histogram, seed, count in ((a, 1, first), (b, 2, second)):
        for value in [*values_of(seed, count)[:count], *[-1, VALUE_MAX + 1] * (count > 0)]:
            histogram.record(value)
            both.record(value)
    a.merge(b)
    assert a.counts().tolist() == both.counts().tolist()
    for name in ("total", "minimum", "maximum", "below", "above"):
        assert getattr(a, name) == getattr(both, name), name


def test_percent_beyond_100_is_refused():
    with pytest.raises(ValueError, match="percent must be 0 to 100, was 101"):
        LatencyHistogram().percentile(101)


def test_block_shows_readers_what_its_owner_records(tmp_path):
    with LatencyBlock.create(tmp_path, ["kernel_to_loop", "loop_to_ring"]) as block:
        with LatencyBlock.attach(tmp_path) as seen:
            assert seen.names == ("kernel_to_loop", "loop_to_ring")
            block["loop_to_ring"].record(777)
            assert seen["loop_to_ring"].percentile(50) == 777
            assert seen["kernel_to_loop"].total == 0
            with pytest.raises(ValueError, match="attached read-only"):
                seen["loop_to_ring"].record(1)
            with pytest.raises(ValueError, match="attached read-only"):
                seen["loop_to_ring"].merge(LatencyHistogram())
        with pytest.raises(KeyError):
            block["wire_to_moon"]


def test_histogram_of_a_closed_block_stays_readable(tmp_path):
    with LatencyBlock.create(tmp_path, ["a"]) as block:
        histogram = block["a"]
        histogram.record(5)
    assert histogram.percentile(100) == 5


@pytest.mark.parametrize("names", [[], ["a", "a"]])
def test_block_names_must_differ(tmp_path, names):
    with pytest.raises(ValueError, match="names must be different, and at least one"):
        LatencyBlock.create(tmp_path, names)


def test_block_of_another_size_than_its_names_is_refused(tmp_path):
    with LatencyBlock.create(tmp_path, ["a", "b"]) as block:
        block.region.describe({"names": ["a"]})
        with pytest.raises(RegionError, match=r"expected \d+ bytes, found \d+"):
            LatencyBlock.attach(tmp_path)
        block.region.describe({"names": 5})
        with pytest.raises(RegionError, match="expected a list of names, found 5"):
            LatencyBlock.attach(tmp_path)
