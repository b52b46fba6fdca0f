"""`udpfast export`: a journal's finished segments into Parquet."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from udpfast.cli.export_file import FORMATS, NAMELESS, export_file
from udpfast.cli.journal import find_journal, unknown_text
from udpfast.cli.options import FiniteRange, IntRange
from udpfast.client.unpublished import describe_unpublished
from udpfast.core.moment import unix_ns
from udpfast.core.optional import load_optional
from udpfast.core.stop import Stop
from udpfast.errors import ConfigError, FormatError
from udpfast.export.exporter import Exported, Exporter, Lost
from udpfast.export.schema import FROM_ALL, TABLES
from udpfast.export.segments import is_closed, journal_parts
from udpfast.export.wanted import Wanted
from udpfast.log.journal_span import Place, check_part
from udpfast.log.verify import unknown_losses

__all__ = ["export"]


@click.command(epilog="Example: udpfast export tutorial /data/tutorial --follow")
@click.argument("journal")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", *FORMATS]),
    default="parquet",
    show_default=True,
    help="parquet: tables in DIRECTORY; another one: a file of that name, which this writes.",
)
@click.option("--symbol", "symbols", multiple=True, help="Only updates of this symbol, and doubts.")
@click.option(
    "--exchange", "exchanges", multiple=True, help="Only updates of this exchange, and doubts."
)
@click.option(
    "--from",
    "start",
    metavar="TIME",
    help="Only records published from then on: ISO 8601 with its zone, or UNIX ns. Books begin "
    "empty then: for whole books begin at the session's start.",
)
@click.option("--until", "end", metavar="TIME", help="Only records published before then.")
@click.option(
    "--size-unit",
    type=FiniteRange(min=0.0, min_open=True),
    default=1.0,
    show_default=True,
    help="With --format dbn: what a size of 1 is, because DBN's sizes are whole numbers.",
)
@click.option(
    "--table",
    "tables",
    type=click.Choice(list(TABLES)),
    multiple=True,
    help="Export only this table; may be given several times.",
)
@click.option(
    "--feed", default="", help="Value of the column `feed`; by default the instance's name."
)
@click.option(
    "--payloads", is_flag=True, help="Keep each record's payload in the table `messages`."
)
@click.option(
    "--replace",
    is_flag=True,
    help="Replace what another journal exported here under the same name.",
)
@click.option(
    "--threads",
    type=IntRange(1, 64),
    default=1,
    show_default=True,
    help="Threads that compress at the same time; leave cores for the feed.",
)
@click.option(
    "--schema",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="An SBE schema: also make tables of its messages.",
)
@click.option(
    "--framing",
    default="",
    help="With --schema: the feed's framing, if a record holds a whole datagram.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Keep exporting what is recorded until the recorder closes the journal.",
)
@click.option(
    "--look-s",
    type=FiniteRange(min=0.01),
    default=1.0,
    show_default=True,
    help="With --follow: seconds between two checks for new segments.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
def export(
    journal: str,
    directory: Path,
    tables: tuple[str, ...],
    schema: Path | None,
    framing: str,
    follow: bool,
    look_s: float,
    as_json: bool,
    form: str,
    symbols: tuple[str, ...],
    exchanges: tuple[str, ...],
    start: str | None,
    end: str | None,
    size_unit: float,
    **options: Any,
) -> None:
    """Turn the finished segments of JOURNAL (a name, or a directory) into tables in DIRECTORY.

    Each table is a directory (DIRECTORY/messages, DIRECTORY/trades, ...) of Parquet files by date,
    stream and session. Existing files are not touched, and a file appears only when it is
    complete. A segment is finished when it is full or old enough (record.segment_s), or when the
    recorder has ended.

    With --format dbn or hftbacktest, DIRECTORY is the file to write: of one table (dbn), or of one
    instrument's levels and trades (hftbacktest).

    Exit code 1 if records, or their names, are missing because the journal is damaged; all others
    are exported. Records that the recorder removed to make room are no damage. So it is if there is
    nothing to export of a symbol, exchange or time: then DIRECTORY stays free for another choice.
    """
    load_optional("pyarrow", "export")
    found = find_journal(journal)
    wanted = _wanted(found, symbols, exchanges, start, end, follow)
    if form != "parquet":
        if follow or schema is not None or options["replace"] or options["payloads"]:
            raise click.UsageError(
                f"--format {form} takes none of --follow, --schema, --replace and --payloads"
            )
        missing, whole = export_file(form, found, directory, tables, wanted, size_unit)
        _end(missing, found, "could not be read", whole)
        return
    sbe = None
    if framing and schema is None:
        raise ConfigError(
            "--framing needs --schema: it says how the schema's messages lie in a record"
        )
    if schema is not None:
        from udpfast.export.sbe_tables import SbeTables

        sbe = SbeTables(schema, framing)
    made = tables or tuple(name for name in TABLES if not (wanted and name in FROM_ALL))
    exporter = Exporter(found, directory, tables=made, sbe=sbe, wanted=wanted, **options)
    stopping = Stop()
    if follow:
        stopping.listen()
    began_ns = time.monotonic_ns()
    summary = _Summary(directory)
    while True:
        closed = is_closed(exporter.journal)  # before the pass: then there is nothing behind it
        before = summary.parts
        for exported in exporter.run(dead=not follow):
            summary.add(exported)
            if stopping.is_set():
                break
        last = not follow or closed or stopping.wait(look_s)
        if last or summary.parts > before:
            summary.tell_lost(exporter.lost())
        if last:
            break
    for doubt in exporter.doubts():
        click.echo(f"udpfast: {doubt}", err=True)
    later = follow or exporter.unfinished
    empty = bool(wanted) and not later and not summary.has_rows(wanted)
    if not empty and {"levels", "orders"} & set(made) and _begins_later(exporter.journal, wanted):
        click.echo(
            "udpfast: books begin empty at --from, without levels and orders from before: begin at "
            "the session's start for whole books",
            err=True,
        )
    summary.tell_unknown(unknown_losses(exporter.journal))
    summary.report(time.monotonic_ns() - began_ns, as_json)
    if "races" in tables and not (exporter.journal / "raw").is_dir():
        click.echo(
            f"udpfast: {exporter.journal} has no raw capture, which races are made of; "
            'record.what = "both" keeps the datagrams, too, from the next run on',
            err=True,
        )
    if reason := exporter.left_out():
        click.echo(f"udpfast: {reason}: they are left out", err=True)
    if exporter.unfinished and not follow:
        click.echo(
            "udpfast: skipped the segment that is still being written: export again when its feed "
            "has stopped, or has begun another (record.segment_s), or use --follow",
            err=True,
        )
    if empty:
        click.echo(f"udpfast: {exporter.journal} has no such rows{wanted}", err=True)
        exporter.withdraw()
    whole = not empty and not summary.nameless
    _end(summary.missing, exporter.journal, "are in no table", whole)


def _wanted(
    journal: Path,
    symbols: tuple[str, ...],
    exchanges: tuple[str, ...],
    start: str | None,
    end: str | None,
    follow: bool,
) -> Wanted:
    # Refuse a choice of which the journal has nothing, unless that may still come.
    start_ns, end_ns = (
        None if text is None else unix_ns(text, name)
        for text, name in ((start, "--from"), (end, "--until"))
    )
    first: Place | None = None if start_ns is None else ("time", start_ns)
    last: Place | None = None if end_ns is None else ("time", end_ns)
    try:
        check_part(journal, first, last, grows=follow)
    except ConfigError as problem:
        if start_ns is not None and end_ns is not None and start_ns >= end_ns:
            raise
        raise FormatError(str(problem)) from None
    wanted = Wanted(start_ns, end_ns, symbols, exchanges)
    if said := describe_unpublished(journal, exchanges, symbols):
        if not follow:
            raise FormatError(f"{journal}: {said}")
        click.echo(f"udpfast: {said}", err=True)
    return wanted


def _begins_later(journal: Path, wanted: Wanted) -> bool:
    # Whether the journal has records from before the wanted time.
    if wanted.start_ns is None:
        return False
    parts = journal_parts(journal)
    return bool(parts) and parts[0].first_ns < wanted.start_ns


def _end(missing: int, journal: Path, where: str, whole: bool) -> None:
    # End with exit code 1 if damage kept records from the export, or it is not `whole`.
    if missing:
        click.echo(
            f"udpfast: {journal} is damaged: {missing:,} records {where}; udpfast verify says "
            "which",
            err=True,
        )
    if missing or not whole:
        sys.exit(1)


_DOUBTS = {"messages", "gaps", "events"}
_COUNTED = ("nameless", "bytes", "damaged")


class _Summary:
    """What was done, and what there is now."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.parts = 0
        self._rows: dict[str, int] = {}
        self._segments: set[tuple[bool, int]] = set()
        self._lost: set[Lost] = set()
        self._counts = dict.fromkeys(
            (
                *("segments", "written", "records", "missing", "lost", "removed"),
                *_COUNTED,
                "unknown",
            ),
            0,
        )
        self._since_ns = time.monotonic_ns()

    @property
    def missing(self) -> int:
        """Records that damage kept from the tables."""
        return self._counts["missing"] + self._counts["lost"] - self._counts["removed"]

    @property
    def nameless(self) -> bool:
        """Whether names of records are lost."""
        return self._counts["nameless"] > 0

    def has_rows(self, wanted: Wanted) -> bool:
        """Return whether there is a row of the wanted time and names."""
        # Doubts without a name are kept whatever the names, in these tables.
        named = bool(wanted.symbols or wanted.exchanges) and not self._rows.keys() <= _DOUBTS
        return any(self._rows[name] for name in self._rows.keys() - (_DOUBTS if named else set()))

    def add(self, exported: Exported) -> None:
        entry = exported.entry
        size_bytes = sum(file.size_bytes for file in entry.files)
        self.parts += 1
        self._segments.add((entry.raw, entry.segment))
        self._counts["segments"] = len(self._segments)
        self._counts["written"] += exported.written
        self._counts["records"] += entry.records
        self._counts["missing"] += entry.missing
        self._counts["nameless"] += entry.records if entry.nameless else 0
        self._counts["bytes"] += size_bytes
        self._counts["damaged"] += entry.damaged
        for table, rows in entry.rows().items():
            self._rows[table] = self._rows.get(table, 0) + rows
        now_ns = time.monotonic_ns()
        if exported.written:
            rate = entry.records / max(now_ns - self._since_ns, 1) * 1e9
            rows = sum(entry.rows().values())
            click.echo(
                f"udpfast: {entry.feed} {'raw ' * entry.raw}segment {entry.segment}, records "
                f"{entry.index} to {entry.end_index}: {entry.records:,} records, "
                f"{rows:,} rows, {size_bytes:,} bytes, {rate:,.0f} records/s",
                err=True,
            )
        if entry.nameless:
            click.echo(
                f"udpfast: {entry.feed} segment {entry.segment}: {NAMELESS}",
                err=True,
            )
        if entry.damaged:
            click.echo(
                f"udpfast: {entry.feed} segment {entry.segment}: {entry.damaged:,} payloads are "
                "not valid SBE messages and are in none of the schema's tables",
                err=True,
            )
        self._since_ns = now_ns

    def tell_lost(self, lost: list[Lost]) -> None:
        """Report records that are neither in a file nor in a segment, once."""
        for each in lost:
            if each not in self._lost:
                why = "they were removed to make room" if each.removed else "it is damaged or gone"
                click.echo(
                    f"udpfast: {'raw ' * each.raw}records {each.index} to {each.end_index} are "
                    f"no longer in any segment and were not exported before: {why}",
                    err=True,
                )
        self._lost = set(lost)
        self._counts["lost"] = sum(each.records for each in lost)
        self._counts["removed"] = sum(each.records for each in lost if each.removed)

    def tell_unknown(self, times: int) -> None:
        """Report what the recorder lacks, and nobody can count."""
        self._counts["unknown"] = times
        if times:
            click.echo(f"udpfast: not recorded: {unknown_text(times)}", err=True)

    def report(self, took_ns: int, as_json: bool) -> None:
        if as_json:
            found = {"directory": str(self._directory), **self._counts, "rows": self._rows}
            click.echo(json.dumps(found | {"seconds": took_ns / 1e9}))
            return
        width = max(map(len, self._rows), default=0)
        for table, rows in self._rows.items():
            place = self._directory / table
            click.echo(f"{table:<{width}}{rows:>16,} rows  {place}")
        counts = self._counts
        click.echo(
            f"segments: {counts['segments']:,}, parts written now: {counts['written']:,}; "
            f"{counts['records']:,} records ({counts['missing']:,} missing because of damage, "
            f"{counts['lost']:,}{' + ?' * bool(counts['unknown'])} lost, "
            f"{counts['removed']:,} of those removed to make room), "
            f"{counts['bytes']:,} bytes, {took_ns / 1e9:.1f} s"
        )
