"""Notifications of the kernel about interfaces: the indices of removed ones, and any change."""

import contextlib
import os
import select
import socket
import struct

__all__ = ["LinkEvents"]

# linux/rtnetlink.h: links, and the addresses by which some interfaces are named.
_GROUPS = 0x1 | 0x10 | 0x100
_RTM_DELLINK = 17
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_INTERFACE = struct.Struct("=BxHiII")  # struct ifinfomsg


class LinkEvents:
    """A netlink socket of the current network namespace; without netlink, `wait` only waits."""

    def __init__(self) -> None:
        self._woken = os.eventfd(0, os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._woken, select.POLLIN)
        self._socket: socket.socket | None = None
        with contextlib.suppress(OSError):
            self._socket = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0
            )
            self._socket.bind((0, _GROUPS))
            self._poll.register(self._socket, select.POLLIN)

    def wait(self, timeout_s: float) -> set[int]:
        """Wait for a change or for `wake`; return the indices of removed interfaces.

        The kernel may lose events when very many come at once, so compare the interfaces as well.
        """
        self._poll.poll(timeout_s * 1000)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._woken)  # otherwise every later wait would return at once
        removed: set[int] = set()
        # Read until the queue is empty, or has overflowed (ENOBUFS) and lost its events.
        with contextlib.suppress(OSError):
            while self._socket is not None:
                removed |= _removed(self._socket.recv(1 << 16))
        return removed

    def wake(self) -> None:
        """End the current `wait`, or the next one. May be called from any thread."""
        os.eventfd_write(self._woken, 1)

    def close(self) -> None:
        """Close the socket. No thread may wait any more."""
        os.close(self._woken)
        if self._socket is not None:
            self._socket.close()


def _removed(text: bytes) -> set[int]:
    found = set()
    at = 0
    while at + _HEADER.size + _INTERFACE.size <= len(text):
        size, kind, *_ = _HEADER.unpack_from(text, at)
        family, _, index, *_ = _INTERFACE.unpack_from(text, at + _HEADER.size)
        # In other families (AF_BRIDGE) the event means that a port has left its bridge.
        if kind == _RTM_DELLINK and family == socket.AF_UNSPEC:
            found.add(index)
        at += max((size + 3) & ~3, _HEADER.size)
    return found
