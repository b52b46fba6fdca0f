"""What both ends of `udpfast wire` are told in the same words."""

from __future__ import annotations

import click

from udpfast.core.endpoint import endpoint_text, parse_endpoint, parse_sender
from udpfast.net.bypass import STACKS
from udpfast.net.options import TIMESTAMPS

__all__ = [
    "BYPASS",
    "BYPASS_LIBRARY",
    "CORE",
    "DEFAULT_PORT",
    "METRICS",
    "TIMESTAMPS_FROM",
    "parse_address",
]

DEFAULT_PORT = 7007

TIMESTAMPS_FROM = click.option(
    "--timestamps",
    type=click.Choice(TIMESTAMPS),
    default="auto",
    show_default=True,
    help="Who stamps datagrams: the NIC where it can, the kernel, or only this process.",
)
CORE = click.option("--core", type=click.IntRange(0), help="Core for the loop.")
BYPASS = click.option(
    "--bypass",
    "stack",
    type=click.Choice(["none", *STACKS]),
    default="none",
    show_default=True,
    help="Start under this preloaded network stack.",
)
BYPASS_LIBRARY = click.option(
    "--bypass-library",
    "library",
    metavar="PATH",
    default="",
    help="Path of the stack's library, if it is not found.",
)
METRICS = click.option("--metrics", metavar="IP:PORT", help="Serve Prometheus while it runs.")


def parse_address(text: str) -> str:
    """Return IP[:PORT] with a port: a listener's own if it has none.

    Raises
    ------
    ConfigError
        It is no such address.
    """
    host, port = parse_sender(text)
    made = endpoint_text(host, port or DEFAULT_PORT)
    parse_endpoint(made)
    return made
