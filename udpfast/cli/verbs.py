"""Groups of commands that are imported only when they are used."""

from __future__ import annotations

import gc
import importlib
import os
import select
import sys
from typing import Any

import click

from udpfast.cli.output import OUTPUT_CLOSED
from udpfast.errors import similar

__all__ = ["SmallGroup", "Verbs"]

#: Characters of a command's line in a group's help: all of its first sentence.
_LINE_MAX = 300


class SmallGroup(click.Group):
    """A group that suggests commands for an unknown one, and shows their whole first sentences."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is asked for; for an unknown one, suggest a similar name."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            near = similar(args[0], known)
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        with formatter.section("Verbs"):
            formatter.write_dl(self._rows(ctx))

    def _rows(self, ctx: click.Context) -> list[tuple[str, str]]:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        return [(name, one.get_short_help_str(_LINE_MAX)) for name, one in commands if one]


class Verbs(SmallGroup):
    """A group whose commands lie in a file each: start-up stays fast.

    Parameters
    ----------
    *args, **kwargs
        Those of `click.Group`.
    lines : dict of str to str
        Each command, and its line in the help.
    file : str
        Where one lies: module and name in it, with `{}` for the command's.
    """

    def __init__(self, *args: Any, lines: dict[str, str], file: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lines = lines
        self._file = file

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands, in the order in which a newcomer meets them."""
        return list(self._lines)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's file and return it."""
        if cmd_name not in self._lines:
            return None
        module, _, name = self._file.format(cmd_name.replace("-", "_")).partition(":")
        gc.disable()  # modules are no garbage: looking for some in them is a tenth of the start
        try:
            command = getattr(importlib.import_module(module), name)
        finally:
            gc.freeze()
            gc.enable()
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; if its output is closed early (`| head`), end with 141, as others do."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            if not _output_is_closed():
                raise
        # What the buffers still hold goes nowhere.
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, sys.stdout.fileno())
        sys.exit(OUTPUT_CLOSED)

    def _rows(self, ctx: click.Context) -> list[tuple[str, str]]:
        return list(self._lines.items())  # without importing any


def _output_is_closed() -> bool:
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):  # none, or one of a test
        return False
    poll = select.poll()
    poll.register(output, select.POLLOUT)
    return any(state & (select.POLLERR | select.POLLHUP) for _, state in poll.poll(0))
