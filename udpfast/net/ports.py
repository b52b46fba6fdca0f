"""Ports of this host that nobody uses."""

from __future__ import annotations

import contextlib
import socket

__all__ = ["free_ports"]


def free_ports(count: int) -> list[int]:
    """Return UDP ports of 127.0.0.1 that nobody uses now."""
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            for _ in range(count)
        ]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [int(sock.getsockname()[1]) for sock in sockets]
