"""The tables of docs/records.md: the fields of all records, and the numbers of enumerations.

scripts/generate_reference.py writes them. Names, types and numbers come from the code; what a field
means is said here and, of updates, in scripts/update_fields.py. A field without a meaning is an
error, and so is a column of docs/tables.md that has no words of its own and shows no such field.
"""

import enum
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from scripts.update_fields import HEADER, ID, KINDS, OWN, ROWS, TEXT
from udpfast.core.layout import (
    CONTROL_DTYPES,
    RECORD,
    ConnectionScope,
    ConnectionStatus,
    GapReason,
    Kind,
    LappedReason,
    ObjectStatus,
    ObjectWait,
    RecordFlag,
    SessionReason,
)
from udpfast.market.tables import (
    LAYOUT_TABLES,
    PARTITIONS,
    RECORD_TABLES,
    Column,
    frame_columns,
)
from udpfast.market.updates import ROW_DTYPES, TRADES, UPDATE_DTYPES
from udpfast.market.words import CONTROL_WORDS, ENUMS, UPDATE_ENUMS

#: What the fields of the header of every record say, beyond their names.
_RECORD = {
    "length": "bytes of header and payload, without padding",
    "kind": "see [Kind](#kind)",
    "line": "line that completed the message, from 0",
    "flags": "see [RecordFlag](#recordflag)",
    "position": "byte offset in the ring's or journal's whole history",
    "index": "ordinal in the ring's or journal's whole history",
    "received_ns": "when the first datagram was received, UNIX ns, by the card or the kernel",
    "published_ns": "the loop's clock when it handled the batch, UNIX ns; a reader sees the record "
    "`loop_to_ring` later",
    "number": "the publisher's number in its stream and session; 0: none",
    "object": "the publisher's number of the object, `(type << 16) \\| id` with Roq",
    "flight_ns": "`received_ns` minus the time of sending by the sender's clock, ns; -2^31: "
    "unknown; +-(2^31 - 1): 2 s or more",
    "stream": "0 incremental, 1 snapshot with Roq; from 2 on with venues; 65,535: none",
    "session": "ordinal of the session in the record log, from 1; 0: before the first",
    "checksum": "CRC32C in a journal; 0 in a ring",
}

_CONTROL: dict[Kind, dict[str, str]] = {
    Kind.GAP: {
        "first": "first lost number",
        "last": "last lost number",
        "count": "lost messages",
        "waited_ns": "how long they were waited for, ns",
    },
    Kind.SESSION: {
        "old_id": "the session before, as published; 0: none",
        "new_id": "the new session, as published",
        "first_number": "first number received of it",
        "unseen": "numbers before it that were refused or lost; 0 of a FIRST that begins above 1: "
        "unknown",
        "discarded": "messages that were pending",
        "stream": "what the publisher calls it; 0 with Roq",
    },
    Kind.STALE: {
        "object": "the object, as in the header",
        "continues": "of RECOVERED: 1, what was published still holds; 0, a snapshot follows",
        "applied": "last number applied; 0: none",
        "exchange_id": f"exchange, {ID}",
        "symbol_id": f"symbol, {ID}",
    },
    Kind.CONNECTION: {"silent_ns": "how long nothing had come, ns"},
    Kind.DISAGREEMENT: {
        "number": "number of the message",
        "hash_first": "hash of the bytes that were used",
        "hash_other": "hash of the other bytes",
        "fragment": "fragment of the message, from 0",
        "line_first": "line whose bytes were used",
        "line_other": "line with the other bytes",
    },
    Kind.RESTART: {
        "epoch": "epoch of the new writer",
        "restarted_ns": "when it began, UNIX ns",
    },
    Kind.LAPPED: {
        "missed": "missed records; with the reason UNKNOWN a lower bound, and with DAMAGE where it "
        "hides how many"
    },
    Kind.DATAGRAM: {
        "now_ns": "the loop's monotonic clock, ns",
        "flags": "bits of the datagram",
        "address": "its place among the addresses of its line",
    },
    Kind.CLOCK: {"now_ns": "the loop's monotonic clock, ns"},
    Kind.SENDER: {
        "sender": "number of the sender in the store",
        "incarnation": "ordinal of the outbox of that name, from 1",
        "next": "number expected next",
        "position": "position in the store",
        "nonce": "drawn by the sender",
        "name": TEXT,
        "host": "host of the app; empty: absent",
    },
    Kind.ROLLBACK: {
        "records": "so many of those read last are no longer in the store",
        "position": "position from which the store is another one",
    },
    Kind.ORDER: {
        "input": "index of the input, from 0",
        "flags": "bit 1: these records were taken back",
        "first": "position of the first record in the input",
        "end": "position after the last record",
        "first_index": "index of the first record in the input",
        "count": "number of records",
    },
}
_CONTROL[Kind.RECOVERED] = _CONTROL[Kind.STALE]

#: What the members of the enumerations of records mean.
_KINDS = {
    Kind.PAD: "fills the end of a ring; no reader sees it",
    Kind.MESSAGE: "an undecoded message: `record.payload` is its bytes, with Roq behind the 16 "
    "bytes of its first datagram's header",
    Kind.GAP: "numbers are lost; all objects of the stream are in doubt",
    Kind.SESSION: "a new session of the publisher; the state of the one before is void",
    Kind.STALE: "this object is not sound, and waits for a snapshot",
    Kind.RECOVERED: "this object is sound (again)",
    Kind.CONNECTION: "a channel, line, writer or loop fell silent, or is heard again",
    Kind.DISAGREEMENT: "different bytes came under one number, on two lines or on one",
    Kind.RESTART: "the record log has a new writer; treat it as a new session",
    Kind.LAPPED: "the reader, or the recorder, missed records here",
    Kind.DATAGRAM: "raw capture: a datagram as received",
    Kind.CLOCK: "raw capture: a time at which something changed",
    Kind.BUS: "bus: a message of an app",
    Kind.SENDER: "bus: registers a sender",
    Kind.SENDERS: "bus: all senders, one after the other",
    Kind.ROLLBACK: "bus: records that were read are no longer in the store",
    Kind.ORDER: "bus: which records of an input a composite takes next",
} | {Kind[name]: said for name, said in KINDS.items()}
_FLAGS = {
    RecordFlag.SNAPSHOT: "complete state of its object, not a change",
    RecordFlag.HEARTBEAT: "inside the feed only; no record has it",
    RecordFlag.RELEASED: "it waited for a snapshot of its object",
    RecordFlag.TRUNCATED: "a text or list was cut, or a name had no room",
    RecordFlag.NO_TIMESTAMP: "`received_ns` is the loop's clock, not the kernel's or the card's",
    RecordFlag.UNGATED: "passed without a check of its object",
    RecordFlag.FIRST: "its object had nothing before",
    RecordFlag.DOUBT: "the feed did not know whether the book of its instrument is sound",
}
_REASONS: dict[type[enum.IntEnum], tuple[str, str]] = {
    GapReason: ("GAP, `reason`", "[shared-memory.md](shared-memory.md#record) says when each is"),
    SessionReason: ("SESSION, `reason`", "SAME_ID is a restart, RESUMED: the one before goes on"),
    LappedReason: (
        "LAPPED, `reason`",
        "READER: overwritten, or removed to make room, before they were read",
    ),
    ObjectStatus: ("STALE, RECOVERED, `status`", "only a LIVE object can be trusted"),
    ObjectWait: ("STALE, RECOVERED, `waits`", "what an object that is not LIVE waits for"),
    ConnectionStatus: ("CONNECTION, `status`", "READY ends a silence, DISCONNECTED begins it"),
    ConnectionScope: ("CONNECTION, `scope`", "what is silent"),
}


def _type(dtype: np.dtype[Any]) -> str:
    # `S36` and `f8` as numpy prints them, integers by their full names.
    return dtype.str.lstrip("<|") if dtype.kind in "SV" else dtype.name


#: Parts of a record, as sources of columns name them.
_HEAD, _PAYLOAD, _ROW = ("record",), ("payload", "update", "name", "event"), ("row",)
#: The computed columns that show a field, by its part and name.
_COMPUTED = {
    (_HEAD, "flight_ns"): "sent_ns",
    (_HEAD, "stream"): "stream",
    (_HEAD, "session"): "session",
    (_PAYLOAD, "flags"): "back",
    (_ROW, "min_price"): "steps",
    (_ROW, "tick_size"): "steps",
}


def _columns_of(kind: Kind | None, part: tuple[str, ...], field: str) -> str:
    # Return the columns that show a field of a kind or, without a kind, of every record.
    sources = {f"{each}.{field}" for each in part} | {_COMPUTED.get((part, field), "")}

    def showing(columns: Iterable[Column]) -> dict[str, str]:
        return {each.name: f"`{each.name}`" for each in columns if each.source in sources}

    tables = (*RECORD_TABLES.values(), *LAYOUT_TABLES.values())
    of_kind = [each for each in tables if kind and kind.name in each.kinds]
    exported = [column for table in of_kind for column in table.columns]
    found = showing((*exported, *RECORD_TABLES["messages"].columns, *PARTITIONS))
    frame = frame_columns(kind)
    if kind and frame and part is _PAYLOAD:
        for name, shown in showing(frame.columns).items():
            found.setdefault(name, f"{shown} in frames")
    return ", ".join(found.values()) or "none"


def _table(
    dtype: np.dtype[Any],
    said: dict[str, str],
    skip: Iterable[str] = (),
    *,
    kind: Kind | None,
    part: tuple[str, ...] = _PAYLOAD,
) -> Iterator[str]:
    yield from ("", "| field | dtype | in tables | meaning, unit, absent |", "|---|---|---|---|")
    for name in dtype.names or ():
        if name in skip or name.startswith("reserved"):
            continue
        field = dtype[name]
        meaning = said.get(name) or (TEXT if field.kind == "S" else "")
        if not meaning:
            raise SystemExit(f"scripts/record_fields.py says nothing of the field {name!r}")
        yield f"| `{name}` | {_type(field)} | {_columns_of(kind, part, name)} | {meaning} |"
    yield ""


def column_meaning(column: Column, kinds: Iterable[str]) -> str:
    """Return what a column of a table of some kinds says: its own words, or those of its field."""
    part, _, field = column.source.partition(".")
    of_kind = ROWS if part == "row" else OWN | {kind.name: _CONTROL[kind] for kind in _CONTROL}
    found = [of_kind.get(kind, {}).get(field, "") for kind in kinds if field]
    if part == "update":
        found.append(HEADER[field])
    if part in ("payload", "row") and column.type == "string" and not column.words:
        found.append(TEXT)
    meaning = next(filter(None, [column.doc, *found]), "")
    if not meaning:
        raise SystemExit(f"scripts/record_fields.py says nothing of the column {column.name!r}")
    # What is absent is NULL in a table, and an enumeration's number a word.
    for absent in ("NaN:", "Undefined:", "empty: absent"):
        meaning = meaning.replace(absent, "NULL:" + absent.partition(":")[2])
    return meaning.replace("](#", "](records.md#")


def header_table() -> str:
    """Return the fields of every record's header."""
    return "\n".join(_table(RECORD, _RECORD, kind=None, part=_HEAD))


def update_tables() -> str:
    """Return the fields that all updates begin with, then those of each kind and of its rows."""
    common = TRADES.names or ()
    parts = ["### Every update", "", "`record.data` of a BOOK and of every kind below begins with:"]
    parts += _table(TRADES, HEADER, kind=Kind.TRADES)
    for kind, dtype in UPDATE_DTYPES.items():
        parts += [f"### {kind.name}", "", f"{_KINDS[kind][0].upper()}{_KINDS[kind][1:]}."]
        own = [name for name in dtype.names or () if name not in common]
        if any(not name.startswith("reserved") for name in own):
            parts += ["", "`record.data`, besides the fields of every update:"]
            parts += _table(dtype, OWN.get(kind.name, {}), common, kind=kind)
        else:
            parts.append("")
        if kind in ROW_DTYPES:
            sides = ", `record.bids`, `record.asks`" if kind is Kind.BOOK else ""
            parts.append(f"`record.rows`{sides}:")
            parts += _table(ROW_DTYPES[kind], ROWS[kind.name], kind=kind, part=_ROW)
    return "\n".join(parts)


def control_tables() -> str:
    """Return the fields of records that are not updates."""
    parts: list[str] = []
    for kind, dtype in CONTROL_DTYPES.items():
        if kind is Kind.RECOVERED:
            continue
        coded = {
            field: ", ".join(f"{number} {word}" for number, word in words.items())
            for (of, field), words in CONTROL_WORDS.items()
            if of is kind
        }
        if kind is Kind.STALE:
            parts += ["### STALE and RECOVERED", ""]
            parts += [f"STALE: {_KINDS[kind]}. RECOVERED: {_KINDS[Kind.RECOVERED]}."]
        else:
            parts += [f"### {kind.name}", "", f"{_KINDS[kind][0].upper()}{_KINDS[kind][1:]}."]
        parts += _table(dtype, _CONTROL[kind] | coded, kind=kind)
    return "\n".join(parts)


def enumeration_tables() -> str:
    """Return the members of all enumerations with their numbers."""
    parts = ["### Kind", "", "`udpfast.Kind`, an `IntEnum`.", ""]
    parts += ["| number | member | what it is |", "|---|---|---|"]
    parts += [f"| {kind.value} | `{kind.name}` | {_KINDS[kind]} |" for kind in Kind]
    parts += ["", "### RecordFlag", "", "`udpfast.RecordFlag`, an `IntFlag`: bits.", ""]
    parts += ["| bit | member | what it says |", "|---|---|---|"]
    parts += [f"| {flag.value} | `{flag.name}` | {_FLAGS[flag]} |" for flag in RecordFlag]
    parts.append("")
    for members, (of, what) in _REASONS.items():
        listed = ", ".join(f"{member.value} {member.name}" for member in members)
        parts += [f"### {members.__name__}", "", f"Of {of}: {what}.", "", f"{listed}.", ""]
    for name, words in ENUMS.items():
        fields = ", ".join(f"`{field}`" for field, of in UPDATE_ENUMS.items() if of == name)
        listed = ", ".join(f"{number} {word.lstrip('_')}" for number, word in words.items())
        seconds = ", seconds" if name == "Interval" else ""
        parts += [f"### {name}", "", f"Of {fields}{seconds}: {listed}.", ""]
    return "\n".join(parts)
