"""`udpfast monitor`: the feeds of this host as a page for a browser."""

from __future__ import annotations

import ipaddress
import secrets

import click

from udpfast.cli.metrics import need_monitor
from udpfast.cli.options import FiniteRange, InstanceName
from udpfast.core.endpoint import parse_endpoint

__all__ = ["monitor"]


@click.command(epilog="Example: udpfast monitor --listen 127.0.0.1:9818")
@click.argument("names", metavar="[NAME]...", nargs=-1, type=InstanceName())
@click.option(
    "--listen",
    metavar="IP:PORT",
    default="127.0.0.1:9818",
    show_default=True,
    help="Where a browser asks. An address that is not of this host alone needs the token.",
)
@click.option(
    "--token",
    metavar="TEXT",
    default="",
    help="Who shall see the page gives it as ?token=TEXT; where needed, by default random.",
)
@click.option(
    "--interval",
    "interval_s",
    type=FiniteRange(min=0.2, max=60),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks.",
)
def monitor(names: tuple[str, ...], listen: str, token: str, interval_s: float) -> None:
    """Show the feeds NAME, by default all of this user on this host, as a page that moves.

    Rates, latency by percentile, losses and their stage, who wins of the lines, lag of readers, and
    the book of a symbol. Read-only: it looks at shared memory, no feed takes part, and nobody looks
    while no browser shows it. All that the page needs comes from here. Until SIGINT or SIGTERM.
    """
    need_monitor("nicegui")
    host, port = parse_endpoint(listen)
    if not token and not ipaddress.ip_address(host).is_loopback:
        token = secrets.token_urlsafe(16)
    from udpfast.cli.monitor_page import serve

    serve(names, host, port, token, interval_s)
