"""What both ends of `udpfast wire` share: options, and how a result is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from udpfast.cli.options import IntRange
from udpfast.cli.output import say_unwritten
from udpfast.core.endpoint import endpoint_text, parse_endpoint, parse_sender
from udpfast.net.bypass import STACKS
from udpfast.net.options import TIMESTAMPS

__all__ = ["loop_options", "parse_address", "stack_options", "was_shown"]

DEFAULT_PORT = 7007


def loop_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a verb --timestamps and --core."""
    command = click.option("--core", type=IntRange(0), help="Core for the loop.")(command)
    return click.option(
        "--timestamps",
        type=click.Choice(TIMESTAMPS),
        default="auto",
        show_default=True,
        help="Who stamps datagrams: the NIC where it can, the kernel, or only this process.",
    )(command)


def stack_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a verb --bypass, --bypass-library and --metrics."""
    command = click.option("--metrics", metavar="IP:PORT", help="Serve Prometheus while it runs.")(
        command
    )
    command = click.option(
        "--bypass-library",
        "library",
        metavar="PATH",
        default="",
        help="Path of the stack's library, if it is not found.",
    )(command)
    return click.option(
        "--bypass",
        "stack",
        type=click.Choice(["none", *STACKS]),
        default="none",
        show_default=True,
        help="Start under this preloaded network stack.",
    )(command)


def was_shown(text: str, *files: tuple[Callable[[Path], None], Path | None]) -> bool:
    """Print a result and write those of its files that were asked for, whatever fails.

    Says what could not be written, and returns False then.

    Raises
    ------
    BrokenPipeError
        Nobody reads the output any more; the files are written.
    """
    failure: OSError | None = None
    try:
        click.echo(text)
    except OSError as error:
        failure = error
    written = [_was_written(write, path) for write, path in files]
    if isinstance(failure, BrokenPipeError):
        raise failure
    if failure is not None:
        say_unwritten(failure)
    return failure is None and all(written)


def _was_written(write: Callable[[Path], None], path: Path | None) -> bool:
    if path is None:
        return True
    try:
        write(path)
    except OSError as error:
        click.echo(f"udpfast: {path} was not written: {error.strerror or error}", err=True)
        return False
    return True


def parse_address(text: str) -> str:
    """Return IP[:PORT] with a port: a listener's own if it has none.

    Raises
    ------
    ConfigError
        It is no such address.
    """
    host, port = parse_sender(text)
    made = endpoint_text(host, port or DEFAULT_PORT)
    parse_endpoint(made)
    return made
