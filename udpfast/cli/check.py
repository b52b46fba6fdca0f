"""`udpfast check`: what a feed's file means, and what of this host is not as it should be."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import click

from udpfast.config import Setting, describe, load_feed
from udpfast.host import Finding, HostUse, inspect_host
from udpfast.monitor.findings import feed_use, inspect_feed

__all__ = ["check", "print_findings"]


@click.command(epilog="Example: udpfast check feed.toml")
@click.argument("path", metavar="[FEED.TOML]", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")
def check(path: str | None, as_json: bool) -> None:
    """Print the resolved settings of FEED.TOML with reasons, then what the host lacks.

    Without a file only the host is looked at. Exit code 1 if a finding is not as it should be.
    """
    config = load_feed(path) if path else None
    settings = list(describe(config)) if config else []
    use = feed_use(config) if config else HostUse()
    findings = inspect_host(use=use) + inspect_feed(config)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "settings": {setting.key: setting.value for setting in settings},
                    "host": [
                        {
                            "name": finding.name,
                            "want": finding.want,
                            "have": finding.have,
                            "ok": finding.ok,
                            "effect": finding.effect,
                            "reason": finding.reason,
                        }
                        for finding in findings
                    ],
                }
            )
        )
    else:
        if settings:
            _print_settings(settings)
        print_findings(findings, use)
    sys.exit(any(finding.ok is False for finding in findings))


def _print_settings(settings: list[Setting]) -> None:
    width = max(len(setting.key) for setting in settings)
    for setting in settings:
        origin = "default" if setting.is_default else "set"
        click.echo(
            f"{setting.key:<{width}} = {json.dumps(setting.value):<22} # {origin}: {setting.reason}"
        )
    click.echo("")


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
            f"time, this sets:\n  {_apply_command(use)}"
        )
    else:
        click.echo(f"\nnone of {len(findings)} findings could be better")


def _apply_command(use: HostUse) -> str:
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
