"""What wakes an event loop that waits for a ZeroMQ socket."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import zmq

__all__ = ["SocketSleeper"]


class SocketSleeper:
    """The library's own descriptor, watched by an event loop.

    It becomes readable when the library has something for the socket, which need not be a message;
    a sleeping reader does not have to announce itself.

    Parameters
    ----------
    socket : zmq.Socket
        Must be used by the loop's thread alone.
    """

    def __init__(self, socket: zmq.Socket[Any]) -> None:
        import zmq

        self._fd = -1
        self._socket = socket
        self._events = zmq.EVENTS
        # A copy of our own: the loop may let go of it after the socket has closed the library's.
        self._fd = os.dup(int(socket.getsockopt(zmq.FD)))

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def arm(self) -> None:
        """Do nothing: the library tells always."""

    def drain(self) -> None:
        """Let the library handle what made the descriptor readable."""
        if not self._socket.closed:
            self._socket.getsockopt(self._events)

    def replaced(self) -> bool:
        """Return False: a socket stays the same, whoever sends to it."""
        return False

    def close(self) -> None:
        """Let go of the descriptor. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        """Close it, of a reader that was dropped."""
        self.close()
