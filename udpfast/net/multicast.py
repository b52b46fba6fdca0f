"""Multicast groups: finding interfaces, any-source and source-specific joins, send options."""

import array
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

from msgspec import Struct

from udpfast.errors import ConfigError
from udpfast.net.options import OptionResult, set_option

__all__ = [
    "Interface",
    "join",
    "only_joined_groups",
    "resolve_interface",
    "routed_interface",
    "send_options",
    "socket_address",
]

# Options that Python's socket module does not name: linux/in.h, linux/in6.h, linux/sockios.h.
_IP_ADD_SOURCE_MEMBERSHIP = 39
_MCAST_JOIN_SOURCE_GROUP = 46
_IP_MULTICAST_ALL = 49
_IPV6_MULTICAST_ALL = 29
_SIOCGIFCONF = 0x8912
_IFREQ_SIZE = 40


class Interface(Struct, frozen=True):
    """A network interface, with the requested address or its first one; "" if it has none."""

    name: str
    index: int
    ipv4: str = ""
    ipv6: str = ""


def resolve_interface(text: str, towards: str = "") -> Interface:
    """Find an interface by its name or by one of its addresses.

    Of several IPv6 addresses, choose one that can send to the address `towards`: a link-local one
    for a link-local address, otherwise one of wider scope.

    Raises
    ------
    ConfigError
        There is no such interface; the message lists those of this host.
    """
    addresses = _addresses()
    names = [name for _, name in socket.if_nameindex()]
    name = text if text in names else addresses.get(text, "")
    if not name:
        raise ConfigError(
            f"expected the name or an address of an interface of this host ({', '.join(names)} "
            f"with {', '.join(addresses)}), found {text!r}"
        )
    own = [address for address, owner in addresses.items() if owner == name]
    local = _is_link_local(towards)
    own.sort(key=lambda address: (address != text, _is_link_local(address) != local))
    return Interface(
        name,
        socket.if_nametoindex(name),
        ipv4=next((address for address in own if ":" not in address), ""),
        ipv6=next((address for address in own if ":" in address), ""),
    )


def routed_interface(host: str, port: int) -> Interface:
    """Find the interface of the kernel's route to an address or group, without sending.

    Raises
    ------
    ConfigError, OSError
        There is no route, or its interface has no address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))
        return resolve_interface(probe.getsockname()[0])


def join(
    sock: socket.socket, group: str, interface: Interface | None, source: str = ""
) -> OptionResult:
    """Join a group.

    Parameters
    ----------
    sock : socket
        A socket of the group's address family.
    group : str
        Address of the group.
    interface : Interface or None
        The interface to join on; None: the kernel decides.
    source : str
        Address of the only sender to receive from; empty: all senders.

    Raises
    ------
    ConfigError
        Source and group are of different families, or the interface lacks an IPv4 address that
        a source-specific join needs.
    OSError
        The kernel refused.
    """
    version = ipaddress.ip_address(group).version
    index = interface.index if interface else 0
    where = f"{source or 'any source'} on {interface.name if interface else 'the routed interface'}"
    if source and ipaddress.ip_address(source).version != version:
        raise ConfigError(f"source of group {group} must be IPv{version}, was {source!r}")
    if version == 6:
        name = "MCAST_JOIN_SOURCE_GROUP" if source else "IPV6_JOIN_GROUP"
        _join_ipv6(sock, group, index, source)
    elif source:
        name = "IP_ADD_SOURCE_MEMBERSHIP"
        if interface and not interface.ipv4:
            raise ConfigError(
                f"joining {source} -> {group} needs an IPv4 address on {interface.name}, which "
                "has none"
            )
        own = interface.ipv4 if interface else "0.0.0.0"
        sock.setsockopt(
            socket.IPPROTO_IP,
            _IP_ADD_SOURCE_MEMBERSHIP,
            b"".join(socket.inet_aton(text) for text in (group, own, source)),
        )
    else:
        name = "IP_ADD_MEMBERSHIP"
        sock.setsockopt(
            socket.IPPROTO_IP,
            socket.IP_ADD_MEMBERSHIP,
            struct.pack("=4s4si", socket.inet_aton(group), bytes(4), index),
        )
    return OptionResult(name, group, where)


def only_joined_groups(sock: socket.socket) -> OptionResult:
    """Do not receive groups that only other sockets of this host have joined on this port."""
    if sock.family == socket.AF_INET6:
        return set_option(sock, "IPV6_MULTICAST_ALL", socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, 0)
    return set_option(sock, "IP_MULTICAST_ALL", socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)


def send_options(
    sock: socket.socket, interface: Interface | None, ttl: int, loop: bool
) -> list[OptionResult]:
    """Set the interface, time to live and local loop of a socket that sends to a group.

    Parameters
    ----------
    sock : socket
        The sending socket.
    interface : Interface or None
        The interface by which datagrams leave; None: the kernel decides.
    ttl : int
        Hops that a datagram may take.
    loop : bool
        Whether listeners on this host receive the datagrams, too.

    Returns
    -------
    list of OptionResult
        The requested and granted values.
    """
    if sock.family == socket.AF_INET6:
        level = socket.IPPROTO_IPV6
        hops, echo = socket.IPV6_MULTICAST_HOPS, socket.IPV6_MULTICAST_LOOP
        if interface:
            sock.setsockopt(level, socket.IPV6_MULTICAST_IF, interface.index)
    else:
        level = socket.IPPROTO_IP
        hops, echo = socket.IP_MULTICAST_TTL, socket.IP_MULTICAST_LOOP
        if interface:
            # The address becomes the source of the datagrams, by which receivers may join.
            sock.setsockopt(
                level,
                socket.IP_MULTICAST_IF,
                struct.pack(
                    "=4s4si",
                    bytes(4),
                    socket.inet_aton(interface.ipv4 or "0.0.0.0"),
                    interface.index,
                ),
            )
    return [
        set_option(sock, "MULTICAST_TTL", level, hops, ttl),
        set_option(sock, "MULTICAST_LOOP", level, echo, int(loop)),
    ]


def socket_address(host: str, port: int, interface: Interface | None) -> tuple[str | int, ...]:
    """Return the address tuple for bind and connect.

    Parameters
    ----------
    host : str
        An IPv4 or IPv6 address.
    port : int
        The port.
    interface : Interface or None
        The scope of an address that is valid on one interface only: a link-local IPv6 address.
    """
    address = ipaddress.ip_address(host)
    if address.version == 4:
        return host, port
    scoped = address.is_link_local or (address.is_multicast and address.packed[1] & 15 <= 2)
    return host, port, 0, interface.index if interface and scoped else 0


def _is_link_local(address: str) -> bool:
    return ":" in address and ipaddress.ip_address(address).is_link_local


def _join_ipv6(sock: socket.socket, group: str, index: int, source: str) -> None:
    if not source:
        sock.setsockopt(
            socket.IPPROTO_IPV6,
            socket.IPV6_JOIN_GROUP,
            struct.pack("=16sI", socket.inet_pton(socket.AF_INET6, group), index),
        )
        return
    # struct group_source_req: interface, padding, two sockaddr_storage of 128 bytes.
    group_and_source = b"".join(
        struct.pack(
            "=HHI16sI100x", socket.AF_INET6, 0, 0, socket.inet_pton(socket.AF_INET6, text), 0
        )
        for text in (group, source)
    )
    sock.setsockopt(
        socket.IPPROTO_IPV6, _MCAST_JOIN_SOURCE_GROUP, struct.pack("=I4x", index) + group_and_source
    )


def host_addresses(version: int) -> list[str]:
    """Return the addresses of this host's interfaces, each with its interface: "10.0.0.1 on eth0".

    Parameters
    ----------
    version : int
        4 or 6.
    """
    return [
        f"{address} on {name}"
        for address, name in _addresses().items()
        if ipaddress.ip_address(address).version == version
    ]


def _addresses() -> dict[str, str]:
    # Return the interface name by address, from SIOCGIFCONF (IPv4) and /proc (IPv6).
    found = {}
    table = array.array("B", bytes(_IFREQ_SIZE * 512))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        reply = fcntl.ioctl(
            sock.fileno(), _SIOCGIFCONF, struct.pack("iP", len(table), table.buffer_info()[0])
        )
    size = struct.unpack("iP", reply)[0]
    for offset in range(0, size, _IFREQ_SIZE):
        entry = bytes(table[offset : offset + _IFREQ_SIZE])
        name = entry[:16].split(b"\0", 1)[0].decode().split(":")[0]
        found[socket.inet_ntoa(entry[20:24])] = name
    listing = Path("/proc/thread-self/net/if_inet6")  # in this thread's network namespace
    if listing.exists():
        for line in listing.read_text(encoding="ascii").splitlines():
            digits, *_, name = line.split()
            found[str(ipaddress.ip_address(bytes.fromhex(digits)))] = name
    return found
