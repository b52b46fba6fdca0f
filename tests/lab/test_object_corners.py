"""A slice of the seeded corners: the gate of objects, and every way to read what it passes."""

import pytest

from lab import identity, object_corners


@pytest.mark.parametrize("first", [1, 1_590, 6_881, 12_433])
def test_object_corners_find_nothing(first: int) -> None:
    for seed in range(first, first + 15):
        object_corners.run(seed)


@pytest.mark.parametrize("seed", [2, 7])
def test_all_ways_to_read_give_the_same_answer(seed: int) -> None:
    assert identity.run(seed)["records"] > 100
