"""`udpfast monitor`: the feeds of this host as a page for a browser."""

from __future__ import annotations

import ipaddress
import secrets
import socket

import click

from udpfast.cli.metrics import need_monitor
from udpfast.cli.options import (
    FiniteRange,
    InstanceName,
    listen_address,
    log_level,
    warn_of_missing,
)
from udpfast.core.endpoint import endpoint_text
from udpfast.errors import ConfigError

__all__ = ["monitor"]


@click.command(epilog="Example: udpfast monitor --listen 127.0.0.1:9818")
@click.argument("names", metavar="[NAME]...", nargs=-1, type=InstanceName())
@click.option(
    "--listen",
    metavar="IP:PORT",
    default="127.0.0.1:9818",
    show_default=True,
    help="Address to serve at. One that other hosts can reach needs the token.",
)
@click.option(
    "--token",
    metavar="TEXT",
    default="",
    help="The page is shown only with ?token=TEXT; by default random, where one is needed. Without "
    "a token, the page answers only at localhost and at IP addresses.",
)
@click.option(
    "--interval",
    "interval_s",
    type=FiniteRange(min=0.2, max=60),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two updates.",
)
@log_level
def monitor(names: tuple[str, ...], listen: str, token: str, interval_s: float) -> None:
    """Serve a live page about the feeds NAME, by default all of this user on this host.

    It shows rates, latency percentiles, losses by stage, which line is first and by how much,
    objects in doubt, the lag of readers, the book of a symbol, and of the host: stores of a bus,
    journals and disks, faults. It reads shared memory and files, and only while a browser shows
    the page; all that it writes is its own entry in `readers/` while it reads a book. It costs the
    feeds nothing, and fetches nothing from elsewhere. Runs until SIGINT, SIGTERM or SIGHUP. Needs
    the extra [monitor].
    """
    need_monitor("nicegui")
    host, port = listen_address(listen)
    warn_of_missing(names)
    if not token.isprintable():  # an address cannot hold it
        raise ConfigError(f"--token: expected printable text, found {token!r}")
    if not token and not ipaddress.ip_address(host).is_loopback:
        token = secrets.token_urlsafe(16)
    port = _free_port(host, port)
    from udpfast.cli.monitor_page import serve

    serve(names, host, port, token, interval_s)


def _free_port(host: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            raise ConfigError(
                f"--listen: expected a free port of this host, found {endpoint_text(host, port)}: "
                f"{error.strerror}"
            ) from None
        return int(sock.getsockname()[1])
