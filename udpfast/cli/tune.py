"""`udpfast tune`: the knobs of this host, one row each; set what can be set, and undo it."""

from __future__ import annotations

import click

from udpfast.host.command import main

__all__ = ["tune"]


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def tune(arguments: tuple[str, ...]) -> None:
    """Compare this host with what a low-latency receiver wants; `--help` says more."""
    main(arguments, program="udpfast tune")
