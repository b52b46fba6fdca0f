"""Which datagrams of a capture belong to which line of a feed."""

from __future__ import annotations

import ipaddress
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from udpfast.config import FeedConfig, parse_feed
from udpfast.core.endpoint import parse_endpoint
from udpfast.errors import ConfigError
from udpfast.net.pcap import CaptureReader

__all__ = ["Flow", "config_of", "flows_of", "guess_channels", "tell_lines"]

CHANNEL_NONE = 255
SNAPSHOT_BIT = 0x10
FRAME_SIZE = 16
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


def guess_channels(capture: Path) -> dict[str, list[Flow]]:
    """Tell the lines of a capture by destination, and the snapshot channel by its snapshot bit."""
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
            f"{len(channels['snapshot'])} flows that are none"
        )
    return channels


def tell_lines(headers: npt.NDArray[Any], channels: dict[str, list[Flow]]) -> int:
    """Fill in channel and line of foreign datagrams; return how many belong to none."""
    foreign = headers["event"] == 0
    channel = np.where(foreign, np.uint8(CHANNEL_NONE), headers["channel"])
    for number, flows in enumerate((channels["incremental"], channels["snapshot"])):
        for index, flow in enumerate(flows):
            match = foreign & (headers["destination_port"] == flow.port)
            if flow.address:
                match &= (headers["destination"] == np.frombuffer(flow.address, "u1")).all(axis=1)
            channel[match], headers["line"][match] = number, index
    headers["channel"] = channel
    return int(np.count_nonzero(channel == CHANNEL_NONE))


def flows_of(config: FeedConfig) -> dict[str, list[Flow]]:
    """Return where the lines of a feed are sent to."""
    lines = [*config.incremental.lines, *config.snapshot.lines]
    ports = Counter(parse_endpoint(line.address)[1] for line in lines)
    return {
        channel: [_flow_of(line.address, ports) for line in getattr(config, channel).lines]
        for channel in ("incremental", "snapshot")
    }


def _flow_of(text: str, ports: Counter[int]) -> Flow:
    # The port alone where it is enough: a capture from another host has other addresses.
    host, port = parse_endpoint(text)
    if ports[port] == 1:
        return Flow(b"", port)
    address = ipaddress.ip_address(host)
    mapped = address if address.version == 6 else ipaddress.IPv6Address(f"::ffff:{address}")
    return Flow(mapped.packed, port)


def config_of(channels: dict[str, list[Flow]]) -> FeedConfig:
    """Return a feed of these lines, with the default settings."""
    return parse_feed(
        {
            "name": "replay",
            **{
                channel: {
                    "lines": [
                        {
                            "name": chr(65 + i),
                            "address": str(flow) if flow.address else f"0.0.0.0:{flow.port}",
                        }
                        for i, flow in enumerate(flows)
                    ]
                }
                for channel, flows in channels.items()
            },
        },
        where="ports",
    )
