"""Ports of this host for programs that are started: nobody takes one before its program opens it.

The kernel gives any process any port that is free, so one that it gave, and that was given back,
may be somebody else's by then. These lie below those that it gives (`ip_local_port_range`), and
each process has a block of its own, held by a listener for as long as the process lives.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from udpfast.errors import UdpfastError

__all__ = ["free_port", "free_ports"]

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST, LAST = 12_000, 32_000
BLOCK = 200


def free_port() -> int:
    """Return a port that nobody uses, at any address, neither for UDP nor for TCP."""
    for port in _ports(os.getpid()):
        if _is_free(port):
            return port
    raise AssertionError("the ports never end")


def free_ports(count: int) -> list[int]:
    """Return so many of them."""
    return [free_port() for _ in range(count)]


@functools.cache
def _ports(_process: int) -> Iterator[int]:
    # The ports of a process's block, over and over: the longest unused comes next.
    first = _hold_block()
    return itertools.cycle(range(first + 1, first + BLOCK))


def _hold_block() -> int:
    # The first port of a block that nobody holds. A listener there holds it, which ends with the
    # process.
    last = min(LAST, max(int(_RANGE.read_text().split()[0]), FIRST + 20 * BLOCK))
    for port in range(FIRST, last - BLOCK + 1, BLOCK):
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", port))
            holder.listen(1)
        except OSError:
            holder.close()
            continue
        holder.detach()
        return port
    raise UdpfastError(f"all ports from {FIRST} to {last} are held by other processes")


def _is_free(port: int) -> bool:
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            stack.enter_context(socket.socket(socket.AF_INET, kind)).bind(("", port))
        return True
    return False
