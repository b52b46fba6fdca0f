"""What of a host is not as a feed wants it: looked at for one feed, and written for people."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from udpfast.agents.lines import line_address, receive_options
from udpfast.config import FeedConfig, LineConfig
from udpfast.core.endpoint import parse_endpoint
from udpfast.errors import ConfigError, UdpfastError
from udpfast.host import Finding, HostUse
from udpfast.net.line import open_receiver
from udpfast.net.multicast import resolve_interface, routed_interface
from udpfast.shm.instance import journal_directory

__all__ = ["feed_use", "inspect_agent", "inspect_lines", "inspect_record", "print_findings"]


def feed_use(config: FeedConfig) -> HostUse:
    """Return how a feed uses the host: its core, its interfaces, its sockets."""
    agent, receive = config.agent, config.receive
    found = (interface_name(line) for _, line in _lines(config))
    return HostUse(
        cores=() if agent.core is None else (agent.core,),
        # Datagrams that never leave the host meet no NIC.
        interfaces=tuple(dict.fromkeys(name for name in found if name not in {"", "lo"})),
        rcvbuf_bytes=receive.rcvbuf_bytes,
        busy_poll=receive.busy_poll_us > 0,
        prefer_busy_poll=receive.prefer_busy_poll,
        gro=receive.gro,
        fifo=agent.fifo_priority > 0 and agent.idle == "spin",
    )


def interface_name(line: LineConfig) -> str:
    """Return the interface by which a line comes; "" if the kernel does not say."""
    host, port = parse_endpoint(line.address)
    try:
        if line.interface:
            return resolve_interface(line.interface).name
        return routed_interface(host, port).name
    except (ConfigError, OSError):
        return ""


def inspect_agent(config: FeedConfig) -> Finding:
    """Look whether the loop's core is one that it can have."""
    core = config.agent.core
    allowed = sorted(os.sched_getaffinity(0))
    have = "unpinned" if core is None else str(core)
    if core is not None and core not in allowed:
        have += f", not allowed (of {', '.join(map(str, allowed))})"
    return Finding(
        "agent.core",
        "a core that this process may use",
        have,
        core in allowed,
        "The scheduler moves a loop that is not pinned, which then finds its caches cold.",
    )


def inspect_record(config: FeedConfig) -> list[Finding]:
    """Look whether the recorder, if there is one, can make its journal where it is to go."""
    if not config.record.enabled:
        return []
    name, want = "record.directory", "a directory that this user may write in"
    effect = "The recorder cannot begin, and is tried again and again; nothing is kept."
    try:
        directory = journal_directory(config.record.directory or config.name)
    except FileNotFoundError as error:
        directory = Path(error.filename)
    except (UdpfastError, OSError) as error:
        return [Finding(name, want, str(error), False, effect)]
    while not directory.exists():
        directory = directory.parent
    found = directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)
    have = str(directory) if found else f"{directory}, which it may not"
    return [Finding(name, want, have, found, effect)]


def inspect_lines(config: FeedConfig) -> list[Finding]:
    """Open every line's socket for a moment; say which options were not granted, and why."""
    findings = []
    options = receive_options(config)
    for channel, line in _lines(config):
        name = f"{channel}.{line.name} {line.address}"
        try:
            sock, results = open_receiver(line_address(line), options)
        except OSError as error:
            effect = "This line cannot be received (or is, by a process that runs already)."
            findings.append(Finding(name, "a socket", str(error), False, effect))
            continue
        sock.close()
        findings += [
            Finding(
                f"{name} {result.name}",
                result.asked,
                result.got,
                not result.reason,
                f"{result.reason}." if result.reason else "",
            )
            for result in results
        ]
    return findings


def print_findings(findings: Sequence[Finding], use: HostUse) -> None:
    """Write what could be better, with its effect, then the rest, then what to do about it."""
    width = max(len(finding.name) for finding in findings)
    wrong = [finding for finding in findings if finding.ok is False]
    if wrong:
        click.echo("could be better:")
    for finding in wrong:
        click.echo(f"  {finding.name:<{width}}  {finding.have}, want {finding.want}")
        click.echo(f"      {finding.effect}")
    click.echo("fine:")
    for finding in findings:
        if finding.ok:
            click.echo(f"  {finding.name:<{width}}  {finding.have}")
    click.echo("not judged:")
    for finding in findings:
        if finding.ok is None:
            reason = finding.reason or finding.want
            click.echo(f"  {finding.name:<{width}}  {finding.have}: {reason}")
    if wrong:
        click.echo(
            f"\n{len(wrong)} of {len(findings)} findings could be better; what can be set at run "
            f"time, this sets:\n  {apply_command(use)}"
        )
    else:
        click.echo(f"\nnone of {len(findings)} findings could be better")


def apply_command(use: HostUse) -> str:
    """Return the command that sets for a feed what can be set at run time."""
    words = ["scripts/tune_host.sh apply"]
    if use.cores:
        words.append(f"--rx-cpus {','.join(map(str, use.cores))}")
    if use.interfaces:
        words.append(f"--iface {','.join(use.interfaces)}")
    flags = {
        "--busy-poll": use.busy_poll,
        "--prefer-busy-poll": use.prefer_busy_poll,
        "--gro": use.gro,
        "--fifo": use.fifo,
    }
    return " ".join([*words, *(flag for flag, wanted in flags.items() if wanted)])


def _lines(config: FeedConfig) -> Iterator[tuple[str, LineConfig]]:
    for channel in ("incremental", "snapshot"):
        for line in getattr(config, channel).lines:
            yield channel, line
