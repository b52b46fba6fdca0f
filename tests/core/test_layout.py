"""Every offset of every shared struct as a number, so that a change of layout fails a test.

The C structs are read from `layout.pxd` and laid out by the rules of C; the numpy dtypes must agree
with them field by field, and both with the table below.
"""

import re

import numpy as np
import pytest

from tests.shared import ROOT
from udpfast.core import layout

#: name: (size, {field: offset}). Other processes, journals and Spark rely on these numbers.
PACKED = {
    "Frame": (
        16,
        {
            "control": 0,
            "fragment": 1,
            "fragment_max": 2,
            "object_type": 3,
            "object_id": 4,
            "session_id": 6,
            "seqno": 8,
            "last_seqno": 12,
        },
    ),
    "Record": (
        64,
        {
            "length": 0,
            "kind": 4,
            "line": 5,
            "flags": 6,
            "position": 8,
            "index": 16,
            "received_ns": 24,
            "published_ns": 32,
            "number": 40,
            "object": 48,
            "flight_ns": 52,
            "stream": 56,
            "session": 58,
            "checksum": 60,
        },
    ),
    "Gap": (
        40,
        {"first": 0, "last": 8, "count": 16, "waited_ns": 24, "reason": 32, "reserved": 36},
    ),
    "Session": (
        48,
        {
            "old_id": 0,
            "new_id": 8,
            "first_number": 16,
            "unseen": 24,
            "reason": 32,
            "discarded": 36,
            "stream": 40,
            "reserved": 44,
        },
    ),
    "ObjectState": (
        24,
        {
            "object": 0,
            "status": 4,
            "waits": 5,
            "continues": 6,
            "reserved": 7,
            "applied": 8,
            "exchange_id": 16,
            "symbol_id": 20,
        },
    ),
    "Connection": (16, {"status": 0, "scope": 4, "silent_ns": 8}),
    "Disagreement": (
        24,
        {
            "number": 0,
            "hash_first": 8,
            "hash_other": 12,
            "fragment": 16,
            "line_first": 18,
            "line_other": 19,
            "reserved": 20,
        },
    ),
    "Restart": (16, {"epoch": 0, "restarted_ns": 8}),
    "Lapped": (16, {"missed": 0, "reason": 8, "reserved": 12}),
    "Capture": (16, {"now_ns": 0, "flags": 8, "address": 12}),
    "Clock": (16, {"now_ns": 0, "reason": 8, "reserved": 12}),
    "SenderEntry": (
        104,
        {
            "sender": 0,
            "incarnation": 4,
            "next": 8,
            "position": 16,
            "nonce": 24,
            "reserved": 32,
            "name": 40,
            "host": 72,
        },
    ),
    "Rollback": (16, {"records": 0, "position": 8}),
    "OrderEntry": (
        40,
        {"input": 0, "flags": 4, "first": 8, "end": 16, "first_index": 24, "count": 32},
    ),
}

#: Structs that are only passed by pointer within a process: aligned, not packed.
ALIGNED = {
    "Datagram": (
        32,
        {
            "data": 0,
            "size": 8,
            "flags": 12,
            "received_ns": 16,
            "channel": 24,
            "line": 25,
            "address": 26,
        },
    ),
    "Message": (
        88,
        {
            "payload": 0,
            "size": 8,
            "kind": 12,
            "flags": 14,
            "received_ns": 16,
            "number": 24,
            "session": 32,
            "stream": 34,
            "channel": 36,
            "line": 37,
            "fragments": 38,
            "object": 40,
            "detail": 48,
            "session_id": 56,
            "tag": 64,
            "sent_ns": 72,
            "unit_flags": 80,
            "stream_key": 84,
        },
    ),
}

DTYPES = {
    "Frame": layout.FRAME,
    "Record": layout.RECORD,
    "Gap": layout.GAP,
    "Session": layout.SESSION,
    "ObjectState": layout.OBJECT_STATE,
    "Connection": layout.CONNECTION,
    "Disagreement": layout.DISAGREEMENT,
    "Restart": layout.RESTART,
    "Lapped": layout.LAPPED,
    "Capture": layout.CAPTURE,
    "Clock": layout.CLOCK,
    "SenderEntry": layout.SENDER_ENTRY,
    "Rollback": layout.ROLLBACK,
    "OrderEntry": layout.ORDER_ENTRY,
}

SIZES = {"uint8_t": 1, "uint16_t": 2, "uint32_t": 4, "int32_t": 4, "uint64_t": 8, "int64_t": 8}


def structs() -> dict[str, tuple[bool, list[tuple[str, str]]]]:
    """Return for each struct in layout.pxd whether it is packed, and its (type, field) pairs."""
    text = (ROOT / "udpfast/core/layout.pxd").read_text()
    found = {}
    for match in re.finditer(r"^cdef (packed )?struct (\w+):.*\n((?:(?:    .*)?\n)+)", text, re.M):
        fields = re.findall(r"^    (const uint8_t\*|\w+) (\w+(?:\[\d+\])?)", match[3], re.M)
        found[match[2]] = (bool(match[1]), fields)
    return found


def laid_out(name: str) -> tuple[int, dict[str, int]]:
    """Return size and offsets of a struct of layout.pxd as C lays it out."""
    packed, fields = structs()[name]
    offset, widest, offsets = 0, 1, {}
    for kind, name_and_count in fields:
        field, _, count = name_and_count.rstrip("]").partition("[")
        if kind == "const uint8_t*":
            size, alignment = 8, 8
        elif kind == "char":
            size, alignment = int(count), 1
        elif kind in SIZES:
            size = alignment = SIZES[kind]
        else:
            size, alignment = laid_out(kind)[0], 1  # nested structs are packed
        if not packed:
            offset = -(-offset // alignment) * alignment
            widest = max(widest, alignment)
        offsets[field] = offset
        offset += size
    return -(-offset // widest) * widest, offsets


def test_structs_of_the_table_are_those_of_the_file() -> None:
    packed = {name for name, (is_packed, _) in structs().items() if is_packed}
    assert packed == set(PACKED)
    assert set(structs()) - packed == set(ALIGNED)


@pytest.mark.parametrize("name", [*PACKED, *ALIGNED])
def test_struct_has_the_literal_layout(name: str) -> None:
    assert laid_out(name) == {**PACKED, **ALIGNED}[name]


@pytest.mark.parametrize("name", PACKED)
def test_dtype_is_its_struct(name: str) -> None:
    size, offsets = PACKED[name]
    dtype = DTYPES[name]
    flat = dict(offsets)
    if "frame" in flat:  # the dtype holds the frame's fields flat
        begin = flat.pop("frame")
        flat |= {field: begin + offset for field, offset in PACKED["Frame"][1].items()}
    assert dtype.itemsize == size
    assert {field: dtype.fields[field][1] for field in dtype.names} == flat


@pytest.mark.parametrize("name", PACKED)
def test_dtype_fields_have_the_types_of_their_struct(name: str) -> None:
    codes = {
        "uint8_t": "|u1",
        "uint16_t": "<u2",
        "uint32_t": "<u4",
        "int32_t": "<i4",
        "uint64_t": "<u8",
        "int64_t": "<i8",
    }
    for kind, field in structs()[name][1]:
        if kind in codes:
            assert DTYPES[name].fields[field][0].str == codes[kind]


def test_commit_word_is_one_aligned_load() -> None:
    fields = PACKED["Record"][1]
    assert (fields["length"], fields["kind"], fields["flags"]) == (0, 4, 6)
    assert fields["position"] == 8


def test_layout_hash_tells_a_renamed_and_a_moved_field() -> None:
    base = np.dtype([("a", "<u4"), ("b", "<u4")])
    renamed = np.dtype([("a", "<u4"), ("c", "<u4")])
    moved = np.dtype({"names": ["a", "b"], "formats": ["<u4", "<u4"], "offsets": [0, 8]})
    hashes = {layout.layout_hash(dtype) for dtype in (base, renamed, moved)}
    assert len(hashes) == 3
    assert layout.layout_hash(base) == layout.layout_hash(np.dtype(base.descr))


def test_layout_hash_depends_on_order() -> None:
    first, second = layout.FRAME, layout.GAP
    assert layout.layout_hash(first, second) != layout.layout_hash(second, first)


def test_control_kinds_below_16_have_a_payload_or_none() -> None:
    without = {layout.Kind.PAD, layout.Kind.MESSAGE}
    below = {kind for kind in layout.Kind if kind < 16}
    assert {kind for kind in layout.CONTROL_DTYPES if kind < 16} | without == below
