"""`udpfast relay`: publish what a feed publishes to other hosts, until a signal ends it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from udpfast.agents.relay.relay import Relay
from udpfast.cli.options import IntRange, log_level, say_stop
from udpfast.cli.service import EXIT_TAKEN, Service
from udpfast.config import RelayConfig, RelayLine, check_relay, load_feed, parse_relay
from udpfast.core.agent import AgentRunner
from udpfast.core.clock import monotonic_ns
from udpfast.core.log import say_error, say_info, say_warning
from udpfast.core.stop import Stop
from udpfast.errors import ConfigError, NotReadyError, WriterExistsError, sentence
from udpfast.monitor.output import read_output
from udpfast.shm.instance import instance_directory, instance_hint

__all__ = ["relay", "report"]

LOOK_S = 0.1
#: Heartbeats come every 100 ms: after so many, the far end says that the relay is silent.
SILENT_MS = 1_000
#: Parity comes later than `parity_wait_ms` by what the hosts of both ends are late. On two that
#: shared their cores with others, a hole that waited for 10 ms more was given up before a twelfth
#: of what was rebuilt came, and after 23 ms before none (docs/relay.md).
HOSTS_LATE_US = 25_000


@click.command(
    epilog="""\b
Examples:
  udpfast relay feed.toml
  udpfast relay cme --lines microwave=127.0.0.1:7001,fibre=127.0.0.1:7101
  udpfast relay cme --lines microwave=127.0.0.1:7001 --budget microwave=10000000
  udpfast relay cme --lines microwave=127.0.0.1:7001,fibre=127.0.0.1:7101 --print-far > far.toml"""
)
@click.argument("source", metavar="FEED.TOML|NAME")
@click.option(
    "--lines",
    "lines_text",
    metavar="NAME=IP:PORT,...",
    help="Where each line goes: its incremental channel to this port, its snapshots to the next.",
)
@click.option("--interface", default="", help="Name or address of the interface for --lines.")
@click.option("--ttl", type=IntRange(0, 255), default=1, help="Multicast hops of --lines.")
@click.option(
    "--budget",
    metavar="NAME=BITS_PER_S,...",
    help="What a line of --lines may carry, in bits per second; the others: no limit.",
)
@click.option(
    "--parity",
    metavar="NAME=N,...",
    help="One parity datagram for N of a line of --lines; the others: none.",
)
@click.option("--heartbeat-ms", type=IntRange(1, 60_000), help="Silence until a heartbeat.")
@click.option(
    "--snapshot-ms",
    "snapshot_interval_ms",
    type=IntRange(1, 3_600_000),
    help="Milliseconds from one round of snapshots to the next.",
)
@click.option(
    "--snapshot-rate",
    "snapshot_rate_per_s",
    type=IntRange(1, 1_000_000_000),
    help="Datagrams per second that snapshot rounds take at most.",
)
@click.option("--core", type=IntRange(0, 8191), help="Processor to pin the relay to.")
@click.option(
    "--idle",
    type=click.Choice(["spin", "yield", "backoff", "sleep"]),
    help="What it does when nothing arrives.",
)
@click.option(
    "--print-far",
    is_flag=True,
    help="Print the settings of the feed at the far end, for udpfast run there, and end.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
@log_level
def relay(source: str, print_far: bool, as_json: bool, **options: Any) -> None:
    """Publish the books, tops and trades of a feed of any venue to other hosts, by Roq's protocol.

    Takes the table [relay] of FEED.TOML, whose feed `udpfast run` runs on this host; or the
    instance NAME, with --lines. At the far end `udpfast run` receives it like any other feed; what
    is in doubt here is in doubt there. With `enabled = true` in [relay], `udpfast run` relays by
    itself.

    Waits for a feed that is not there yet, and for the next one when it ends. docs/relay.md has
    more.

    Exit codes: 0 stopped; 1 the relay failed; 2 wrong settings; 3 another relay runs beside the
    feed.
    """
    name, config = _settings(source, options)
    if print_far:
        click.echo(far_settings(f"{name}-far", config), nl=False)
        return
    stopping = Stop()
    stopping.listen()
    service = Service(os.environ)
    try:
        counts = _keep_going(name, config, stopping, service)
    except WriterExistsError as error:
        service.failed(str(error))
        say_error(f"udpfast: relay of {name}: {error}")
        sys.exit(EXIT_TAKEN)
    except Exception as error:
        service.failed(sentence(error))
        raise
    report(name, counts, as_json)


def _say_life(service: Service, status: str, turns: int | None) -> None:
    # A relay is ready when it waits for its feed, too.
    now_ns = monotonic_ns()
    service.ready()
    if service.status_due(now_ns):
        service.status(status)
    service.alive(now_ns, turns)


def _keep_going(
    name: str, config: RelayConfig, stopping: Stop, service: Service
) -> dict[str, dict[str, int]]:
    """Relay until it is stopped; return what the last relay counted."""
    counts: dict[str, dict[str, int]] = {}
    ended: Relay | None = None
    waiting = False
    while not stopping.wait(0 if not waiting else LOOK_S):
        directory = _running(name)
        if directory is None:
            if not waiting:
                hint = _hint(name)
                say = say_warning if hint else say_info  # it was never there: perhaps misspelt
                say(f"udpfast: relay waits for the feed {name}{hint}")
            waiting = True
            _say_life(service, f"waits for the feed {name}", None)
            continue
        if ended is not None:
            ended.close()
            ended = None
        agent = Relay(config, directory, name, waits=True)
        runner = AgentRunner(agent, core=config.core, idle=config.idle)
        try:
            runner.start()
        except (FileNotFoundError, NotReadyError):
            waiting = True
            _say_life(service, f"waits for the feed {name}", None)
            continue
        lines = ", ".join(f"{line.name} to {line.incremental}" for line in config.lines)
        say_info(f"udpfast: relay of {name}: {lines}; session {agent.feed.publication.session_id}")
        while not runner.join(LOOK_S):
            if stopping.wait(0):
                runner.stop()
            else:
                status = f"relays {agent.read_counts()['relay']['records']:,} records"
                _say_life(service, status, runner.cycles)
        counts = agent.read_counts()
        ended, waiting = agent, False
    say_stop(stopping, f"relay of {name}")
    if ended is not None:
        ended.close()
    service.stopping()
    return counts


def _running(name: str) -> Path | None:
    # The directory of the feed, if it runs.
    try:
        directory = instance_directory(name)
        output = read_output(directory)
    except (FileNotFoundError, NotReadyError):
        return None
    return directory if output.alive and output.state == "open" else None


def _hint(name: str) -> str:
    # A name that is misspelt would be waited for in silence.
    try:
        instance_directory(name)
    except FileNotFoundError:
        return instance_hint(name)
    return ""


def _settings(source: str, options: dict[str, Any]) -> tuple[str, RelayConfig]:
    further = {
        "bits_per_s": _numbers(options.pop("budget"), "--budget", "BITS_PER_S"),
        "parity": _numbers(options.pop("parity"), "--parity", "N"),
    }
    lines = _lines(options.pop("lines_text"), options.pop("interface"), options.pop("ttl"), further)
    chosen = {key: value for key, value in options.items() if value is not None}
    if not lines and not Path(source).is_file() and not source.endswith(".toml"):
        raise click.UsageError(
            f"{source} is the name of a feed, and nothing says where its relay sends: give --lines "
            "NAME=IP:PORT,..., or instead of the name the feed's file with its table [relay]"
        )
    if Path(source).is_file():
        feed = load_feed(source)
        name, config = feed.name, feed.relay
        if lines:
            config = replace(config, lines=lines)
    else:
        if source.endswith(".toml"):
            raise ConfigError(f"{source}: no such file")
        name, config = source.removeprefix("ring:"), replace(RelayConfig(), lines=lines)
    where = source if not lines else "--lines"
    return name, check_relay(where, replace(config, enabled=True, **chosen))


def _pairs(text: str | None, option: str, value: str) -> list[tuple[str, str]]:
    # Each part in its order; a name that is there twice is refused where lines are checked.
    found = []
    for part in [] if text is None else text.split(","):
        name, equals, said = part.strip().partition("=")
        if not (name and equals and said):
            raise click.BadParameter(
                f"expected NAME={value} on both sides of each comma, found {text!r}",
                param_hint=option,
            )
        found.append((name, said))
    return found


def _numbers(text: str | None, option: str, value: str) -> dict[str, int]:
    found = {}
    for name, said in _pairs(text, option, value):
        try:
            found[name] = int(said)
        except ValueError:
            raise click.BadParameter(
                f"expected a whole number for {name}, found {said!r}", param_hint=option
            ) from None
    return found


def _lines(
    text: str | None, interface: str, ttl: int, further: dict[str, dict[str, int]]
) -> tuple[RelayLine, ...]:
    found: list[dict[str, Any]] = []
    for name, address in _pairs(text, "--lines", "IP:PORT"):
        found.append({"name": name, "incremental": address, "interface": interface, "ttl": ttl})
        found[-1] |= {key: values[name] for key, values in further.items() if name in values}
    named = {name for values in further.values() for name in values}
    unknown = named - {line["name"] for line in found}
    if unknown:
        raise click.BadParameter(
            f"expected names of --lines ({', '.join(line['name'] for line in found)}), found "
            f"{', '.join(sorted(unknown))}",
            param_hint="--budget and --parity",
        )
    return parse_relay({"lines": found}, "--lines").lines


def far_settings(name: str, config: RelayConfig) -> str:
    """Return the TOML file of the feed that receives these lines."""
    parts = [
        "# What `udpfast run` needs at the far end of a relay.",
        f'name = "{name[:32]}"',
        "",
        "[session]",
        f"inactivity_timeout_ms = {max(SILENT_MS, 10 * config.heartbeat_ms)}",
        "doubt_when_silent = true",
        "",
        "[image]  # all books at once for strategies that start later",
        "enabled = true",
    ]
    if any(line.parity for line in config.lines):
        # "auto" follows how far lines are behind others: a line that is alone has nobody's lead.
        wait_us = 1_000 * config.parity_wait_ms + HOSTS_LATE_US
        parts += [
            "",
            "[window]",
            "parity = true",
            f"lost_packet_wait_us = {wait_us}  # of a hole, until its parity has come",
        ]
    for channel in ("incremental", "snapshot"):
        for line in config.lines:
            parts += [
                "",
                f"[[{channel}.lines]]",
                f'name = "{line.name}"',
                f'address = "{getattr(line, channel)}"',
            ]
    return "\n".join(parts) + "\n"


def report(name: str, counts: dict[str, dict[str, int]], as_json: bool) -> None:
    """Say what a relay of an instance counted."""
    if as_json:
        click.echo(json.dumps(counts))
        return
    for scope, values in counts.items():
        text = ", ".join(f"{key} {value:,}" for key, value in values.items() if value)
        say_info(f"udpfast: relay of {name}: {scope}: {text or 'nothing'}")
