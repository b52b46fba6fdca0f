"""A composite on one seed is the same bytes on every host, and mistakes in its order are found."""

import pytest

from lab.bus_composite import check_seed, run
from lab.bus_mutants import mutant


@pytest.mark.parametrize("seed", [1, 2, 5, 15, 16])
def test_composite_is_the_same_bytes_everywhere_whatever_happens(seed: int) -> None:
    found = check_seed(seed)
    assert found["records of composites"] > 0 and found["entries"] > 0


def test_inputs_of_these_seeds_lose_records_that_were_taken() -> None:
    assert check_seed(16)["losses of inputs"] > 0
    assert check_seed(15)["losses of inputs"] > 0


def test_composite_of_one_seed_is_one_history() -> None:
    one, two = run(5), run(5)
    read = [[machine.follower.read for machine in world.machines.values()] for world in (one, two)]
    assert read[0] == read[1]
    assert one.time.now_ns == two.time.now_ns


@pytest.mark.parametrize(
    ("name", "seed"),
    [("forgets-what-it-took", 2), ("takes-nothing-back", 15), ("believes-what-was-taken", 15)],
)
@pytest.mark.nightly  # that the campaign finds what it is for
def test_mistake_is_found(name: str, seed: int) -> None:
    with mutant(name), pytest.raises(AssertionError, match="I10 "):
        run(seed)
