"""The options of `udpfast send`: what is sent where, how fast, and through which bad network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from udpfast.cli.options import FiniteRange, IntRange, OutputFile
from udpfast.wire.framing import FRAMINGS

__all__ = ["EXAMPLES", "GROUPS", "ROLES", "VENUES", "with_options"]

#: Whose market can be simulated: the keys of `agents.market.exchanges.VENUE_MARKETS`.
VENUES = ("itch", "pitch", "cme")

#: What lines are for: each is an option that takes their addresses.
ROLES = ("incremental", "snapshot", "recovery", "definitions")

EXAMPLES = """\b
Examples:
  udpfast send --simulate --seconds 5
  udpfast send --simulate --loss 0.01 --skew-us 200 --seed 7 --restart-at 2 --json \\
      --incremental 127.0.0.1:9001,127.0.0.1:9101 --snapshot 127.0.0.1:9002 --seconds 5
  udpfast send --venue itch --simulate --incremental 127.0.0.1:9001,127.0.0.1:9101 --loss 0.01
  udpfast send --venue cme --simulate --incremental 127.0.0.1:9001,127.0.0.1:9101 --loss 0.2 \\
      --recovery 127.0.0.1:9201,127.0.0.1:9202 --definitions 127.0.0.1:9203
  udpfast send capture.pcap.gz --incremental 239.1.1.1:9001,239.1.1.2:9001 --loss 0.01
  udpfast send --rate 100000 --size 64 --count 500000
"""


#: The options, by the headings of the help.
GROUPS = {
    "What to send": (
        "framing",
        "market",
        "simulate",
        "venue",
        "levels",
        "silence",
        "price_band",
        "size",
        "seed",
    ),
    "Where to": (*ROLES, "interfaces", "ttl", "no_loop", "segment"),
    "How fast, and how long": ("speed", "rate", "count", "seconds", "linger"),
    "Faults": ("loss", "burst", "duplicate", "reorder", "skew_us", "restart_at"),
    "The publisher": (
        *("heartbeat_ms", "snapshot_ms", "snapshot_rate"),
        *("session_id", "first_seqno", "revision", "byteorder"),
    ),
    "Output": ("books", "as_json"),
}


def _addresses(context: click.Context, parameter: click.Parameter, value: str) -> list[str]:
    addresses = [address.strip() for address in value.split(",")]
    if addresses == [""]:
        return []
    if "" in addresses:
        raise click.BadParameter(
            f"expected an ip:port on both sides of each comma, found {value!r}"
        )
    return addresses


def _interfaces(context: click.Context, parameter: click.Parameter, value: str) -> list[str]:
    return [name.strip() for name in value.split(",")]


_OPTIONS: Sequence[Callable[[Any], Any]] = (
    click.argument(
        "capture",
        required=False,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
    ),
    click.option(
        "--framing",
        type=click.Choice(FRAMINGS),
        help="Framing of a capture's datagrams; by default detected.",
    ),
    click.option(
        "--market",
        metavar="PREFIX",
        help="Send a recorded market: PREFIX_l2.parquet, _trades and _quotes.",
    ),
    click.option("--simulate", is_flag=True, help="Send a simulated market, drawn from --seed."),
    click.option(
        "--venue",
        type=click.Choice(VENUES),
        help="With --simulate: publish it as this venue does, order by order; --rate is datagrams "
        "per second.",
    ),
    click.option(
        "--levels",
        type=IntRange(min=2),
        default=200,
        show_default=True,
        help="Levels that each simulated book begins with.",
    ),
    click.option(
        "--incremental",
        metavar="ADDRESSES",
        default="127.0.0.1:9001",
        callback=_addresses,
        show_default=True,
        help="ip:port of each incremental line, separated by commas.",
    ),
    click.option(
        "--snapshot",
        metavar="ADDRESSES",
        default="127.0.0.1:9002",
        callback=_addresses,
        show_default=True,
        help='ip:port of each snapshot line; "" for none.',
    ),
    click.option(
        "--recovery",
        metavar="ADDRESSES",
        default="",
        callback=_addresses,
        help="--venue cme: ip:port of its loops of snapshots, by price and by order, or one of "
        "both.",
    ),
    click.option(
        "--definitions",
        metavar="ADDRESS",
        default="",
        callback=_addresses,
        help="--venue cme: ip:port of its loop of instruments.",
    ),
    click.option(
        "--interface",
        "interfaces",
        metavar="NAMES",
        default="",
        callback=_interfaces,
        help="Name or address of the interface for all lines, or one for each line (of all "
        "channels, by its place), separated by commas; empty: the route decides.",
    ),
    click.option(
        "--ttl",
        type=IntRange(0, 255),
        default=1,
        show_default=True,
        help="Hops that multicast may travel.",
    ),
    click.option("--no-loop", is_flag=True, help="Do not loop multicast back to this host."),
    click.option(
        "--segment",
        is_flag=True,
        help="Pass bursts to the kernel as one large send each (UDP_SEGMENT).",
    ),
    click.option(
        "--speed",
        type=FiniteRange(min=0),
        default=1.0,
        show_default=True,
        help="Multiple of the recorded pace; 0: as fast as possible.",
    ),
    click.option(
        "--rate",
        type=FiniteRange(min=0, min_open=True),
        help="Events (raw load: datagrams) per second, evenly spaced.",
    ),
    click.option(
        "--size",
        type=IntRange(8, 512),
        default=64,
        show_default=True,
        help="Raw load: payload bytes per datagram.",
    ),
    click.option(
        "--count",
        type=IntRange(min=0),
        default=0,
        help="Stop after this many events or datagrams; 0: no limit.",
    ),
    click.option(
        "--seconds", type=FiniteRange(min=0, min_open=True), help="Stop after this many seconds."
    ),
    click.option(
        "--linger",
        type=FiniteRange(min=0),
        default=2.5,
        show_default=True,
        help="Seconds to go on with snapshots and heartbeats, without faults, after the last "
        "event. A market of --venue has an end of its own: its loops and heartbeats, all of them, "
        "without faults.",
    ),
    click.option(
        "--seed",
        type=int,
        default=1,
        show_default=True,
        help="Seed of the faults and of the simulated market.",
    ),
    click.option(
        "--loss",
        type=FiniteRange(0, 1),
        default=0.0,
        help="Fraction of each line's datagrams to lose (0.01: one in a hundred).",
    ),
    click.option(
        "--burst",
        type=FiniteRange(min=0),
        default=0.0,
        help="Mean number of datagrams lost in a row; 0: independent losses.",
    ),
    click.option(
        "--duplicate",
        type=FiniteRange(0, 1),
        default=0.0,
        help="Fraction of datagrams to send twice.",
    ),
    click.option(
        "--reorder",
        type=FiniteRange(0, 1),
        default=0.0,
        help="Fraction of datagrams to send 0.3 ms late.",
    ),
    click.option(
        "--skew-us",
        type=FiniteRange(min=0),
        default=0.0,
        help="Microseconds by which each line lags the one before it.",
    ),
    click.option(
        "--restart-at",
        type=FiniteRange(min=0),
        metavar="SECONDS",
        help="Restart as a new session at this time of the market.",
    ),
    click.option(
        "--silence",
        type=FiniteRange(min=0),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="Cut silences of the market that are longer than this; 0: keep them.",
    ),
    click.option(
        "--price-band",
        type=FiniteRange(min=0),
        default=0.0,
        show_default=True,
        help="Leave out book levels further from the starting mid price than this fraction of "
        "it; 0: keep all.",
    ),
    click.option(
        "--heartbeat-ms",
        type=IntRange(min=1),
        default=1000,
        show_default=True,
        help="Milliseconds of silence on a channel before a heartbeat is sent.",
    ),
    click.option(
        "--snapshot-ms",
        type=IntRange(min=1),
        default=1000,
        show_default=True,
        help="Milliseconds between the starts of two snapshot rounds.",
    ),
    click.option(
        "--snapshot-rate",
        type=IntRange(min=1),
        default=50_000,
        show_default=True,
        help="Snapshot datagrams per second, at most.",
    ),
    click.option("--session-id", type=IntRange(0, 65_535), help="Session id; random by default."),
    click.option(
        "--first-seqno",
        type=IntRange(0, 2**32 - 1),
        default=1,
        show_default=True,
        help="Number of the first message of each channel.",
    ),
    click.option(
        "--revision",
        type=click.Choice(["current", "legacy"]),
        default="current",
        show_default=True,
        help="Revision of the header.",
    ),
    click.option(
        "--byteorder",
        type=click.Choice(["little", "big"]),
        default="little",
        show_default=True,
        help="Byte order of the header's integers.",
    ),
    click.option(
        "--books",
        type=OutputFile(),
        metavar="FILE",
        help="Write the final books, as published, as JSON.",
    ),
    click.option(
        "--json", "as_json", is_flag=True, help="Print only the summary, as one JSON line."
    ),
)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all options of `udpfast send`, in the order of its help."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
