"""Lines whose interface is removed and comes back: noticed, reported and opened again.

A multicast membership ends with its interface, without an error: the line would stay silent for
ever. A thread of its own sleeps until the kernel says that an interface changed; the feed's loop
knows nothing of it.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from msgspec import Struct

from udpfast.core.worker import Worker
from udpfast.errors import ConfigError
from udpfast.net.link_events import LinkEvents
from udpfast.net.xdp import XdpReceiver

__all__ = ["LineWatch", "WatchedInterface", "WatchedLine"]

#: Without an event interfaces are compared this often: events can be lost, or not to be had.
LOOK_S = 1.0


class Receiver(Protocol):
    """What can be opened again; `net.datagram.DatagramReceiver` is one."""

    @property
    def tied_to(self) -> int:
        """Index of the interface that it ends with; 0: none."""

    def find_tie(self) -> int:
        """Return that, as it is now."""

    def replace_socket(self) -> bool:
        """Open it again; False: not now."""


class InterfaceLoop(Protocol):
    """A loop that receives by AF_XDP; `agents.feed.feed_loop.FeedLoop` is one."""

    @property
    def receivers(self) -> list[XdpReceiver]:
        """One per interface."""

    def has_let_go(self, index: int) -> bool:
        """Whether it polls none of an interface's queues any more."""

    def reopen_interface(self, index: int) -> bool:
        """Poll them again, of the interface that came in place of the old one."""


class WatchedInterface:
    """An interface by AF_XDP: opened again once the loop, which polls its memory, has let go."""

    def __init__(self, loop: InterfaceLoop, index: int) -> None:
        self._loop = loop
        self._index = index

    @property
    def tied_to(self) -> int:
        """The interface's index."""
        return self._loop.receivers[self._index].interface_index

    def find_tie(self) -> int:
        """Return that; -1, which no interface has, once the loop has found that it is gone."""
        return -1 if self._loop.has_let_go(self._index) else self.tied_to

    def replace_socket(self) -> bool:
        """Open it again; False: the loop has not let go yet."""
        return self._loop.reopen_interface(self._index)


class WatchedLine(Struct, frozen=True):
    """A line, what to call it, and what to call when it has a new socket."""

    name: str
    receiver: Receiver
    count: Callable[[], None]


class LineWatch:
    """Opens the sockets of lines again whose interface went away, once there is one again.

    Parameters
    ----------
    lines : sequence of WatchedLine
    said : deque of str
        Takes what happens, a sentence each.
    """

    def __init__(self, lines: Sequence[WatchedLine], said: deque[str]) -> None:
        self._lines = [line for line in lines if line.receiver.tied_to]
        self._said = said
        self._lost: dict[str, str] = {}  # by name: why it could not be opened at the last try
        self._ended = False
        self._events = LinkEvents()
        self._thread = Worker(self._watch, "udpfast lines")
        if self._lines:
            self._thread.start()

    def stop(self) -> None:
        """End the thread; returns when it has ended."""
        self._ended = True
        self._events.wake()
        try:
            self._thread.finish()  # waits to the end, whatever a signal's handler raises
        finally:
            self._events.close()

    def look(self, removed: set[int]) -> None:
        """Open again what has lost its interface, of which `removed` were seen to go."""
        there = {index for index, _ in socket.if_nameindex()}
        for line in self._lines:
            tied_to = line.receiver.find_tie()
            gone = tied_to and (tied_to in removed or tied_to not in there)
            if gone and line.name not in self._lost:
                self._lost[line.name] = ""
                self._said.append(f"{line.name}: its interface has disappeared")
            if line.name in self._lost:
                self._open_again(line)

    def _open_again(self, line: WatchedLine) -> None:
        try:
            if not line.receiver.replace_socket():
                return
        except (ConfigError, OSError) as error:
            if self._lost[line.name] != str(error):
                self._lost[line.name] = str(error)
                self._said.append(f"{line.name}: cannot be reopened yet: {error}")
            return
        del self._lost[line.name]
        line.count()
        self._said.append(f"{line.name}: is open again")

    def _watch(self) -> None:
        removed: set[int] = set()
        while not self._ended:
            removed |= self._events.wait(LOOK_S)
            with suppress(OSError):  # no descriptor free to ask with: once more in a second
                self.look(removed)
                removed = set()
