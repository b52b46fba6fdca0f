"""The program that runs many feeds, with two of them for a moment; in full: `lab group`."""

from pathlib import Path

import pytest

from lab.group import run


@pytest.mark.system
@pytest.mark.nightly  # a slice of the campaign `group`
def test_a_reader_of_a_group_misses_what_both_lines_lost_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))  # given back afterwards
    outcome = run(feeds=2, seconds=0.5, rate=4000, kills=0, seed=2)
    assert (outcome.wrong, outcome.lapped, outcome.restarts) == ([], 0, 0)
    assert outcome.read == outcome.blocks - outcome.lost
    assert outcome.lost > 0
