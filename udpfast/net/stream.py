"""Non-blocking TCP connections."""

from __future__ import annotations

import ipaddress
import select
import socket
from errno import EINPROGRESS

from udpfast.core import oserr
from udpfast.core.endpoint import parse_endpoint
from udpfast.errors import ConfigError
from udpfast.net.multicast import resolve_interface, socket_address

__all__ = ["begin_connection", "is_connected"]


def begin_connection(destination: str, interface: str = "") -> socket.socket:
    """Begin a connection; the socket becomes writable once it is connected or has failed.

    Parameters
    ----------
    destination : str
        "ip:port" or "[ip6]:port".
    interface : str
        Name or address of the interface whose address becomes the source; empty: the kernel's
        route decides.

    Raises
    ------
    ConfigError
        There is no such interface, or it has no address of that family.
    OSError
        The connection failed at once.
    """
    host, port = parse_endpoint(destination)
    is_ipv6 = ipaddress.ip_address(host).version == 6
    sock = socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found = resolve_interface(interface, host) if interface else None
        if found is not None:
            own = found.ipv6 if is_ipv6 else found.ipv4
            if not own:
                raise ConfigError(f"interface {interface!r} has no address to reach {host} from")
            sock.bind(socket_address(own, 0, found))
        code = sock.connect_ex(socket_address(host, port, found))
        if code != EINPROGRESS:
            oserr.check(-code, "connect", destination)
    except BaseException:
        sock.close()
        raise
    return sock


def is_connected(sock: socket.socket, destination: str) -> bool:
    """Return whether a socket is connected; raise `OSError` if the connection failed."""
    _, writable, _ = select.select([], [sock], [], 0)
    if not writable:
        return False
    oserr.check(-sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), "connect", destination)
    return True
