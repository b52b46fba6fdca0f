"""The wire header: golden datagrams of both revisions, byte orders, and the order of refusals."""

import json

import pytest

from tests.shared import shared
from udpfast.wire.frame import frame_parse

FIELDS = (
    "fragment",
    "fragment_max",
    "object_type",
    "object_id",
    "session_id",
    "seqno",
    "last_seqno",
    "encoding",
)


@pytest.mark.parametrize("revision", ["current", "legacy"])
def test_frame_of_golden_datagrams_reads_as_expected(revision: str) -> None:
    golden = json.loads(shared("wire", "golden", f"headers_{revision}.json").read_text())
    assert golden["datagrams"]
    for case in golden["datagrams"]:
        expect = case["expect"]
        parsed = frame_parse(bytes.fromhex(case["hex"]), revision=revision)
        assert parsed.error == expect.get("error"), case["name"]
        header = expect.get("header")
        if header is not None:
            for field in FIELDS:
                assert getattr(parsed, field) == header[field], (case["name"], field)
            if revision == "current":
                assert parsed.snapshot == header["snapshot"], case["name"]
                assert parsed.unused_bits == header["unused_bits"], case["name"]
        if expect["ok"]:
            assert list(parsed.warnings) == expect["warnings"], case["name"]
            assert parsed.payload_size == expect["payload_length"], case["name"]


def test_frame_in_big_endian_swaps_every_field() -> None:
    data = bytes.fromhex("0200000301020304050607080a0b0c0d")
    parsed = frame_parse(data, byteorder="big")
    assert (parsed.object_id, parsed.session_id) == (0x0102, 0x0304)
    assert (parsed.seqno, parsed.last_seqno) == (0x05060708, 0x0A0B0C0D)


def test_frame_of_every_size_below_a_header_is_too_short() -> None:
    for size in range(16):
        assert frame_parse(bytes(size)).error == "too_short"
    assert frame_parse(bytes(16)).error is None
