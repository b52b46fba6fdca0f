"""`udpfast send CAPTURE`, `--venue`: datagrams unchanged, through a bad network if asked for."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from udpfast.agents.feed.replay_lines import guess_channels, guess_lines, recognise_capture
from udpfast.agents.market.exchanges import VENUE_MARKETS
from udpfast.agents.market.venue_market import VenueMarket
from udpfast.cli.send_faults import Faults, wants_faults
from udpfast.core.clock import monotonic_ns
from udpfast.core.endpoint import parse_endpoint
from udpfast.core.stop import Stop
from udpfast.net.pcap import CaptureReader
from udpfast.net.sender import DatagramSender
from udpfast.wire.framing import Framing

__all__ = ["send_capture"]

#: Longest sleep: what was delayed on purpose is due at any time.
_PAUSE_S = 0.0002

#: Between two lines that say how far it is.
_REPORT_NS = 1_000_000_000

_VENUE_RATE_PER_S = 1_000.0

#: `--seconds` are over, and what was due by then is sent to its end, if it is not later than this:
#: only a host that is far too slow ends a market early, and its last datagrams heal what was lost.
_LATE_NS = 1_000_000_000

#: What lines are for: those of a capture or of changes come first, then a market's loops.
_ROLES = ("incremental", "recovery", "definitions")


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


class _Lines:
    """Where the datagrams go: the lines of all roles, one behind the other.

    Attributes
    ----------
    names : list of (str, int)
        Role and place of each.
    senders : list of DatagramSender
    of : list of list of int
        The lines of each line of a capture, or of a market.
    """

    def __init__(
        self, captured: _Captured | VenueMarket, senders: dict[str, list[DatagramSender]]
    ) -> None:
        self.names = [(role, place) for role in _ROLES for place in range(len(senders[role]))]
        self.senders = [senders[role][place] for role, place in self.names]
        own = range(len(senders["incremental"]))
        if captured.lines not in (1, len(own)):
            raise click.UsageError(
                f"--incremental needs one address for each of the capture's {captured.lines} "
                f"lines, found {len(own)}"
            )
        self.of = [list(own)] if captured.lines == 1 else [[line] for line in own]
        loops = captured.loops if isinstance(captured, VenueMarket) else ()
        for role in _ROLES[1:]:
            if len(senders[role]) > loops.count(role):
                raise click.UsageError(
                    f"--{role} takes at most {loops.count(role)} addresses here, "
                    f"found {len(senders[role])}"
                )
        for at, role in enumerate(loops):
            there = len(senders[role])
            place = loops[:at].count(role) % there if there else 0
            self.of.append([self.names.index((role, place))] if there else [])

    def faulty(self, line: int) -> tuple[int, int]:
        """Return what `Faults` knows a line by."""
        role, place = self.names[line]
        return (0, place) if role == _ROLES[0] else (1, line)

    def counted(self, addresses: dict[str, Any], faults: Faults) -> list[dict[str, Any]]:
        """Return what became of each line."""
        return [
            {
                "channel": role,
                "line": place,
                "address": addresses[role][place],
                "datagrams": sender.counts["datagrams"],
                "bytes": sender.counts["bytes"],
                "lost_on_purpose": faults.lost(*self.faulty(line)),
                "unsent": sender.counts["unreachable"],
            }
            for line, ((role, place), sender) in enumerate(
                zip(self.names, self.senders, strict=True)
            )
        ]


class _Watch:
    """How far it is, said each second, and whether a signal ends it.

    Attributes
    ----------
    taken : int
        Datagrams so far.
    """

    def __init__(self, began_ns: int, stopping: Stop, *, quiet: bool) -> None:
        self.taken = 0
        self._began_ns, self._stopping, self._quiet = began_ns, stopping, quiet
        self._report_ns = began_ns + _REPORT_NS

    def stops(self, now_ns: int) -> bool:
        if not self._quiet and now_ns >= self._report_ns:
            self._report_ns += _REPORT_NS
            seconds = (now_ns - self._began_ns) / 1e9
            click.echo(f"{seconds:6.1f} s, {self.taken:,} datagrams", err=True)
        return self._stopping.is_set()


def send_capture(
    senders: dict[str, list[DatagramSender]], options: dict[str, Any], stopping: Stop
) -> dict[str, Any]:
    """Send it to the lines of each role until its end or a signal; return the summary."""
    captured: _Captured | VenueMarket = (
        VENUE_MARKETS[options["venue"]](
            options["seed"],
            rate_per_s=options["rate"] or _VENUE_RATE_PER_S,
            seconds=options["seconds"],
        )
        if options["venue"]
        else _Captured(options["capture"], options["framing"])
    )
    lines = _Lines(captured, senders)
    faults = Faults(options, lambda datagram: (datagram, datagram))
    spoilt = wants_faults(options)
    waiting: list[tuple[int, int, int, bytes]] = []
    order = itertools.count()
    market = captured if isinstance(captured, VenueMarket) else None
    began_ns = start_ns = now_ns = monotonic_ns()
    lingers = False
    limit = options["count"] or None
    limit_ns = None if options["seconds"] is None else int(options["seconds"] * 1e9)
    watch = _Watch(began_ns, stopping, quiet=options["as_json"])
    stopping.listen()
    for after_ns, line, data in itertools.islice(_paced(captured, options), limit):
        if limit_ns is not None and after_ns > limit_ns and market is None:
            break
        now_ns = _send_until(start_ns + after_ns, waiting, lines.senders, watch)
        if stopping.is_set():
            click.echo("stopped", err=True)
            break
        if market is not None and market.ended and not lingers:
            # Its last datagrams take their full time, however late the first of them is.
            lingers, start_ns = True, now_ns - after_ns
        if limit_ns is not None and not lingers and now_ns - began_ns > limit_ns + _LATE_NS:
            late_s = (now_ns - began_ns - after_ns) / 1e9
            click.echo(
                f"stopped after {(now_ns - began_ns) / 1e9:.0f} s; the market was {late_s:.1f} s "
                "behind its schedule (host too slow)",
                err=True,
            )
            if market is None:
                break
            market.end()
            limit_ns = None
        for to in lines.of[line]:
            arrivals = (
                faults.pass_through(*lines.faulty(to), [data], now_ns)
                if spoilt and not lingers
                else [(now_ns, data)]
            )
            for at_ns, each in arrivals:
                heapq.heappush(waiting, (at_ns, next(order), to, each))
        watch.taken += line == 0 or captured.lines > 1
    while waiting and not stopping.is_hurried():
        now_ns = _send_until(waiting[0][0], waiting, lines.senders)
    seconds = (now_ns - began_ns) / 1e9
    return {
        "mode": "venue" if options["venue"] else "capture",
        "framing": captured.framing,
        "seed": options["seed"],
        "seconds": round(seconds, 3),
        "messages": watch.taken,
        "messages_per_s": round(watch.taken / seconds) if seconds else 0,
        "end_ns": None if market is None else market.end_ns,
        "lines": lines.counted(options, faults),
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
    watch: _Watch | None = None,
) -> int:
    # Send what is due before, each at its time; return the time: `due_ns` or later, unless `watch`
    # stops.
    while True:
        now_ns = monotonic_ns()
        while waiting and waiting[0][0] <= now_ns:
            _, _, line, data = heapq.heappop(waiting)
            while not senders[line].send([data]):
                time.sleep(_PAUSE_S)  # the socket's queue is full
        stops = watch is not None and watch.stops(now_ns)
        if now_ns >= due_ns or stops:
            return now_ns
        next_ns = min(due_ns, waiting[0][0]) if waiting else due_ns
        time.sleep(min(_PAUSE_S, max(0, next_ns - now_ns) / 1e9))
