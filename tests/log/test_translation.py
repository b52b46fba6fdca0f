"""Records of other layouts, compared with a slow translation of one field at a time."""

import random
from typing import Any

import numpy as np
import pytest

from tests.layouts import NEWER, OLDER, changed, header, layouts_with, of
from udpfast.core.layout import RECORD, Kind
from udpfast.core.layouts import Layouts
from udpfast.errors import FormatError
from udpfast.log.translation import DEFAULTS, Translation
from udpfast.market.updates import LAYOUTS

KINDS = [*(int(kind) for kind in LAYOUTS.payloads), int(Kind.MESSAGE), 99]


def values(chance: random.Random, dtype: np.dtype[Any], count: int = 1) -> Any:
    found = np.zeros(count, dtype)
    for name in dtype.names or ():
        kind = dtype.fields[name][0].kind
        if kind in "ui":
            found[name] = [chance.randrange(100) for _ in range(count)]
        elif kind == "f":
            found[name] = [chance.random() for _ in range(count)]
        elif kind == "S":
            found[name] = [b"x" * chance.randrange(4) for _ in range(count)]
    return found


def content(chance: random.Random, layouts: Layouts, kind: int) -> bytes:
    """A payload of the kind: whole, with bytes after it, or cut."""
    if kind not in layouts.payloads:
        return chance.randbytes(chance.randrange(50))
    fixed = values(chance, layouts.payloads[kind])
    count = chance.randrange(4) if kind in layouts.rows else 0
    if count or "row_count" in fixed.dtype.names:
        fixed["row_count"] = count
    made = fixed.tobytes()
    if count:
        made += values(chance, layouts.rows[kind], count).tobytes()
    made += bytes(chance.choice((0, 0, 0, 3)))
    return made[: chance.randrange(len(made))] if chance.random() < 0.1 else made


def copied(source: Any, target: np.dtype[Any], defaults: dict[str, int]) -> Any:
    found = np.zeros((), target)
    for name in target.names or ():
        kind = target.fields[name][0].kind
        if name in (source.dtype.names or ()) and kind != "V" and not name.startswith("reserved"):
            found[name] = source[name]
        elif name in defaults:
            found[name] = defaults[name]
        elif kind == "f":
            found[name] = np.nan
    return found


def expected(source: Layouts, target: Layouts, kind: int, payload: bytes) -> bytes:
    fixed = source.payloads.get(kind)
    if fixed is None or kind not in target.payloads or len(payload) < fixed.itemsize:
        return payload
    head = np.frombuffer(payload, fixed, 1)[0]
    row = source.rows.get(kind)
    count = int(head["row_count"]) if row is not None else 0
    end = fixed.itemsize + count * (row.itemsize if row is not None else 0)
    if end > len(payload):
        return payload
    made = copied(head, target.payloads[kind], {}).tobytes()
    for each in np.frombuffer(payload, row, count, fixed.itemsize) if count else ():
        made += copied(each, target.rows[kind], {}).tobytes()
    return made + payload[end:]


@pytest.mark.parametrize("source", [OLDER, NEWER, LAYOUTS])
@pytest.mark.parametrize("room", [1 << 16, 700])
def test_records_become_those_of_this_version_field_by_field(source: Layouts, room: int) -> None:
    chance = random.Random(7)
    translation = Translation(source, LAYOUTS)
    for _ in range(40):
        kinds = [chance.choice(KINDS) for _ in range(chance.randrange(1, 20))]
        payloads = [content(chance, source, kind) for kind in kinds]
        headers = values(chance, source.header, len(kinds))
        headers["kind"] = kinds
        headers["length"] = [source.header.itemsize + len(each) for each in payloads]
        padded = [each + bytes(-len(each) % 8) for each in payloads]
        offsets = np.cumsum([0, *(len(each) for each in padded)])[:-1].astype(np.uint64)
        memory = np.frombuffer(b"".join(padded) + bytes(8), np.uint8)
        into = np.zeros(32, RECORD), np.zeros(32, np.uint64), np.full(room, 255, np.uint8)
        done = translation.run(headers, offsets, memory, into)
        assert done == len(kinds) or room == 700
        for i in range(done):
            found = into[0][i]
            start = int(into[1][i])
            wanted = expected(source, LAYOUTS, kinds[i], payloads[i])
            assert start % 8 == 0
            assert found["length"] == RECORD.itemsize + len(wanted)
            assert into[2][start : start + len(wanted)].tobytes() == wanted
            head = copied(headers[i], RECORD, DEFAULTS)
            head["length"] = found["length"]
            assert found.tobytes() == head.tobytes()


def one(source: Layouts, kind: Kind, payload: bytes, **fields: int) -> tuple[Any, bytes]:
    headers = np.zeros(1, source.header)
    headers["kind"], headers["length"] = kind, source.header.itemsize + len(payload)
    headers["index"] = 5
    for name, value in fields.items():
        headers[name] = value
    into = np.zeros(1, RECORD), np.zeros(1, np.uint64), np.zeros(1 << 12, np.uint8)
    memory = np.frombuffer(payload + bytes(8), np.uint8)
    assert Translation(source, LAYOUTS).run(headers, np.zeros(1, np.uint64), memory, into) == 1
    return into[0][0], into[2][: int(into[0][0]["length"]) - 64].tobytes()


def test_number_that_does_not_fit_is_an_error() -> None:
    gap = np.zeros((), NEWER.payloads[int(Kind.GAP)])
    gap["reason"] = 1 << 32
    with pytest.raises(
        FormatError, match=r"record 5: .* has reason .*4294967296.* this version.s <u4"
    ):
        one(NEWER, Kind.GAP, gap.tobytes())


def test_sign_that_does_not_fit_is_an_error() -> None:
    signed = layouts_with(header(64, number=("<i8", 40)), {}, {})
    assert one(signed, Kind.CLOCK, b"", number=7)[0]["number"] == 7
    with pytest.raises(FormatError, match="record 5: the header has number"):
        one(signed, Kind.CLOCK, b"", number=-1)


def test_text_that_does_not_fit_is_an_error() -> None:
    wide = {Kind.GATEWAY_STATUS: changed(of(Kind.GATEWAY_STATUS), types={"account": "S40"})}
    layouts = layouts_with(RECORD, wide, {})
    status = np.zeros((), layouts.payloads[int(Kind.GATEWAY_STATUS)])
    status["account"] = b"a" * 32
    assert b"a" * 32 in one(layouts, Kind.GATEWAY_STATUS, status.tobytes())[1]
    status["account"] = b"a" * 33
    with pytest.raises(FormatError, match="has account"):
        one(layouts, Kind.GATEWAY_STATUS, status.tobytes())


def test_field_of_another_nature_is_an_error() -> None:
    layouts = layouts_with(RECORD, {Kind.GAP: changed(of(Kind.GAP), types={"count": "<f8"})}, {})
    with pytest.raises(FormatError, match=r"kind 3: .*count .*<u8.*<f8"):
        Translation(layouts, LAYOUTS)
