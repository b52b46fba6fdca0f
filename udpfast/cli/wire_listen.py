"""`udpfast wire listen`: send echoes to whoever measures."""

from __future__ import annotations

import json
from pathlib import Path

import click

from udpfast.cli.bypass import enter_bypass
from udpfast.cli.wire_metrics import receiver_families, serve_metrics
from udpfast.cli.wire_send import DEFAULT_PORT
from udpfast.cli.wire_text import result_text
from udpfast.config.receive import BypassConfig, BypassStack
from udpfast.core.endpoint import endpoint_text, parse_sender
from udpfast.core.stop import Stop
from udpfast.net.bypass import STACKS
from udpfast.net.line import LineAddress
from udpfast.net.options import TIMESTAMPS
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
    type=click.IntRange(0),
    default=0,
    help="End after so many sessions.  [default: run until SIGINT or SIGTERM]",
)
@click.option(
    "--senders-max",
    type=click.IntRange(1, 64),
    default=8,
    show_default=True,
    help="Senders at a time.",
)
@click.option(
    "--memory-mib",
    type=click.IntRange(1),
    default=1024,
    show_default=True,
    help="Memory for what arrives, of all senders together.",
)
@click.option(
    "--timestamps",
    type=click.Choice(TIMESTAMPS),
    default="auto",
    show_default=True,
    help="Who stamps datagrams: the NIC where it can, the kernel, or only this process.",
)
@click.option("--core", type=click.IntRange(0), help="Core for the loop.")
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
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page with charts of the last session, one HTML file.",
)
@click.option(
    "--bypass",
    "stack",
    type=click.Choice(["none", *STACKS]),
    default="none",
    show_default=True,
    help="Start under this preloaded network stack.",
)
@click.option(
    "--bypass-library",
    "library",
    metavar="PATH",
    default="",
    help="Path of the stack's library, if it is not found.",
)
@click.option("--metrics", metavar="IP:PORT", help="Serve Prometheus while it runs.")
def listen(
    addresses: tuple[str, ...],
    senders: tuple[str, ...],
    sessions: int,
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
    and echoes leave by it alone. Who measures must receive at the address that he sends from.
    """
    if report is not None:
        from udpfast.cli.metrics import need_monitor

        need_monitor("bokeh")
    enter_bypass(BypassConfig(stack, library), RECEIVE_QUEUE_BYTES, quiet=as_json)
    stopping = Stop()
    with Receiver(
        [_address(each) for each in addresses or ("0.0.0.0",)],
        senders=senders,
        sessions_max=senders_max,
        memory_bytes=memory_mib << 20,
        timestamps=timestamps,
        spin=idle == "spin",
        core=core,
    ) as receiver:
        stopping.listen()
        click.echo(f"udpfast: listening at {', '.join(receiver.addresses)}", err=True)
        with serve_metrics(metrics, lambda: receiver_families(receiver)):
            shown = 0
            while not stopping.wait(0.05) and not 0 < sessions <= shown:
                while result := receiver.wait(0):
                    shown += 1
                    click.echo(json.dumps(result.to_dict()) if as_json else result_text(result))
                    if report is not None:
                        result.write_page(report)
        receiver.close()
        while result := receiver.wait(0):
            click.echo(json.dumps(result.to_dict()) if as_json else result_text(result))
            if report is not None:
                result.write_page(report)


def _address(text: str) -> LineAddress:
    where, _, interface = text.partition("@")
    host, port = parse_sender(where)
    return LineAddress(endpoint_text(host, port or DEFAULT_PORT), interface)
