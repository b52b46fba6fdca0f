"""Signals that end a program in good order, once, however many of them come."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import FrameType

from udpfast.core.clock import monotonic_ns

__all__ = [
    "HURRY_NS",
    "Interrupt",
    "Stop",
    "ignore_stop_signals",
    "raise_once",
    "stop_signals",
]

#: A signal that comes so long after the first is another wish: not to wait. Sooner it is the same
#: one: timeout(1), a shell and a service manager may each pass it on.
HURRY_NS = 1_000_000_000


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return SIGINT, SIGTERM and, unless nohup(1) has it ignored, SIGHUP.

    A terminal that is closed is no reason to lose what waits in windows and rings.
    """
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) + (() if ignored else (signal.SIGHUP,))


class Interrupt:
    """A handler of SIGINT that raises KeyboardInterrupt, as Python's own does, and remembers it.

    While a program begins, C code calls Python and drops whatever that raises (numpy where it looks
    at a type, msgspec where it hashes one). An interrupt that was dropped there is seen by
    `Stop.listen` and `raise_once`, which ask the handler that they replace.
    """

    def __init__(self) -> None:
        self.came = False

    def install(self) -> None:
        """Replace Python's own handler, unless somebody else has. In the main thread."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt."""
        self.came = True
        raise KeyboardInterrupt


class Stop:
    """The wish to stop: set by a handler, waited for by the main thread that it interrupts.

    The handler raises nothing and takes no lock, so that it may run at any moment, in the middle
    of another one, too. Therefore no `threading.Event`: its lock may be held where a handler
    interrupts, and is then waited for for ever. A SimpleQueue may be put into anywhere.
    """

    def __init__(self) -> None:
        self._wanted_ns = 0
        self._hurried = False
        self._told: SimpleQueue[None] = SimpleQueue()
        self._then: Callable[[], None] | None = None
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def listen(self) -> None:
        """Have the signals of `stop_signals` set it, also one of before. In the main thread."""
        for number in stop_signals():
            before = signal.signal(number, self._note)
            self._before.setdefault(number, before)
            if isinstance(before, Interrupt) and before.came:
                self.set()

    def restore(self) -> None:
        """Give the signals the handlers back that they had before `listen`."""
        before, self._before = self._before, {}
        for number, handler in before.items():
            signal.signal(number, handler)

    def call(self, then: Callable[[], None]) -> None:
        """Have `then` called when it is set; now, if it is set already."""
        self._then = then
        if self._wanted_ns:
            then()

    def set(self) -> None:
        """Ask to stop; once more, later than `HURRY_NS`: to stop without waiting."""
        now_ns = monotonic_ns()
        self._hurried |= bool(self._wanted_ns) and now_ns - self._wanted_ns >= HURRY_NS
        self._wanted_ns = self._wanted_ns or now_ns
        self._told.put(None)
        if self._then is not None:
            self._then()

    def is_set(self) -> bool:
        """Return whether it was asked for."""
        return self._wanted_ns != 0

    def is_hurried(self) -> bool:
        """Return whether it was asked for again, so much later that it is another wish."""
        return self._hurried

    def wait(self, seconds: float) -> bool:
        """Sleep until it is asked for, `seconds` at most; return whether it was."""
        if not self._wanted_ns:
            with contextlib.suppress(Empty):
                self._told.get(timeout=seconds)
        return self._wanted_ns != 0

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.set()


def raise_once() -> None:
    """Have the first signal end the program by an exception, and none disturb what that ends.

    SIGINT raises KeyboardInterrupt; another one SystemExit, with the exit code of a shell.
    """

    def end(number: int, frame: FrameType | None) -> None:
        ignore_stop_signals()
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    for number in stop_signals():
        before = signal.signal(number, end)
        if isinstance(before, Interrupt) and before.came:
            end(number, None)


def ignore_stop_signals() -> None:
    """Take no notice any more of signals that a handler of Python's was called for.

    Where a program has done all it had to do, its exit code is known: the interpreter, which gives
    signals their default actions back while it ends, shall not turn it into "killed by a signal".
    """
    for number in stop_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_IGN)
