"""The layouts of a journal's records, stored beside its segments as `layouts-HASH.json`.

Each segment names the layouts of its records by their hash. The layouts are on the disk before the
first segment that uses them, and are never changed or removed: any other version, later or earlier,
uses them to read the records field by field.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from udpfast.core.layouts import Layouts
from udpfast.core.version import VERSION
from udpfast.errors import RegionError
from udpfast.log.segment import Segment, aside_path, list_segments, segment_path
from udpfast.shm.files import replace_file
from udpfast.shm.lock import check_file, open_existing

__all__ = [
    "check_layouts",
    "journal_layouts",
    "keep_layouts",
    "layouts_path",
    "layouts_version",
]

_SIZE_MAX = 1 << 20
_VERSION = re.compile(r'"version": "([^"\\]*)"')


def layouts_path(directory: str | os.PathLike[str], layout_hash: int) -> Path:
    """Return the path of the file with the layouts of this hash."""
    return Path(directory) / f"layouts-{layout_hash:016x}.json"


def journal_layouts(directory: str | os.PathLike[str], layout_hash: int) -> Layouts:
    """Return the layouts of the segments with this hash.

    Raises
    ------
    RegionError
        The file is missing, damaged, has another hash, or is of a kind that this version lacks.
    """
    path = layouts_path(directory, layout_hash)
    try:
        layouts = Layouts.from_json(_read(path))
    except FileNotFoundError:
        raise RegionError(
            f"{path}: expected the layouts of segments that another version wrote, found no file: "
            "copy it from a copy of the journal, or from any other journal that the same version "
            "wrote"
        ) from None
    except ValueError as problem:
        raise RegionError(f"{path}: {problem}") from None
    if layouts.hash != layout_hash:
        raise RegionError(
            f"{path}: expected layouts with hash {layout_hash:016x}, found {layouts.hash:016x}"
        )
    return layouts


def check_layouts(directory: Path, layouts: Layouts) -> None:
    """Check that a journal is of the kind to be appended: a feed's records, or a raw capture.

    Raises
    ------
    RegionError
        The journal is of the other kind.
    """
    for number in reversed(list_segments(directory)):
        path = segment_path(directory, number)
        try:
            found = Segment.open(path).layout_hash
            raw = layouts.raw if found == layouts.hash else journal_layouts(directory, found).raw
        except (FileNotFoundError, RegionError):
            continue
        if raw != layouts.raw:
            kinds = ("records of a feed", "a raw capture")
            raise RegionError(
                f"{path}: expected {kinds[layouts.raw]}, found {kinds[raw]}: record to another "
                "directory"
            )
        return


def keep_layouts(directory: Path, layouts: Layouts) -> list[str]:
    """Write these layouts to the disk unless they are there; return what was wrong.

    Nothing is deleted: a file of that name with other content is renamed.
    """
    path, notes = layouts_path(directory, layouts.hash), []
    try:
        journal_layouts(directory, layouts.hash)
    except RegionError as problem:
        if os.path.lexists(path):
            notes.append(f"{problem}: kept as {path.rename(aside_path(path)).name}")
    else:
        return []
    replace_file(path, layouts.to_json(VERSION).encode(), durable=True)
    return notes


def layouts_version(directory: str | os.PathLike[str], layout_hash: int) -> str:
    """Return the version of udpfast that wrote these layouts first; empty if not stated."""
    found = _VERSION.search(_read(layouts_path(directory, layout_hash)).decode())
    return found[1] if found else ""


def _read(path: Path) -> bytes:
    fd = open_existing(path, os.O_RDONLY)
    try:
        size = check_file(fd, path)
        if size > _SIZE_MAX:
            raise RegionError(f"{path}: expected at most {_SIZE_MAX} bytes, found {size}")
        with open(fd, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(fd)
