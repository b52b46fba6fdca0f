"""The clocks agree with those of Python."""

import time

import pytest

from udpfast.core import clock


def test_monotonic_lies_between_two_readings_of_pythons() -> None:
    before_ns = time.monotonic_ns()
    now_ns = clock.monotonic_ns()
    assert before_ns <= now_ns <= time.monotonic_ns()


def test_realtime_lies_between_two_readings_of_pythons() -> None:
    before_ns = time.time_ns()
    now_ns = clock.realtime_ns()
    assert before_ns <= now_ns <= time.time_ns()


def test_ticks_grow() -> None:
    first = clock.ticks()
    assert clock.ticks_per_second(1_000_000) > 1e6
    assert clock.ticks() > first


def test_ticks_per_second_interval_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="interval_ns must be positive, was 0"):
        clock.ticks_per_second(0)
