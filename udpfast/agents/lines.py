"""A feed's configuration as its sockets take it."""

from __future__ import annotations

from udpfast.config import FeedConfig, LineConfig
from udpfast.net.line import LineAddress, ReceiveOptions
from udpfast.net.xdp_host import XdpLine, XdpOptions

__all__ = ["line_address", "receive_options", "xdp_lines", "xdp_options"]


def line_address(line: LineConfig) -> LineAddress:
    """Return where a line comes from."""
    return LineAddress(line.address, line.interface, line.source, line.senders)


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
    """Return every line with its channel and place."""
    return [
        XdpLine(line_address(line), channel, index)
        for channel, lines in enumerate((config.incremental.lines, config.snapshot.lines))
        for index, line in enumerate(lines)
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
