"""The tool that stops a subscriber, for a short while; in full: `-m lab.zmq_stall`."""

import pytest

from lab.zmq_stall import StallOutcome, stall


@pytest.mark.parametrize("topic", ["", "MESSAGE"])
def test_stopped_subscriber_is_told_what_it_missed(topic: str) -> None:
    outcome = stall(0.6, 200_000, topic=topic, queue_bytes=1 << 16, batch_bytes=1024)
    assert outcome.sound, outcome
    assert outcome.unseen == 0
    assert outcome.missed > 10_000


@pytest.mark.parametrize(
    "wrong", [{"missed": 4}, {"ordered": False}, {"grown_bytes": 101}, {"seen": 6}]
)
def test_outcome_with_anything_unaccounted_is_not_sound(wrong: dict[str, int]) -> None:
    sound = {
        "written": 10,
        "seen": 5,
        "missed": 5,
        "unseen": 0,
        "ordered": True,
        "grown_bytes": 100,
        "allowed_bytes": 100,
    }
    assert StallOutcome(**sound).sound  # type: ignore[arg-type]
    assert not StallOutcome(**(sound | wrong)).sound  # type: ignore[arg-type]
