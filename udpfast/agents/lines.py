"""A feed's configuration as its sockets take it."""

from __future__ import annotations

from udpfast.config import FeedConfig, LineConfig
from udpfast.net.line import LineAddress, ReceiveOptions

__all__ = ["line_address", "receive_options"]


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
