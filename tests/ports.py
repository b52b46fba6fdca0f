"""Ports for programs that a test starts: nobody else can take one before the program does.

The kernel gives any process any port that is free, so a port that it once gave, and that was given
back, may be somebody else's by the time a program opens it. These lie below those that it gives
(`ip_local_port_range`), and each process that tests has a block of its own, held by a listener.
"""

import itertools
import socket
from collections.abc import Iterator
from functools import cache

FIRST, LAST = 12_000, 32_000
BLOCK = 200


def free_port() -> int:
    """Return a port of the loopback that nobody uses, neither for UDP nor for TCP."""
    for port in _ports():
        if _is_free(port):
            return port
    raise AssertionError("the ports never end")


def free_ports(count: int) -> list[int]:
    """Return so many of them."""
    return [free_port() for _ in range(count)]


@cache
def _ports() -> Iterator[int]:
    """Return the ports of this process's block, over and over: the longest unused comes next."""
    first = int(_holder().getsockname()[1])
    return itertools.cycle(range(first + 1, first + BLOCK))


@cache
def _holder() -> socket.socket:
    """Return a listener on the first port of a block that nobody holds."""
    for port in range(FIRST, LAST, BLOCK):
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", port))
            holder.listen(1)
        except OSError:
            holder.close()
            continue
        return holder
    raise AssertionError(f"all ports from {FIRST} to {LAST} are held")


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
