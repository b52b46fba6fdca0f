"""For the documentation site: put the help of every command on its page, as a terminal shows it."""

from collections.abc import Iterator
from typing import Any

import click

from udpfast.cli.main import cli

PAGE = "reference/command-line.md"


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Append the help of all commands to the page of the command line."""
    if page.file.src_uri != PAGE:
        return markdown
    return "\n".join([markdown, *sections(cli, click.Context(cli, info_name="udpfast"), 2)])


def sections(command: click.Command, context: click.Context, depth: int) -> Iterator[str]:
    """Yield the section of a command, and then the sections of its subcommands."""
    yield f"{'#' * depth} {context.command_path}\n"
    yield f"```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from sections(
                below, click.Context(below, info_name=name, parent=context), min(depth + 1, 4)
            )
