"""`udpfast check`: what a feed's file means, and what of this host is not as it should be."""

from __future__ import annotations

import json
import sys

import click

from udpfast.cli.bypass import inspect_stacks
from udpfast.cli.findings import (
    feed_use,
    inspect_agent,
    inspect_lines,
    inspect_record,
    print_findings,
)
from udpfast.config import Setting, describe, load_feed
from udpfast.host import HostUse, inspect_host

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
    use = feed_use(config) if config else HostUse()
    findings = inspect_host(use=use) + inspect_stacks(config)
    if config:
        findings += [inspect_agent(config), *inspect_record(config), *inspect_lines(config)]
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
