"""`udpfast run`: receive a feed until SIGINT or SIGTERM."""

from __future__ import annotations

import signal
import sys

import click
from msgspec.structs import replace

from udpfast.agents.subscriber import Subscriber
from udpfast.cli.bypass import enter_bypass, print_environment
from udpfast.config import FeedConfig, load_feed
from udpfast.net.bypass import STACKS

__all__ = ["run"]


@click.command(epilog="Example: udpfast run feed.toml")
@click.argument("path", metavar="FEED.TOML")
@click.option("--quiet", is_flag=True, help="Say nothing but errors.")
@click.option(
    "--bypass",
    "stack",
    type=click.Choice(["none", *STACKS]),
    help="Start under this preloaded network stack, whatever bypass.stack says.",
)
@click.option(
    "--bypass-library", "library", metavar="PATH", help="The stack's library, if not found."
)
@click.option("--bypass-strict", "strict", is_flag=True, help="Fail unless it accelerates.")
def run(path: str, quiet: bool, stack: str | None, library: str | None, strict: bool) -> None:
    """Receive the feed that FEED.TOML describes and publish it to local strategies.

    Runs until SIGINT or SIGTERM. Strategies attach with udpfast.Reader("ring:NAME").
    """
    config = _with_options(load_feed(path), stack, library, strict)
    enter_bypass(config, quiet=quiet)
    # Between start and join, and while it stops, a signal must find the way through __exit__ too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    with Subscriber(config) as subscriber:
        bypass = subscriber.bypass
        if bypass and bypass.missing:
            click.echo(f"udpfast: WARNING: bypass {bypass.text}", err=True)
        if not quiet:
            click.echo(f"udpfast: {subscriber.name} at {subscriber.directory}")
            if bypass and bypass.stack != "none" and not bypass.missing:
                click.echo(f"udpfast: bypass {bypass.text}")
            print_environment()
            for note in subscriber.notes:
                click.echo(f"udpfast: {note}")
        subscriber.join()


def _with_options(
    config: FeedConfig, stack: str | None, library: str | None, strict: bool
) -> FeedConfig:
    bypass = config.bypass
    chosen = replace(
        bypass,
        stack=bypass.stack if stack is None else stack,
        library=bypass.library if library is None else library,
        strict=bypass.strict or strict,
    )
    if chosen.stack == "none" and (library or strict):
        raise click.UsageError("--bypass-library and --bypass-strict need --bypass or bypass.stack")
    return replace(config, bypass=chosen)
