"""The wish to stop, told by a handler that may interrupt anywhere."""

import sys
import threading
from types import FrameType
from typing import Any

from tests.waiting import PATIENCE_S
from udpfast.core.stop import Stop


def set_at(step: int) -> list[bool]:
    """Wait in a thread, and set the stop from its trace at a step; return what the wait did."""
    stop = Stop()
    steps = 0
    waited: list[bool] = []

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == step:
            stop.set()
        return trace

    def wait() -> None:
        sys.settrace(trace)
        said = stop.wait(0.0)
        sys.settrace(None)
        waited.append(said)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return waited


def test_stop_may_be_set_anywhere_in_the_middle_of_a_wait() -> None:
    # After its last look it does not see it; the next wait does.
    said = [set_at(step) for step in range(1, 30)]
    assert all(said), f"hangs if it is set at step {said.index([]) + 1}"
    assert said[0] == [True]
    assert said[-1] == [False]


def test_stop_that_was_set_ends_every_wait() -> None:
    stop = Stop()
    assert not stop.is_set()
    stop.set()
    assert stop.is_set()
    assert stop.wait(PATIENCE_S)
    assert stop.wait(PATIENCE_S)
