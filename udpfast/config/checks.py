"""What values must be beyond their type and limits: addresses, paths, names."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from contextlib import suppress

from udpfast.config.settings import Check
from udpfast.core.endpoint import (
    expand_endpoints,
    is_interface,
    is_port,
    parse_endpoint,
    parse_sender,
)
from udpfast.errors import ConfigError
from udpfast.wire.facts import FACTS

__all__ = [
    "DESTINATION",
    "DESTINATION_OR_NONE",
    "DISK_LIMIT",
    "DISTINCT",
    "ENDPOINT",
    "ENDPOINT_OR_NONE",
    "ENDPOINT_RANGE",
    "FRAMING",
    "GROUP",
    "HOST_ADDRESS",
    "HOST_NAME",
    "INTERFACE",
    "JOURNAL",
    "NAME",
    "PAGES",
    "PARITY",
    "PATH",
    "POWER_OF_TWO",
    "SENDER",
    "SOURCE",
    "ZMQ_ADDRESS",
    "check_restarts",
]

#: Bytes that the path of a UNIX socket may have: sun_path of unix(7), and its end.
_SOCKET_PATH_MAX = 107

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,31}")
_JOURNAL = re.compile(r"[A-Za-z0-9._-]{1,255}")
_GROUP = re.compile(r"[^-:/\s\0][^:/\s\0]{0,31}")


def _parsed(parse: Callable[[str], tuple[str, int]], value: str, first_port: int = 0) -> bool:
    with suppress(ConfigError):
        return parse(value)[1] >= first_port
    return False


def _is_endpoint_range(value: str) -> bool:
    with suppress(ConfigError):
        return bool(expand_endpoints([value]))
    return False


def _is_address(value: str) -> bool:
    with suppress(ValueError):
        return "%" not in value and not ipaddress.ip_address(value).is_multicast
    return False


def _is_host_address(value: str) -> bool:
    with suppress(ValueError):
        address = ipaddress.ip_address(value)
        is_mapped = isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None
        is_many = address.is_multicast or value == "255.255.255.255"
        return not (address.is_unspecified or is_many or is_mapped)
    return False


def _is_sender(value: str) -> bool:
    with suppress(ConfigError):
        host, port = parse_sender(value)
        return port > 0 or host == value
    return False


def _is_group(value: str) -> bool:
    if value.isdecimal():
        # 2^32 - 1 means "leave it as it is" to chown(2).
        return value.isascii() and len(value) <= 10 and int(value) < (1 << 32) - 1
    return value.isprintable() and _GROUP.fullmatch(value) is not None


def _is_path(value: str) -> bool:
    return value.isprintable()


def _is_journal(name: str) -> bool:
    return _JOURNAL.fullmatch(name) is not None and name not in (".", "..")


def _is_zmq_address(value: str) -> bool:
    protocol, _, rest = value.partition("://")
    if protocol == "ipc":
        size = len(rest.encode()) if rest.isprintable() else 0
        return value == "ipc" or 0 < size <= _SOCKET_PATH_MAX
    host, _, port = rest.rpartition(":")
    known = host == "*" or is_interface(host) or _parsed(parse_endpoint, f"{host}:0")
    return protocol == "tcp" and known and (port == "*" or is_port(port, first=1))


#: As settings name them: which form of Roq's it is, revision and byte order say.
_FRAMINGS = tuple(facts.name for facts in FACTS if not facts.name.startswith("roq_"))

FRAMING = Check(f"one of {', '.join(_FRAMINGS)}", lambda value: value in _FRAMINGS)
NAME = Check(
    "1 to 32 characters of A-Z, a-z, 0-9, '.', '_' and '-', the first not '.'",
    lambda value: _NAME.fullmatch(value) is not None,
)
#: As the bus's structs have it, with a zero behind it.
HOST_NAME = Check(
    NAME.expected.replace("32", "31"), lambda value: NAME.holds(value) and len(value) < 32
)
HOST_ADDRESS = Check("the IP address of one host", _is_host_address)
POWER_OF_TWO = Check("a power of two", lambda value: not value & (value - 1))
#: A limit that someone meant in another unit would remove all that was kept.
DISK_LIMIT = Check(
    "0, or at least 67,108,864 bytes (64 MiB)", lambda value: value == 0 or value >= 1 << 26
)
#: A line that carries all twice is a second line.
PARITY = Check("0, or 2 to 32", lambda value: value != 1 and 0 <= value <= 32)
PAGES = Check("a multiple of 4096", lambda value: value % 4096 == 0)
ENDPOINT = Check("ip:port or [ip6]:port", lambda value: _parsed(parse_endpoint, value))
ENDPOINT_OR_NONE = Check(
    ENDPOINT.expected,
    lambda value: not value or ENDPOINT.holds(value),
)
ENDPOINT_RANGE = Check(
    "ip:port, [ip6]:port, or a range of one number (239.1.1.1-8:5000, 239.1.1.1:5000-5007)",
    _is_endpoint_range,
)
DESTINATION = Check(
    "ip:port or [ip6]:port, with a port from 1 to 65535",
    lambda value: _parsed(parse_endpoint, value, first_port=1),
)
DESTINATION_OR_NONE = Check(
    DESTINATION.expected,
    lambda value: not value or _parsed(parse_endpoint, value, first_port=1),
)
SENDER = Check("ip, ip:port or [ip6]:port, with a port from 1 to 65535", _is_sender)
SOURCE = Check(
    "an IP address of one sender",
    lambda value: (
        not value or (_is_address(value) and not ipaddress.ip_address(value).is_unspecified)
    ),
)
INTERFACE = Check(
    "the name or an address of an interface",
    lambda value: not value or is_interface(value) or _is_address(value),
)
GROUP = Check("the name or the number of a group", lambda value: not value or _is_group(value))
PATH = Check("a path without control characters", _is_path)
JOURNAL = Check(
    "a path with a slash, or a name of A-Z, a-z, 0-9, '.', '_' and '-'",
    lambda value: not value or (_is_path(value) and ("/" in value or _is_journal(value))),
)
ZMQ_ADDRESS = Check(
    "ipc, ipc://path (107 bytes at most) or tcp://ip:port (for ip also an interface's name, or *; "
    "for port 1 to 65535, or *)",
    _is_zmq_address,
)
DISTINCT = Check("each once", lambda value: len(set(value)) == len(value))


def check_restarts(first_ms: int, longest_ms: int, where: str, table: str = "") -> None:
    """Refuse a first wait before a restart that is longer than the longest.

    Parameters
    ----------
    first_ms, longest_ms : int
    where : str
        The file that says so.
    table : str
        What stands before the names of the keys: "run.", or nothing.

    Raises
    ------
    ConfigError
    """
    if first_ms > longest_ms:
        raise ConfigError(
            f"{where}: {table}restart_first_ms: expected at most {table}restart_longest_ms "
            f"({longest_ms}), found {first_ms}"
        )
