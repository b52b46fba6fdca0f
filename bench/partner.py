"""A process of its own, pinned to a core, that does what it is told: the other end of a trial.

    benchmark --- pipe: function, arguments ---> partner (one core)
              <-- pipe: what it returned -------

It lives as long as its benchmark, so that a trial pays for no start of an interpreter. It sleeps
while it has nothing to do: nothing of it disturbs a core that is being measured.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

__all__ = ["Partner", "PartnerError"]

TIMEOUT_S = 60.0


class PartnerError(Exception):
    """What a partner was told to do failed; the message is its traceback."""


class Partner:
    """A process that runs functions of this package, one at a time.

    Parameters
    ----------
    core : int or None
        Where it is pinned; None: wherever the scheduler puts it.

    Notes
    -----
    A function gets a dict that the partner keeps from call to call, then the arguments. It is
    found by its name, so it must stand at the top of a module.
    """

    def __init__(self, core: int | None) -> None:
        # Spawned, not forked: a fork of a process that runs threads may inherit a held lock.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, core), daemon=True)
        self._process.start()
        theirs.close()

    def start(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Let it begin; `result` waits for the end."""
        self._pipe.send((function, arguments))

    def result(self, timeout_s: float = TIMEOUT_S) -> Any:
        """Wait for what the function returns; raise PartnerError if it raised."""
        if not self._pipe.poll(timeout_s):
            raise PartnerError(f"expected an answer within {timeout_s} s, found none")
        try:
            failed, outcome = self._pipe.recv()
        except EOFError:
            raise PartnerError("the other process ended") from None
        if failed:
            raise PartnerError(outcome)
        return outcome

    @property
    def ended(self) -> bool:
        """Whether `result` would return, or raise, at once."""
        return self._pipe.poll(0)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Start a function and wait for what it returns."""
        self.start(function, *arguments)
        return self.result()

    def close(self) -> None:
        """End the process."""
        self._pipe.close()  # it ends when its pipe does
        self._process.join(5.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def __enter__(self) -> Self:
        """Return the partner itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process."""
        self.close()


def _serve(pipe: Connection, core: int | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the benchmark's business
    if core is not None:
        os.sched_setaffinity(0, {core})
    gc.disable()
    state: dict[str, Any] = {}
    while True:
        try:
            function, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer = (False, function(state, *arguments))
        except Exception:
            answer = (True, traceback.format_exc())
        pipe.send(answer)
