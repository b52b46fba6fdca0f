"""Check the manifest of an export for missing tables and files, which the tables cannot show."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pyarrow.fs import FileSelector, FileSystem, FileType

from udpfast.page.words import counted
from udpfast.spark.gold import open_file_system

__all__ = ["manifest_doubts"]

#: Tables whose rows report losses.
SAYING_LOSSES = ("gaps", "events")


def manifest_doubts(source: str) -> Iterator[str]:
    """Yield a sentence for each reason why an export may be incomplete.

    Parameters
    ----------
    source : str
        Directory of the export, in any file system: a path or a URI.
    """
    files, root = open_file_system(source)
    entries = list(_entries(files, root))
    if not entries:
        yield f"{source} has no manifest, so parts of it may be missing."
        return
    kept = [set(entry["tables"]) for entry in entries if not entry["raw"]]
    lacking = [name for name in SAYING_LOSSES if any(name not in tables for tables in kept)]
    if lacking:
        yield (
            f"{source} was exported without {' and '.join(lacking)}, which "
            f"{'says' if len(lacking) == 1 else 'say'} what is missing: losses may be unknown."
        )
    if missing := sum(entry["missing"] for entry in entries):
        yield (
            f"{source} lacks {counted(missing, 'record')} of damaged journals: what they held is "
            "in no answer."
        )
    if nameless := sum(entry["records"] for entry in entries if entry["nameless"]):
        yield (
            f"{source} lacks names of {nameless:,} records, whose files of names were damaged: "
            "rows without symbol or exchange are in no answer about an instrument."
        )
    gone = sorted(_gone(files, root, [file for entry in entries for file in entry["files"]]))
    if gone:
        yield (
            f"{source} lacks files that its manifest lists, or has them in another size (of "
            f"{' and '.join(gone)}): their rows are missing."
        )


def _entries(files: FileSystem, root: str) -> Iterator[dict[str, Any]]:
    # Each feed has a directory; export.json is beside them. Hidden entries are not visible yet.
    manifest = FileSelector(f"{root}/_manifest", allow_not_found=True, recursive=True)
    for info in files.get_file_info(manifest):
        folder, _, name = info.path.removeprefix(f"{root}/_manifest/").rpartition("/")
        is_entry = folder and "/" not in folder and not name.startswith(".")
        if is_entry and name.endswith(".json") and info.type == FileType.File:
            with files.open_input_stream(info.path) as file:
                yield json.loads(file.read())


def _gone(files: FileSystem, root: str, named: Sequence[dict[str, Any]]) -> set[str]:
    # Return the tables of which a file is missing or has another size.
    found = files.get_file_info([f"{root}/{file['path']}" for file in named])
    return {
        file["table"]
        for file, info in zip(named, found, strict=True)
        if info.type != FileType.File or info.size != file["size_bytes"]
    }
