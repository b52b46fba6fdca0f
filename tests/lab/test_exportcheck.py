"""A few seeds of the check of exports; the program runs any number of them."""

import pytest

from udpfast.lab.exportcheck import check_seed, main


@pytest.mark.parametrize("seed", [1, 104, 5012])
def test_every_record_is_exported_once_or_said_to_be_missing(seed: int) -> None:
    assert check_seed(seed) == ""


def test_seed_that_fails_is_said_as_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("udpfast.lab.exportcheck.check_seed", lambda seed: "rows twice")
    assert main(["--seeds", "1", "--seed", "7"]) == 1
    assert "exportcheck --seeds 1 --seed 7: rows twice" in capsys.readouterr().out
