"""A feed's configuration as its sockets take it."""

from __future__ import annotations

from typing import NamedTuple

from udpfast.config import FeedConfig
from udpfast.net.line import LineAddress, ReceiveOptions
from udpfast.net.xdp_host import XdpLine, XdpOptions

__all__ = [
    "ReceivedAddress",
    "line_addresses",
    "receive_options",
    "received_addresses",
    "xdp_lines",
    "xdp_options",
]

CHANNELS = ("incremental", "snapshot")


class ReceivedAddress(NamedTuple):
    """One address of a line of a feed, a socket: what to call it, and its places."""

    name: str  # "incremental.A 239.1.1.1:5000"
    shown: str  # "incremental.A", and which address where it has several
    channel: int
    line: int
    address: int
    where: LineAddress


def received_addresses(config: FeedConfig) -> list[ReceivedAddress]:
    """Return every address of every line, in the order of the lines."""
    return [
        ReceivedAddress(
            f"{CHANNELS[channel]}.{line.name} {address}",
            f"{CHANNELS[channel]}.{line.name}" + (f" {address}" if line.addresses else ""),
            channel,
            index,
            place,
            LineAddress(address, line.interface, line.source, line.senders),
        )
        for channel, lines in enumerate((config.incremental.lines, config.snapshot.lines))
        for index, line in enumerate(lines)
        for place, address in enumerate(line.every_address)
    ]


def line_addresses(config: FeedConfig) -> dict[str, tuple[str, ...]]:
    """Return the addresses of each line that has several, by its scope (`incremental.A`)."""
    return {
        f"{channel}.{line.name}": line.every_address
        for channel in CHANNELS
        for line in getattr(config, channel).lines
        if len(line.every_address) > 1
    }


def receive_options(config: FeedConfig) -> ReceiveOptions:
    """Return how every line's socket receives."""
    receive = config.receive
    return ReceiveOptions(
        rcvbuf_bytes=receive.rcvbuf_bytes,
        busy_poll_us=receive.busy_poll_us,
        prefer_busy_poll=receive.prefer_busy_poll,
        busy_poll_budget=receive.busy_poll_budget,
        timestamps=receive.timestamps,
        gro=receive.gro,
    )


def xdp_lines(config: FeedConfig) -> list[XdpLine]:
    """Return every address of every line with its channel and places."""
    return [
        XdpLine(each.where, each.channel, each.line, each.address)
        for each in received_addresses(config)
    ]


def xdp_options(config: FeedConfig) -> XdpOptions:
    """Return how AF_XDP receives every line."""
    xdp, receive = config.xdp, config.receive
    return XdpOptions(
        mode=xdp.mode,
        zero_copy=xdp.zero_copy,
        checksums=xdp.checksums,
        queues=xdp.queues,
        frames=xdp.frames,
        huge_pages=xdp.huge_pages,
        busy_poll_us=receive.busy_poll_us,
        prefer_busy_poll=receive.prefer_busy_poll,
        busy_poll_budget=receive.busy_poll_budget,
        stamps=receive.timestamps != "none",
    )
