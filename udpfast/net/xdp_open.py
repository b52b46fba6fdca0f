"""Opening AF_XDP sockets: the queues, the options, and the reasons for which they are refused."""

import errno
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from udpfast.core.endpoint import parse_endpoint
from udpfast.core.oserr import check
from udpfast.errors import ConfigError
from udpfast.net import options as socket_options
from udpfast.net.line import LineAddress, ReceiveOptions, open_receiver
from udpfast.net.options import OptionResult
from udpfast.net.xdp_bpf import RIGHTS, create_xskmap, load_program
from udpfast.net.xdp_host import XdpDriver, XdpInterface, XdpLine, XdpOptions, ask_driver
from udpfast.net.xdp_program import assemble, endpoint_of

__all__ = [
    "attempt",
    "choose_queues",
    "drive_driver",
    "explain_refusal",
    "foresee",
    "load",
    "open_member",
    "open_xdp_socket",
    "refuse_program",
    "refuse_socket",
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


def refuse_program(rc: int, mode: str, interface: XdpInterface) -> None:
    """Raise the OSError of an interface that refused a program; `rc` is -errno."""
    check(
        -errno.EBUSY if rc == -errno.EEXIST else rc,
        f"attach an XDP program ({mode})",
        f"{interface.name}{explain_refusal(rc, mode, interface)}",
    )


def refuse_socket(
    rc: int, queue: int, interface: XdpInterface, options: XdpOptions, generic: bool
) -> None:
    """Raise the OSError of a queue that refused a socket; nothing if `rc`, -errno, is none."""
    where = f"queue {queue} of {interface.name}"
    if rc == -errno.EBUSY:
        where += ", which another socket owns"
    elif rc == -errno.EOPNOTSUPP and options.zero_copy == "on":
        where += ": zero copy is native" if generic else ", whose driver has no zero copy"
    check(rc, "bind an AF_XDP socket", where)


def load(lines: Sequence[XdpLine], queues: Sequence[int], options: XdpOptions) -> Iterator[int]:
    """Yield the descriptors of the map of sockets and of the loaded program, once each is made."""
    map_fd = create_xskmap(max(queues) + 1)
    yield map_fd
    endpoints = [endpoint_of(*parse_endpoint(item.line.address)) for item in lines]
    yield load_program(assemble(endpoints, map_fd, stamps=options.stamps))


def open_member(line: LineAddress) -> tuple[socket.socket, list[OptionResult]]:
    """Return a socket that holds a line's port and membership, and how it joined.

    So switches and the network card keep sending the datagrams here, and no other process takes
    the port.
    """
    plain = LineAddress(line.address, line.interface, line.source)
    sock, results = open_receiver(plain, ReceiveOptions(rcvbuf_bytes=4096, timestamps="none"))
    return sock, [each for each in results if "JOIN" in each.name or "MEMBERSHIP" in each.name]


def foresee(
    interface: XdpInterface, lines: Sequence[XdpLine], options: XdpOptions
) -> XdpDriver | None:
    """Raise what would refuse an `XdpReceiver` of these lines, as far as it can be told.

    Attaches no program and binds no queue, either of which may stop the interface for a moment: so
    it does not find that a driver refuses its present settings, or that a socket without a program
    owns a queue.

    Returns
    -------
    XdpDriver or None
        None: the kernel does not tell what the driver can do.

    Raises
    ------
    ConfigError, OSError
        As `XdpReceiver`.
    """
    queues = choose_queues(interface, options.queues)
    descriptors: list[int] = []
    try:
        descriptors.extend(load(lines, queues, options))
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    open_xdp_socket(f"queue {queues[0]} of {interface.name}").close()
    mode = "native" if options.mode == "auto" else options.mode
    if interface.program:
        refuse_program(-errno.EBUSY, mode, interface)
    driver = ask_driver(interface)
    if driver is not None and not driver.native and options.mode == "native":
        refuse_program(-errno.EOPNOTSUPP, mode, interface)
    generic = options.mode == "generic" or (driver is not None and not driver.native)
    if options.zero_copy == "on" and (generic or (driver is not None and not driver.zero_copy)):
        refuse_socket(-errno.EOPNOTSUPP, queues[0], interface, options, generic)
    return driver


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
