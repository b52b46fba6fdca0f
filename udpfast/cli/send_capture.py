"""`udpfast send CAPTURE`, `--venue`: datagrams as they are, through a bad network if asked for."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from udpfast.agents.feed.replay_lines import guess_channels, guess_lines, recognise_capture
from udpfast.agents.market.venue_market import VENUE_MARKETS, VenueMarket
from udpfast.cli.send_faults import Faults, wants_faults
from udpfast.core.clock import monotonic_ns
from udpfast.core.endpoint import parse_endpoint
from udpfast.net.pcap import CaptureReader
from udpfast.net.sender import DatagramSender
from udpfast.wire.framing import Framing

__all__ = ["send_capture"]

#: Longest sleep: what was delayed on purpose is due at any time.
_PAUSE_S = 0.0002

_VENUE_RATE_PER_S = 1_000.0


class _Captured:
    """The datagrams of a capture's feed, in their order.

    Attributes
    ----------
    framing : str
    lines : int
        How many it has.
    """

    def __init__(self, path: Path, framing: str | None) -> None:
        told = recognise_capture(path) if framing is None else None
        self.framing = framing or (told.name if told is not None else None) or ""
        if not self.framing:
            why = told.why if told is not None else ""
            raise click.UsageError(f"{path}: {why}: choose it with --framing")
        roq = self.framing.startswith("roq")
        channels = guess_channels(path) if roq else guess_lines(path, Framing(self.framing))
        self._flows = [str(flow) for flow in channels["incremental"]]
        self.lines = len(self._flows)
        self._path = path

    def __iter__(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield the time, the line and the bytes of each."""
        places = {parse_endpoint(flow): line for line, flow in enumerate(self._flows)}
        with CaptureReader(self._path) as reader:
            for datagram in reader:
                line = places.get(datagram.destination)
                if line is not None:
                    yield datagram.timestamp_ns, line, datagram.payload


def send_capture(senders: list[DatagramSender], options: dict[str, Any]) -> dict[str, Any]:
    """Send it; return the summary."""
    captured: _Captured | VenueMarket = (
        VENUE_MARKETS[options["venue"]](
            options["seed"],
            rate_per_s=options["rate"] or _VENUE_RATE_PER_S,
            seconds=options["seconds"],
        )
        if options["venue"]
        else _Captured(options["capture"], options["framing"])
    )
    if captured.lines not in (1, len(senders)):
        raise click.UsageError(
            f"--incremental needs one address for each of the capture's {captured.lines} lines, "
            f"found {len(senders)}"
        )
    faults = Faults(options, lambda datagram: (datagram, datagram))
    spoilt = wants_faults(options)
    waiting: list[tuple[int, int, int, bytes]] = []
    order = itertools.count()
    taken = 0
    began_ns = now_ns = monotonic_ns()
    limit = options["count"] or None
    with contextlib.suppress(KeyboardInterrupt):
        for after_ns, line, data in itertools.islice(_paced(captured, options), limit):
            if (
                not options["venue"]
                and options["seconds"] is not None
                and after_ns > options["seconds"] * 1e9
            ):
                break
            now_ns = _send_until(began_ns + after_ns, waiting, senders)
            for place in range(len(senders)) if captured.lines == 1 else (line,):
                arrivals = (
                    faults.pass_through(0, place, [data], now_ns) if spoilt else [(now_ns, data)]
                )
                for at_ns, each in arrivals:
                    heapq.heappush(waiting, (at_ns, next(order), place, each))
            taken += 1
    while waiting:
        now_ns = _send_until(waiting[0][0], waiting, senders)
    seconds = (now_ns - began_ns) / 1e9
    return {
        "mode": "venue" if options["venue"] else "capture",
        "framing": captured.framing,
        "seed": options["seed"],
        "seconds": round(seconds, 3),
        "messages": taken,
        "messages_per_s": round(taken / seconds) if seconds else 0,
        "lines": [
            {
                "channel": "incremental",
                "line": line,
                "address": options["incremental"][line],
                "datagrams": sender.counts["datagrams"],
                "bytes": sender.counts["bytes"],
                "lost_on_purpose": faults.lost(0, line),
                "unsent": sender.counts["unreachable"],
            }
            for line, sender in enumerate(senders)
        ],
        "lost_on_all_lines": {"incremental": faults.lost_on_all_lines(0)},
        "last_seqnos": {},
    }


def _paced(
    captured: _Captured | VenueMarket, options: dict[str, Any]
) -> Iterator[tuple[int, int, bytes]]:
    # When each is due, in ns from the beginning: at the capture's pace, or at equal distances.
    first_ns = latest_ns = None
    for number, (time_ns, line, data) in enumerate(captured):
        if options["rate"] and not options["venue"]:
            due_ns = int(number * 1e9 / options["rate"])
        elif not options["speed"]:
            due_ns = 0
        else:
            first_ns = time_ns if first_ns is None else first_ns
            latest_ns = max(latest_ns or time_ns, time_ns)
            due_ns = int((latest_ns - first_ns) / options["speed"])
        yield due_ns, line, data


def _send_until(
    due_ns: int,
    waiting: list[tuple[int, int, int, bytes]],
    senders: list[DatagramSender],
) -> int:
    # Send what is due before, each at its time; return the time, which is `due_ns` or later.
    while True:
        now_ns = monotonic_ns()
        while waiting and waiting[0][0] <= now_ns:
            _, _, line, data = heapq.heappop(waiting)
            while not senders[line].send([data]):
                time.sleep(_PAUSE_S)  # the socket's queue is full
        if now_ns >= due_ns:
            return now_ns
        next_ns = min(due_ns, waiting[0][0]) if waiting else due_ns
        time.sleep(min(_PAUSE_S, max(0, next_ns - now_ns) / 1e9))
