"""The command that runs rows of faults."""

import pytest

from udpfast.lab import simulate
from udpfast.lab.follower import Wrong


def test_simulate_prints_what_a_row_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate.main(["--row", "T-L3", "--seed", "5", "--datagrams", "60"]) == 0
    assert '"seed": 5' in capsys.readouterr().out


def test_simulate_prints_the_command_that_repeats_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(seed: int, datagrams: int) -> dict[str, int]:
        raise Wrong("two and two are five")

    monkeypatch.setitem(simulate.ROWS, "T-A2", (broken, [{}]))
    assert simulate.main(["--row", "T-A2", "--seed", "9", "--datagrams", "10"]) == 1
    out = capsys.readouterr().out
    assert "two and two are five" in out
    assert "--row T-A2 --case 0 --seed 9 --datagrams 10" in out
