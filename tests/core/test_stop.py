"""The request to stop, made by a handler that may interrupt anywhere."""

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from tests.waiting import PATIENCE_S
from udpfast.core import stop as stop_module
from udpfast.core.stop import HURRY_NS, Interrupt, Stop, raise_once, stop_signals


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
    # A wait does not see a request after its last look, but the next wait does.
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


def test_stop_calls_again_only_for_a_request_that_asks_not_to_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ns = [5_000_000_000]
    monkeypatch.setattr(stop_module, "monotonic_ns", lambda: now_ns[0])
    called: list[int] = []
    stop = Stop()
    stop.call(lambda: called.append(now_ns[0]))
    for later_ns in (0, 1000, HURRY_NS - 1001, HURRY_NS):
        now_ns[0] += later_ns
        stop.set()
    # timeout(1) and a shell may each pass one signal on.
    assert called == [5_000_000_000, now_ns[0]]
    assert stop.is_hurried()


@pytest.fixture
def interrupt() -> Iterator[Interrupt]:
    """Install a handler and return it; restore the handlers of all signals at the end."""
    before = {number: signal.getsignal(number) for number in stop_signals()}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    handler = Interrupt()
    handler.install()
    yield handler
    for number, each in before.items():
        signal.signal(number, each)


def drop() -> None:
    """Cause an interrupt where its exception is dropped."""
    with contextlib.suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("interrupt")
def test_interrupt_that_was_dropped_stops_who_listens_later() -> None:
    drop()
    stop = Stop()
    stop.listen()
    assert stop.is_set()
    stop.restore()


@pytest.mark.usefixtures("interrupt")
def test_interrupt_that_was_dropped_is_raised_once_by_who_raises_later() -> None:
    drop()
    with pytest.raises(KeyboardInterrupt):
        raise_once()
    for number in stop_signals():
        signal.raise_signal(number)


@pytest.mark.usefixtures("interrupt")
def test_signals_that_come_at_once_raise_once_and_nothing_is_said_of_the_others() -> None:
    code = """if True:
        import os, signal
        from udpfast.core.stop import raise_once, stop_signals

        raise_once()
        signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals())
        for number in stop_signals():
            os.kill(os.getpid(), number)
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, stop_signals())
        except (KeyboardInterrupt, SystemExit):
            print("raised")
    """
    found = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert (found.stdout, found.stderr, found.returncode) == ("raised\n", "", 0)


def test_nobody_who_was_not_interrupted_is_stopped() -> None:
    stop = Stop()
    stop.listen()
    assert not stop.is_set()
    stop.restore()
    raise_once()


def test_handler_of_somebody_else_stays(interrupt: Interrupt) -> None:
    def own(number: int, frame: FrameType | None) -> None:
        pass

    signal.signal(signal.SIGINT, own)
    interrupt.install()
    assert signal.getsignal(signal.SIGINT) is own
