"""The benchmark of styles at a tiny size: that readers beside each other are all looked at."""

from pathlib import Path
from typing import Any

import pytest

from bench import wakes
from bench.partner import Partner, PartnerError


@pytest.mark.parametrize("elsewhere", [False, True])
def test_spinning_reader_beside_event_loops_is_measured_and_verified(elsewhere: bool) -> None:
    with Partner(None) as writer, Partner(None) as others:
        outcome = wakes.spin(writer, others, 0, 5, 2, elsewhere)
    assert outcome.verified == "5 records, in order, to each of 3"
    assert outcome.histogram is not None
    assert outcome.histogram.total == 5


def test_spinning_reader_beside_one_that_misses_a_record_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Partner(None) as writer, Partner(None) as others:
        monkeypatch.setattr(wakes, "sleep_and_read", read_one_less)
        with pytest.raises((ValueError, PartnerError), match=r"found 5, 0 wrong, \[4\]"):
            wakes.spin(writer, others, 0, 5, 1, False)


def read_one_less(
    state: dict[str, Any], directory: str, sleepers: int, due_ns: Any, elsewhere: bool
) -> list[int]:
    """Be a reader that was not there for the last one."""
    (Path(directory) / "readers").mkdir(exist_ok=True)
    (Path(directory) / "readers" / "1-0").touch()
    return [len(due_ns) - 1] * sleepers
