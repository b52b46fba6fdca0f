"""`udpfast check`: what a feed's file means, and what of this host is not as it should be."""

from __future__ import annotations

import json
import sys

import click

from udpfast.agents.lines import line_address, receive_options
from udpfast.cli.bypass import inspect_stacks
from udpfast.config import FeedConfig, Setting, describe, load_feed
from udpfast.core.host import Finding, inspect_host
from udpfast.net.line import open_receiver

__all__ = ["check"]


@click.command(epilog="Example: udpfast check feed.toml")
@click.argument("path", metavar="[FEED.TOML]", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")
def check(path: str | None, as_json: bool) -> None:
    """Print the resolved settings of FEED.TOML with reasons, then what the host lacks.

    Without a file only the host is looked at. Exit code 1 if a finding is not as it should be.
    """
    config = load_feed(path) if path else None
    settings = list(describe(config)) if config else []
    findings = inspect_host() + inspect_stacks(config) + (inspect_lines(config) if config else [])
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
                        }
                        for finding in findings
                    ],
                }
            )
        )
    else:
        if settings:
            _print_settings(settings)
        _print_findings(findings)
    sys.exit(any(finding.ok is False for finding in findings))


def inspect_lines(config: FeedConfig) -> list[Finding]:
    """Open every line's socket for a moment; say which options were not granted, and why."""
    findings = []
    options = receive_options(config)
    for channel in ("incremental", "snapshot"):
        for line in getattr(config, channel).lines:
            name = f"{channel}.{line.name} {line.address}"
            try:
                sock, results = open_receiver(line_address(line), options)
            except OSError as error:
                findings.append(
                    Finding(
                        name,
                        "a socket",
                        str(error),
                        False,
                        "This line cannot be received (or is, by a process that runs already).",
                    )
                )
                continue
            sock.close()
            findings += [
                Finding(
                    f"{name} {result.name}",
                    result.asked,
                    result.got,
                    not result.reason,
                    f"{result.reason}.",
                )
                for result in results
            ]
    return findings


def _print_settings(settings: list[Setting]) -> None:
    width = max(len(setting.key) for setting in settings)
    for setting in settings:
        origin = "default" if setting.is_default else "set"
        click.echo(
            f"{setting.key:<{width}} = {json.dumps(setting.value):<22} # {origin}: {setting.reason}"
        )
    click.echo("")


def _print_findings(findings: list[Finding]) -> None:
    for finding in findings:
        verdict = {True: "ok", False: "NOT", None: "n/a"}[finding.ok]
        click.echo(f"{verdict:<4} {finding.name}: want {finding.want}, have {finding.have}")
        if finding.ok is False:
            click.echo(f"     {finding.effect}")
