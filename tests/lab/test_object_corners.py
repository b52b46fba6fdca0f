"""A slice of the seeded corners: the gate of objects, and every way to read what it passes."""

import pytest

from udpfast.lab import identity, object_corners
from udpfast.lab.follower import Wrong


@pytest.mark.parametrize("first", [1, 6_881, 12_433])
def test_object_corners_find_nothing(first: int) -> None:
    for seed in range(first, first + 15):
        object_corners.run(seed)


@pytest.mark.parametrize("seed", [2, 7])
def test_all_ways_to_read_give_the_same_answer(seed: int) -> None:
    assert identity.run(seed)["records"] > 100


@pytest.mark.parametrize("program", [object_corners, identity])
def test_seed_that_fails_prints_the_command_that_repeats_it(
    program: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(seed: int) -> None:
        raise Wrong("two and two are five")

    monkeypatch.setattr(program, "run", broken)
    assert program.main(["--seed", "9"]) == 1  # type: ignore[attr-defined]
    said = capsys.readouterr().out
    assert "two and two are five" in said
    assert "--seed 9" in said
