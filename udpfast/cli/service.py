"""What a service manager is told: `sd_notify` in a few lines, no library needed.

systemd (`Type=notify`) names a datagram socket in NOTIFY_SOCKET and, with `WatchdogSec=`, in
WATCHDOG_USEC how long it waits for a sign of life. Without them nothing is said, and nothing fails.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

__all__ = ["EXIT_AGAIN", "EXIT_TAKEN", "FAILED", "Service"]

#: Exit code: another live process writes this instance. To start again does not help.
EXIT_TAKEN = 3

#: Exit code: a signal asked it to end in good order and to be started again.
EXIT_AGAIN = 4

#: What a status begins with that says why the feed is not there.
FAILED = "failed: "

#: A status and a sign of life are given this often, or signs of life more often if they are due.
EVERY_NS = 1_000_000_000


class Service:
    """The service manager's ear, if there is one.

    Parameters
    ----------
    environment : mapping
        `os.environ`, or a test's.

    Attributes
    ----------
    watchdog_ns : int
        A sign of life is due at least this often: half of what the manager waits; 0: never.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._status = ""
        self._is_ready = False
        self._status_ns = self._alive_ns = 0
        self._turns = -1
        self.watchdog_ns = 0
        usec = environment.get("WATCHDOG_USEC", "")
        meant = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        if self._address and meant and usec.isdecimal() and len(usec) < 19:
            self.watchdog_ns = int(usec) * 1_000 // 2

    def ready(self) -> None:
        """Say that readers can attach; said once."""
        if not self._is_ready:
            self._is_ready = True
            self._say(f"READY=1\nMAINPID={os.getpid()}")

    def status_due(self, now_ns: int) -> bool:
        """Return whether it is time to say how it goes."""
        due = now_ns - self._status_ns >= EVERY_NS
        if due:
            self._status_ns = now_ns
        return due

    def status(self, text: str) -> None:
        """Say in one line how it goes; said once, not again and again."""
        if text != self._status:
            self._status = text
            self._say(f"STATUS={text}")

    def failed(self, reason: str) -> None:
        """Say why it ends."""
        self.status(f"{FAILED}{reason}")

    def alive(self, now_ns: int, turns: int | None) -> None:
        """Give a sign of life if one is due and the loop has turned since the last one.

        Parameters
        ----------
        now_ns : int
            The monotonic clock.
        turns : int or None
            How often the loop has turned so far; None: nothing has to turn, it waits.
        """
        due_ns = min(self.watchdog_ns, EVERY_NS)
        if due_ns and now_ns - self._alive_ns >= due_ns and turns != self._turns:
            self._alive_ns = now_ns
            self._turns = -1 if turns is None else turns
            self._say("WATCHDOG=1")

    def stopping(self) -> None:
        """Say that the end has begun."""
        self._say("STOPPING=1")

    def _say(self, text: str) -> None:
        if not self._address:
            return
        # A name that begins with "@" is an abstract one: its first byte is 0.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        # The manager may be gone, or busy for a moment: no reason to stop a feed.
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock,
        ):
            sock.setblocking(False)
            sock.sendto(text.encode(), address)
