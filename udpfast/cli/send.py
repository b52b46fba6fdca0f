"""`udpfast send`: publish market data over UDP, recorded or simulated, or raw load."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import click
from click.core import ParameterSource

from udpfast.agents.feed.load import LoadGenerator
from udpfast.agents.market.market_event import MarketSource
from udpfast.agents.market.market_gateway import MarketGateway
from udpfast.agents.market.market_player import MarketPlayer
from udpfast.agents.market.market_recording import MarketRecording
from udpfast.cli.options import GroupedCommand, write_output
from udpfast.cli.send_capture import send_capture
from udpfast.cli.send_faults import Faults, wants_faults
from udpfast.cli.send_options import EXAMPLES, GROUPS, ROLES, with_options
from udpfast.core.clock import monotonic_ns, realtime_ns
from udpfast.core.stop import Stop
from udpfast.errors import ConfigError
from udpfast.feed.carriage import Carriage
from udpfast.feed.transmitter import Transmitter
from udpfast.net.sender import DatagramSender

__all__ = ["describe_missing", "send"]

#: Longest pause of the loop: delayed datagrams and paced snapshots are due at any time.
PAUSE_MAX_NS = 200_000

#: A sleep takes about 60 us longer than asked: shorter waits are not worth one.
PAUSE_MIN_NS = 50_000


@click.command(cls=GroupedCommand, groups=GROUPS, epilog=EXAMPLES)
@with_options
def send(**options: Any) -> None:
    """Publish market data over UDP: --market, --simulate, a CAPTURE, or raw load (--rate).

    CAPTURE is a pcap or pcapng file, also with .gz. Its datagrams are sent unchanged, each on the
    line that it was captured on. A capture of a single line is sent on every line given.

    The faults (loss, reordering, ...) are made by this command, and the same --seed repeats them.
    SIGINT and SIGTERM end it with its summary. Progress goes to stderr, except with --json.
    """
    senders: dict[str, list[DatagramSender]] = {}
    books: dict[str, Any] | None = None
    stopping = Stop()
    _check_lines(options)
    try:
        for role in ROLES:
            addresses = options[role]
            interfaces = _spread(options["interfaces"], len(addresses))
            senders[role] = [
                _sender(role, address, interface, options)
                for address, interface in zip(addresses, interfaces, strict=True)
            ]
        if not senders["incremental"]:
            raise click.UsageError("--incremental needs at least one address")
        if options["capture"] or options["venue"]:
            _check_capture(options)
            summary = send_capture(senders, options, stopping)
        elif options["market"] or options["simulate"]:
            channels = [senders["incremental"], senders["snapshot"]]
            summary, books = _send_market(channels, options, stopping)
        else:
            summary = _send_load(senders["incremental"], options, stopping)
    finally:
        for line in itertools.chain.from_iterable(senders.values()):
            line.close()
    if options["as_json"]:
        click.echo(json.dumps(summary))
    else:
        _print_summary(summary)
    if books is not None and options["books"] is not None:
        write_output(options["books"], json.dumps(books))


def _check_capture(options: dict[str, Any]) -> None:
    if options["venue"] and (options["capture"] or not options["simulate"]):
        raise click.UsageError(
            "--venue needs --simulate and takes no capture: it says whose market is simulated"
        )
    other = (
        "--venue: it is for the market of Roq"
        if options["venue"]
        else "a capture, which is sent as it is"
    )
    for name in ("market", "books") if options["venue"] else ("market", "simulate", "books"):
        if options[name]:
            raise click.UsageError(f"--{name} cannot be combined with {other}")
    if options["restart_at"] is not None:
        raise click.UsageError(f"--restart-at cannot be combined with {other}")


def _check_lines(options: dict[str, Any]) -> None:
    # What was said of lines that are not there would be dropped in silence.
    given = click.get_current_context().get_parameter_source("snapshot")
    has_snapshots = options["market"] or (options["simulate"] and not options["venue"])
    if not has_snapshots and given is ParameterSource.COMMANDLINE and options["snapshot"]:
        raise click.UsageError(
            "--snapshot is not for a venue's market: its loops go to --recovery and --definitions"
            if options["venue"]
            else "--snapshot needs --market or --simulate: a capture and raw load have no "
            "snapshots, and are sent to --incremental"
        )
    for role in ("recovery", "definitions"):
        if options[role] and not options["venue"]:
            raise click.UsageError(f"--{role} needs --venue: only a venue's market has such loops")
    if options["framing"] and not options["capture"]:
        raise click.UsageError("--framing needs a capture: it says how its datagrams are framed")
    lines = max(len(options[role]) for role in ROLES)
    names = len(options["interfaces"])
    if names not in (1, lines):
        raise click.UsageError(
            f"--interface takes one name, or one for each of the {lines} lines, found {names}"
        )


def _spread(interfaces: list[str], lines: int) -> list[str]:
    """Return the interface of each line: its own by its place, or the one that all have."""
    return interfaces * lines if len(interfaces) == 1 else interfaces[:lines]


def _sender(role: str, address: str, interface: str, options: dict[str, Any]) -> DatagramSender:
    try:
        return DatagramSender(
            address,
            interface=interface,
            ttl=options["ttl"],
            loop=not options["no_loop"],
            segment=options["segment"],
        )
    except ConfigError as error:
        raise ConfigError(f"--{role}: {error}") from None


def _send_market(
    senders: list[list[DatagramSender]], options: dict[str, Any], stopping: Stop
) -> tuple[dict[str, Any], dict[str, Any]]:
    if options["market"] and options["simulate"]:
        raise click.UsageError("choose one of --market and --simulate")
    began_ns = monotonic_ns()
    source = _open_source(options)
    loaded_s = (monotonic_ns() - began_ns) / 1e9
    impair = Faults(options) if wants_faults(options) else None
    transmitter = _transmitter(senders, options, impair)
    gateway = MarketGateway(transmitter, source.instruments)
    player = MarketPlayer(
        source,
        gateway,
        speed=options["speed"],
        rate_per_s=options["rate"] or 0.0,
        restart_after_ns=_nanoseconds(options["restart_at"]),
        events_max=options["count"],
        silence_max_ns=_nanoseconds(options["silence"]) or 0,
    )
    stopping.listen()
    seconds = _play(player, _nanoseconds(options["seconds"]), options["as_json"], stopping)
    messages = gateway.messages
    transmitter.impair = None
    _linger(transmitter, _nanoseconds(options["linger"]) or 0, stopping)
    outside = getattr(source, "outside_band", {})
    summary = {
        "mode": "market",
        "seed": options["seed"],
        "load_s": round(loaded_s, 3),
        "seconds": round(seconds, 3),
        "events": player.events,
        "finished": player.finished,
        "messages": messages,
        "messages_per_s": round(messages / seconds) if seconds else 0,
        **_sent(transmitter, impair),
        "lines": _lines(senders, options, transmitter.unsent, impair),
        "left_out": {name: left._asdict() for name, left in gateway.left_out.items()},
        "outside_band": {name: prices._asdict() for name, prices in outside.items()},
        "refused": {"events": gateway.refused, "snapshots": transmitter.cycle.refused},
        "skipped_s": round(player.skipped_ns / 1e9, 3),
    }
    return summary, gateway.books()


def _transmitter(
    senders: list[list[DatagramSender]], options: dict[str, Any], impair: Faults | None
) -> Transmitter:
    return Transmitter(
        *senders,
        session_id=options["session_id"],
        first_seqno=options["first_seqno"],
        first_snapshot_seqno=options["first_seqno"],
        revision=options["revision"],
        byteorder=options["byteorder"],
        heartbeat_interval_ns=options["heartbeat_ms"] * 1_000_000,
        snapshot_interval_ns=options["snapshot_ms"] * 1_000_000,
        snapshot_rate_per_s=options["snapshot_rate"],
        impair=impair,
    )


def _sent(transmitter: Transmitter, impair: Faults | None) -> dict[str, Any]:
    # What left, by channel.
    publication = transmitter.publication
    channels = list(enumerate(("incremental", "snapshot")))
    return {
        "sessions": transmitter.sessions,
        "last_seqnos": {
            "incremental": (publication.next_seqno - 1) % 2**32,
            "snapshot": (publication.next_snapshot_seqno - 1) % 2**32,
        },
        "channels": {name: publication.counters(channel) for channel, name in channels},
        "lost_on_all_lines": {
            name: impair.lost_on_all_lines(channel) if impair is not None else 0
            for channel, name in channels
        },
    }


def _open_source(options: dict[str, Any]) -> MarketSource:
    if options["market"]:
        return MarketRecording(options["market"], price_band=options["price_band"] or None)
    from udpfast.agents.market.market_simulation import SimulatedMarket

    return SimulatedMarket(options["seed"], events=None, levels=options["levels"] // 2)


def _play(player: MarketPlayer, limit_ns: int | None, quiet: bool, stopping: Stop) -> float:
    """Run the player to its end, the limit, or a signal; return the seconds it took."""
    transmitter = player.gateway.transmitter
    began_ns = now_ns = monotonic_ns()
    report_ns = began_ns + 1_000_000_000
    while not player.finished and (limit_ns is None or now_ns - began_ns < limit_ns):
        if stopping.is_set():
            click.echo("stopped; a last round of snapshots is still being sent", err=True)
            break
        transmitter.utc_offset_ns = realtime_ns() - now_ns
        player.do_work(now_ns)
        _say(transmitter.events)
        now_ns = monotonic_ns()
        _pause(player.wait_ns(now_ns))
        now_ns = monotonic_ns()
        if not quiet and now_ns >= report_ns:
            report_ns += 1_000_000_000
            click.echo(
                f"{(now_ns - began_ns) / 1e9:6.1f} s, {player.market_ns / 1e9:.1f} s "
                f"of the market, {player.events:,} events",
                err=True,
            )
    return (now_ns - began_ns) / 1e9


def _linger(transmitter: Transmitter, duration_ns: int, stopping: Stop) -> None:
    # At least until what the faults delayed has left; a second signal ends the wait.
    now_ns = monotonic_ns()
    stop_ns = now_ns + duration_ns
    while (now_ns < stop_ns or transmitter.delayed()) and not stopping.is_hurried():
        transmitter.utc_offset_ns = realtime_ns() - now_ns
        transmitter.do_work(now_ns)
        _say(transmitter.events)
        _pause(PAUSE_MAX_NS)
        now_ns = monotonic_ns()


def _say(events: deque[str]) -> None:
    while events:
        click.echo(f"udpfast: {events.popleft()}", err=True)


def _pause(wait_ns: int) -> None:
    if wait_ns > PAUSE_MIN_NS:
        time.sleep(min(wait_ns, PAUSE_MAX_NS) / 1e9)


def _send_load(
    senders: list[DatagramSender], options: dict[str, Any], stopping: Stop
) -> dict[str, Any]:
    if options["rate"] is None:
        raise click.UsageError("choose --market, --simulate, a CAPTURE, or raw load with --rate")
    if wants_faults(options):
        raise click.UsageError(
            "faults need --market, --simulate or a capture: raw load is sent without faults"
        )
    session_id = options["session_id"]
    load = LoadGenerator(
        senders,
        rate_per_s=options["rate"],
        size_bytes=options["size"],
        count=options["count"],
        session_id=random.randrange(1 << 16) if session_id is None else session_id,
        first_seqno=options["first_seqno"],
    )
    began_ns = now_ns = monotonic_ns()
    limit_ns = _nanoseconds(options["seconds"])
    done = False
    carriage = Carriage("load", senders)
    said: deque[str] = deque()
    stopping.listen()
    while not done and (limit_ns is None or now_ns - began_ns < limit_ns):
        if stopping.is_set():
            click.echo("stopped", err=True)
            break
        left_ns = 1_000_000_000 if limit_ns is None else limit_ns - (now_ns - began_ns)
        # A signal is seen between two runs, so a run is short.
        done = load.run(min(left_ns, 100_000_000))
        if sentence := carriage.look(load.unsent, {}):
            said.append(sentence)
            _say(said)
        now_ns = monotonic_ns()
    seconds = (monotonic_ns() - began_ns) / 1e9
    return {
        "mode": "load",
        "seconds": round(seconds, 3),
        "messages": load.sent,
        "messages_per_s": round(load.sent / seconds) if seconds else 0,
        "late_ns_max": load.late_ns_max,
        "last_seqnos": {"incremental": (load.next_seqno - 1) % 2**32},
        "lines": _lines([senders], options, [load.unsent], None),
    }


def _lines(
    senders: list[list[DatagramSender]],
    options: dict[str, Any],
    unsent: Sequence[list[int]],
    impair: Faults | None,
) -> list[dict[str, Any]]:
    return [
        {
            "channel": name,
            "line": line,
            "address": options[name][line],
            "datagrams": sender.counts["datagrams"],
            "bytes": sender.counts["bytes"],
            "lost_on_purpose": impair.lost(channel, line) if impair is not None else 0,
            "unsent": unsent[channel][line] + sender.counts["unreachable"],
        }
        for channel, name in enumerate(("incremental", "snapshot")[: len(senders)])
        for line, sender in enumerate(senders[channel])
    ]


def _print_summary(summary: dict[str, Any]) -> None:
    for sentence in describe_missing(summary):
        click.echo(sentence)
    click.echo(
        f"{summary['messages']:,} messages in {summary['seconds']} s "
        f"({summary['messages_per_s']:,}/s)"
    )
    if "sessions" in summary:
        click.echo(f"sessions {', '.join(map(str, summary['sessions']))}; seed {summary['seed']}")
    for line in summary["lines"]:
        click.echo(
            f"{line['channel']} line {line['line']} to {line['address']}: "
            f"{line['datagrams']:,} datagrams, {line['lost_on_purpose']:,} lost on purpose, "
            f"{line['unsent']:,} not sent"
        )
    for channel, seqno in summary["last_seqnos"].items():
        click.echo(f"{channel} last seqno {seqno}")


def describe_missing(summary: dict[str, Any]) -> Iterator[str]:
    """Say what of a market was not published, and why: a sentence each."""
    for name, outside in summary.get("outside_band", {}).items():
        yield (
            f"{name}: {outside['levels']:,} levels outside {outside['low']:.10g} .. "
            f"{outside['high']:.10g} left out ({outside['rows']:,} changes, "
            f"{outside['messages']:,} whole updates)"
        )
    for name, left in summary.get("left_out", {}).items():
        yield (
            f"{name}: up to {left['levels_most']:,} levels more than a message can carry were "
            f"left out, {left['levels']:,} at the end ({left['changes']:,} changes)"
        )
    refused = summary.get("refused", {})
    for what, count in refused.items():
        if count:
            yield f"{count:,} {what} refused: they do not fit a message"
    if summary.get("skipped_s"):
        yield f"silences of the market cut short by {summary['skipped_s']:,} s"


def _nanoseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e9)
