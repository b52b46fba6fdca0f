"""`udpfast bench`: list and run benchmarks, compare two results, draw a report."""

from __future__ import annotations

import datetime
import json
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TextIO

import click

from udpfast.cli.verbs import SmallGroup
from udpfast.errors import FormatError

from .compare import compare, host_differences
from .goals import goal_table, replace_part
from .host import Fingerprint, take_fingerprint
from .result import Result, Writer, joined, read_result
from .runner import find_benchmarks, run_all
from .table import print_comparisons, print_rows
from .trials import Settings

__all__ = ["bench"]

ROUNDS = 9
ROUNDS_QUICK = 3

RESULT = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(
    cls=SmallGroup,
    epilog="""\b
Examples:
  udpfast bench list
  udpfast bench run --quick
  udpfast bench compare old.jsonl new.jsonl
  udpfast bench report new.jsonl
""",
)
def bench() -> None:
    """Measure udpfast and its peers on this host, and compare what was measured."""


@bench.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_(as_json: bool) -> None:
    """Say of each benchmark what it asks, and draw who sends what to whom.

    \b
    Example:
      udpfast bench list
    """
    for benchmark in find_benchmarks().values():
        if as_json:
            names = ("name", "question", "topology", "seconds", "by_name")
            click.echo(json.dumps({name: getattr(benchmark, name) for name in names}))
        else:
            only = " (by name only)" if benchmark.by_name else ""
            click.echo(f"{click.style(benchmark.name, bold=True)}{only}: {benchmark.question}\n")
            click.echo(
                "\n".join("    " + line for line in benchmark.topology.strip("\n").split("\n"))
            )
            click.echo()


@bench.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--quick", is_flag=True, help="Only see that all of it works: short, 3 rounds.")
@click.option("--rounds", type=click.IntRange(1, 1000), help=f"Turns of each variant  [{ROUNDS}]")
@click.option("--cores", metavar="A,B", help="The sender's and the receiver's  [the first two]")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("bench/results"),
    show_default=True,
    help="Folder of the results, one file per run.",
)
@click.option("--report", "with_report", is_flag=True, help="Draw the report and its PNGs as well.")
@click.option("--json", "as_json", is_flag=True, help="The file's lines on stdout, not a table.")
def run(
    names: tuple[str, ...],
    quick: bool,
    rounds: int | None,
    cores: str | None,
    out: Path,
    with_report: bool,
    as_json: bool,
) -> None:
    """Run the benchmarks NAME, or all but those that run by name only; write JSON lines and tables.

    \b
    Examples:
      udpfast bench run --quick
      udpfast bench run drain ring --rounds 15 --cores 2,3

    Exit code 1 if a benchmark failed; the others have run all the same.
    """
    found = find_benchmarks()
    if unknown := [name for name in names if name not in found]:
        raise click.UsageError(f"expected names of {', '.join(found)}; found {', '.join(unknown)}")
    names = names or tuple(name for name, benchmark in found.items() if not benchmark.by_name)
    chosen = {name: found[name] for name in names}
    settings = Settings(quick, rounds or (ROUNDS_QUICK if quick else ROUNDS), parse_cores(cores))
    fingerprint = take_fingerprint()
    out.mkdir(parents=True, exist_ok=True)
    path = out / (file_name(fingerprint) + ".jsonl")
    with path.open("w") as file:
        targets: list[TextIO] = [file, sys.stdout] if as_json else [file]
        failures, rows = run_all(chosen, settings, fingerprint, Writer(*targets))
    if not as_json:
        print_rows(rows)
    for name, reason in failures:
        click.echo(f"failed: {name}: {reason}", err=True)
    written = [path, *(draw([path], None, path.with_suffix("")) if with_report else [])]
    for made in written:
        click.echo(f"{made}", err=as_json)
    sys.exit(1 if failures else 0)


@bench.command("compare")
@click.argument("before", type=RESULT)
@click.argument("after", type=RESULT)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per row.")
def compare_(before: Path, after: Path, as_json: bool) -> None:
    """Compare two results row by row, with verdicts that know the noise.

    \b
    Example:
      udpfast bench compare bench/results/old.jsonl bench/results/new.jsonl

    docs/benchmarks.md says by which rule. Exit code 1 if something of udpfast got slower beyond
    the noise, 2 if nothing could be compared.
    """
    found = compare(read_result(before), read_result(after))
    if as_json:
        for comparison in found:
            click.echo(json.dumps(comparison.to_json()))
    else:
        print_comparisons(found)
    slower = [item for item in found if item.own and item.verdict == "slower"]
    if not [item for item in found if not item.verdict.startswith("not comparable")]:
        click.echo("nothing could be compared", err=True)
        sys.exit(2)
    sys.exit(1 if slower else 0)


@bench.command()
@click.argument("results", nargs=-1, required=True, type=RESULT, metavar="RESULT...")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write the page  [beside the last RESULT]",
)
@click.option(
    "--png",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to write the figures to as well, one PNG each.",
)
@click.option("--figure", "figures", multiple=True, help="Only these PNGs; by name.")
def report(
    results: tuple[Path, ...], html: Path | None, png: Path | None, figures: tuple[str, ...]
) -> None:
    """Write a self-contained HTML page of tables and figures; needs udpfast[bench].

    \b
    Examples:
      udpfast bench report bench/results/new.jsonl
      udpfast bench report bench/results/new.jsonl --png docs/images

    Of several results of one host, a row that was measured again replaces the older one.
    """
    for made in draw(results, html, png, figures):
        click.echo(f"{made}")


@bench.command("goals")
@click.argument("results", nargs=-1, required=True, type=RESULT, metavar="RESULT...")
@click.option(
    "--into",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A Markdown page whose table of goals to replace.",
)
def goals_(results: tuple[Path, ...], into: Path | None) -> None:
    """Say which goals were met, as a Markdown table.

    \b
    Examples:
      udpfast bench goals bench/results/new.jsonl
      udpfast bench goals bench/results/new.jsonl --into docs/benchmarks.md

    Of several results of one host, a row that was measured again replaces the older one.
    """
    table = goal_table(read_of_one_host(results))
    if into is None:
        click.echo(table, nl=False)
        return
    try:
        replace_part(into, table)
    except FormatError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{into}")


def draw(
    results: Sequence[Path],
    html: Path | None,
    png: Path | None,
    figures: Collection[str] = (),
) -> list[Path]:
    """Write the page of results, and figures into a folder; return what was written."""
    try:
        from .drawing import save_png
        from .report import write_report
    except ModuleNotFoundError as error:
        missing = f"{error.name} is not installed: pip install 'udpfast[bench]'"
        raise click.ClickException(missing) from None
    read = read_of_one_host(results)
    page = html or results[-1].with_suffix(".html")
    plots = write_report(joined(read), page)
    if unknown := set(figures) - {plot.name for plot in plots}:
        names = ", ".join(plot.name for plot in plots)
        raise click.UsageError(f"--figure: expected {names}; found {', '.join(sorted(unknown))}")
    if png is None:
        return [page]
    png.mkdir(parents=True, exist_ok=True)
    chosen = [plot for plot in plots if not figures or plot.name in figures]
    return [page, *(save_png(plot, png) for plot in chosen)]


def read_of_one_host(paths: Sequence[Path]) -> list[Result]:
    """Return results that may stand side by side."""
    read = [read_result(path) for path in paths]
    for other in read[1:]:
        if differences := host_differences(read[0].host, other.host):
            raise click.UsageError(f"{other.path}: of another host: {'; '.join(differences)}")
    return read


def parse_cores(words: str | None) -> tuple[int, int]:
    """Return the two cores to use: those asked for, or the first two that are allowed."""
    allowed = sorted(os.sched_getaffinity(0))
    if words is None:
        return allowed[0], allowed[min(1, len(allowed) - 1)]
    parts = words.split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise click.UsageError(f"--cores: expected two numbers like 0,1, found {words!r}")
    first, second = (int(part) for part in parts)
    if missing := {first, second} - set(allowed):
        raise click.UsageError(f"--cores: expected cores of {allowed}, found {sorted(missing)}")
    return first, second


def file_name(fingerprint: Fingerprint) -> str:
    """Return the moment and the commit: names sort by time."""
    moment = datetime.datetime.fromisoformat(fingerprint.date).strftime("%Y%m%dT%H%M%SZ")
    return "-".join(filter(None, [moment, fingerprint.commit[:8]]))
