"""`udpfast tune`: the knobs of this host, one row each; set what can be set, and undo it."""

from __future__ import annotations

import click

from udpfast.host.command import help_text, main

__all__ = ["tune"]


PROGRAM = "udpfast tune"


class _Tune(click.Command):
    # It parses its options without click, which a host need not have.
    def get_help(self, ctx: click.Context) -> str:
        return help_text(PROGRAM)


@click.command(
    cls=_Tune,
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def tune(arguments: tuple[str, ...]) -> None:
    """Compare this host with what a low-latency receiver wants, and set what can be set."""
    main(arguments, program=PROGRAM)
