"""What a feed asked of the host and was not granted: a sentence each."""

from __future__ import annotations

from collections.abc import Iterable

from udpfast.agents.feed.feed_loop import FeedLoop
from udpfast.agents.feed.lines import received_addresses
from udpfast.config import FeedConfig
from udpfast.core.agent import Grant
from udpfast.net.bypass import Bypass
from udpfast.net.xdp import XdpReceiver

__all__ = ["denied_sentences"]


def denied_sentences(
    config: FeedConfig,
    grants: Iterable[Grant],
    loop: FeedLoop,
    missing_pages: list[str],
    bypass: Bypass,
) -> tuple[str, ...]:
    """Return what the thread, the receivers, the memory and a preloaded stack did not get."""
    notes = [f"{grant.asked} was denied: {grant.reason}" for grant in grants if not grant.granted]
    # With AF_XDP a receiver is an interface, which its address names; else it is a line.
    lines = [each.name for each in received_addresses(config)]
    for index, receiver in enumerate(loop.receivers):
        by_interface = isinstance(receiver, XdpReceiver)
        where = receiver.address if by_interface else lines[index]
        notes += [
            f"{where}: {result.name}: asked for {result.asked}, got {result.got}: {result.reason}"
            for result in receiver.results
            if result.reason
        ]
        if by_interface:
            notes += [f"{where}: {each}" for each in receiver.fallbacks]
    notes += missing_pages
    if bypass.missing:
        notes.append(f"bypass {bypass.text}")
    if loop.first_failure:
        notes.append(f"bypass {bypass.stack}: its first call failed: {loop.first_failure}")
    return tuple(notes)
