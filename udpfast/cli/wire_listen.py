"""`udpfast wire listen`: send echoes to whoever measures."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from udpfast.cli.bypass import enter_bypass
from udpfast.cli.options import FiniteRange, IntRange, OutputFile
from udpfast.cli.wire_metrics import receiver_families, serve_metrics
from udpfast.cli.wire_options import loop_options, parse_address, stack_options, was_shown
from udpfast.config.receive import BypassConfig, BypassStack
from udpfast.core.stop import Stop
from udpfast.errors import UdpfastError
from udpfast.net.line import LineAddress
from udpfast.probe import Receiver
from udpfast.probe.sender import RECEIVE_QUEUE_BYTES

__all__ = ["listen"]


@click.command(epilog="Example: udpfast wire listen 10.1.0.2@eth1 10.2.0.2@eth2")
@click.argument("addresses", metavar="[IP[:PORT][@INTERFACE]]...", nargs=-1)
@click.option(
    "--senders",
    multiple=True,
    metavar="IP",
    help="Address that may measure; repeat it for more.  [default: everyone]",
)
@click.option(
    "--sessions",
    type=IntRange(0),
    default=0,
    help="End after this many sessions.  [default: run until SIGINT, SIGTERM or SIGHUP]",
)
@click.option(
    "--wait",
    type=FiniteRange(min=0),
    help="While nobody measures, wait for a sender for so many seconds.  [default: no limit]",
)
@click.option(
    "--senders-max",
    type=IntRange(1, 64),
    default=8,
    show_default=True,
    help="Senders at a time.",
)
@click.option(
    "--memory-mib",
    type=IntRange(1),
    default=1024,
    show_default=True,
    help="Memory for what arrives, of all senders together.",
)
@loop_options
@click.option(
    "--idle",
    type=click.Choice(["spin", "sleep"]),
    default="spin",
    show_default=True,
    help="While somebody measures, keep the core, or give it to others and be later.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per session.")
@click.option(
    "--report",
    type=OutputFile(),
    help="Write a page with charts of the last session, one HTML file.",
)
@stack_options
def listen(
    addresses: tuple[str, ...],
    senders: tuple[str, ...],
    sessions: int,
    wait: float | None,
    senders_max: int,
    memory_mib: int,
    timestamps: str,
    core: int | None,
    idle: str,
    as_json: bool,
    report: Path | None,
    stack: BypassStack,
    library: str,
    metrics: str | None,
) -> None:
    """Listen for `udpfast wire send`, send echoes, and show what arrived in each session.

    Without an address, listens on all interfaces, at port 7007. With an interface, datagrams come
    and echoes leave by it alone. A sender must receive at the address that it sends from.

    Exit code 1 if the listener failed, if no sender came within --wait, or if a result or a page
    could not be written.
    """
    if report is not None:
        from udpfast.cli.metrics import need_monitor

        need_monitor("bokeh")
    enter_bypass(BypassConfig(stack, library), RECEIVE_QUEUE_BYTES, quiet=as_json)
    stopping = Stop()
    # First: a sender that is there already is measured while the listener is still made.
    stopping.listen()
    with Receiver(
        [_address(each) for each in addresses or ("0.0.0.0",)],
        senders=senders,
        sessions_max=senders_max,
        memory_bytes=memory_mib << 20,
        timestamps=timestamps,
        spin=idle == "spin",
        core=core,
    ) as receiver:
        click.echo(f"udpfast: listening at {', '.join(receiver.addresses)}", err=True)
        with serve_metrics(metrics, lambda: receiver_families(receiver)):
            shown: Counter[bool] = Counter()
            lacking = _lack_of_senders(receiver, wait)
            while not stopping.wait(0.05) and not 0 < sessions <= shown.total():
                shown.update(_show_sessions(receiver, as_json, report))
                next(lacking)
        receiver.close()
        shown.update(_show_sessions(receiver, as_json, report))
    sys.exit(shown[False] > 0)


def _show_sessions(receiver: Receiver, as_json: bool, report: Path | None) -> Iterator[bool]:
    """Show the results of the sessions that have ended since; yield whether all was written.

    A listener goes on for others when something was not.
    """
    while result := receiver.wait(0):
        text = json.dumps(result.to_dict()) if as_json else result.text()
        yield was_shown(text, (result.write_page, report))


def _lack_of_senders(receiver: Receiver, wait_s: float | None) -> Iterator[None]:
    """Yield as long as a sender measures, or the last one did not end too long ago.

    Raises
    ------
    UdpfastError
        None came within `wait_s`.
    """
    seen, since = 0, time.monotonic()
    while True:
        now = time.monotonic()
        if receiver.measuring or receiver.sessions != seen:
            seen, since = receiver.sessions, now
        elif wait_s is not None and now > since + wait_s:
            raise UdpfastError(
                f"expected a sender within {wait_s:g} s, found none at "
                f"{', '.join(receiver.addresses)}: is `udpfast wire send` running there?"
            )
        yield


def _address(text: str) -> LineAddress:
    where, _, interface = text.partition("@")
    return LineAddress(parse_address(where), interface)
