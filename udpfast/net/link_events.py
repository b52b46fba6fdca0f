"""What the kernel says about interfaces: which were removed, by index, and that any changed."""

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
    """A netlink socket of the present network namespace. Where there is none, only time passes."""

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
        """Wait until something changed, or `wake`; return the indices of removed interfaces.

        Events may be lost when very many come at once: compare what there is as well.
        """
        self._poll.poll(timeout_s * 1000)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._woken)  # or a forked child that says so would keep us awake
        removed: set[int] = set()
        # An empty queue ends it; one that overflowed has forgotten what it held.
        with contextlib.suppress(OSError):
            while self._socket is not None:
                removed |= _removed(self._socket.recv(1 << 16))
        return removed

    def wake(self) -> None:
        """End the present `wait`, or the next one; from any thread."""
        os.eventfd_write(self._woken, 1)

    def close(self) -> None:
        """Close it. Nobody may wait any more."""
        os.close(self._woken)
        if self._socket is not None:
            self._socket.close()


def _removed(text: bytes) -> set[int]:
    found = set()
    at = 0
    while at + _HEADER.size + _INTERFACE.size <= len(text):
        size, kind, *_ = _HEADER.unpack_from(text, at)
        family, _, index, *_ = _INTERFACE.unpack_from(text, at + _HEADER.size)
        # In another family it is a port that left its bridge.
        if kind == _RTM_DELLINK and family == socket.AF_UNSPEC:
            found.add(index)
        at += max((size + 3) & ~3, _HEADER.size)
    return found
