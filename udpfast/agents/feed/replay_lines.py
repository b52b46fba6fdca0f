"""Which datagrams of a capture belong to which line of a feed."""

from __future__ import annotations

import functools
import ipaddress
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from udpfast.config import FeedConfig, parse_feed
from udpfast.config.lines import WireConfig
from udpfast.config.settings import convert
from udpfast.core.endpoint import parse_endpoint
from udpfast.errors import ConfigError
from udpfast.net.pcap import CaptureReader
from udpfast.wire.facts import Numbers
from udpfast.wire.framing import Framing, MalformedError
from udpfast.wire.recognise import Recognition, recognise

__all__ = [
    "Flow",
    "config_of",
    "flow_at",
    "flows_of",
    "guess_channels",
    "guess_lines",
    "recognise_capture",
    "tell_lines",
    "wire_of",
]

CHANNEL_NONE = 255
SNAPSHOT_BIT = 0x10
FRAME_SIZE = 16
LINES_MAX = 8
ENDPOINT = np.dtype([("destination", "u1", 16), ("destination_port", "<u2")])


class Flow(NamedTuple):
    """Where datagrams of a capture were sent to: 16 address bytes (empty: any) and a port."""

    address: bytes
    port: int

    def __str__(self) -> str:
        """Return "ip:port", or the port alone."""
        if not self.address:
            return str(self.port)
        address = ipaddress.IPv6Address(self.address)
        return f"{address.ipv4_mapped or f'[{address}]'}:{self.port}"


#: Units of each flow by which is told which flows are lines of the same streams.
UNITS_MAX = 20_000


def recognise_capture(capture: Path) -> Recognition:
    """Tell the framing of a capture by its first datagrams."""
    with CaptureReader(capture) as source:
        return recognise((datagram.destination, datagram.payload) for datagram in source)


def guess_lines(capture: Path, framing: Framing) -> dict[str, list[Flow]]:
    """Tell the lines of a capture of any framing but Roq's by destination: those of one feed.

    Destinations that bring messages of the same numbers and bytes are lines of the same streams.

    Raises
    ------
    ConfigError
        There is more than one feed in it, or none.
    """
    seen: dict[Flow, set[tuple[int, int, int, int]]] = {}
    with CaptureReader(capture) as source:
        for datagram in islice(source, 8 * UNITS_MAX):
            host, port = datagram.destination
            units = seen.setdefault(flow_at(host, port), set())
            with suppress(MalformedError):
                if len(units) < UNITS_MAX:
                    units.update(_numbered(framing, datagram.payload))
    feeds: list[tuple[list[Flow], set[tuple[int, int, int, int]]]] = []
    for flow, units in seen.items():
        for flows, known in feeds:
            if known & units:
                flows.append(flow)
                known.update(units)
                break
        else:
            feeds.append(([flow], set(units)))
    # One that brings no numbers (heartbeats alone) is no feed's own.
    numbered = [flows for flows, known in feeds if known] or [flows for flows, _ in feeds][:1]
    if len(numbered) != 1:
        names = "; ".join(" and ".join(map(str, flows)) for flows in numbered)
        raise ConfigError(
            f"{capture}: expected the lines of one feed, found {len(numbered)} feeds: "
            f"{names or 'no datagrams'}: give `udpfast replay` those of one with --incremental "
            "[IP:]PORT, or --config FEED.toml"
        )
    return {"incremental": numbered[0][:LINES_MAX], "snapshot": []}


def _numbered(framing: Framing, payload: bytes) -> Iterator[tuple[int, int, int, int]]:
    # What lines of one feed have in common. Each may pack the same messages in its own way.
    each = framing.facts.numbers is Numbers.MESSAGES and not framing.facts.undelimited
    messages = iter(framing.messages(payload)) if each else iter(())
    for unit in framing.units(payload):
        if not unit.count:
            continue
        parts = [(one.number, one.data) for one in islice(messages, unit.messages)] or [
            (unit.number, payload[unit.offset : unit.offset + unit.size])
        ]
        for number, data in parts:
            yield unit.stream, unit.session, number, hash(data)


@functools.lru_cache(1024)  # asked for each datagram, of which most go to few addresses
def flow_at(host: str, port: int) -> Flow:
    """Return a flow by its address, as a capture has it."""
    address = ipaddress.ip_address(host)
    mapped = address if address.version == 6 else ipaddress.IPv6Address(f"::ffff:{address}")
    return Flow(mapped.packed, port)


def guess_channels(capture: Path) -> dict[str, list[Flow]]:
    """Tell the lines of a capture by destination, and the snapshot channel by its snapshot bit.

    Raises
    ------
    ConfigError
        No destination has datagrams of an incremental channel.
    """
    seen: dict[Flow, list[int]] = {}
    with CaptureReader(capture) as source:
        while (batch := source.read_batch()) is not None:
            headers = batch.headers[batch.headers["size"] > FRAME_SIZE]
            bits = np.frombuffer(batch.buffer, "u1")[headers["offset"]] & SNAPSHOT_BIT != 0
            keys = np.zeros(len(headers), ENDPOINT)
            for name in ("destination", "destination_port"):
                keys[name] = headers[name]
            _, firsts, which = np.unique(
                keys.view(f"V{ENDPOINT.itemsize}"), return_index=True, return_inverse=True
            )
            for number in np.argsort(firsts).tolist():  # in order of appearance
                first = headers[firsts[number]]
                flow = Flow(first["destination"].tobytes(), int(first["destination_port"]))
                counts = seen.setdefault(flow, [0, 0])
                counts[0] += int(np.count_nonzero(which == number))
                counts[1] += int(np.count_nonzero(bits[which == number]))
    channels: dict[str, list[Flow]] = {"incremental": [], "snapshot": []}
    for flow, (messages, snapshots) in seen.items():
        channels["snapshot" if 2 * snapshots > messages else "incremental"].append(flow)
    if not channels["incremental"]:
        raise ConfigError(
            f"{capture}: expected UDP datagrams of an incremental channel, found "
            f"{len(channels['snapshot'])} flows without any"
        )
    return channels


def tell_lines(headers: npt.NDArray[Any], channels: dict[str, list[list[Flow]]]) -> int:
    """Fill in channel, line and address of foreign datagrams; return how many belong to none.

    Parameters
    ----------
    headers : numpy.ndarray
        One row per datagram, as `CaptureReader` has them; changed in place.
    channels : dict
        For each line of a channel, where its addresses are.
    """
    foreign = headers["event"] == 0
    channel = np.where(foreign, np.uint8(CHANNEL_NONE), headers["channel"])
    for number, lines in enumerate((channels["incremental"], channels["snapshot"])):
        for index, flows in enumerate(lines):
            for place, flow in enumerate(flows):
                match = foreign & (headers["destination_port"] == flow.port)
                if flow.address:
                    to = np.frombuffer(flow.address, "u1")
                    match &= (headers["destination"] == to).all(axis=1)
                channel[match], headers["line"][match] = number, index
                headers["address"][match] = place
    headers["channel"] = channel
    return int(np.count_nonzero(channel == CHANNEL_NONE))


def flows_of(config: FeedConfig) -> dict[str, list[list[Flow]]]:
    """Return where the lines of a feed are sent to: all addresses of each."""
    lines = [*config.incremental.lines, *config.snapshot.lines]
    ports = Counter(parse_endpoint(text)[1] for line in lines for text in line.every_address)
    return {
        channel: [
            [_flow_of(text, ports) for text in line.every_address]
            for line in getattr(config, channel).lines
        ]
        for channel in ("incremental", "snapshot")
    }


def _flow_of(text: str, ports: Counter[int]) -> Flow:
    # The port alone where it is enough: a capture from another host has other addresses.
    host, port = parse_endpoint(text)
    return Flow(b"", port) if ports[port] == 1 else flow_at(host, port)


def config_of(
    channels: dict[str, list[list[Flow]]], framing: str = "roq", payload: str = "auto"
) -> FeedConfig:
    """Return a feed of these lines, with the default settings.

    Parameters
    ----------
    channels : dict
        The flows of each line, by channel; one each.
    framing : str
        As the settings have it, or as `wire.recognise` tells it: `roq_big` too.
    payload : str
        As the settings have it.
    """
    roles = {"incremental": "incremental", "snapshot": "snapshot"}
    if not framing.startswith("roq"):
        roles = {"incremental": "streams", "snapshot": "recovery"}
    return parse_feed(
        {
            "name": "replay",
            "wire": _wire_tables(framing, payload),
            **{
                roles[channel]: {
                    "lines": [
                        {
                            "name": chr(65 + i),
                            "address": str(flow) if flow.address else f"0.0.0.0:{flow.port}",
                        }
                        for i, (flow,) in enumerate(lines)
                    ]
                }
                for channel, lines in channels.items()
            },
        },
        where="ports",
    )


def wire_of(framing: str, payload: str) -> WireConfig:
    """Return how datagrams are made; `framing` and `payload` as for `config_of`."""
    wire: WireConfig = convert(_wire_tables(framing, payload), WireConfig, "options")
    return wire


def _wire_tables(framing: str, payload: str) -> dict[str, str]:
    roq = framing.startswith("roq")
    wire = {"framing": "roq" if roq else framing, "payload": payload}
    if roq:
        wire["byteorder"] = "big" if framing.endswith("_big") else "little"
        wire["revision"] = "legacy" if "_legacy" in framing else "current"
    return wire
