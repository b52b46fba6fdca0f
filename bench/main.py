"""`udpfast bench`: list and run benchmarks, compare two results, draw a report."""

from __future__ import annotations

import datetime
import importlib
import json
import os
import pkgutil
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TextIO

import click

from .compare import compare
from .host import Fingerprint, jitter, take_fingerprint
from .progress import Progress
from .result import Row, Writer, read_result
from .table import print_comparisons, print_rows
from .trials import Benchmark, Settings, Unavailable

__all__ = ["bench", "find_benchmarks", "run_all"]

ROUNDS = 9
ROUNDS_QUICK = 3
#: Share of the time that a machine may take away before a benchmark waits for a quieter moment.
NOISY_SHARE = 0.10
NOISY_WAIT_S = 15.0
JITTER_S = 0.4

RESULT = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(
    epilog="""\b
Examples:
  udpfast bench list
  udpfast bench run --quick
  udpfast bench compare old.jsonl new.jsonl
  udpfast bench report new.jsonl
"""
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
            names = ("name", "question", "topology", "seconds")
            click.echo(json.dumps({name: getattr(benchmark, name) for name in names}))
        else:
            click.echo(f"{click.style(benchmark.name, bold=True)}: {benchmark.question}\n")
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
@click.option("--json", "as_json", is_flag=True, help="The file's lines on stdout, not a table.")
def run(
    names: tuple[str, ...],
    quick: bool,
    rounds: int | None,
    cores: str | None,
    out: Path,
    as_json: bool,
) -> None:
    """Run the benchmarks NAME, or all; write a file of JSON lines and print tables.

    \b
    Examples:
      udpfast bench run --quick
      udpfast bench run drain ring --rounds 15 --cores 2,3

    Exit code 1 if a benchmark failed; the others have run all the same.
    """
    found = find_benchmarks()
    if unknown := [name for name in names if name not in found]:
        raise click.UsageError(f"expected names of {', '.join(found)}; found {', '.join(unknown)}")
    chosen = {name: found[name] for name in names} if names else found
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
    click.echo(f"{path}", err=as_json)
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


def run_all(
    benchmarks: dict[str, Benchmark],
    settings: Settings,
    fingerprint: Fingerprint,
    writer: Writer,
) -> tuple[list[tuple[str, str]], list[Row]]:
    """Run benchmarks one by one; return what failed with its reason, and all rows."""
    failures: list[tuple[str, str]] = []
    rows: list[Row] = []
    writer.write("host", asdict(fingerprint) | {"cores_used": list(settings.cores)})
    progress = Progress(benchmarks, settings)
    began = time.monotonic()
    for name, benchmark in benchmarks.items():

        def fail(reason: str, name: str = name) -> None:
            failures.append((name, reason))
            trace = traceback.format_exc() if sys.exception() else ""
            writer.write("failure", {"benchmark": name, "reason": reason, "trace": trace})

        def note(words: str, name: str = name) -> None:
            writer.write("note", {"benchmark": name, "note": words})
            progress.say(f"{name}: {words}")

        progress.begin(name)
        writer.write("jitter", {"before": name, **quiet_moment(settings, progress)})
        own = replace(settings, progress=progress.step, note=note, fail=fail)
        try:
            for row in benchmark.run(own):
                row.check()
                writer.row(row)
                rows.append(row)
        except Unavailable as reason:
            note(f"left out: {reason}")
        except KeyboardInterrupt:
            raise
        except Exception as error:
            fail(f"{type(error).__name__}: {error}")
        progress.end(name)
    writer.write("jitter", {"before": "", **jitter(tuple(set(settings.cores)), JITTER_S)})
    writer.write("end", {"seconds": round(time.monotonic() - began, 1), "took": progress.took})
    return failures, rows


def find_benchmarks(package: str = __package__) -> dict[str, Benchmark]:
    """Return every `BENCHMARK` of the modules `bench_<thing>.py`, by name.

    One that cannot even be imported is among them, and says so when it runs.
    """
    found = {}
    folder = importlib.import_module(package).__path__
    for module in sorted(info.name for info in pkgutil.iter_modules(folder)):
        if not module.startswith("bench_"):
            continue
        try:
            benchmark = getattr(importlib.import_module(f"{package}.{module}"), "BENCHMARK", None)
        except Exception as error:
            benchmark = broken(module.removeprefix("bench_"), error)
        if isinstance(benchmark, Benchmark):
            found[benchmark.name] = benchmark
    return found


def broken(name: str, error: Exception) -> Benchmark:
    """Return a benchmark that fails with the reason why it could not be imported."""
    reason = ImportError(f"{type(error).__name__}: {error}")

    def run_it(settings: Settings) -> Iterator[Row]:
        raise reason
        yield

    return Benchmark(name, "(cannot be imported)", str(reason), run_it, 0.0)


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


def quiet_moment(settings: Settings, progress: Progress) -> dict[str, Any]:
    """Wait, not for ever, until the machine lets its threads run; return the last look at it."""
    deadline = time.monotonic() + NOISY_WAIT_S
    while True:
        seen = jitter(tuple(sorted(set(settings.cores))), JITTER_S)
        if seen["lost_share"] <= NOISY_SHARE or time.monotonic() > deadline:
            return seen
        progress.step(f"waiting: the machine takes {seen['lost_share']:.0%} of the time away")
