"""What the manifest of an export tells about what its tables cannot: whether they are all there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pyarrow.fs import FileSelector, FileSystem, FileType

from udpfast.spark.gold import open_file_system

__all__ = ["manifest_doubts"]

#: Tables whose records say that something is missing.
SAYING_LOSSES = ("gaps", "events")


def manifest_doubts(source: str) -> Iterator[str]:
    """Yield a sentence for each reason why an export may lack what it should have.

    Parameters
    ----------
    source : str
        Its directory, in any file system: a path or a URI.
    """
    files, root = open_file_system(source)
    entries = list(_entries(files, root))
    if not entries:
        yield f"{source} has no manifest: nobody can say whether all of it is there."
        return
    kept = [set(entry["tables"]) for entry in entries if not entry["raw"]]
    lacking = [name for name in SAYING_LOSSES if any(name not in tables for tables in kept)]
    if lacking:
        yield (
            f"{source} was exported without {' and '.join(lacking)}, which "
            f"{'says' if len(lacking) == 1 else 'say'} what is missing: losses may be unknown."
        )
    gone = sorted(_gone(files, root, [file for entry in entries for file in entry["files"]]))
    if gone:
        yield (
            f"{source} lacks files that its manifest names, or has them in another size (of "
            f"{' and '.join(gone)}): what they held is unknown."
        )


def _entries(files: FileSystem, root: str) -> Iterator[dict[str, Any]]:
    # A directory per feed; beside them lies the identity of the export. Hidden ones are not shown.
    manifest = FileSelector(f"{root}/_manifest", allow_not_found=True, recursive=True)
    for info in files.get_file_info(manifest):
        folder, _, name = info.path.removeprefix(f"{root}/_manifest/").rpartition("/")
        is_entry = folder and "/" not in folder and not name.startswith(".")
        if is_entry and name.endswith(".json") and info.type == FileType.File:
            with files.open_input_stream(info.path) as file:
                yield json.loads(file.read())


def _gone(files: FileSystem, root: str, named: Sequence[dict[str, Any]]) -> set[str]:
    # The tables of which a file is not there as it was written.
    found = files.get_file_info([f"{root}/{file['path']}" for file in named])
    return {
        file["table"]
        for file, info in zip(named, found, strict=True)
        if info.type != FileType.File or info.size != file["size_bytes"]
    }
