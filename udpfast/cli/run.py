"""`udpfast run`: receive a feed until SIGINT or SIGTERM."""

from __future__ import annotations

import signal
import sys

import click

from udpfast.agents.subscriber import Subscriber

__all__ = ["run"]


@click.command(epilog="Example: udpfast run feed.toml")
@click.argument("path", metavar="FEED.TOML")
@click.option("--quiet", is_flag=True, help="Say nothing but errors.")
def run(path: str, quiet: bool) -> None:
    """Receive the feed that FEED.TOML describes and publish it to local strategies.

    Runs until SIGINT or SIGTERM. Strategies attach with udpfast.Reader("ring:NAME").
    """
    # Between start and join, and while it stops, a signal must find the way through __exit__ too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    with Subscriber(path) as subscriber:
        if not quiet:
            click.echo(f"udpfast: {subscriber.name} at {subscriber.directory}")
            for note in subscriber.notes:
                click.echo(f"udpfast: {note}")
        subscriber.join()
