"""`udpfast export --format`: a journal as one file in another tool's format."""

from __future__ import annotations

from pathlib import Path

import click

from udpfast.errors import ConfigError, FormatError
from udpfast.export.rows import JournalRows
from udpfast.export.wanted import Wanted

__all__ = ["FORMATS", "NAMELESS", "export_file"]

#: What `--format` knows besides Parquet.
FORMATS = ("dbn", "hftbacktest")
#: What is said of records whose symbol or exchange nobody knows.
NAMELESS = "its file of names is missing or damaged, so symbol and exchange are NULL"
#: How a file of each format begins: DBN, plain or in zstd; a zip archive.
_BEGINNINGS = {"dbn": (b"DBN", b"\x28\xb5\x2f\xfd"), "hftbacktest": (b"PK",)}


def export_file(
    form: str,
    journal: Path,
    path: Path,
    tables: tuple[str, ...],
    wanted: Wanted,
    size_unit: float,
) -> tuple[int, bool]:
    """Write a journal as one file, and say what the format cannot carry.

    Return how many records are missing in it because the journal is damaged, and whether it has
    rows of what was wanted, all with their names.

    Raises
    ------
    ConfigError
        Not exactly one table for DBN, or tables for hftbacktest.
    FormatError
        The format has no place for the table, or for one of its values; or `path` is a file of
        something else, which an export does not overwrite.
    """
    _check_overwritten(form, path)
    if form == "dbn":
        from udpfast.export.dbn import SCHEMAS, DbnWriter, tables_of

        if len(tables) != 1:
            raise ConfigError(
                f"--format dbn: expected one --table ({', '.join(SCHEMAS)}), found "
                f"{', '.join(tables) or 'none'}"
            )
        rows = JournalRows(journal, tables_of(tables[0]), wanted)
        with DbnWriter(path, tables[0], journal.name, size_unit, rows) as writer:
            for block in rows:
                writer.write(block)
        count = writer.rows
    else:
        from udpfast.export.hftbacktest import TABLES, write_npz

        if tables:
            raise ConfigError(
                "--format hftbacktest: expected no --table (it takes levels and trades), found "
                f"{', '.join(tables)}"
            )
        rows = JournalRows(journal, TABLES, wanted)
        count = write_npz(path, rows)
    click.echo(f"{path}: {count:,} rows, {path.stat().st_size:,} bytes")
    if not count:
        click.echo(f"udpfast: {journal} has no such rows{rows.wanted}", err=True)
    if rows.doubts:
        click.echo(
            f"udpfast: {rows.doubts:,} records of losses (GAP, LAPPED) have no place in {form}: "
            "the tables gaps and events have them; books are cleared where they may be wrong",
            err=True,
        )
    if rows.headless:
        begin = "1 book begins" if rows.headless == 1 else f"{rows.headless:,} books begin"
        click.echo(
            f"udpfast: {begin} empty at --from, in doubt until a snapshot: begin at the "
            "session's start for whole books",
            err=True,
        )
    if rows.nameless:
        click.echo(f"udpfast: {journal}: {NAMELESS}", err=True)
    return rows.missing, (count > 0 or not wanted) and not rows.nameless


def _check_overwritten(form: str, path: Path) -> None:
    if not path.is_file():
        return
    with path.open("rb") as file:
        begins = file.read(4)
    if begins and not begins.startswith(_BEGINNINGS[form]):
        raise FormatError(
            f"{path}: expected no file, or one that --format {form} wrote, which is replaced; "
            "found a file of something else: give another name, or remove it"
        )
