"""Free ports of this host for programs that are about to be started.

A port that the kernel chose and that was released again may be taken by another process before the
program opens it. The ports returned here are below those that the kernel chooses
(`ip_local_port_range`), and each process has a block of its own, which a listening socket reserves
for as long as the process lives.
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
    """Return a port that is free at all addresses, for UDP and for TCP."""
    for port in _ports(os.getpid()):
        if _is_free(port):
            return port
    raise AssertionError("the ports never end")


def free_ports(count: int) -> list[int]:
    """Return `count` free ports, as `free_port`."""
    return [free_port() for _ in range(count)]


@functools.cache
def _ports(_process: int) -> Iterator[int]:
    # Cycle through the ports of the process's block, so that the one unused for longest comes next.
    first = _hold_block()
    return itertools.cycle(range(first + 1, first + BLOCK))


def _hold_block() -> int:
    # Return the first port of a block that no process has reserved. A listener on that port
    # reserves it until the process ends.
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
