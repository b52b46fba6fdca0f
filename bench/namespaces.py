"""Two network namespaces joined by a veth pair: a wire of our own, with both ends on this host."""

import contextlib
import ctypes
import itertools
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from udpfast.core import oserr
from udpfast.errors import UdpfastError

__all__ = ["Wire", "WireUnavailableError", "run", "wire"]

_CLONE_NEWNET = 0x40000000
_serial = itertools.count()
_libc = ctypes.CDLL(None, use_errno=True)


class WireUnavailableError(UdpfastError):
    """Namespaces cannot be made here; the message says why."""


def run(*command: str) -> str:
    """Run a command, and return what it printed; a failure shows what it said."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


@dataclass(frozen=True, slots=True)
class Wire:
    """Interfaces `va` (10.99.0.1, fd99::1) and `vb` (10.99.0.2, fd99::2), each in a namespace."""

    a: str
    b: str

    @contextlib.contextmanager
    def inside(self, namespace: str) -> Iterator[None]:
        """Put this thread into a namespace: sockets opened meanwhile stay there."""
        with Path("/proc/thread-self/ns/net").open() as home:
            with Path(f"/run/netns/{namespace}").open() as there:
                _enter(there.fileno())
            try:
                yield
            finally:
                _enter(home.fileno())

    def sender(self, family: int = socket.AF_INET) -> socket.socket:
        """Return a UDP socket at the a side, whose groups go over the wire."""
        with self.inside(self.a):
            sock = socket.socket(family, socket.SOCK_DGRAM)
            index = socket.if_nametoindex("va")
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        return sock

    def raw(self) -> socket.socket:
        """Return a socket at the a side that sends Ethernet frames as they are."""
        with self.inside(self.a):
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            sock.bind(("va", 0))
        return sock

    def cut(self) -> None:
        """Take both interfaces away."""
        run("ip", "-n", self.a, "link", "del", "va")

    def join(self, queues: int = 1) -> None:
        """Make both interfaces, with their addresses and routes."""
        size = ["numtxqueues", str(queues), "numrxqueues", str(queues)]
        run("ip", "link", "add", "va", "netns", self.a, *size, "type", "veth",
            "peer", "name", "vb", "netns", self.b, *size)  # fmt: skip
        for number, (each, end) in enumerate(((self.a, "va"), (self.b, "vb")), 1):
            run("ip", "-n", each, "addr", "add", f"10.99.0.{number}/24", "dev", end)
            run("ip", "-n", each, "addr", "add", f"fd99::{number}/64", "dev", end, "nodad")
            run("ip", "-n", each, "link", "set", end, "up")
            run("ip", "-n", each, "route", "add", "239.0.0.0/8", "dev", end)


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        oserr.check(-ctypes.get_errno(), "enter a network namespace")


@contextlib.contextmanager
def wire(queues: int = 1) -> Iterator[Wire]:
    """Make the wire; take it away afterwards, whatever happened.

    Raises
    ------
    WireUnavailableError
        Without root, without `ip`, or where the kernel refuses namespaces.
    """
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise WireUnavailableError("network namespaces need root and iproute2")
    name = f"udpfast{os.getpid()}x{next(_serial)}"
    made = Wire(f"{name}a", f"{name}b")
    try:
        added = [
            subprocess.run(["ip", "netns", "add", each], capture_output=True, check=False)
            for each in (made.a, made.b)
        ]
        if any(result.returncode for result in added):
            why = added[0].stderr.decode().strip()
            raise WireUnavailableError(f"network namespaces are refused: {why}")
        for each in (made.a, made.b):
            with made.inside(each):
                Path("/proc/sys/net/ipv6/conf/all/accept_dad").write_text("0")
            run("ip", "-n", each, "link", "set", "lo", "up")
        made.join(queues)
        yield made
    finally:
        for each in (made.a, made.b):
            subprocess.run(["ip", "netns", "del", each], capture_output=True, check=False)
