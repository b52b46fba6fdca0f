"""A trial of two processes that have a connection."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

__all__ = ["to_child"]


def to_child(
    child: Callable[[socket.socket], None], parent: Callable[[socket.socket], float]
) -> float:
    """Return what the parent returns, where both have an end of a connection."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with socket.create_connection(server.getsockname()) as sock:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    child(sock)
                    status = 0
            finally:
                os._exit(status)
        sock, _ = server.accept()
        with sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            took = parent(sock)
        _, status = os.waitpid(pid, 0)
        assert status == 0, "the other process failed"
        return took
