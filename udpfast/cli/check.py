"""`udpfast check`: what a feed's file means, and what of this host is not as it should be."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click

from udpfast.config import Setting, describe, load_feed
from udpfast.host import Finding, HostUse, inspect_host
from udpfast.monitor.findings import feed_use, inspect_feed

__all__ = ["check", "print_findings"]


@click.command(epilog="Example: udpfast check feed.toml")
@click.argument("path", metavar="[FEED.TOML]", required=False)
@click.option(
    "--all",
    "with_rest",
    is_flag=True,
    help="Also list every setting and the checks that passed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on the last line.")
def check(path: str | None, with_rest: bool, as_json: bool) -> None:
    """List what on this host would stop or slow down the feed of FEED.TOML.

    Then list the settings that the file makes or, with --all, every setting and its reason. Without
    a file, check only the host. Exit code 1 if the feed cannot run as its file asks; findings that
    only cost time, or datagrams under load, do not change the exit code.
    """
    config = load_feed(path) if path else None
    settings = list(describe(config)) if config else []
    use = feed_use(config) if config else HostUse()
    findings = inspect_host(use=use) + inspect_feed(config)
    faulty = any(finding.fault and finding.ok is False for finding in findings)
    if as_json:
        click.echo(json.dumps(_as_json(settings, findings)))
    else:
        print_findings(findings, use, with_rest)
        _print_settings(settings, with_rest)
        if not with_rest:
            fine = sum(finding.ok is not False for finding in findings)
            defaults = sum(setting.is_default for setting in settings)
            more = f" and {defaults} settings at their defaults" if settings else ""
            click.echo(f"\n--all also shows {fine} findings that are fine or not judged{more}")
    sys.exit(faulty)


def _as_json(settings: list[Setting], findings: Sequence[Finding]) -> dict[str, Any]:
    shown = ("name", "want", "have", "ok", "fault", "effect", "reason")
    return {
        "settings": {setting.key: setting.value for setting in settings},
        "host": [{name: getattr(finding, name) for name in shown} for finding in findings],
    }


def _print_settings(settings: list[Setting], with_rest: bool) -> None:
    shown = [setting for setting in settings if with_rest or not setting.is_default]
    if not shown:
        return
    click.echo("\nsettings:")
    width = max(len(setting.key) for setting in shown)
    for setting in shown:
        origin = "default" if setting.is_default else "set"
        click.echo(
            f"  {setting.key:<{width}} = {json.dumps(setting.value):<22} "
            f"# {origin}: {setting.reason}"
        )


def print_findings(findings: Sequence[Finding], use: HostUse, with_rest: bool = True) -> None:
    """Write the faults, then what could be better, each with its effect, and what to do about it.

    Parameters
    ----------
    findings : sequence of Finding
    use : HostUse
        For the command that sets what can be set.
    with_rest : bool
        Write what is fine, and what cannot be judged, too.
    """
    width = max(len(finding.name) for finding in findings)
    wrong = [finding for finding in findings if finding.ok is False]
    faults = [finding for finding in wrong if finding.fault]
    better = [finding for finding in wrong if not finding.fault]
    for heading, part in (("faults", faults), ("could be better", better)):
        if part:
            click.echo(f"{heading}:")
        for finding in part:
            click.echo(f"  {finding.name:<{width}}  {finding.have}, want {finding.want}")
            click.echo(f"      {finding.effect}")
    if with_rest:
        _print_rest(findings, width)
    click.echo(
        f"{len(faults)} faults, {len(better)} of {len(findings)} findings could be better"
        if wrong
        else f"nothing is wrong: {len(findings)} findings"
    )
    if any(finding.changes for finding in wrong):
        click.echo(
            f"this command, run as root, sets what can be set at run time:\n  {_apply_command(use)}"
        )


def _print_rest(findings: Sequence[Finding], width: int) -> None:
    click.echo("fine:")
    for finding in findings:
        if finding.ok:
            click.echo(f"  {finding.name:<{width}}  {finding.have}")
    click.echo("not judged:")
    for finding in findings:
        if finding.ok is None:
            reason = finding.reason or finding.want
            click.echo(f"  {finding.name:<{width}}  {finding.have}: {reason}")


def _apply_command(use: HostUse) -> str:
    """Return the command that sets for a feed what can be set at run time."""
    words = ["udpfast tune apply"]
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
