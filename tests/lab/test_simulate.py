"""The command that runs rows of faults."""

import pytest
from click.testing import CliRunner

from lab import simulate
from lab.follower import Wrong


def test_simulate_prints_what_a_row_found() -> None:
    arguments = ["--row", "T-L3", "--seed", "5", "--datagrams", "60"]
    result = CliRunner().invoke(simulate.main, arguments)
    assert result.exit_code == 0
    assert '"seed": 5' in result.output


def test_simulate_prints_the_command_that_repeats_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(seed: int, datagrams: int) -> dict[str, int]:
        raise Wrong("two and two are five")

    monkeypatch.setitem(simulate.ROWS, "T-A2", (broken, [{}]))
    arguments = ["--row", "T-A2", "--seed", "9", "--datagrams", "10"]
    result = CliRunner().invoke(simulate.main, arguments)
    assert result.exit_code == 1
    assert "two and two are five" in result.output
    command = "udpfast lab simulate --row T-A2 --case 0 --seed 9 --datagrams 10"
    assert command in result.output
