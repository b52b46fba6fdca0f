"""`udpfast wire send`: measure one or more lines to a listener."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click
import numpy as np

from udpfast.cli.bypass import enter_bypass
from udpfast.cli.options import FiniteRange, IntRange, OutputFile
from udpfast.cli.wire_metrics import sender_families, serve_metrics
from udpfast.cli.wire_options import loop_options, parse_address, stack_options, was_shown
from udpfast.config.receive import BypassConfig, BypassStack
from udpfast.core.stop import Stop
from udpfast.errors import ConfigError
from udpfast.net.line import LineAddress
from udpfast.probe import Sender
from udpfast.probe.sender import RECEIVE_QUEUE_BYTES

__all__ = ["parse_lines", "send"]


@click.command(
    epilog="\b\nExample:\n  udpfast wire send 10.1.0.2 --lines microwave=eth1,fibre=eth2@10.2.0.2"
)
@click.argument("listener", metavar="IP[:PORT]")
@click.option(
    "--lines",
    metavar="NAME=[INTERFACE][@IP[:PORT]],...",
    help="Each line's name, the interface by which it leaves, and the listener's address on it "
    "where that is another.  [default: one line, by the kernel's route]",
)
@click.option(
    "--rate",
    type=FiniteRange(min=0, min_open=True),
    default=1000.0,
    show_default=True,
    help="Probes per second on each line.",
)
@click.option(
    "--size",
    type=IntRange(64, 2048),
    default=128,
    show_default=True,
    help="Bytes of a probe, and of its echo.",
)
@click.option(
    "--train",
    type=IntRange(1, 64),
    default=1,
    show_default=True,
    help="Probes that leave back to back.",
)
@click.option(
    "--seconds",
    type=FiniteRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="How long to send.",
)
@click.option(
    "--wait",
    type=FiniteRange(min=0),
    default=10.0,
    show_default=True,
    help="How many seconds to wait for a listener that is not there yet.",
)
@loop_options
@click.option(
    "--idle",
    type=click.Choice(["spin", "sleep"]),
    default="spin",
    show_default=True,
    help="Between probes, keep the core, or give it to others and be later.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option(
    "--report",
    type=OutputFile(),
    help="Write a page with charts, one HTML file.",
)
@click.option(
    "--arrays",
    type=OutputFile(),
    help="Write an element per probe, as an .npz of numpy.",
)
@stack_options
def send(
    listener: str,
    lines: str | None,
    rate: float,
    size: int,
    train: int,
    seconds: float,
    wait: float,
    timestamps: str,
    core: int | None,
    idle: str,
    as_json: bool,
    report: Path | None,
    arrays: Path | None,
    stack: BypassStack,
    library: str,
    metrics: str | None,
) -> None:
    """Measure one or more lines to the host where `udpfast wire listen` runs.

    Probes leave at planned times, whatever happens to those before (open loop). Each comes back as
    an echo: round trips need no common clock. One-way times are given with the largest error that
    the two hosts' clocks can cause. SIGINT, SIGTERM or SIGHUP ends the run with the result
    so far.

    Exit code 1 if nothing came back, or the result or a file could not be written.
    """
    if report and arrays and os.path.realpath(report) == os.path.realpath(arrays):
        raise ConfigError(f"--report and --arrays: expected two files, found {report} for both")
    if report is not None:
        from udpfast.cli.metrics import need_monitor

        need_monitor("bokeh")
    enter_bypass(BypassConfig(stack, library), RECEIVE_QUEUE_BYTES, quiet=as_json)
    stopping = Stop()
    stopping.listen()
    ways = parse_lines(listener, lines)
    with Sender(
        ways,
        rate_per_s=rate,
        size_bytes=size,
        train=train,
        seconds=seconds,
        timestamps=timestamps,
        spin=idle == "spin",
        core=core,
    ) as sender:
        stopping.call(sender.stop)
        with serve_metrics(metrics, lambda: sender_families(sender)):
            answered = sender.connect(wait)
            if not as_json and answered:
                click.echo(f"udpfast: the listener answered by {', '.join(answered)}", err=True)
            for name in [each for each in ways if answered and each not in answered]:
                click.echo(
                    f"udpfast: no answer by {name} from {ways[name].address}: its probes are sent "
                    f"all the same. Is that the listener's address on this line ({name}="
                    "INTERFACE@IP:PORT)?",
                    err=True,
                )
            result = sender.run()
    text = json.dumps(result.to_dict()) if as_json else result.text()
    shown = was_shown(text, (result.write_page, report), (result.write_arrays, arrays))
    came_back = any(np.any(line.returned) for line in result.lines.values())
    sys.exit(not (came_back and shown))


def parse_lines(listener: str, lines: str | None) -> dict[str, LineAddress]:
    """Return each line by its name, as --lines gives them.

    Raises
    ------
    ConfigError
        An address, or the form, is wrong.
    """
    default = parse_address(listener)
    if not lines:
        return {"line": LineAddress(default)}
    found: dict[str, LineAddress] = {}
    for part in lines.split(","):
        name, equals, where = part.strip().partition("=")
        interface, _, address = where.partition("@")
        if not equals or not name or name in found:
            raise ConfigError(
                "--lines: expected different NAME=[INTERFACE][@IP[:PORT]], separated by commas, "
                f"found {part.strip()!r}"
            )
        found[name] = LineAddress(parse_address(address) if address else default, interface)
    return found
