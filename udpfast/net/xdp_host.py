"""The facts about an interface that AF_XDP needs, and which lines each interface carries."""

import array
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator, Sequence

from msgspec import Struct

from udpfast.core.endpoint import parse_endpoint
from udpfast.errors import ConfigError
from udpfast.net import multicast
from udpfast.net.line import LineAddress

__all__ = [
    "CHECKSUMS",
    "MODES",
    "ZERO_COPY",
    "XdpDriver",
    "XdpInterface",
    "XdpLine",
    "XdpOptions",
    "ask_driver",
    "find_interface",
    "group_lines",
]

MODES = ("auto", "native", "generic")
ZERO_COPY = ("auto", "on", "off")
CHECKSUMS = ("off", "auto", "on")  # the index is CHECKSUMS_* of xdp_frame.pxd

# linux/rtnetlink.h, linux/if_link.h
_RTM_NEWLINK, _RTM_GETLINK, _NLM_F_REQUEST, _NLMSG_ERROR = 16, 18, 1, 2
_IFLA_IFNAME, _IFLA_MTU, _IFLA_LINK, _IFLA_LINKINFO, _IFLA_XDP = 3, 4, 5, 18, 43
_IFLA_INFO_KIND, _IFLA_XDP_ATTACHED = 1, 2
# linux/genetlink.h, linux/netdev.h
_NETLINK_GENERIC, _GENL_ID_CTRL, _CTRL_CMD_GETFAMILY = 16, 16, 3
_CTRL_ATTR_FAMILY_ID, _CTRL_ATTR_FAMILY_NAME = 1, 2
_NETDEV_CMD_DEV_GET, _NETDEV_A_DEV_IFINDEX, _NETDEV_A_DEV_XDP_FEATURES = 1, 1, 3
_XDP_ACT_BASIC, _XDP_ACT_XSK = 1, 1 | 2 | 8  # NETDEV_XDP_ACT_XSK: basic, redirect, zero copy

_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_INTERFACE = struct.Struct("=BxHiII")  # struct ifinfomsg

_SIOCETHTOOL = 0x8946
_ETHTOOL_GCHANNELS = 0x3C


class XdpOptions(Struct, frozen=True):
    """How AF_XDP receives from an interface.

    Attributes
    ----------
    mode : str
        "native": in the driver; "generic": in the network stack, on any interface; "auto": native
        if the driver supports it.
    zero_copy : str
        "on", "off", or "auto": if the driver supports it.
    checksums : str
        "on": the checksums of IPv4 header and UDP must be right; "auto": a UDP checksum that a
        sender on a virtual link left to hardware is accepted, too; "off": none is checked.
    queues : tuple of int
        Receive queues of the interface; empty: all.
    frames : int
        Frames of 2,048 bytes per queue, a power of two: as many may arrive between two polls.
    huge_pages : bool
        Put the frames on huge pages.
    busy_poll_us : int
        Run the driver from the loop instead of by interrupts; 0: off.
    prefer_busy_poll : bool
        Keep the driver's interrupts off while the loop polls.
    busy_poll_budget : int
        Most frames that one poll takes from the driver; 0: the kernel's default.
    stamps : bool
        Stamp every frame when the driver hands it over.
    """

    mode: str = "auto"
    zero_copy: str = "auto"
    checksums: str = "auto"
    queues: tuple[int, ...] = ()
    frames: int = 16_384
    huge_pages: bool = False
    busy_poll_us: int = 0
    prefer_busy_poll: bool = False
    busy_poll_budget: int = 0
    stamps: bool = True

    def __post_init__(self) -> None:
        """Check the values."""
        for name, choices in (("mode", MODES), ("zero_copy", ZERO_COPY), ("checksums", CHECKSUMS)):
            if getattr(self, name) not in choices:
                raise ConfigError(
                    f"xdp.{name} must be one of {', '.join(choices)}, was {getattr(self, name)!r}"
                )
        if self.frames & (self.frames - 1) or not 64 <= self.frames <= 1 << 20:
            raise ConfigError(
                f"xdp.frames must be a power of two from 64 to 1048576, was {self.frames}"
            )


class XdpLine(Struct, frozen=True):
    """An address of a line, with the channel, line and address index for its datagrams."""

    line: LineAddress
    channel: int
    index: int
    address: int = 0


class XdpInterface(Struct, frozen=True):
    """An interface as the kernel describes it.

    Attributes
    ----------
    queues : int
        Receive queues in use.
    program : str
        How an XDP program is attached: "native", "generic", "offloaded", "several"; "": none is.
    """

    name: str
    index: int
    mtu: int
    queues: int
    loopback: bool
    program: str


def find_interface(line: LineAddress) -> XdpInterface:
    """Return the interface whose frames carry a line; for a VLAN, the interface below it.

    Raises
    ------
    ConfigError
        The line has neither an interface nor the address of one, or there is no such interface.
    """
    host, port = parse_endpoint(line.address)
    address = ipaddress.ip_address(host)
    if address.is_unspecified or port == 0:
        raise ConfigError(f"AF_XDP needs the line's own address and port, was {line.address!r}")
    if not line.interface and address.is_multicast:
        raise ConfigError(
            f"AF_XDP needs an interface for group {line.address!r}: set the line's `interface`"
        )
    index = multicast.resolve_interface(line.interface or host).index
    facts = _ask_link(index)
    while facts.kind == "vlan" and facts.below:
        facts = _ask_link(facts.below)
    return XdpInterface(
        facts.name, facts.index, facts.mtu, _count_queues(facts.name), facts.loopback, facts.program
    )


def group_lines(lines: Sequence[XdpLine]) -> list[tuple[XdpInterface, list[XdpLine]]]:
    """Return the interfaces that carry the lines, in the order of the lines, with their lines.

    Raises
    ------
    ConfigError
        As for `find_interface`; or two lines of one interface have the same address.
    """
    groups: dict[int, tuple[XdpInterface, list[XdpLine]]] = {}
    for item in lines:
        interface = find_interface(item.line)
        _, together = groups.setdefault(interface.index, (interface, []))
        for other in together:
            sources = {item.line.source, other.line.source}
            if item.line.address == other.line.address and ("" in sources or len(sources) == 1):
                raise ConfigError(
                    f"two lines receive {item.line.address} from {interface.name}: "
                    "a datagram cannot belong to both"
                )
        together.append(item)
    return list(groups.values())


class XdpDriver(Struct, frozen=True):
    """What the driver of an interface can do for AF_XDP."""

    native: bool
    zero_copy: bool


def ask_driver(interface: XdpInterface) -> XdpDriver | None:
    """Return what a driver says that it can do; None: this kernel does not tell (before 6.3)."""
    family = _ask_generic(_GENL_ID_CTRL, _CTRL_CMD_GETFAMILY, _CTRL_ATTR_FAMILY_NAME, b"netdev\0")
    number = int.from_bytes(family.get(_CTRL_ATTR_FAMILY_ID, b""), "little")
    if not number:
        return None
    index = struct.pack("=I", interface.index)
    device = _ask_generic(number, _NETDEV_CMD_DEV_GET, _NETDEV_A_DEV_IFINDEX, index)
    if _NETDEV_A_DEV_XDP_FEATURES not in device:
        return None
    able = int.from_bytes(device[_NETDEV_A_DEV_XDP_FEATURES], "little")
    native = able & _XDP_ACT_BASIC != 0
    return XdpDriver(native, able & _XDP_ACT_XSK == _XDP_ACT_XSK)


def _ask_generic(family: int, command: int, key: int, value: bytes) -> dict[int, bytes]:
    # The attributes of what generic netlink answers; none: an error.
    body = struct.pack("=BBHHH", command, 1, 0, 4 + len(value), key)
    body += value.ljust((len(value) + 3) & ~3, b"\0")
    request = _HEADER.pack(_HEADER.size + len(body), family, _NLM_F_REQUEST, 1, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_GENERIC) as netlink:
        netlink.send(request)
        reply = netlink.recv(1 << 16)
    size, kind, *_ = _HEADER.unpack_from(reply)
    return {} if kind == _NLMSG_ERROR else dict(_attributes(reply[_HEADER.size + 4 : size]))


class _Link(Struct, frozen=True):
    name: str
    index: int
    mtu: int
    kind: str
    below: int
    loopback: bool
    program: str


def _ask_link(index: int) -> _Link:
    # RTM_GETLINK is right in every network namespace; /sys may show another one.
    request = _HEADER.pack(32, _RTM_GETLINK, _NLM_F_REQUEST, 1, 0) + _INTERFACE.pack(
        0, 0, index, 0, 0
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        netlink.send(request)
        reply = netlink.recv(1 << 16)
    size, kind, *_ = _HEADER.unpack_from(reply)
    if kind != _RTM_NEWLINK:
        raise ConfigError(f"interface {index} has disappeared")
    flags = _INTERFACE.unpack_from(reply, _HEADER.size)[3]
    facts = dict(_attributes(reply[_HEADER.size + _INTERFACE.size : size]))
    info = dict(_attributes(facts.get(_IFLA_LINKINFO, b"")))
    attached = dict(_attributes(facts.get(_IFLA_XDP, b""))).get(_IFLA_XDP_ATTACHED, b"\0")[0]
    return _Link(
        facts[_IFLA_IFNAME].rstrip(b"\0").decode(),
        index,
        int.from_bytes(facts[_IFLA_MTU], "little"),
        info.get(_IFLA_INFO_KIND, b"").rstrip(b"\0").decode(),
        int.from_bytes(facts.get(_IFLA_LINK, b""), "little"),
        bool(flags & 8),  # IFF_LOOPBACK
        ("", "native", "generic", "offloaded", "several")[attached],
    )


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        size, kind = struct.unpack_from("=HH", data, at)
        yield kind & 0x3FFF, data[at + 4 : at + size]
        at += max((size + 3) & ~3, 4)


def _count_queues(name: str) -> int:
    # struct ethtool_channels: maximum and current number of rx, tx, other and combined channels.
    channels = array.array("I", [_ETHTOOL_GCHANNELS, *[0] * 8])
    request = struct.pack("16sP16x", name.encode(), channels.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            fcntl.ioctl(sock.fileno(), _SIOCETHTOOL, request)
        except OSError:  # loopback, tunnels: a single queue
            return 1
    return max(1, channels[5] + channels[8])
