"""What an export holds: a file for each segment, written when its tables are complete.

_manifest/FEED/00000001.json   what segment 1 of FEED's journal became
_manifest/FEED/raw-00000001.json   the same of its raw capture
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from udpfast.errors import FormatError
from udpfast.export.parquet import WrittenFile, sync_directory
from udpfast.export.schema import TABLES, spark_schema

__all__ = ["SCHEMA_HASH", "Entry", "entry_path", "read_entries", "read_entry", "write_entry"]

VERSION = 1

#: Of all tables: an export by another version of them is written anew.
SCHEMA_HASH = hashlib.sha256(
    "\n".join(f"{name}: {spark_schema(name)}" for name in TABLES).encode()
).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Entry:
    """What became of one segment.

    Attributes
    ----------
    feed : str
    journal : str
        Its directory.
    raw : bool
        Of a raw capture.
    segment : int
    opened_ns : int
        When the segment was begun: two journals differ in it.
    position, end_position : int
        Of its first record, behind its last one.
    records : int
    missing : int
        Records that were damaged.
    tables : tuple of str
        That were made.
    payloads : bool
        Whether `messages` has them.
    files : tuple of WrittenFile
    schema : str
        `SCHEMA_HASH` of who wrote them.
    version : int
    """

    feed: str
    journal: str
    raw: bool
    segment: int
    opened_ns: int
    position: int
    end_position: int
    records: int
    missing: int
    tables: tuple[str, ...]
    payloads: bool
    files: tuple[WrittenFile, ...]
    schema: str = SCHEMA_HASH
    version: int = VERSION

    def rows(self) -> dict[str, int]:
        """Return the number of rows by table."""
        found = dict.fromkeys(self.tables, 0)
        for file in self.files:
            found[file.table] += file.rows
        return found

    def holds(self, root: Path) -> bool:
        """Whether all its files are there, with the sizes that they had."""
        return all(_has_size(root / file.path, file.size_bytes) for file in self.files)


def _has_size(path: Path, size_bytes: int) -> bool:
    try:
        return path.stat().st_size == size_bytes
    except FileNotFoundError:
        return False


def entry_path(root: Path, feed: str, segment: int, raw: bool = False) -> Path:
    """Return the path of a segment's entry."""
    return root / "_manifest" / feed / f"{'raw-' * raw}{segment:08}.json"


def read_entry(path: Path) -> Entry | None:
    """Return an entry; None if there is none.

    Raises
    ------
    FormatError
        The file is no entry.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise FormatError(f"{path}: expected an entry of a manifest, found {error}") from None
    return _entry(path, content)


def _entry(path: Path, content: dict[str, Any]) -> Entry:
    try:
        if content["version"] != VERSION:
            raise FormatError(f"{path}: expected version {VERSION}, found {content['version']}")
        files = tuple(WrittenFile(**file) for file in content["files"])
        return Entry(**{**content, "files": files, "tables": tuple(content["tables"])})
    except (KeyError, TypeError) as error:
        raise FormatError(f"{path}: expected an entry of a manifest, found {error}") from None


def read_entries(root: Path) -> list[Entry]:
    """Return all entries of an export, by feed and segment."""
    found = (read_entry(path) for path in sorted((root / "_manifest").glob("*/[!.]*.json")))
    return [entry for entry in found if entry is not None]


def write_entry(root: Path, entry: Entry) -> None:
    """Write an entry, in place of an earlier one; the disk has it on return."""
    path = entry_path(root, entry.feed, entry.segment, entry.raw)
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name("." + path.name)
    with hidden.open("w") as file:
        json.dump(dataclasses.asdict(entry), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    hidden.replace(path)
    sync_directory(path.parent)
