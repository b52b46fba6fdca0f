"""What Python offers for UDP: a loop around recv_into, asyncio, uvloop.

Each takes a given number of datagrams that wait in a socket, unpacks the frame of every one with
`struct`, and adds up the seqnos. That is all: no order, no gaps, no second line, no other process.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import platform
import socket
import struct
import time
from collections.abc import Callable

__all__ = ["LESS", "EventLoopDrain", "PythonDrain", "drain_recv_into", "new_loop", "version"]

LESS = "no order, no gaps, no duplicates, no objects, no other process"
FRAME = struct.Struct("<BBBBHHII")
SLOT = 2048
TIMEOUT_S = 30.0

#: Takes a socket and how many datagrams wait; returns nanoseconds, datagrams, sum of seqnos.
PythonDrain = Callable[[socket.socket, int], tuple[int, int, int]]


def drain_recv_into(sock: socket.socket, _: int) -> tuple[int, int, int]:
    """Receive one by one into one buffer, until nothing waits."""
    slot = bytearray(SLOT)
    receive, unpack = sock.recv_into, FRAME.unpack_from
    count = checksum = 0
    started_ns = time.perf_counter_ns()
    try:
        while True:
            receive(slot)
            checksum += unpack(slot)[6]
            count += 1
    except BlockingIOError:
        pass
    return time.perf_counter_ns() - started_ns, count, checksum


class EventLoopDrain:
    """A `DatagramProtocol` in an event loop that is kept from call to call."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use this loop."""
        self.loop = loop

    def __call__(self, sock: socket.socket, count: int) -> tuple[int, int, int]:
        """Receive so many datagrams through a transport made for this call."""
        return self.loop.run_until_complete(self._drain(sock, count))

    async def _drain(self, sock: socket.socket, count: int) -> tuple[int, int, int]:
        counting = Counting(count, self.loop.create_future())
        # The transport closes the socket it is given. Making it is timed too, because it may
        # begin to read at once: some microseconds of many milliseconds.
        own = sock.dup()
        started_ns = time.perf_counter_ns()
        transport, _ = await self.loop.create_datagram_endpoint(lambda: counting, sock=own)
        ended_ns = await asyncio.wait_for(counting.done, TIMEOUT_S)
        transport.close()
        return ended_ns - started_ns, counting.count, counting.checksum

    def close(self) -> None:
        """Close the loop."""
        self.loop.close()


class Counting(asyncio.DatagramProtocol):
    """Count until all came."""

    def __init__(self, expected: int, done: asyncio.Future[int]) -> None:
        """`done` gets the time of the last datagram."""
        self.expected = expected
        self.done = done
        self.count = 0
        self.checksum = 0
        self.unpack = FRAME.unpack_from

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Unpack the frame."""
        self.checksum += self.unpack(data)[6]
        self.count += 1
        if self.count == self.expected:
            self.done.set_result(time.perf_counter_ns())


def new_loop(name: str) -> asyncio.AbstractEventLoop:
    """Return an event loop of "asyncio" or "uvloop".

    Raises
    ------
    ImportError
        It is not installed.
    """
    if name == "uvloop":
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop
    return asyncio.new_event_loop()


def version(name: str) -> str:
    """Return the version to state beside a figure; "" for what is not installed."""
    python = f"Python {platform.python_version()}"
    if name != "uvloop":
        return python
    try:
        return f"uvloop {importlib.metadata.version('uvloop')}, {python}"
    except importlib.metadata.PackageNotFoundError:
        return ""
