"""One line of a channel as a socket: its address, and the socket options requested and granted.

A line is one physical copy of a channel: a multicast group on one interface, or a unicast address.
Every socket option is requested and its outcome recorded; `udpfast check` shows the list. An option
that the kernel refuses does not stop a feed. Only failures that make reception impossible (bind,
join) raise.
"""

import contextlib
import errno
import ipaddress
import socket
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from udpfast.core import oserr
from udpfast.core.endpoint import parse_endpoint, parse_sender
from udpfast.errors import ConfigError
from udpfast.net import multicast, options
from udpfast.net.options import OptionResult

__all__ = [
    "LineAddress",
    "ReceiveOptions",
    "open_receiver",
    "open_sender",
    "parse_senders",
    "tied_interface",
]

_SENDERS_MAX = 64  # SENDERS_MAX of datagram.pxd


class LineAddress(Struct, frozen=True):
    """The address of one line, and who may send to it.

    Attributes
    ----------
    address : str
        "239.1.2.3:9001" (a group is joined), "10.0.0.5:9001", "[::1]:9001", "0.0.0.0:9001".
    interface : str
        Name ("eth0") or address ("10.0.0.5") of the interface on which a group is joined; datagrams
        to a unicast address are taken from this interface alone. Empty: the kernel's route decides,
        and datagrams to a unicast address are taken from every interface.
    source : str
        The only sender of the group to listen to (source-specific join); empty: any.
    senders : tuple of str
        Allowed senders, as "ip" or "ip:port" ("[ip6]:port"), at most 64; empty: everyone. Datagrams
        of other senders are received, flagged and counted, but never used.
    """

    address: str
    interface: str = ""
    source: str = ""
    senders: tuple[str, ...] = ()


class ReceiveOptions(Struct, frozen=True):
    """How a line's socket receives.

    Attributes
    ----------
    rcvbuf_bytes : int
        Size of the receive queue; the kernel doubles it. 64 MiB are enough for a stop of 0.2 s at
        0.5 M datagrams/s (a small datagram takes 1,280 bytes of the 128 MiB). Memory is used only
        while datagrams wait.
    busy_poll_us : int
        Microseconds for which a receive call polls the driver itself; 0: off.
    prefer_busy_poll : bool
        Keep the NIC's interrupts off while receive calls poll often enough.
    busy_poll_budget : int
        Most frames that one busy poll takes from the NIC; 0: the kernel's default of 8.
    timestamps : str
        "auto" and "hardware": the NIC's stamp if its driver makes one, otherwise the kernel's;
        "kernel": the kernel's; "none": no stamps, which saves 16 % of a receive; the loop reads its
        clock instead. With stamps each datagram also carries the number of datagrams that the full
        queue has lost; without them `DatagramReceiver.read_kernel_drops` asks for it.
    gro : bool
        Receive trains of equal-sized datagrams of one sender in one piece (UDP_GRO).
    """

    rcvbuf_bytes: int = 64 << 20
    busy_poll_us: int = 0
    prefer_busy_poll: bool = False
    busy_poll_budget: int = 0
    timestamps: str = "auto"
    gro: bool = False

    def __post_init__(self) -> None:
        """Check `timestamps`."""
        if self.timestamps not in options.TIMESTAMPS:
            raise ConfigError(
                f"timestamps must be one of {', '.join(options.TIMESTAMPS)}, "
                f"was {self.timestamps!r}"
            )


def parse_senders(senders: Sequence[str]) -> list[tuple[bytes, int]]:
    """Return each allowed sender as (16 address bytes, port); IPv4 is mapped, port 0 is any port.

    Raises
    ------
    ConfigError
        An entry is neither "ip" nor "ip:port", or there are more than 64.
    """
    if len(senders) > _SENDERS_MAX:
        raise ConfigError(f"a line must have at most {_SENDERS_MAX} senders, has {len(senders)}")
    parsed = []
    for text in senders:
        host, port = parse_sender(text)
        address = ipaddress.ip_address(host)
        mapped = bytes(10) + b"\xff\xff" if address.version == 4 else b""
        parsed.append((mapped + address.packed, port))
    return parsed


def tied_interface(line: LineAddress) -> int:
    """Return the index of the interface on which a line's socket depends; 0: none.

    Group memberships, link-local IPv6 addresses and sockets bound to a device belong to one
    interface. If that is removed and created again, such a socket silently receives nothing more.

    Raises
    ------
    ConfigError
        There is no such interface.
    """
    host, port = parse_endpoint(line.address)
    if line.interface:
        return multicast.resolve_interface(line.interface).index
    address = ipaddress.ip_address(host)
    if not address.is_multicast and not (address.version == 6 and address.is_link_local):
        return 0
    with contextlib.suppress(ConfigError, OSError):
        return multicast.routed_interface(host, port).index
    return 0


def open_receiver(
    line: LineAddress, wanted: ReceiveOptions
) -> tuple[socket.socket, list[OptionResult]]:
    """Open, configure and bind the socket of one line; join its group.

    Call it in the thread that will poll: preloaded stacks bind a socket to its thread.

    Returns
    -------
    socket : socket.socket
        The non-blocking socket; the caller closes it.
    results : list of OptionResult
        The outcome of every option that was requested, in order.

    Raises
    ------
    ConfigError
        An address or the interface is invalid.
    OSError
        The socket cannot be opened, bound, or joined; the message says which and where.
    """
    host, port = parse_endpoint(line.address)
    group = ipaddress.ip_address(host).is_multicast
    if line.source and not group:
        raise ConfigError(
            f"source {line.source!r} needs a multicast group, address was {line.address!r}; for "
            "unicast use senders"
        )
    interface = multicast.resolve_interface(line.interface) if line.interface else None
    sock = _open_socket(host)
    try:
        results = [
            options.set_receive_queue(sock, wanted.rcvbuf_bytes),
            options.set_timestamps(sock, wanted.timestamps, interface.name if interface else ""),
            options.find_drop_count(sock)
            if wanted.timestamps == "none"
            else options.set_drop_count(sock),
        ]
        if wanted.gro:
            results.append(options.set_gro(sock))
        if wanted.busy_poll_us:
            results.append(options.set_busy_poll(sock, wanted.busy_poll_us))
        if wanted.prefer_busy_poll:
            results.append(options.set_prefer_busy_poll(sock))
        if wanted.busy_poll_budget:
            results.append(options.set_busy_poll_budget(sock, wanted.busy_poll_budget))
        if group:
            # Several processes may listen to one group. On a unicast port the same option would let
            # a second socket silently take over all datagrams, so it stays off there.
            results.append(
                options.set_option(sock, "SO_REUSEADDR", socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            )
        elif interface is not None:
            _bind_to_interface(sock, host, interface)
        results.append(multicast.only_joined_groups(sock))
        _bind(sock, line.address, multicast.socket_address(host, port, interface))
        if group:
            where = f"{host} from {line.source or 'any source'} on {line.interface or 'any'}"
            _attempt(
                "join group",
                where,
                lambda: results.append(multicast.join(sock, host, interface, line.source)),
            )
    except BaseException:
        sock.close()
        raise
    return sock, results


def open_sender(
    destination: str,
    interface: str = "",
    ttl: int = 1,
    loop: bool = True,
    sndbuf_bytes: int = 4 << 20,
) -> tuple[socket.socket, list[OptionResult]]:
    """Open a socket that is connected to one destination.

    Parameters
    ----------
    destination : str
        "ip:port" or "[ip6]:port".
    interface : str
        Name or address of the interface by which all datagrams leave, whatever the routes say; its
        address becomes the source. Empty: the kernel's route decides.
    ttl : int
        Hops that a multicast datagram may take; 1: this network only.
    loop : bool
        Whether listeners on this host receive the group's datagrams, too.
    sndbuf_bytes : int
        Size of the send queue; the kernel may grant less.

    Raises
    ------
    ConfigError, OSError
        As for `open_receiver`.
    """
    host, port = parse_endpoint(destination)
    if not port:
        raise ConfigError(
            f"the address to send to must have a port, 1 or above, was {destination!r}"
        )
    found = multicast.resolve_interface(interface, host) if interface else None
    sock = _open_socket(host)
    try:
        results = [
            options.set_option(
                sock, "SO_SNDBUF", socket.SOL_SOCKET, socket.SO_SNDBUF, sndbuf_bytes, scale=2
            )
        ]
        if ipaddress.ip_address(host).is_multicast:
            _attempt(
                "send to group",
                f"{destination} on {interface}",
                lambda: results.extend(multicast.send_options(sock, found, ttl, loop)),
            )
        elif found is not None:
            _bind_to_interface(sock, host, found)
            if own := found.ipv6 if sock.family == socket.AF_INET6 else found.ipv4:
                _attempt(
                    "bind",
                    f"{own} of {interface}",
                    lambda: sock.bind(multicast.socket_address(own, 0, found)),
                )
        _attempt(
            "connect",
            destination,
            lambda: sock.connect(multicast.socket_address(host, port, found)),
        )
    except BaseException:
        sock.close()
        raise
    return sock, results


def _bind_to_interface(sock: socket.socket, host: str, interface: multicast.Interface) -> None:
    if ipaddress.ip_address(host).is_loopback and interface.name != "lo":
        raise ConfigError(
            f"interface {interface.name!r} cannot carry {host}, which is this host's loopback: "
            'expected "lo", or an address that other hosts can reach'
        )
    _attempt(
        "bind to interface",
        f"{interface.name} (before Linux 5.7 that takes CAP_NET_RAW)",
        lambda: sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.name.encode() + b"\0"
        ),
    )


def _open_socket(host: str) -> socket.socket:
    version = ipaddress.ip_address(host).version
    sock = socket.socket(socket.AF_INET6 if version == 6 else socket.AF_INET, socket.SOCK_DGRAM)
    if version == 6:
        # [::]:port is IPv6 only; an IPv4 line beside it has a socket of its own.
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.setblocking(False)
    return sock


def _bind(sock: socket.socket, where: str, address: tuple[Any, ...]) -> None:
    try:
        sock.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            has = ", ".join(multicast.host_addresses(6 if sock.family == socket.AF_INET6 else 4))
            where = f"{where} (this host has {has or 'no address of this family'})"
        oserr.check(-(error.errno or errno.EIO), "bind", where)


def _attempt(what: str, where: str, call: Callable[[], object]) -> None:
    try:
        call()
    except OSError as error:
        oserr.check(-(error.errno or errno.EIO), what, where)
