"""A connection with a server that is asked by TCP: kept, and made again a while after it ended.

RESTS --in time--> CONNECTS --connected--> (LOGS IN --accepted-->) READY
  ^                    |                        |                   |
  +------------- refused, silent or ended by the server ------------+
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from enum import Enum

from udpfast.config import RetransmissionConfig
from udpfast.errors import FormatError
from udpfast.net.stream import begin_connection, is_connected

__all__ = ["READ_BYTES", "RECONNECT_NS", "ServerConnection", "State"]

READ_BYTES = 1 << 16
RECONNECT_NS = 1_000_000_000


class State(Enum):
    """How far a connection is."""

    RESTS = "rests"
    CONNECTS = "connects"
    LOGS_IN = "logs in"
    READY = "ready"


class ServerConnection(ABC):
    """A connection that a venue's way of asking builds on.

    Parameters
    ----------
    table : RetransmissionConfig
        `server` and `interface` are of it.
    """

    def __init__(self, table: RetransmissionConfig) -> None:
        self._table = table
        self._socket: socket.socket | None = None
        self._state = State.RESTS
        # When the next attempt is due; when the server last did something, or was asked to.
        self._begin_at_ns = self._moved_ns = 0

    @property
    def ready(self) -> bool:
        """Whether it can be asked."""
        return self._state is State.READY

    def keep(self, now_ns: int) -> int:
        """Connect, log in where the venue wants it, and read what comes; return how much it was.

        Raises
        ------
        OSError, FormatError
            The connection ended; another attempt is made in time.
        """
        try:
            match self._state:
                case State.RESTS:
                    return self._connect(now_ns)
                case State.CONNECTS:
                    return self._begin(now_ns)
            return self._listen(now_ns)
        except (OSError, FormatError):
            self._hang_up(now_ns + RECONNECT_NS)
            raise

    @abstractmethod
    def _begin(self, now_ns: int) -> int:
        """Say what comes first, once `_is_connected`; return how much was done."""

    @abstractmethod
    def _listen(self, now_ns: int) -> int:
        """Read what the server sends; return how much that was."""

    def _connect(self, now_ns: int) -> int:
        if now_ns < self._begin_at_ns:
            return 0
        self._socket = begin_connection(self._table.server, self._table.interface)
        self._moved_ns = now_ns
        self._state = State.CONNECTS
        return 1

    def _is_connected(self) -> bool:
        assert self._socket is not None
        return is_connected(self._socket, self._table.server)

    def _hang_up(self, begin_at_ns: int) -> None:
        sock, self._socket = self._socket, None
        self._state = State.RESTS
        self._begin_at_ns = begin_at_ns
        if sock is not None:
            sock.close()
