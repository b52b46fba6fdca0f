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


def test_a_first_message_that_all_lines_lost_is_unseen() -> None:
    # Nobody brought message 1 of the last run, and the feed knows that senders number from 1.
    arguments = ["--row", "T-V1", "--case", "16", "--seed", "1200020", "--datagrams", "600"]
    result = CliRunner().invoke(simulate.main, arguments)
    assert result.exit_code == 0, result.output
