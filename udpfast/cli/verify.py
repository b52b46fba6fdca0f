"""`udpfast verify`: is a journal what was written?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
from msgspec.structs import asdict

from udpfast.archive.feed_settings import has_datagrams_only
from udpfast.archive.names import damaged_names, journal_names, names_path
from udpfast.cli.journal import find_journal, unknown_text
from udpfast.core.layouts import CONTROL_LAYOUTS
from udpfast.errors import FormatError
from udpfast.log.journal import Journal
from udpfast.log.journal_layouts import journal_layouts, layouts_version
from udpfast.log.journal_state import is_raw, journal_identity, journal_state
from udpfast.log.segment import SEGMENT_FORMAT
from udpfast.log.verify import SegmentCheck, unknown_losses, verify_segments
from udpfast.market.updates import LAYOUTS
from udpfast.shm.files import as_owner_of

__all__ = ["verify"]


@click.command(epilog="Example: udpfast verify tutorial")
@click.argument("directory", metavar="NAME|DIRECTORY")
@click.option(
    "--repair",
    is_flag=True,
    help="Repair the journal as its next writer would: cut a torn record, and set aside files "
    "that do not belong to it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(directory: str, repair: bool, as_json: bool) -> None:
    """Check the checksum, position and index of every record of a journal.

    Also checks the names of instruments, and the journal's raw capture. Changes nothing without
    --repair. Exit codes: 0 all records are as they were written, 1 something is damaged or would
    be cut.
    """
    target = find_journal(directory)
    without_records = has_datagrams_only(target)
    found, checks = _look_at(target, repair, without_records)
    raw: list[SegmentCheck] = []
    if (target / "raw").is_dir():
        found["raw"], raw = _look_at(target / "raw", repair)
    if as_json:
        click.echo(json.dumps(found))
    else:
        if without_records:
            click.echo('no records: the feed kept datagrams only (record.what = "raw")')
        else:
            _print(found, checks)
        if "raw" in found:
            click.echo("\nraw capture")
            _print(found["raw"], raw)
    sys.exit(1 if found["problems"] or found.get("raw", {}).get("problems") else 0)


def _look_at(
    target: Path, repair: bool, without_records: bool = False
) -> tuple[dict[str, Any], list[SegmentCheck]]:
    state = _state(target)  # before the segments: what follows can only be more
    checks = list(verify_segments(target))
    found: dict[str, Any] = {
        "directory": str(target),
        "segments": len(checks),
        "records": sum(check.records for check in checks),
        "missing": sum(check.missing for check in checks) + _lost(checks, state),
        "cut_bytes": sum(check.cut_bytes for check in checks),
        "problems": [f"{check.path.name}: {each}" for check in checks for each in check.problems]
        + _lost_end(checks, state),
        "state": state,
        "unknown": unknown_losses(target),
    }
    found["problems"] += _nameless(target, checks)
    found |= _origin(target, checks, found["problems"])
    if state is None and not without_records:
        found["problems"].append(
            "the file `journal` is lost or damaged, so the journal's end is unknown"
        )
    if repair and checks:
        found["repaired"] = _repair(target)
    return found, checks


def _nameless(directory: Path, checks: list[SegmentCheck]) -> list[str]:
    # Records have only ids of names: without these, readers get them without exchange and symbol.
    problems = []
    used = ((check.info.names, check.info.names_mark) for check in checks if check.info)
    for number, mark in dict.fromkeys(used):
        if not number:
            continue
        path = names_path(directory, number)
        try:
            table = journal_names(directory, number, mark)
        except FileNotFoundError:
            problems.append(f"{path.name}: the file is missing: its names are not known")
        except FormatError as problem:
            problems.append(str(problem))
        else:
            if damaged := damaged_names(table):
                problems.append(f"{path.name}: {damaged} of {len(table)} names are damaged")
    return problems


def _origin(directory: Path, checks: list[SegmentCheck], problems: list[str]) -> dict[str, Any]:
    # Which journal it is, and which versions wrote it: their layouts, beside what they wrote.
    layouts = []
    for found in dict.fromkeys(check.info.layout_hash for check in checks if check.info):
        try:
            journal_layouts(directory, found)
            version = layouts_version(directory, found)
        except FormatError as problem:
            problems.append(str(problem))
            version = None
        own = found in (LAYOUTS.hash, CONTROL_LAYOUTS.hash)
        layouts.append({"hash": f"{found:016x}", "version": version, "translated": not own})
    try:
        identity = journal_identity(directory).hex()
    except (FileNotFoundError, FormatError):
        identity = None
    return {"identity": identity, "format": SEGMENT_FORMAT, "layouts": layouts}


def _state(directory: Path) -> dict[str, Any] | None:
    try:
        found = asdict(journal_state(directory))
        return found | {name: found[name].hex() for name in ("identity", "source")}
    except (FileNotFoundError, FormatError):
        return None


def _lost(checks: list[SegmentCheck], state: dict[str, Any] | None) -> int:
    # A segment that is missing behind the last one leaves no trace in the others.
    if state is None:
        return 0
    return int(max(0, state["index"] - max((check.end_index for check in checks), default=0)))


def _lost_end(checks: list[SegmentCheck], state: dict[str, Any] | None) -> list[str]:
    if not _lost(checks, state):
        return []
    assert state is not None
    end = max((check.end_index for check in checks), default=0)
    return [
        f"ends before record {end}, but {state['index']} records were written, "
        f"{state['synced_index']} of them synced to the disk"
    ]


def _repair(directory: Path) -> dict[str, Any]:
    layouts = CONTROL_LAYOUTS if is_raw(directory) else LAYOUTS
    with as_owner_of(directory), Journal.open(directory, layouts) as journal:
        return asdict(journal.recovery)


def _print(found: dict[str, Any], checks: list[SegmentCheck]) -> None:
    click.echo(f"journal {found['identity']}, segments of format {found['format']}")
    for layouts in found["layouts"]:
        how = "read field by field" if layouts["translated"] else "same as this version's"
        version = layouts["version"] or "of an unknown version"
        click.echo(f"layouts {layouts['hash']}, written by udpfast {version}: {how}")
    click.echo(f"{'segment':<20}{'records':>14}{'first':>16}{'sealed':>9}{'durable':>9}")
    for check in checks:
        info = check.info
        if info is None:
            click.echo(f"{check.path.name:<20}{'unreadable':>14}")
            continue
        sealed = "yes" if info.end_position is not None else "no"
        durable = "yes" if info.durable else "no"
        click.echo(
            f"{check.path.name:<20}{check.records:>14,}{info.index:>16,}{sealed:>9}{durable:>9}"
        )
    for problem in found["problems"]:
        click.echo(problem)
    click.echo(
        f"{found['records']:,} records valid, {found['missing']:,} missing, "
        f"{found['cut_bytes']:,} bytes after the last valid record"
    )
    state = found["state"]
    if state is not None:
        click.echo(
            f"synced to the disk up to record {state['synced_index']:,} (position "
            f"{state['synced_position']:,}); not recorded: {state['lapped']:,} records overwritten "
            f"before they were recorded, {state['dropped']:,} without room on the disk"
        )
    if found["unknown"]:
        click.echo(f"not recorded besides: {unknown_text(found['unknown'])}")
    if "repaired" in found:
        click.echo(f"cut {found['repaired']['cut_bytes']:,} bytes")
        for note in found["repaired"]["notes"]:
            click.echo(note)
