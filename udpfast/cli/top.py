"""`udpfast top`: the feeds of a host at a glance, and one of them in full, live or once."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import click

from udpfast.cli.metrics import need_monitor
from udpfast.cli.options import FiniteRange, InstanceName
from udpfast.cli.top_host import host_lines
from udpfast.cli.top_text import HOST_TITLE, feed_lines, host_caption, host_row, replay_lines
from udpfast.cli.top_words import plain
from udpfast.monitor.change import FeedChange, HostLook, changes, look_at_host
from udpfast.monitor.paced import Paced

__all__ = ["top"]


@click.command(epilog="Example: udpfast top --once tutorial")
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

    Enter opens one with its lines, readers, latency and losses; o shows the host: stores of a bus,
    journals and disks, faults; ? shows the keys. NO_COLOR=1 in the environment turns colours off.
    With --once all of it is printed: the list, each NAME in full, and without a NAME the host.
    Needs the extra [monitor], except for --once.
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
    paced = Paced(share=0)  # rates of journals, too
    before = look_at_host(names, paced)
    time.sleep(interval_s)
    now = look_at_host(names, paced)
    click.echo(plain(_lines(now, changes(before, now), names)))
    sys.exit(bool(names and now.unreadable))


def _lines(look: HostLook, feeds: list[FeedChange], names: tuple[str, ...]) -> Iterator[str]:
    yield host_caption(look)
    yield HOST_TITLE
    yield from map(host_row, feeds)
    yield from replay_lines(look)
    yield from (f"{name}: {reason}" for name, reason in look.unreadable.items())
    if not names:
        yield from host_lines(look.host, look.feeds, look.unreadable)
        return
    for feed in feeds:
        yield ""
        yield from feed_lines(feed, look.unix_ns)
