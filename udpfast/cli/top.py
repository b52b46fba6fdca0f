"""`udpfast top`: the feeds of a host at a glance, and one of them in full, live or once."""

from __future__ import annotations

import sys
import time

import click

from udpfast.cli.metrics import need_monitor
from udpfast.cli.options import FiniteRange, InstanceName
from udpfast.cli.top_text import HOST_TITLE, feed_lines, host_caption, host_row
from udpfast.monitor.change import changes, look_at_host

__all__ = ["top"]


@click.command(epilog="Example: udpfast top --once deribit")
@click.argument("names", metavar="[NAME]...", nargs=-1, type=InstanceName())
@click.option(
    "--interval",
    "interval_s",
    type=FiniteRange(min=0.1, max=3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks.",
)
@click.option("--once", is_flag=True, help="Print it, after one interval, and end.")
def top(names: tuple[str, ...], interval_s: float, once: bool) -> None:
    """Show the feeds NAME, by default all of this user on this host, live and dead.

    Enter opens one with its lines, readers, latency and losses; ? shows the keys. NO_COLOR=1 in the
    environment turns colours off. With --once the list is printed, and each NAME in full. Needs the
    extra [monitor], except for --once.
    """
    if once:
        _print_once(names, interval_s)
        return
    need_monitor("textual")
    if not sys.stdout.isatty():
        raise click.UsageError("top needs a terminal: --once prints it")
    from udpfast.cli.top_app import TopApp

    TopApp(interval_s, names).run()


def _print_once(names: tuple[str, ...], interval_s: float) -> None:
    before = look_at_host(names)
    time.sleep(interval_s)
    now = look_at_host(names)
    feeds = changes(before, now)
    click.echo(host_caption(now))
    click.echo(HOST_TITLE)
    for feed in feeds:
        click.echo(host_row(feed))
    for name, reason in now.unreadable.items():
        click.echo(f"{name}: {reason}")
    for feed in feeds if names else ():
        click.echo("")
        for line in feed_lines(feed, now.unix_ns):
            click.echo(line)
    sys.exit(bool(names and now.unreadable))
