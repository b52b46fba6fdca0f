"""The manifest of an export: one entry per exported part of a journal.

_manifest/export.json                 the export's own identity
_manifest/FEED/JOURNAL-FROM-TO.json   the files made from records FROM up to TO of JOURNAL

A part is named after its content: the journal's identity and the indices of its records. So its
files never change, whatever is appended later and however often it is exported. A name that begins
with a dot marks an entry whose files are complete but not all visible; the next exporter finishes
it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from udpfast.errors import FormatError
from udpfast.export.parquet import WrittenFile, sync_directory
from udpfast.export.schema import TABLES, spark_schema

__all__ = [
    "SCHEMA_HASH",
    "Entry",
    "begin_export",
    "export_identity",
    "read_entries",
    "remove_entry",
    "settle_entries",
    "write_entry",
    "writing_directory",
]

VERSION = 3

#: Version of all tables: parts that were exported with other tables are written again.
SCHEMA_HASH = hashlib.sha256(
    "\n".join(f"{name}: {spark_schema(name)}" for name in TABLES).encode()
).hexdigest()[:16]


class Entry(Struct, frozen=True):
    """The exported files of a part of a journal.

    Attributes
    ----------
    feed : str
        Name of the feed in the export.
    journal : str
        Identity of the journal, in hexadecimal digits.
    directory : str
        Directory of the journal at that time.
    raw : bool
        Whether it is of a raw capture.
    segment : int
        Number of the segment.
    index, end_index : int
        Index of the part's first record, and behind its last.
    position, end_position : int
        The same in bytes.
    records : int
        Number of records read.
    missing : int
        Number of damaged records; `records` and `missing` are all records of the part.
    last : tuple of (int, int) or None
        Position and checksum of the last record; None: it was damaged.
    nameless : bool
        A file of names was missing or damaged: the instruments of some records are unknown.
    tables : tuple of str
        Tables that were made.
    payloads : bool
        Whether `messages` contains payloads.
    files : tuple of WrittenFile
        The files.
    schema : str
        `SCHEMA_HASH` of the udpfast that wrote them.
    version : int
        Version of the entry's format.
    sbe : str
        `SbeTables.identity` of its tables of SBE messages; empty: it has none.
    damaged : int
        Number of payloads that are not sound SBE messages, and are in none of those tables.
    wanted : str
        `Wanted` as a text: which of its records were taken; empty: all.
    """

    feed: str
    journal: str
    directory: str
    raw: bool
    segment: int
    index: int
    end_index: int
    position: int
    end_position: int
    records: int
    missing: int
    last: tuple[int, int] | None
    nameless: bool
    tables: tuple[str, ...]
    payloads: bool
    files: tuple[WrittenFile, ...]
    schema: str = SCHEMA_HASH
    version: int = VERSION
    sbe: str = ""
    damaged: int = 0
    wanted: str = ""

    @property
    def name(self) -> str:
        """Name of its files: journal and indices."""
        return f"{self.journal}-{self.index:012}-{self.end_index:012}"

    def rows(self) -> dict[str, int]:
        """Return the number of rows by table."""
        found = dict.fromkeys(self.tables, 0)
        for file in self.files:
            found[file.table] += file.rows
        return found

    def lacks(self, root: Path) -> set[str]:
        """Return the tables of which a file is missing, or has another size than when written."""
        return {
            file.table for file in self.files if not _has_size(root / file.path, file.size_bytes)
        }


def _has_size(path: Path, size_bytes: int) -> bool:
    try:
        return path.stat().st_size == size_bytes
    except FileNotFoundError:
        return False


def export_identity(root: Path) -> str | None:
    """Return the identity of an export; None: there is no export.

    Raises
    ------
    FormatError
        The file of the identity is damaged.
    """
    path = root / "_manifest" / "export.json"
    try:
        return str(json.loads(path.read_bytes())["identity"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path}: expected the identity of an export, found {error}") from None


def begin_export(root: Path) -> None:
    """Give an export an identity if it has none."""
    path = root / "_manifest" / "export.json"
    if path.exists():
        return
    fresh = path.with_name(f".export-{secrets.token_hex(8)}")
    _write(fresh, {"identity": secrets.token_hex(16)})
    with contextlib.suppress(FileExistsError):  # another feed's exporter has just made one
        path.hardlink_to(fresh)
    fresh.unlink()
    sync_directory(path.parent)


def read_entries(root: Path, feed: str = "*") -> list[Entry]:
    """Return the entries of an export, or of one of its feeds, in order.

    Raises
    ------
    FormatError
        A file is not an entry.
    """
    found = [_read(path) for path in sorted((root / "_manifest").glob(f"{feed}/[!.]*.json"))]
    return [entry for entry in found if entry is not None]


def _read(path: Path) -> Entry | None:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise FormatError(f"{path}: expected an entry of a manifest, found {error}") from None
    try:
        if content["version"] != VERSION:
            raise FormatError(
                f"{path}: expected an entry of version {VERSION}, found {content['version']}: "
                "export to another directory"
            )
        files = tuple(WrittenFile(**file) for file in content["files"])
        last = content["last"] and tuple(content["last"])
        tables = tuple(content["tables"])
        return Entry(**{**content, "files": files, "tables": tables, "last": last})
    except (KeyError, TypeError) as error:
        raise FormatError(f"{path}: expected an entry of a manifest, found {error}") from None


def write_entry(root: Path, entry: Entry) -> None:
    """Make the files of an entry visible, and then the entry, replacing an earlier one.

    On return everything is visible and on the disk. If the process ends before, `settle_entries`
    completes it.
    """
    hidden = _path(root, entry, hidden=True)
    hidden.parent.mkdir(parents=True, exist_ok=True)
    # Write under another name first: a half-written entry of a killed process must not be settled.
    fresh = hidden.with_suffix(".new")
    _write(fresh, to_builtins(entry))
    fresh.replace(hidden)
    sync_directory(hidden.parent)
    _settle(root, entry)


def writing_directory(root: Path, feed: str) -> Path:
    """Return the directory of a feed's files until they are visible; Spark ignores it."""
    return root / "_manifest" / feed / ".writing"


def settle_entries(root: Path, feed: str) -> None:
    """Make visible what a killed process had completed, and remove what it had half written."""
    for path in sorted((root / "_manifest" / feed).glob(".*.json")):
        entry = _read(path)
        if entry is not None:
            _settle(root, entry)
    shutil.rmtree(writing_directory(root, feed), ignore_errors=True)


def _settle(root: Path, entry: Entry) -> None:
    path = _path(root, entry)
    before = _read(path)
    writing = writing_directory(root, entry.feed)
    for file in entry.files:
        (root / file.path).parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # it has been moved already
            (writing / file.path).replace(root / file.path)
    if before is not None:
        _unlink(root, {file.path for file in before.files} - {file.path for file in entry.files})
    for directory in {(root / file.path).parent for file in entry.files}:
        sync_directory(directory)
    _path(root, entry, hidden=True).replace(path)
    sync_directory(path.parent)


def remove_entry(root: Path, entry: Entry) -> None:
    """Remove an entry and its files."""
    _unlink(root, (file.path for file in entry.files))
    _path(root, entry).unlink(missing_ok=True)


def _unlink(root: Path, paths: Iterable[str]) -> None:
    for path in paths:
        (root / path).unlink(missing_ok=True)


def _path(root: Path, entry: Entry, hidden: bool = False) -> Path:
    return root / "_manifest" / entry.feed / f"{'.' * hidden}{entry.name}.json"


def _write(path: Path, content: dict[str, Any]) -> None:
    with path.open("w") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
