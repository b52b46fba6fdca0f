"""The layouts of a journal's records, beside its segments: `layouts-HASH.json`.

Each segment says by which layouts its records were written: by their hash. Their file is on the
disk before the first such segment is, and is never changed or removed: by it any later version, and
any earlier one, reads the records by name.
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
    """Return the path of the file that has these layouts."""
    return Path(directory) / f"layouts-{layout_hash:016x}.json"


def journal_layouts(directory: str | os.PathLike[str], layout_hash: int) -> Layouts:
    """Return the layouts that segments with this hash were written by.

    Raises
    ------
    RegionError
        Their file is missing, damaged, of other layouts, or not of this version's kind.
    """
    path = layouts_path(directory, layout_hash)
    try:
        layouts = Layouts.from_json(_read(path))
    except FileNotFoundError:
        raise RegionError(
            f"{path}: expected the layouts of segments that another version wrote, found no such "
            "file: copy it from a copy of the journal, or from any other journal that this "
            "version wrote"
        ) from None
    except ValueError as problem:
        raise RegionError(f"{path}: {problem}") from None
    if layouts.hash != layout_hash:
        raise RegionError(
            f"{path}: expected layouts with hash {layout_hash:016x}, found {layouts.hash:016x}"
        )
    return layouts


def check_layouts(directory: Path, layouts: Layouts) -> None:
    """Compare what a journal is with what shall be appended: a feed's records, or a raw capture.

    Raises
    ------
    RegionError
        It is the other one.
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
    """Have the disk take the file of these layouts, unless it has; return what was wrong with it.

    Nothing is deleted: a file of this name that has anything else gets another one.
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
    """Return which version of udpfast wrote the file of these layouts first."""
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
