"""Wait for threads while handlers of signals raise."""

import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.waiting import wait_until
from udpfast.core.agent import Agent, AgentRunner
from udpfast.core.worker import Worker, shielded

STORMS = 60


class StruckError(Exception):
    """The exception that the handler raises."""


class Storm:
    """SIGALRM at seeded moments of a call, with a handler that raises in the main thread."""

    def __init__(self) -> None:
        self.strikes = 0
        self._armed: list[int] = []
        self._hook_before = sys.unraisablehook
        sys.unraisablehook = self._ignore_strike
        self._before = signal.signal(signal.SIGALRM, self._strike)

    def over(self, seed: int, call: Callable[[], object]) -> bool:
        """Return whether the exception of the handler ended the call."""
        chance = random.Random(seed)
        try:
            try:
                self._armed.append(1)
                first, every = chance.uniform(2e-5, 3e-3), chance.uniform(1e-4, 4e-4)
                signal.setitimer(signal.ITIMER_REAL, first, every)
                call()
            finally:
                self._armed.clear()
        except StruckError:
            self._armed.clear()
            return True
        return False

    def end(self) -> None:
        """Stop the storm."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
        sys.unraisablehook = self._hook_before

    def _ignore_strike(self, found: "sys.UnraisableHookArgs") -> None:
        # No exception leaves a finalizer, where a strike may come, too. What pytest does with it
        # takes long enough to be struck in turn, which would fail the test.
        if found.exc_type is not StruckError:
            self._hook_before(found)

    def _strike(self, *_: object) -> None:
        if self._armed:
            self.strikes += 1
            raise StruckError


@pytest.fixture
def storm() -> Iterator[Storm]:
    """Return a storm that ends with the test."""
    made = Storm()
    yield made
    made.end()


def test_finish_returns_after_the_end_however_often_a_handler_raises(storm: Storm) -> None:
    for seed in range(STORMS):
        ended: list[bool] = []

        def work(ended: list[bool] = ended) -> None:
            time.sleep(0.004)
            ended.append(True)

        worker = Worker(work, "storm")
        worker.start()
        storm.over(seed, worker.finish)
        worker.finish()  # the signal may have come before the call began
        assert ended == [True], f"seed {seed}: finish returned before the end"
        assert worker.join(0.0)
    assert storm.strikes > STORMS


def test_finish_that_was_struck_has_waited_all_the_same(storm: Storm) -> None:
    waited = 0
    for seed in range(STORMS):
        ended: list[bool] = []
        begun: list[bool] = []

        def work(ended: list[bool] = ended) -> None:
            time.sleep(0.004)
            ended.append(True)

        worker = Worker(work, "storm")
        worker.start()
        storm.over(
            seed, lambda worker=worker, begun=begun: worker.finish(lambda: begun.append(True))
        )
        if begun:  # the signal came within the wait
            waited += 1
            assert ended == [True], f"seed {seed}"
        worker.finish()
    assert waited > STORMS // 4


def test_shielded_work_is_done_once_and_what_a_handler_raised_comes_after_it(
    storm: Storm,
) -> None:
    struck = 0
    for seed in range(STORMS):
        steps: list[int] = []

        def work(steps: list[int] = steps) -> int:
            for step in range(50):
                time.sleep(5e-5)
                steps.append(step)
            return 7

        interrupted: list[int] = []
        struck += storm.over(
            seed,
            lambda work=work, interrupted=interrupted: shielded(
                work, lambda: interrupted.append(1)
            ),
        )
        if interrupted or steps:
            assert steps == list(range(50)), f"seed {seed}"
    assert struck > STORMS // 4


def test_shielded_returns_and_raises_as_the_work_does() -> None:
    assert shielded(lambda: threading.current_thread() is threading.main_thread()) is False
    with pytest.raises(LookupError, match="no such thing"):
        shielded(_fail)


def _fail() -> None:
    raise LookupError("no such thing")


class Slow(Agent):
    """An agent that takes longer to start and to stop than the storm waits."""

    def __init__(self) -> None:
        super().__init__("slow")
        self.open = False

    def on_start(self) -> None:
        self.open = True
        time.sleep(0.004)

    def on_stop(self) -> None:
        time.sleep(0.001)
        self.open = False


def _turned_or_ended(runner: AgentRunner, agent: Slow) -> bool:
    return runner.cycles > 0 or not agent.open


def test_runner_that_is_interrupted_while_it_starts_has_ended(storm: Storm) -> None:
    struck = 0
    for seed in range(STORMS):
        agent = Slow()
        runner = AgentRunner(agent)
        struck += storm.over(seed, runner.start)
        # The agent runs, or it never began, or it was ended before its first turn.
        wait_until(partial(_turned_or_ended, runner, agent), f"seed {seed}: a turn, or its end")
        runner.finish()
        assert not agent.open
    assert struck > STORMS // 4


def test_worker_that_was_never_started_has_ended() -> None:
    worker = Worker(_fail, "never")
    assert worker.join()
    worker.finish()
    assert not worker.started
