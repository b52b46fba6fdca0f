"""Socket options that may be refused: the requested value, the granted one, and the reason.

None of the functions raises: reception works without these options, only slower or with fewer
statistics. `udpfast check` and `stat` show the list.
"""

import array
import fcntl
import socket
import struct
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

__all__ = [
    "TIMESTAMPS",
    "OptionResult",
    "set_busy_poll",
    "set_busy_poll_budget",
    "set_departures",
    "set_drop_count",
    "set_gro",
    "set_option",
    "set_prefer_busy_poll",
    "set_receive_queue",
    "set_timestamps",
    "stop_stamps",
]

# Options that Python's socket module does not name: asm-generic/socket.h.
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_SO_TIMESTAMPING = 37
_SO_RXQ_OVFL = 40
_SO_MEMINFO = 55
_SO_BUSY_POLL = 46
_SO_PREFER_BUSY_POLL = 69
_SO_BUSY_POLL_BUDGET = 70
_SOL_UDP = 17
_UDP_GRO = 104

# linux/net_tstamp.h: NIC and kernel stamp received datagrams, and both stamps are reported.
_STAMPING_FLAGS = (1 << 2) | (1 << 3) | (1 << 4) | (1 << 6)
# The same for sent datagrams: stamped by NIC and kernel, numbered, reported without their bytes.
_DEPARTURE_FLAGS = (1 << 0) | (1 << 1) | (1 << 7) | (1 << 11)

_SIOCGHWTSTAMP = 0x89B1  # linux/sockios.h

TIMESTAMPS = ("auto", "hardware", "kernel", "none")


class OptionResult(Struct, frozen=True):
    """The outcome of one socket option; `reason` is empty if it was granted as requested."""

    name: str
    asked: str
    got: str
    reason: str = ""


def set_option(
    sock: socket.socket, name: str, level: int, option: int, value: int, *, scale: int = 1
) -> OptionResult:
    """Set one integer option and read it back.

    Parameters
    ----------
    sock : socket.socket
        The socket.
    name : str
        Name of the option in the result.
    level, option, value : int
        As for setsockopt(2).
    scale : int
        Factor by which the kernel multiplies the value that it reports (2 for buffer sizes).
    """
    try:
        sock.setsockopt(level, option, value)
        got = sock.getsockopt(level, option) // scale
    except OSError as error:
        return OptionResult(name, str(value), "refused", error.strerror or str(error))
    return OptionResult(name, str(value), str(got), "" if got >= value else "less was granted")


def set_receive_queue(sock: socket.socket, size_bytes: int) -> OptionResult:
    """Request a receive queue, beyond net.core.rmem_max if the process has the right."""
    forced = set_option(sock, "SO_RCVBUFFORCE", socket.SOL_SOCKET, _SO_RCVBUFFORCE, size_bytes)
    got = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
    if got >= size_bytes:
        return OptionResult("SO_RCVBUFFORCE", str(size_bytes), str(got))
    plain = set_option(sock, "SO_RCVBUF", socket.SOL_SOCKET, socket.SO_RCVBUF, size_bytes, scale=2)
    if not plain.reason:
        return plain
    limit = Path("/proc/sys/net/core/rmem_max").read_text(encoding="ascii").strip()
    return OptionResult(
        "SO_RCVBUF",
        str(size_bytes),
        plain.got,
        f"net.core.rmem_max is {limit}, and SO_RCVBUFFORCE: {forced.reason}",
    )


def set_drop_count(sock: socket.socket) -> OptionResult:
    """Request that each datagram carries the number of datagrams that the full queue has lost."""
    return set_option(sock, "SO_RXQ_OVFL", socket.SOL_SOCKET, _SO_RXQ_OVFL, 1)


def find_drop_count(sock: socket.socket) -> OptionResult:
    """Test whether the number of datagrams that the full queue has lost can be read (SO_MEMINFO).

    This avoids SO_RXQ_OVFL, for which the kernel reads one more cache line per datagram (3 % of a
    receive, 15 % from a long queue). A preloaded stack may support neither.
    """
    try:
        sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 64)
    except OSError as error:
        return OptionResult("SO_MEMINFO", "readable", "refused", error.strerror or str(error))
    return OptionResult("SO_MEMINFO", "readable", "readable")


def set_gro(sock: socket.socket) -> OptionResult:
    """Request that trains of equal-sized datagrams of one flow are received in one piece."""
    return set_option(sock, "UDP_GRO", _SOL_UDP, _UDP_GRO, 1)


def set_busy_poll(sock: socket.socket, duration_us: int) -> OptionResult:
    """Request that a receive call polls the NIC's driver itself, for `duration_us` microseconds."""
    result = set_option(sock, "SO_BUSY_POLL", socket.SOL_SOCKET, _SO_BUSY_POLL, duration_us)
    return _explained(result, "values above net.core.busy_read need CAP_NET_ADMIN")


def set_prefer_busy_poll(sock: socket.socket) -> OptionResult:
    """Request that the NIC's interrupts stay off while busy polls come often enough."""
    result = set_option(sock, "SO_PREFER_BUSY_POLL", socket.SOL_SOCKET, _SO_PREFER_BUSY_POLL, 1)
    return _explained(result, "needs Linux 5.11 and CAP_NET_ADMIN")


def set_busy_poll_budget(sock: socket.socket, frames: int) -> OptionResult:
    """Set how many frames one busy poll may take from the NIC; it cannot be read back."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_BUSY_POLL_BUDGET, frames)
    except OSError as error:
        refused = OptionResult("SO_BUSY_POLL_BUDGET", str(frames), "refused", error.strerror or "")
        return _explained(refused, "raising it needs Linux 5.11 and CAP_NET_ADMIN")
    return OptionResult("SO_BUSY_POLL_BUDGET", str(frames), str(frames))


def set_timestamps(sock: socket.socket, asked: str, interface_name: str) -> OptionResult:
    """Request receive time stamps: by NIC and kernel; if refused, by the kernel; else none.

    Parameters
    ----------
    sock : socket.socket
        The socket.
    asked : str
        One of TIMESTAMPS.
    interface_name : str
        Interface whose driver is asked whether it stamps; empty: none is, and the first datagram
        will show it.
    """
    if asked == "none":
        return OptionResult("SO_TIMESTAMPING", asked, "none")
    denied = ""
    if asked in ("auto", "hardware"):
        result = set_option(
            sock, "SO_TIMESTAMPING", socket.SOL_SOCKET, _SO_TIMESTAMPING, _STAMPING_FLAGS
        )
        if result.got != "refused":
            if not interface_name:
                return OptionResult(result.name, asked, "NIC if it has them, else kernel")
            reason = _why_no_nic_stamps(sock, interface_name)
            return OptionResult(result.name, asked, "kernel" if reason else "NIC", reason)
        denied = f"SO_TIMESTAMPING: {result.reason}"
    result = set_option(sock, "SO_TIMESTAMPNS", socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    if result.got == "refused":
        return OptionResult(result.name, asked, "none", result.reason)
    return OptionResult(result.name, asked, "kernel", denied)


def set_departures(sock: socket.socket) -> OptionResult:
    """Request stamps of sent datagrams as well, after `set_timestamps`; numbers count from 0."""
    flags = _STAMPING_FLAGS | _DEPARTURE_FLAGS
    return set_option(sock, "SO_TIMESTAMPING", socket.SOL_SOCKET, _SO_TIMESTAMPING, flags)


def stop_stamps(sock: socket.socket) -> None:
    """Stop stamping received and sent datagrams."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, 0)


def _explained(result: OptionResult, why: str) -> OptionResult:
    if not result.reason:
        return result
    return replace(result, reason=f"{result.reason}: {why}")


def _why_no_nic_stamps(sock: socket.socket, interface_name: str) -> str:
    # struct ifreq: a name and a pointer to struct hwtstamp_config {flags, tx_type, rx_filter}.
    config = array.array("i", [0, 0, 0])
    request = struct.pack("16sP16x", interface_name.encode(), config.buffer_info()[0])
    try:
        fcntl.ioctl(sock.fileno(), _SIOCGHWTSTAMP, request)
    except OSError as error:
        return f"{interface_name} has no time stamps: {error.strerror}"
    if config[2] == 0:
        return (
            f"{interface_name} supports time stamps, but its receive filter is off "
            "(hwstamp_ctl -r 1)"
        )
    return ""
