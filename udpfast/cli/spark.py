"""`udpfast spark run` and `report`: from what was kept to tables and a page."""

from __future__ import annotations

import datetime
import importlib
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct, field
from msgspec.structs import asdict

from udpfast.cli.journal import find_journal
from udpfast.cli.options import FiniteRange, IntRange
from udpfast.cli.verbs import SmallGroup
from udpfast.errors import ConfigError, FormatError
from udpfast.export.manifest import export_identity
from udpfast.export.schema import TABLES
from udpfast.log.journal_state import journal_identity
from udpfast.page.words import counted
from udpfast.spark.session import SparkMissingError

if TYPE_CHECKING:
    from udpfast.spark.bronze import Bronze
    from udpfast.spark.gold import Gold
    from udpfast.spark.jobs import Job, Parameters
    from udpfast.spark.pipeline import Ran
    from udpfast.spark.progress import Progress

__all__ = ["spark"]

EXAMPLES = """\b
Examples:
  udpfast spark run tutorial /data/report
  udpfast spark run composite:algo /data/report --job bus --job seen
  udpfast spark run /data/export /data/report --job bars --job races --bar-s 1
  udpfast spark run hdfs:///udpfast/export hdfs:///udpfast/report --master yarn
  udpfast spark report /data/report --json
"""


@click.group(cls=SmallGroup, epilog=EXAMPLES)
def spark() -> None:
    """Analyse journals and exports with Spark: losses, line races, latency, bars, books, a bus."""


@spark.command(epilog=EXAMPLES)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("out")
@click.option("--master", default="local[*]", show_default=True, help="Spark master to run on.")
@click.option("--memory", default="4g", show_default=True, help="Memory of a local master.")
@click.option("--quick", is_flag=True, help="For small data: compile less and start sooner.")
@click.option("--job", "jobs", multiple=True, help="Run only this job; may be given several times.")
@click.option(
    "--bar-s",
    type=IntRange(1, 86_400),
    default=60,
    show_default=True,
    help="Seconds of one bar.",
)
@click.option("--at", help="Time of the book: 2026-08-21T09:30Z, or UNIX ns; by default the end.")
@click.option(
    "--bucket-ms",
    type=IntRange(1),
    default=100,
    show_default=True,
    help="Lead-lag: milliseconds of one bucket.",
)
@click.option(
    "--lags",
    type=IntRange(1, 1000),
    default=10,
    show_default=True,
    help="Lead-lag: buckets to look ahead and behind.",
)
@click.option(
    "--from",
    "start",
    help="Use only records published from this time on, in the same form, as export does.",
)
@click.option("--until", "end", help="Use only records published before this time.")
@click.option("--silver", is_flag=True, help="Also write the typed tables.")
@click.option(
    "--stream", is_flag=True, help="Process only what is new since the last run with --stream."
)
@click.option(
    "--every-s",
    type=FiniteRange(min=0.1),
    help="With --stream: keep running until interrupted, one batch every so many seconds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
def run(sources: tuple[str, ...], out: str, as_json: bool, **options: Any) -> None:
    """Run the jobs over each SOURCE and write tables and report.html into OUT.

    SOURCE is an export (a directory that `udpfast export` wrote, here or anywhere that Spark can
    read) or a journal (its name or directory). A journal is first exported to its own place below
    OUT/export; with the prefix journal: every job reads the journal itself, as it is now. Give
    several journals of one feed in the order in which they were recorded. Results of earlier runs
    in OUT are replaced. Exit code 1 if a job failed, or if a journal is damaged so that records are
    missing; the others are used.
    """
    _need("pyarrow", "bokeh", "pandas", "pyspark")
    from udpfast.spark.gold import Gold
    from udpfast.spark.report import read_report, text_tables

    if options["every_s"] is not None and not options["stream"]:
        raise click.UsageError("--every-s needs --stream")
    began = time.monotonic()
    losses = Losses()
    found = list(run_pipeline(sources, out, losses, **options))
    page = write_page(Gold(out), None)
    report = read_report(Gold(out))
    if as_json:
        click.echo(json.dumps(report | {"page": page}))
    else:
        for line in text_tables(report):
            click.echo(line)
        took_s = time.monotonic() - began
        click.echo(f"\n{counted(len(found), 'job')} in {took_s:.1f} s; the report: {page}")
    if losses.damaged or any(ran.failure for ran in found):
        sys.exit(1)


@spark.command(epilog="Example: udpfast spark report /data/report --html week.html")
@click.argument("out")
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), help="File to write the page to."
)
@click.option(
    "--rows",
    type=IntRange(1),
    default=50,
    show_default=True,
    help="Rows to show of each table.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
def report(out: str, html: Path | None, rows: int, as_json: bool) -> None:
    """Show the results of a run in OUT, and draw its page again; needs no Java."""
    _need("pyarrow", "bokeh")
    from udpfast.spark.gold import Gold
    from udpfast.spark.report import read_report, text_tables

    gold = Gold(out)
    found = read_report(gold, rows)
    page = write_page(gold, html)
    if as_json:
        click.echo(json.dumps(found | {"page": page}))
        return
    for line in text_tables(found, rows):
        click.echo(line)
    click.echo(f"\nthe report: {page}")


class Losses(Struct):
    """What damage took from the sources, and what their tables do not say.

    Attributes
    ----------
    doubts : list of str
        A sentence for the page on each loss that no table says.
    damaged : int
        Records that damage kept from the tables, or took the names of.
    """

    doubts: list[str] = field(default_factory=list)
    damaged: int = 0


def run_pipeline(
    sources: Sequence[str],
    out: str,
    losses: Losses,
    *,
    master: str = "local[*]",
    memory: str = "4g",
    quick: bool = False,
    jobs: Sequence[str] = (),
    bar_s: int = 60,
    at: str | None = None,
    bucket_ms: int = 100,
    lags: int = 10,
    start: str | None = None,
    end: str | None = None,
    silver: bool = False,
    stream: bool = False,
    every_s: float | None = None,
) -> Iterator[Ran]:
    """Export what is not exported yet, run the jobs, write what ran; yield each that did."""
    from udpfast.core.moment import unix_ns
    from udpfast.spark import pipeline
    from udpfast.spark.bronze import Bronze
    from udpfast.spark.jobs import Parameters
    from udpfast.spark.line_names import read_inputs, read_lines
    from udpfast.spark.progress import Progress
    from udpfast.spark.session import open_session

    chosen = pipeline.chosen_jobs(jobs)
    at_ns, start_ns, end_ns = (
        None if text is None else unix_ns(text, what)
        for text, what in ((at, "at"), (start, "from"), (end, "until"))
    )
    parameters = Parameters(bar_s, at_ns, bucket_ms, lags)
    found = find_sources(sources, out, losses)
    about: dict[str, Any] = {
        "sources": list(sources),
        "of": {"roots": [list(each) for each in found], "start_ns": start_ns, "end_ns": end_ns},
        "parameters": asdict(parameters),
        "master": master,
        "doubts": losses.doubts,
    }
    session = open_session(master, memory=memory, quick=quick)
    roots = tuple(root for root, _ in found)
    bronze = Bronze(session, roots, start_ns=start_ns, end_ns=end_ns)
    bronze.check()
    if not jobs and not stream:  # what a stream waits for may come yet
        chosen = [job for job in chosen if not job.needs or bronze.may_have(job.needs)]
    about["lines"], about["inputs"] = read_lines(roots), read_inputs(roots)
    pipeline.begin_run(out, about, stream=stream)
    done = []
    with Progress(session) as progress:
        if silver:
            yield from _follow(progress, pipeline.write_silver(bronze, out), ["silver"] * 10)
        for ran in _run_jobs(progress, bronze, out, chosen, parameters, stream, every_s):
            done.append(ran)
            yield ran
    about["finished"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    about["spark"] = session.version
    names = {job.name for job in chosen}
    pipeline.write_run(out, [ran for ran in done if ran.name in names], about)


def _run_jobs(
    progress: Progress,
    bronze: Bronze,
    out: str,
    chosen: Sequence[Job],
    parameters: Parameters,
    stream: bool,
    every_s: float | None,
) -> Iterator[Ran]:
    from udpfast.spark import pipeline

    if stream:
        steps = pipeline.stream_jobs(bronze, out, chosen, parameters, every_s=every_s)
        return _follow(progress, steps, ["streams"] * len(chosen))
    steps = pipeline.run_jobs(bronze, out, chosen, parameters)
    return _follow(progress, steps, [job.name for job in chosen])


def _follow(progress: Progress, steps: Iterator[Ran], titles: Sequence[str]) -> Iterator[Ran]:
    # A step is under way while the one before it is handled: its title comes first.
    for title in [*titles, ""]:
        progress.title(title)
        ran = next(steps, None)
        if ran is None:
            return
        progress.say(f"udpfast: {ran.name:<16} {ran.rows:>12,} rows {ran.seconds:>8.1f} s")
        if ran.failure:
            progress.say(f"udpfast: {ran.name} failed: {ran.failure}")
        yield ran


def _identified(source: str, out: str, losses: Losses) -> tuple[str, str] | None:
    # Where the tables of a source lie, and what they are of; None: nothing is finished yet.
    from udpfast.export.manifest import read_entries
    from udpfast.spark.bronze import JOURNAL
    from udpfast.spark.manifests import manifest_doubts

    if source.startswith(JOURNAL):
        journal = find_journal(source.removeprefix(JOURNAL)).resolve()
        return f"{JOURNAL}{journal}", journal_name(journal)
    if "://" in source:
        _refuse_itself(source, out)
        losses.doubts += manifest_doubts(source)
        return source.rstrip("/"), ""
    if (Path(source) / "_manifest").is_dir():
        _refuse_itself(source, out)
        entries = read_entries(Path(source))
        if not entries:
            return None
        losses.damaged += sum(entry.missing + entry.records * entry.nameless for entry in entries)
        losses.doubts += manifest_doubts(source)
        return _resolved(source), export_identity(Path(source)) or ""
    journal = find_journal(source)
    if "://" in out:
        raise ConfigError(
            f"{source}: expected an export that Spark can read, as it does {out}: export "
            "the journal to there first"
        )
    root = Path(out).resolve() / "export" / journal_name(journal)
    return (str(root), journal_name(journal)) if export_journal(journal, root, losses) else None


def find_sources(sources: Sequence[str], out: str, losses: Losses) -> list[tuple[str, str]]:
    """Return where the tables of each source lie, and what they are of: an identity.

    A journal is exported below `out` first, to a place that nothing else has. What no table says of
    losses is added to `losses`.
    """
    from udpfast.spark.bronze import ROOTS_MAX

    found: dict[str, str] = {}
    empty: list[str] = []
    for source in sources:
        place = _identified(source, out, losses)
        if place is None:
            empty.append(source)
        else:
            found[place[0]] = place[1]
    if not found:
        raise FormatError(
            f"{', '.join(empty)}: expected records, found no finished segment: wait "
            "(record.segment_s), export again later, or let Spark read the journal itself "
            "(journal:NAME)"
        )
    if len(found) > ROOTS_MAX:
        raise ConfigError(f"there must be at most {ROOTS_MAX} sources, were {len(found)}")
    _refuse_twice(list(found))
    return list(found.items())


def journal_name(journal: Path) -> str:
    """Return the identities of a journal and its raw capture, as far as they are there."""
    names = []
    for place in (journal, journal / "raw"):
        with suppress(FileNotFoundError):
            names.append(journal_identity(place).hex())
    return "-".join(names)


def _refuse_itself(source: str, out: str) -> None:
    if _resolved(source) == _resolved(out):
        raise ConfigError(f"OUT must not be the export itself, was {out!r}")


def _refuse_twice(roots: Sequence[str]) -> None:
    # Records that two sources have would count twice: a journal and its export, say.
    from udpfast.export.manifest import read_entries
    from udpfast.spark.bronze import JOURNAL

    seen: dict[tuple[str, str], list[tuple[int, float, str]]] = {}
    for root in roots:
        if root.startswith(JOURNAL):
            names = journal_name(Path(root.removeprefix(JOURNAL))).split("-")
            spans = [(name, table, 0, math.inf) for name in names for table in TABLES]
        elif "://" in root:
            continue
        else:
            spans = [
                (entry.journal, table, entry.index, entry.end_index)
                for entry in read_entries(Path(root))
                for table in entry.tables
            ]
        for name, table, index, end_index in spans:
            for begin, end, other in seen.get((name, table), ()):
                if other != root and index < end and begin < end_index:
                    raise ConfigError(
                        f"{root} and {other} have the same records of {table} (journal {name}), "
                        "which would count twice: leave one out"
                    )
        for name, table, index, end_index in spans:
            seen.setdefault((name, table), []).append((index, end_index, root))


def _resolved(place: str) -> str:
    return place if "://" in place else str(Path(place).resolve())


def export_journal(journal: Path, root: Path, losses: Losses) -> int:
    """Export what is not exported yet, and say so; return how many parts are exported now.

    What is missing because of damage, or what nobody can say of its end, is added to `losses`.
    """
    from udpfast.export.exporter import Exporter
    from udpfast.spark.manifests import manifest_doubts

    began = time.perf_counter()
    records = parts = written = missing = nameless = 0
    exporter = Exporter(journal, root)
    for exported in exporter.run():
        parts += 1
        written += exported.written
        missing += exported.entry.missing
        nameless += exported.entry.records if exported.entry.nameless else 0
        records += exported.entry.records if exported.written else 0
    lost = exporter.lost()
    removed = sum(each.records for each in lost if each.removed)
    gone = sum(each.records for each in lost) - removed
    losses.damaged += missing + gone + nameless
    click.echo(
        f"udpfast: {journal}: {counted(written, 'part')} exported, {records:,} records, "
        f"{time.perf_counter() - began:.1f} s"
        + (f"; {missing:,} of its records are damaged" if missing else "")
        + (f"; names of {nameless:,} records are lost" if nameless else "")
        + (f"; {gone:,} records are in no segment any more" if gone else "")
        + (f"; {removed:,} were removed to make room" if removed else "")
        + ("; the segment that is still being written is left out" if exporter.unfinished else ""),
        err=True,
    )
    if reason := exporter.left_out():
        click.echo(f"udpfast: {reason}: they are left out", err=True)
    for doubt in exporter.doubts():
        losses.doubts.append(f"{doubt}.")
        click.echo(f"udpfast: {doubt}", err=True)
    if gone:
        losses.doubts.append(
            f"{journal} has {counted(gone, 'record')} in no segment any more: what they held is in "
            "no answer."
        )
    if parts:
        losses.doubts += manifest_doubts(str(root))
    return parts


def write_page(gold: Gold, path: Path | None) -> str:
    """Write the page beside the tables, or to a path; return where it is."""
    from udpfast.spark.gold import open_file_system
    from udpfast.spark.report import page

    text = page(gold).encode()
    files, folder = open_file_system(gold.out if path is None else str(path))
    name = f"{folder}/report.html" if path is None else folder
    with files.open_output_stream(name) as file:
        file.write(text)
    return f"{gold.out.rstrip('/')}/report.html" if path is None else str(path)


def _need(*modules: str) -> None:
    # The extra is large: who does not have it is told so in one line.
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise SparkMissingError(
                f"{error.name} is not installed: pip install 'udpfast[spark]' (0.9 GB)"
            ) from None
