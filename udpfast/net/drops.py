"""Datagrams that the kernel reports as lost before user space: in sockets, UDP and card queues."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

from msgspec import Struct

__all__ = ["HostDrops", "SocketDrops", "host_drops", "socket_drops"]

_PROC = Path("/proc")

# Fields of /proc/net/snmp and snmp6 that count losses (RFC 4113, and Linux's own).
_UDP_NAMES = ("RcvbufErrors", "InCsumErrors", "MemErrors", "NoPorts")


class HostDrops(Struct, frozen=True):
    """Losses in a whole network namespace since it was created, for all receivers.

    Attributes
    ----------
    rcvbuf_errors : int
        Datagrams for which a socket's receive buffer was full: the sum of all sockets' drops.
    checksum_errors, memory_errors : int
        Datagrams with a wrong UDP checksum, and those for which the system's memory for UDP
        (net.ipv4.udp_mem) was used up.
    no_ports : int
        Datagrams to a port without a listener.
    softnet_dropped : int
        Frames for which a processor's input queue was full (net.core.netdev_max_backlog).
    softnet_squeezed : int
        How often a processor stopped receiving with work left (net.core.netdev_budget): no loss.
    """

    rcvbuf_errors: int
    checksum_errors: int
    memory_errors: int
    no_ports: int
    softnet_dropped: int
    softnet_squeezed: int


class SocketDrops(Struct, frozen=True):
    """One socket's kernel drops since it was opened: column `drops` of /proc/net/udp or udp6."""

    address: str
    inode: int
    drops: int


def host_drops(pid: int | None = None, proc: Path = _PROC) -> HostDrops:
    """Return the losses in the network namespace of a process, by default of this one.

    Parameters
    ----------
    pid : int, optional
        The process.
    proc : Path
        The directory of procfs.

    Raises
    ------
    FileNotFoundError
        There is no such process.
    """
    net = proc / ("self" if pid is None else str(pid)) / "net"
    udp = [_snmp(net / "snmp"), _snmp6(net / "snmp6")]
    rcvbuf, checksum, memory, ports = (
        sum(counts.get(name, 0) for counts in udp) for name in _UDP_NAMES
    )
    rows = [line.split() for line in (net / "softnet_stat").read_text().splitlines()]
    return HostDrops(
        rcvbuf,
        checksum,
        memory,
        ports,
        sum(int(row[1], 16) for row in rows),
        sum(int(row[2], 16) for row in rows),
    )


def socket_drops(pid: int, proc: Path = _PROC) -> list[SocketDrops]:
    """Return the drops of every UDP socket that a process holds, by address.

    Raises
    ------
    FileNotFoundError
        There is no such process.
    PermissionError
        The process belongs to another user.
    """
    inodes = _socket_inodes(proc / str(pid) / "fd")
    found = []
    for name in ("udp", "udp6"):
        path = proc / str(pid) / "net" / name
        if path.exists():
            for line in path.read_text().splitlines()[1:]:
                columns = line.split()
                inode = int(columns[9])
                if inode in inodes:
                    found.append(SocketDrops(_address(columns[1]), inode, int(columns[-1])))
    return sorted(found, key=lambda one: (one.address, one.inode))


def _socket_inodes(folder: Path) -> set[int]:
    inodes = set()
    for path in folder.iterdir():
        try:
            target = str(path.readlink())
        except FileNotFoundError:  # has been closed meanwhile
            continue
        if target.startswith("socket:["):
            inodes.add(int(target[8:-1]))
    return inodes


def _snmp(path: Path) -> dict[str, int]:
    rows = [line.split() for line in path.read_text().splitlines() if line.startswith("Udp:")]
    return dict(zip(rows[0][1:], map(int, rows[1][1:]), strict=True)) if len(rows) == 2 else {}


def _snmp6(path: Path) -> dict[str, int]:
    if not path.exists():  # a kernel without IPv6
        return {}
    rows = [line.split() for line in path.read_text().splitlines()]
    return {row[0][4:]: int(row[1]) for row in rows if row[0].startswith("Udp6")}


def _address(text: str) -> str:
    # 32-bit words in the processor's byte order: 0100007F:2329 is 127.0.0.1:9001.
    address, port = text.split(":")
    words = [int(address[i : i + 8], 16) for i in range(0, len(address), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    if len(words) == 1:
        return f"{socket.inet_ntop(socket.AF_INET, packed)}:{int(port, 16)}"
    return f"[{socket.inet_ntop(socket.AF_INET6, packed)}]:{int(port, 16)}"
