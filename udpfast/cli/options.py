"""What click does not have: finite numbers, names of instances, help with options in groups."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from udpfast.core.endpoint import parse_endpoint
from udpfast.core.log import Level, say_info, say_warning, set_level
from udpfast.core.stop import Stop
from udpfast.errors import ConfigError, UdpfastError
from udpfast.shm.files import replacing
from udpfast.shm.instance import instance_directory, instance_hint, list_instances

__all__ = [
    "FiniteRange",
    "GroupedCommand",
    "InstanceName",
    "IntRange",
    "OutputFile",
    "Port",
    "listen_address",
    "log_level",
    "say_stop",
    "warn_of_missing",
    "write_output",
]


class IntRange(click.IntRange):
    """A range of whole numbers, with a name that people use."""

    name = "integer"


class FiniteRange(click.FloatRange):
    """A range of finite numbers: click's own lets nan and infinity through."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Refuse anything but a finite number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"expected a finite number, found {value}", param, ctx)
        return number


class Port(IntRange):
    """A UDP port, of an option that is repeated for each."""

    def __init__(self) -> None:
        super().__init__(1, 65_535)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Refuse several in one, and say how several are given."""
        ports = str(value).split(",")
        if len(ports) > 1 and param is not None:
            again = " ".join(f"{param.opts[0]} {port.strip()}" for port in ports if port.strip())
            self.fail(f"expected one port, found {value!r}: repeat the option, {again}", param, ctx)
        return int(super().convert(value, param, ctx))


class OutputFile(click.Path):
    """A file that a verb writes when it is done: one that it cannot write is refused at once."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, readable=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Refuse what cannot be written; nothing is made, and what is there stays as it is."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        file = Path(os.path.realpath(path))
        try:
            file.stat()
            allowed = os.access(file, os.W_OK)
        except FileNotFoundError:
            if not file.parent.is_dir():
                self.fail(f"{path}: there is no directory {file.parent}", param, ctx)
            allowed = os.access(file.parent, os.W_OK | os.X_OK)
        except OSError as error:
            self.fail(f"{path}: {error.strerror}", param, ctx)
        if not allowed:
            self.fail(f"{path}: may not be written", param, ctx)
        return path


def write_output(path: Path, text: str) -> None:
    """Write the file of an `OutputFile`.

    Raises
    ------
    OSError
        It names the file. If its directory may be written, what was there stays as it was.
    """
    try:
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        error.filename = str(path)
        raise


def listen_address(text: str) -> tuple[str, int]:
    """Return address and port of the option --listen.

    Raises
    ------
    ConfigError
        It is no address; names the option.
    """
    try:
        return parse_endpoint(text)
    except ConfigError as error:
        raise ConfigError(f"--listen: {error}") from None


def _set_level(context: click.Context, parameter: click.Parameter, value: str) -> None:
    set_level(Level[value.upper()])


def log_level(command: Callable[..., None]) -> Callable[..., None]:
    """Give a verb that runs long the option --log-level."""
    return click.option(
        "--log-level",
        type=click.Choice([level.name.lower() for level in Level]),
        default="info",
        show_default=True,
        expose_value=False,
        callback=_set_level,
        help="Write lines of this level and worse to stderr.",
    )(command)


def say_stop(stopping: Stop, name: str) -> None:
    """Log that a verb which runs long ends, if a signal asked it to, and which one."""
    if stopping.cause:
        say_info(f"udpfast: {name}: stops: {stopping.cause}")


class InstanceName(click.types.StringParamType):
    """The name of an instance, which the shell completes with those of this host."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the instances whose names begin so, live and dead."""
        try:
            names = [path.name for path in list_instances()]
        except OSError:  # of a directory that this user may not list
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def warn_of_missing(names: Sequence[str]) -> None:
    """Warn of instances that are not there: perhaps not yet, or their names are misspelt."""
    for name in names:
        try:
            instance_directory(name)
        except FileNotFoundError:
            say_warning(f"udpfast: {name}: no such instance so far{instance_hint(name)}")
        except (OSError, UdpfastError):
            continue  # whoever reads it says what is wrong


class GroupedCommand(click.Command):
    """A command whose help lists its options under headings.

    Parameters
    ----------
    groups : mapping of str to sequence of str
        The names of the parameters under each heading.
    """

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, group by group; `--help` and what has no group come last."""
        rows = {
            parameter.name or "": record
            for parameter in self.get_params(ctx)
            if (record := parameter.get_help_record(ctx)) is not None
        }
        for heading, names in self.groups.items():
            with formatter.section(heading):
                formatter.write_dl([rows.pop(name) for name in names])
        with formatter.section("Other options"):
            formatter.write_dl(list(rows.values()))
