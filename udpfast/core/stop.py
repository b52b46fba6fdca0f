"""Which signals end a program in good order."""

from __future__ import annotations

import signal

__all__ = ["stop_signals"]


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return SIGINT, SIGTERM and, unless nohup(1) has it ignored, SIGHUP.

    A terminal that is closed is no reason to lose what waits in windows and rings.
    """
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) + (() if ignored else (signal.SIGHUP,))
