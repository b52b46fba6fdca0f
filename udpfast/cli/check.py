"""`udpfast check`: what a feed's file means, and what of this host is not as it should be."""

from __future__ import annotations

import json
import sys

import click

from udpfast.config import describe, load_feed
from udpfast.core.host import inspect_host

__all__ = ["check"]


@click.command(epilog="Example: udpfast check feed.toml")
@click.argument("path", metavar="[FEED.TOML]", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")
def check(path: str | None, as_json: bool) -> None:
    """Print the resolved settings of FEED.TOML with reasons, then what the host lacks.

    Without a file only the host is looked at. Exit code 1 if a finding is not as it should be.
    """
    settings = list(describe(load_feed(path))) if path else []
    findings = inspect_host()
    if as_json:
        click.echo(json.dumps({
            "settings": {setting.key: setting.value for setting in settings},
            "host": [
                {"name": finding.name, "want": finding.want, "have": finding.have,
                 "ok": finding.ok, "effect": finding.effect} for finding in findings],
        }))
    else:
        if settings:
            _print_settings(settings)
        _print_findings(findings)
    sys.exit(any(finding.ok is False for finding in findings))
