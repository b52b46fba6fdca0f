"""Opening AF_XDP sockets: the queues, the options, and the reasons for which they are refused."""

import errno
import socket
from collections.abc import Callable, Sequence
from typing import TypeVar

from udpfast.core.oserr import check
from udpfast.errors import ConfigError
from udpfast.net import options as socket_options
from udpfast.net.options import OptionResult
from udpfast.net.xdp_bpf import RIGHTS
from udpfast.net.xdp_host import XdpInterface, XdpOptions

__all__ = [
    "attempt",
    "choose_queues",
    "drive_driver",
    "explain_refusal",
    "open_xdp_socket",
]

_AF_XDP = 44  # linux/socket.h

Returned = TypeVar("Returned")


def choose_queues(interface: XdpInterface, wanted: Sequence[int]) -> tuple[int, ...]:
    """Return the queues to receive from: the wanted ones, or all.

    Raises
    ------
    ConfigError
        The interface does not have one of them.
    """
    beyond = [queue for queue in wanted if not 0 <= queue < interface.queues]
    if beyond:
        raise ConfigError(
            f"xdp.queues: expected queues 0 to {interface.queues - 1} of {interface.name}, found "
            f"{beyond[0]}"
        )
    return tuple(dict.fromkeys(wanted)) or tuple(range(interface.queues))


def explain_refusal(rc: int, mode: str, interface: XdpInterface) -> str:
    """Return why an interface refused a program, as the end of a sentence; `rc` is -errno."""
    if -rc in (errno.EBUSY, errno.EEXIST):
        other = interface.program or "of another process"
        return f", which has another program attached ({other})"
    if -rc == errno.EOPNOTSUPP and interface.loopback:
        return ", which is the loopback: it supports only generic mode"
    if -rc == errno.EOPNOTSUPP:
        return f", whose driver has no {mode} mode"
    if -rc == errno.EPERM:
        return f", {RIGHTS}"
    if -rc in (errno.EINVAL, errno.ERANGE, errno.ENOSPC, errno.ENOMEM):
        return (
            f", whose driver refuses it with the present settings (MTU {interface.mtu}, "
            "queues, LRO)"
        )
    return ""


def attempt(what: str, where: str, call: Callable[..., Returned], *arguments: object) -> Returned:
    """Call a function and return its result; an OSError states what was tried, and where."""
    try:
        return call(*arguments)
    except OSError as error:
        check(-(error.errno or errno.EIO), what, where)
        raise


def open_xdp_socket(where: str) -> socket.socket:
    """Return a new AF_XDP socket."""
    try:
        return socket.socket(_AF_XDP, socket.SOCK_RAW, 0)
    except OSError as error:
        lacks = error.errno == errno.EPERM
        why = RIGHTS if lacks else "this kernel was built without CONFIG_XDP_SOCKETS"
        check(-(error.errno or errno.EIO), "open an AF_XDP socket", f"{where}, {why}")
        raise


def drive_driver(sock: socket.socket, options: XdpOptions) -> list[OptionResult]:
    """Request that the loop's calls run the driver (busy poll); return the options' outcomes."""
    results = []
    if options.busy_poll_us:
        results.append(socket_options.set_busy_poll(sock, options.busy_poll_us))
    if options.prefer_busy_poll:
        results.append(socket_options.set_prefer_busy_poll(sock))
    if options.busy_poll_budget:
        results.append(socket_options.set_busy_poll_budget(sock, options.busy_poll_budget))
    return results
