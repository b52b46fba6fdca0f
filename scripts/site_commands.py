"""For the documentation site: put the help of every command on its page, as a terminal shows it."""

from collections.abc import Iterator
from typing import Any

import click

from udpfast.cli.main import cli

PAGE = "reference/command-line.md"
#: Its verbs have more help than all others together.
LAB_PAGE, LAB_VERBS = "reference/command-line-lab.md", ("lab", "bench")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Append the help of the commands to a page of the command line."""
    if page.file.src_uri not in (PAGE, LAB_PAGE):
        return markdown
    context = click.Context(cli, info_name="udpfast")
    of_lab = page.file.src_uri == LAB_PAGE
    parts = [] if of_lab else [section(cli, context, 2)]
    for name in cli.list_commands(context):
        if (name in LAB_VERBS) is of_lab:
            parts += below(cli, context, name, 3)
    return "\n".join([markdown, *parts])


def section(command: click.Command, context: click.Context, depth: int) -> str:
    """Return the section of a command."""
    help_text = command.get_help(context)
    return f"{'#' * depth} {context.command_path}\n\n```text\n{help_text}\n```\n"


def below(group: click.Group, context: click.Context, name: str, depth: int) -> Iterator[str]:
    """Yield the section of a command of a group, and then those of its subcommands."""
    command = group.get_command(context, name)
    assert command is not None
    inner = click.Context(command, info_name=name, parent=context)
    yield section(command, inner, depth)
    if isinstance(command, click.Group):
        for each in command.list_commands(inner):
            yield from below(command, inner, each, min(depth + 1, 4))
