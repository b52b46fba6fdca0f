"""Damaged messages: refused or counted, and nothing is read behind them."""

import ctypes
import mmap
import random
from pathlib import Path

import numpy as np
import pytest

from tests.payload.sbe.schemas import ORDER, orders, schema_of
from udpfast.errors import ConfigError, FormatError
from udpfast.payload.sbe.payloads import Payloads
from udpfast.payload.sbe.schema import Schema

PAGE = mmap.PAGESIZE
_mprotect = ctypes.CDLL(None, use_errno=True).mprotect


def guarded(payloads: list[bytes]) -> Payloads:
    """Return payloads each of which ends right before a page that nobody may read."""
    memory = mmap.mmap(-1, 2 * PAGE * len(payloads))
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    addresses = []
    for i, payload in enumerate(payloads):
        end = (2 * i + 1) * PAGE
        memory[end - len(payload) : end] = payload
        addresses.append(base + end - len(payload))
        assert _mprotect(ctypes.c_void_p(base + end), PAGE, 0) == 0
    sizes = np.array([len(payload) for payload in payloads], np.uint64)
    return Payloads(np.array(addresses, np.uint64), sizes, np.arange(len(payloads)), memory)


@pytest.mark.parametrize("order", ["littleEndian", "bigEndian"])
def test_every_prefix_is_refused_and_nothing_behind_it_read(tmp_path: Path, order: str) -> None:
    schema = orders(tmp_path, f'byteOrder="{order}"')
    raw = schema.encode("Order", ORDER)
    prefixes = [raw[:size] for size in range(len(raw))]
    rows = schema.rows(guarded(prefixes))
    assert "sound" not in rows.counts
    assert sum(rows.counts.values()) == len(raw) == len(list(rows.damage()))
    assert list(rows) == []
    for prefix in prefixes:
        with pytest.raises(FormatError, match=r"(bytes at|header at|bytes of header) .*found \d"):
            schema.decode(prefix)


def test_flipped_bits_never_reach_behind_the_message(tmp_path: Path) -> None:
    schema = orders(tmp_path)
    raw = schema.encode("Order", ORDER)
    rng = random.Random(5)
    damaged = []
    for _ in range(2_000):
        flipped = bytearray(raw)
        for _ in range(rng.randint(1, 4)):
            flipped[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        damaged.append(bytes(flipped))
    rows = schema.rows(guarded(damaged))
    for path in schema:
        assert len(rows[path]) == rows.count(path)
        places = rows.places(path)
        assert (places["offset"] + places["size"] <= len(raw)).all()
    for name in ("memo", "key"):
        rows.texts("Order", name)
    sound = 0
    for each in damaged:
        try:
            schema.decode(each)
            sound += 1
        except FormatError:
            pass
    assert rows.counts["sound"] == sound


def test_good_ones_of_a_batch_stay(tmp_path: Path) -> None:
    schema = orders(tmp_path)
    raw = schema.encode("Order", ORDER)
    rows = schema.rows([raw, raw[:-1], b"", raw])
    assert rows.counts == {"sound": 2, "header_short": 1, "data_beyond": 1}
    assert rows.places("Order.fills")["payload"].tolist() == [0, 0, 3, 3]
    assert rows.places("Order.fills")["parent"].tolist() == [0, 0, 1, 1]
    assert [index for index, _ in rows.damage()] == [1, 2]
    with pytest.raises(FormatError, match=r"payload 1 of the batch: data Order\.key needs 2 bytes"):
        schema.table([raw, raw[:-1]], "Order")
    assert schema.table([raw, raw[:-1]], "Order", skip_damage=True).num_rows == 1


EMPTY_ROWS = (
    '<composite name="wide"><type name="blockLength" primitiveType="uint64"/>'
    '<type name="numInGroup" primitiveType="uint64"/></composite>',
    '<message name="M" id="1"><group name="g" id="1" dimensionType="wide">'
    '<group name="h" id="2" dimensionType="wide"/></group></message>'
    '<message name="F" id="2"><group name="g" id="1" dimensionType="wide"/></message>',
)


MOST = 2**64 - 1


@pytest.mark.parametrize("name", ["M", "F"])
@pytest.mark.parametrize(
    ("length", "count"),
    [
        (2**63, 2),
        (2**64 - 1, 2**64 - 1),
        (0, 2**64 - 1),
        (0, 2**32),
        (1, 2**64 - 1),
        (2**32, 2**32),
    ],
)
def test_lengths_and_counts_that_wrap_are_refused(
    tmp_path: Path, name: str, length: int, count: int
) -> None:
    schema = schema_of(tmp_path, *EMPTY_ROWS)
    raw = schema.encode(name, {"g": []})[:-16]
    raw += length.to_bytes(8, "little") + count.to_bytes(8, "little") + bytes(40)
    rows = schema.rows(guarded([raw]))
    assert "sound" not in rows.counts
    with pytest.raises(FormatError, match=r"group [MF]\.g (may have|has|needs)"):
        schema.decode(raw)


def test_rows_that_take_no_byte_have_a_limit(tmp_path: Path) -> None:
    schema = schema_of(tmp_path, *EMPTY_ROWS)
    most = len(schema.encode("F", {"g": []})) + 65_535
    raw = schema.encode("F", {"g": [{}] * most})
    assert len(schema.decode(raw)["g"]) == most
    with pytest.raises(FormatError, match=r"one for each byte"):
        schema.encode("F", {"g": [{}] * (most + 1)})


def test_declared_maximum_of_a_count_and_a_length_is_kept(tmp_path: Path) -> None:
    types = (
        '<composite name="few"><type name="blockLength" primitiveType="uint8"/>'
        '<type name="numInGroup" primitiveType="uint8" maxValue="2"/></composite>'
        '<composite name="short"><type name="length" primitiveType="uint8" maxValue="3"/>'
        '<type name="varData" primitiveType="uint8" length="0"/></composite>'
    )
    message = (
        '<message name="M" id="1"><group name="g" id="1" dimensionType="few"/>'
        '<data name="d" id="2" type="short"/></message>'
    )
    schema = schema_of(tmp_path, types, message)
    raw = schema.encode("M", {"g": [{}, {}], "d": b"abc"})
    with pytest.raises(ValueError, match=r"M\.g\.numInGroup must be from 0 to 2, was 3"):
        schema.encode("M", {"g": [{}] * 3})
    with pytest.raises(FormatError, match=r"group M\.g may have at most 2 rows, found 3"):
        schema.decode(raw[:9] + b"\x03" + raw[10:])
    with pytest.raises(FormatError, match=r"data M\.d needs 4 bytes at 11, found 3"):
        schema.decode(raw[:10] + b"\x04abcd")


def joined(schema: Schema, *names: str) -> list[bytes]:
    """Return messages of a schema."""
    return [schema.encode(name, ORDER if name == "Order" else {}) for name in names]


def test_messages_behind_each_other_are_all_read(tmp_path: Path) -> None:
    schema = orders(tmp_path)
    first, empty, last = joined(schema, "Order", "Empty", "Order")
    rows = schema.rows([first + empty + last, b"", empty], framing="deribit_sbe")
    assert rows.counts == {"sound": 4}
    assert rows.places("Order")["offset"].tolist() == [8, len(first + empty) + 8]
    table = schema.table([first + empty + last], "Order", framing="deribit_sbe")
    assert table["_payload"].to_pylist() == [0, 0]
    unknown = bytearray(empty)
    unknown[2] = 77
    with pytest.raises(FormatError, match=rf"found template 77 at {len(first)}"):
        schema.table([first + unknown + last], "Order", framing="deribit_sbe")


def test_messages_with_their_sizes_in_front_are_all_read(tmp_path: Path) -> None:
    schema = orders(tmp_path)
    messages = joined(schema, "Order", "Empty", "Order")
    damaged = messages[0][:-1]
    sized = [(len(m) + 2).to_bytes(2, "little") + m for m in (messages[0], damaged, *messages[1:])]
    rows = schema.rows(guarded([b"".join(sized)]), framing="cme_mdp3")
    assert rows.counts == {"sound": 3, "data_beyond": 1}
    assert rows.count("Order") == 2
    for bad in (b"\x01\x00", b"\x00", b"\x00\x00", b"\xff\xff" + messages[1]):
        assert schema.rows(guarded([bad]), framing="cme_mdp3").counts == {"header_short": 1}
    with pytest.raises(ConfigError, match=r"framing must be one of b3_umdf, cme_mdp3, deribit_sbe"):
        schema.rows([], framing="roq")


def test_batch_of_none_has_no_rows(tmp_path: Path) -> None:
    schema = orders(tmp_path)
    assert schema.rows([]).counts == {}
    for path in schema:
        assert schema.table([], path).num_rows == 0
    with pytest.raises(FormatError, match="expected a batch"):
        schema.rows(b"one")
