"""Make the journal of this version that later ones must read: `python -m tests.archive.make_kept`.

The script writes two files into `kept/`: `HASH.tar.gz`, a small journal with every kind of record
and a raw capture, and `HASH.json`, the contents of its records by field. HASH is the hash of the
layouts. Files that belong to a release never change. Before a release, delete the others.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from udpfast.archive.names import names_path
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind
from udpfast.core.layouts import CONTROL_LAYOUTS, Layouts
from udpfast.log.journal import Journal
from udpfast.market.names import NameTable, name_table_size
from udpfast.market.updates import LAYOUTS
from udpfast.shm.names import create_names, names_table

__all__ = ["KEPT", "main", "said"]

KEPT = Path(__file__).parent / "kept"
SEGMENT_BYTES = 1 << 18
NAMES = ("exchange", "SYMBOL", "Zürich/EUR")
BEGIN_NS = 1_795_219_200_000_000_000
ROWS = 2


def main() -> None:
    """Make both files."""
    with tempfile.TemporaryDirectory() as work:
        directory = Path(work) / "journal"
        _write(directory, LAYOUTS, names=True)
        _write(directory / "raw", CONTROL_LAYOUTS, names=False)
        archive = KEPT / f"{LAYOUTS.hash:016x}.tar.gz"
        archive.write_bytes(_packed(directory))
        expected = {part: said(directory / part) for part in (".", "raw")}
        text = ",\n".join(
            f'"{part}": [\n{_lines(records)}\n]' for part, records in expected.items()
        )
        archive.with_suffix("").with_suffix(".json").write_text(f"{{\n{text}\n}}\n", "utf-8")
    sys.stdout.write(f"{archive}\n")


def _lines(records: list[dict[str, Any]]) -> str:
    return ",\n".join(json.dumps(record, ensure_ascii=False) for record in records)


def said(journal: Path) -> list[dict[str, Any]]:
    """Return the contents of the records in a journal, by the names of fields."""
    found = []
    with Reader(f"journal:{journal}") as reader:
        for record in reader:
            batch_fields = {
                "kind": record.kind.name,
                "header": {name: int(getattr(record, name)) for name in HEADER},
                "exchange": record.exchange,
                "symbol": record.symbol,
            }
            layouts = LAYOUTS.payloads.get(int(record.kind))
            if layouts is None:
                found.append(batch_fields | {"bytes": bytes(record.payload).hex()})
                continue
            fixed = np.frombuffer(record.payload, layouts, 1)[0]
            is_update = Kind.BOOK <= record.kind < Kind.BUS
            rows = record.update.rows if is_update else ()
            rest = b"" if is_update else bytes(record.payload[layouts.itemsize :])
            found.append(
                batch_fields
                | {
                    "payload": _plain(fixed),
                    "rows": [_plain(row) for row in rows],
                    "bytes": rest.hex(),
                }
            )
    return found


#: Fields of the header that a reader gives by name.
HEADER = (
    *("index", "line", "flags", "received_ns", "published_ns", "number", "object", "stream"),
    "session",
)


def _plain(fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in fields.dtype.names:
        value = fields[name].item()
        if isinstance(value, bytes):
            found[name] = value.rstrip(b"\0").decode()
        elif isinstance(value, float) and math.isnan(value):
            found[name] = None
        else:
            found[name] = value
    return {name: value for name, value in found.items() if not name.startswith("reserved")}


def _write(directory: Path, layouts: Layouts, *, names: bool) -> None:
    with Journal.open(directory, layouts, name="kept", segment_bytes=SEGMENT_BYTES) as journal:
        if names:
            journal.prepare()
            journal.roll(0, 1, BEGIN_NS, names_mark=_write_names(directory))
        for kind in layouts.payloads if layouts.raw else (*layouts.payloads, Kind.MESSAGE):
            for turn in range(2):
                number = journal.index + 1
                journal.append(
                    int(kind),
                    _content(layouts, int(kind), turn),
                    turn,
                    BEGIN_NS + number * 1000 - 7,
                    BEGIN_NS + number * 1000,
                    line=turn,
                    number=(1 << 33) + number,
                    object=3 << 16 | number,
                    flight_ns=1234 if turn else -(1 << 31),
                    stream=turn,
                    session=1,
                )


def _write_names(directory: Path) -> int:
    region = create_names(names_path(directory, 1), name_table_size(len(NAMES)))
    table = NameTable(names_table(region), capacity=len(NAMES))
    for name in NAMES:
        table.intern(name)
    mark = table.mark
    region.mark_ready()
    region.close()
    return mark


def _content(layouts: Layouts, kind: int, turn: int) -> bytes:
    # Each field has another value; every second record is as empty as possible.
    if kind not in layouts.payloads:
        return bytes(range(16 + 40 * turn))
    fixed = _filled(layouts.payloads[kind], kind, turn)
    rows = b""
    if kind in layouts.rows:
        count = ROWS if turn else 0
        fixed["row_count"] = count
        if kind == Kind.BOOK:
            fixed["bid_count"], fixed["ask_count"] = count // 2, count - count // 2
        rows = b"".join(_filled(layouts.rows[kind], each, turn).tobytes() for each in range(count))
    elif "row_count" in fixed.dtype.names:
        fixed["row_count"] = 0
    for name in ("exchange_id", "symbol_id"):
        if name in fixed.dtype.names:
            fixed[name] = turn * (1 + (name == "symbol_id") * (1 + kind % 2))
    return fixed.tobytes() + rows + (b"a datagram" if kind == Kind.DATAGRAM else b"")


def _filled(dtype: np.dtype[Any], seed: int, turn: int) -> Any:
    found = np.zeros((), dtype)
    for at, name in enumerate(dtype.names or ()):
        field = dtype.fields[name][0]
        if name.startswith("reserved") or field.kind == "V":
            continue
        if field.kind == "S":
            found[name] = f"{name[: field.itemsize - 3]}{at}".encode()[: field.itemsize] * turn
        elif field.kind == "f":
            found[name] = seed + at / 8 if turn else math.nan
        elif field.kind == "i":
            found[name] = -(seed + at) if turn else 0
        else:
            found[name] = (seed * 7 + at) % 100 if turn else 0
    return found


def _packed(directory: Path) -> bytes:
    # The same files give the same bytes.
    packed = io.BytesIO()
    with (
        gzip.GzipFile("", "wb", 9, packed, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for path in sorted(directory.rglob("*")):
            entry = tar.gettarinfo(path, str(path.relative_to(directory)))
            entry.uid = entry.gid = entry.mtime = 0
            entry.uname = entry.gname = ""
            if path.is_dir():
                tar.addfile(entry)
            else:
                with path.open("rb") as file:
                    tar.addfile(entry, file)
    return packed.getvalue()


if __name__ == "__main__":
    main()
