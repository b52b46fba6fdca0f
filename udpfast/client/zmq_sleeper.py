"""A sleeper that wakes an event loop when a ZeroMQ socket has something to read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import zmq

__all__ = ["SocketSleeper"]


class SocketSleeper:
    """The notification descriptor of a ZeroMQ socket (ZMQ_FD), for an event loop to watch.

    It becomes readable when libzmq has an event for the socket, which need not be a message. A
    reader does not have to announce that it sleeps.

    Parameters
    ----------
    socket : zmq.Socket
        Only the loop's thread may use it.
    """

    def __init__(self, socket: zmq.Socket[Any]) -> None:
        import zmq

        self._fd = -1
        self._socket = socket
        self._events = zmq.EVENTS
        # Duplicated: the loop may unregister it after the socket has closed its own.
        self._fd = os.dup(int(socket.getsockopt(zmq.FD)))

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def arm(self) -> None:
        """Do nothing: libzmq always notifies."""

    def drain(self) -> None:
        """Let libzmq process the events that made the descriptor readable."""
        if not self._socket.closed:
            self._socket.getsockopt(self._events)

    def replaced(self) -> bool:
        """Return False: the socket stays the same when its peer restarts."""
        return False

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        """Close the descriptor of a reader that was dropped without `close`."""
        self.close()
