"""Signals that end a program in good order, once, however many of them arrive."""

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

#: A signal this long after the first one asks not to wait. An earlier one is the same request:
#: timeout(1), a shell and a service manager may each pass it on.
HURRY_NS = 1_000_000_000


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return SIGINT, SIGTERM and, unless nohup(1) made it ignored, SIGHUP.

    A program that was started to outlive its terminal must not lose what waits in windows and rings
    when the terminal is closed.
    """
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) + (() if ignored else (signal.SIGHUP,))


class Interrupt:
    """A SIGINT handler that raises KeyboardInterrupt, as Python's own does, and remembers it.

    While a program starts, C code calls Python and drops what that raises (numpy when it inspects a
    type, msgspec when it hashes one). `Stop.listen` and `raise_once` ask the handler that they
    replace whether an interrupt was dropped.
    """

    def __init__(self) -> None:
        self.came = False

    def install(self) -> None:
        """Replace Python's own handler, unless somebody else has. Call it in the main thread."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt."""
        self.came = True
        raise KeyboardInterrupt


class Stop:
    """A request to stop: set by a signal handler, and waited for by the main thread.

    The handler raises nothing and takes no lock, so that it may run at any moment, even inside
    another handler. That rules out `threading.Event`: a handler could interrupt the holder of its
    lock, and then wait for it for ever. A SimpleQueue may be put into anywhere.
    """

    def __init__(self) -> None:
        self._wanted_ns = 0
        self._cause: signal.Signals | None = None
        self._hurried = False
        self._told: SimpleQueue[None] = SimpleQueue()
        self._then: Callable[[], None] | None = None
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def listen(self) -> None:
        """Let the signals of `stop_signals` set the request, including an earlier interrupt.

        Call it in the main thread.
        """
        for number in stop_signals():
            before = signal.signal(number, self._note)
            self._before.setdefault(number, before)
            if isinstance(before, Interrupt) and before.came:
                self.set(number)

    def restore(self) -> None:
        """Restore the handlers that the signals had before `listen`."""
        before, self._before = self._before, {}
        for number, handler in before.items():
            signal.signal(number, handler)

    def call(self, then: Callable[[], None]) -> None:
        """Call `then` when the request is set; at once, if it is set already.

        It is called again when a later request asks not to wait.
        """
        self._then = then
        if self._wanted_ns:
            then()

    def set(self, number: int | None = None) -> None:
        """Request a stop. A second request later than `HURRY_NS` asks to stop without waiting.

        Parameters
        ----------
        number : int, optional
            The signal that requests it.
        """
        now_ns = monotonic_ns()
        if number is not None and not self._wanted_ns:
            self._cause = signal.Signals(number)
        hurries = bool(self._wanted_ns) and now_ns - self._wanted_ns >= HURRY_NS
        again = bool(self._wanted_ns) and not hurries
        self._hurried |= hurries
        self._wanted_ns = self._wanted_ns or now_ns
        self._told.put(None)
        if self._then is not None and not again:
            self._then()

    def is_set(self) -> bool:
        """Return whether a stop was requested."""
        return self._wanted_ns != 0

    @property
    def cause(self) -> str:
        """Name of the signal that requested it; empty: none did."""
        return "" if self._cause is None else self._cause.name

    def is_hurried(self) -> bool:
        """Return whether it was requested again, late enough to ask not to wait."""
        return self._hurried

    def wait(self, seconds: float) -> bool:
        """Sleep until a stop is requested, at most `seconds`; return whether it was."""
        if not self._wanted_ns:
            with contextlib.suppress(Empty):
                self._told.get(timeout=seconds)
        return self._wanted_ns != 0

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.set(number)


def raise_once() -> None:
    """Let the first signal end the program by an exception, and ignore later ones.

    SIGINT raises KeyboardInterrupt; the others SystemExit with a shell's exit code. Whoever ends
    the program calls `ignore_stop_signals`.
    """

    def heed_no_more(number: int, frame: FrameType | None) -> None:
        pass

    def end(number: int, frame: FrameType | None) -> None:
        # Not SIG_IGN: of a signal that came at once with this one Python would say that it was
        # "ignored due to race condition".
        for each in stop_signals():
            signal.signal(each, heed_no_more)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    for number in stop_signals():
        before = signal.signal(number, end)
        if isinstance(before, Interrupt) and before.came:
            end(number, None)


def ignore_stop_signals() -> None:
    """Ignore the stop signals that Python handlers were installed for.

    Once a program has done its work, its exit code is known. The interpreter restores the default
    actions while it ends, and a late signal must not turn the code into "killed by a signal".
    """
    for number in stop_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_IGN)
