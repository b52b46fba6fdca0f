"""Addresses as people write them, parsed in the same way for files, options and sockets."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from udpfast.errors import ConfigError

__all__ = [
    "endpoint_hint",
    "endpoint_text",
    "expand_endpoints",
    "is_interface",
    "is_port",
    "parse_endpoint",
    "parse_sender",
]

#: Names that Linux allows for an interface (dev_valid_name), except unprintable ones.
_INTERFACE = re.compile(r"[!-.0-9;-~]{1,15}")

_HOST_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")

#: Several addresses in one word: the first and last number of an IPv4 address's last part, or of a
#: port.
_HOSTS = re.compile(r"(\d+\.\d+\.\d+\.)(\d{1,3})-(\d{1,3})(:\d+)", re.ASCII)
_PORTS = re.compile(r"(.*:)(\d{1,5})-(\d{1,5})()", re.ASCII)
_RANGE_MAX = 256


def is_port(text: str, first: int = 0) -> bool:
    """Return whether a text is a port from `first` to 65535, in ASCII digits."""
    # Check the length first: int() refuses thousands of digits with an error of its own.
    return text.isascii() and text.isdigit() and len(text) <= 5 and first <= int(text) <= 65_535


def is_interface(text: str) -> bool:
    """Return whether an interface may have this name."""
    return _INTERFACE.fullmatch(text) is not None and text not in (".", "..")


def parse_endpoint(text: str) -> tuple[str, int]:
    """Split "ip:port" or "[ip6]:port" into address and port. Host names are refused.

    Raises
    ------
    ConfigError
        It is not an IP address with a port from 0 to 65535.
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if colon and is_port(port) and _version(host) == (6 if bracketed else 4):
        return host, int(port)
    raise ConfigError(
        f'expected an address "ip:port" or "[ip6]:port", found {text!r}{endpoint_hint(text)}'
    )


def endpoint_hint(text: str) -> str:
    """Return what is wrong with a text that is no address, as the end of an error, or ""."""
    host, colon, port = text.rpartition(":")
    if colon and port.isdecimal() and not is_port(port):
        return "; a port is a number from 1 to 65535"
    if not host and is_port(port):
        return f"; give an IP address before the port, such as 127.0.0.1:{port}"
    if _HOST_NAME.fullmatch(host or text):
        return "; host names are not looked up: give the IP address"
    return ""


def expand_endpoints(texts: Iterable[str]) -> list[str]:
    """Return all addresses of a list, with ranges expanded.

    "239.1.1.1-3:5000" is three addresses with one port; "239.1.1.1:5000-5002" is one address with
    three ports.

    Raises
    ------
    ConfigError
        One is neither an address nor a range, or a range has not 2 to 256 numbers.
    """
    found = []
    for text in texts:
        match = _HOSTS.fullmatch(text) or _PORTS.fullmatch(text)
        if match is None:
            parse_endpoint(text)
            found.append(text)
            continue
        before, first, last, behind = match.groups()
        numbers = range(int(first), int(last) + 1)
        if not 2 <= len(numbers) <= _RANGE_MAX:
            raise ConfigError(
                f"expected a range of 2 to {_RANGE_MAX} numbers, found {len(numbers)} in {text!r}"
            )
        found += [f"{before}{number}{behind}" for number in numbers]
        parse_endpoint(found[-1])
    return found


def endpoint_text(host: str, port: int) -> str:
    """Return address and port as `parse_endpoint` and URLs take them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_sender(text: str) -> tuple[str, int]:
    """Split "ip", "[ip6]", "ip:port" or "[ip6]:port" into address and port; port 0: any.

    Raises
    ------
    ConfigError
        It is none of these.
    """
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else ""
    if _version(bare) == 6:
        return bare, 0
    return (text, 0) if _version(text) else parse_endpoint(text)


def _version(host: str) -> int:
    # Return 4 or 6; 0: not an IP address, or one with a scope that cannot be an interface.
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return 0
    _, scoped, scope = host.partition("%")
    return 0 if scoped and not is_interface(scope) else version
