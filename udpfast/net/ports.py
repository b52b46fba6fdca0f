"""Ports of this host that nobody uses."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

__all__ = ["free_ports", "service_port"]

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LEAST = 10_000


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


def service_port() -> int:
    """Return a port that nobody uses, TCP or UDP, and that the kernel gives nobody by itself.

    For a service that is started again: meanwhile no outgoing connection can be given its port.
    """
    until = int(_RANGE.read_text().split()[0])
    while True:
        port = random.randrange(_LEAST, max(until, _LEAST + 1000))
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                stack.enter_context(socket.socket(socket.AF_INET, kind)).bind(("", port))
            return port
