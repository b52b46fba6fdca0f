"""What the programs of `udpfast lab` share: each is its module's `main`, its docstring the help."""

from __future__ import annotations

import functools
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, ParamSpec

import click

__all__ = ["by_seeds", "memory", "program", "repeat"]

P = ParamSpec("P")

#: Characters of one failed seed's text.
TEXT_MAX = 2000


def program(function: Callable[P, object]) -> click.Command:
    """Make a function the command of its module; it exits with 1 if something true is returned."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        sys.exit(1 if function(*args, **kwargs) else 0)

    module = sys.modules[function.__module__]
    return click.command(_name(module.__name__), help=_help(module.__doc__ or ""))(run)


def by_seeds(
    module: str,
    check: Callable[..., object],
    seeds: int,
    rows: Collection[str] = (),
    before: Callable[[], object] | None = None,
) -> click.Command:
    """Return the command that runs a module's check for many seeds.

    Parameters
    ----------
    module : str
        Its `__name__`: that of the command, and its docstring is the help.
    check : callable
        Runs one seed and raises if something is wrong, AssertionError if it can say what. May
        return counts: they are summed up.
    seeds : int
        So many without `--seeds`.
    rows : collection of str
        What `--row` takes; `check` gets it as its second argument, if it is given.
    before : callable, optional
        What is done once, before the first seed.
    """

    @click.option("--seeds", type=click.IntRange(1), default=seeds, show_default=True)
    @click.option("--seed", type=int, default=1, show_default=True, help="The first one.")
    def run(seeds: int, seed: int, row: str | None = None) -> None:
        if before is not None:
            before()
        named = {} if row is None else {"row": row}
        totals: Counter[str] = Counter()
        failed = 0
        for each in range(seed, seed + seeds):
            try:
                found = check(each, *named.values())
            except Exception as error:
                failed += 1
                told = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
                click.echo(f"seed {each}: {told[:TEXT_MAX]}")
                click.echo(repeat(module, **named, seeds=1, seed=each))
            else:
                totals.update(found if isinstance(found, dict) else {})
        counts = "".join(f", {count:,} {name}" for name, count in totals.items())
        click.echo(f"{seeds} seeds from {seed}, {failed} failed{counts}")
        sys.exit(1 if failed else 0)

    if rows:
        run = click.option("--row", type=click.Choice(list(rows)), help="These faults alone.")(run)
    return click.command(_name(module), help=_help(sys.modules[module].__doc__ or ""))(run)


def memory() -> str | None:
    """Return the directory in memory, for files that no disk may slow; None: there is none."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def repeat(module: str, *arguments: str, **options: Any) -> str:
    """Return the line that says how to repeat what has failed."""
    words = (f"--{name} {value}" for name, value in options.items())
    return " ".join(["repeat: udpfast lab", _name(module), *arguments, *words])


def _name(module: str) -> str:
    return module.rpartition(".")[2].replace("_", "-")


def _help(text: str) -> str:
    # What is indented is an example or a drawing: click must not reflow it.
    return re.sub(r"\n\n(?= )", "\n\n\b\n", text)
