"""Schemas of SBE, messages of theirs, and those of FIX's conformance tests.

A schema below a folder `refused` must be refused; every other one is accepted, and of each of its
messages random values are encoded, decoded and compared, every prefix is refused, and numpy's
itemsize is the block's length. A file `NAME*.sbe` is one message of a schema `NAME.xml`, and must
become the same bytes again.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

from udpfast.payload.sbe.document import SchemaError, read_document
from udpfast.payload.sbe.model import Level
from udpfast.payload.sbe.schema import Schema

from ..sbe_values import is_read, random_values
from . import Report

__all__ = ["check", "check_fix", "check_message"]

#: Random messages of each template.
MESSAGES = 8
#: Prefixes of a message that are tried; of a longer one so many by chance.
PREFIXES = 300


def check(path: Path, report: Report) -> None:
    """Run a schema."""
    if "refused" in path.parts:
        report.case(f"{path.name} refused", _refused, path)
        return
    try:
        schema = Schema(path)
    except SchemaError as error:
        message = str(error)
        report.case(f"{path.name} accepted", lambda: message)
        return
    report.case(f"{path.name} accepted", lambda: None)
    for name in schema.messages:
        report.case(f"{path.name} {name}", _round_trip, schema, schema.layout(name).level)


def _refused(path: Path) -> str | None:
    try:
        Schema(path)
    except SchemaError as error:
        sound = all(
            re.match(rf"{re.escape(str(path))}:\d+: .*expected .*, found ", problem)
            for problem in error.problems
        )
        return None if sound else f"expected file, line, expected and found in {error}"
    return "expected to be refused, found accepted"


def _round_trip(schema: Schema, level: Level) -> str | None:
    rng = random.Random(level.path)
    for each in level.levels:
        size = schema.dtype(each.path).itemsize
        if size != each.block_length:
            return f"{each.path}: expected an itemsize of {each.block_length}, found {size}"
    for _ in range(MESSAGES):
        values = random_values(rng, level)
        raw = schema.encode(level.name, values)
        decoded = schema.decode(raw)
        if decoded != values:
            return f"expected {values}, found {decoded}"
        for size in rng.sample(range(len(raw)), min(len(raw), PREFIXES)):
            if is_read(schema, raw[:size]):
                return f"expected the first {size} of {len(raw)} bytes refused, found them read"
    return None


def check_message(path: Path, report: Report) -> None:
    """Run a message: its schema is the one whose name its own begins with."""
    found = [each for each in path.parent.rglob("*.xml") if path.stem.startswith(each.stem)]
    if not found:
        report.note(f"not run: {path}: no schema whose name its own begins with")
        return
    report.case(path.name, _same_bytes, max(found, key=lambda each: len(each.stem)), path)


def _same_bytes(schema_path: Path, path: Path) -> str | None:
    schema = Schema(schema_path)
    raw = path.read_bytes()
    decoded = schema.decode(raw)
    again = schema.encode(decoded.name, decoded)
    return None if again == raw else f"expected {raw.hex()}, found {again.hex()}"


def check_fix(path: Path, report: Report) -> None:
    """Run a test of FIX's: fields by their ids, in the schemas that it names by a number."""
    document = json.loads(path.read_text(encoding="utf-8"))
    version = document["version"]
    ours, theirs = (_schema(path, version[key]) for key in ("messageSchema", "injectMessageSchema"))
    for part, schema in (("inject", theirs), ("respond", ours)):
        for i, message in enumerate(document[part]["messages"]):
            report.case(f"{path.name} {part} {i}", _by_ids, schema, ours, message)


def _schema(path: Path, name: str) -> Schema:
    number = re.sub(r"\D", "", name)
    return Schema(next(path.parent.glob(f"*schema{number}.xml")))


def _by_ids(theirs: Schema, ours: Schema, message: dict[str, Any]) -> str | None:
    level = theirs.layout(
        next(
            name for name in theirs.messages if theirs.layout(name).level.id == message["template"]
        )
    ).level
    values = _named(level, message)
    raw = theirs.encode(level.name, values)
    decoded = ours.decode(raw)
    known = ours.layout(level.name).level
    for field in known.fields:
        given = values.get(field.name)
        if given is None or isinstance(given, bool):
            continue
        again = ours.decode(ours.encode(level.name, {**decoded, field.name: given}))
        if again != decoded:
            return f"{field.name}: expected {given}, found {decoded[field.name]}"
    return None


def _named(level: Level, message: dict[str, Any]) -> dict[str, Any]:
    # True says only that a field is there.
    found: dict[str, Any] = {}
    rng = random.Random(0)
    filled = random_values(rng, level)
    for field in level.fields:
        given = message.get(str(field.id))
        found[field.name] = (
            filled[field.name]
            if given is True or (given is None and not _may_be_absent(field))
            else given
        )
    for group in level.groups:
        found[group.name] = [_named(group, row) for row in message.get(group.name, ())]
    return found


def _may_be_absent(field: Any) -> bool:
    members = getattr(field.type, "members", None)
    if members is None:
        return bool(field.optional)
    return all(each.optional or each.constant is not None for each in members)


def is_schema(path: Path) -> bool:
    """Whether a file is a schema of SBE, or wants to be one."""
    try:
        return read_document(path).tag in ("messageSchema", "types")
    except SchemaError:
        return "refused" in path.parts
