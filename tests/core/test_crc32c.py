"""CRC32C by instruction and by table, with the published vectors."""

import random

import pytest

from udpfast.core.crc32c import crc32c, crc32c_in_hardware

#: RFC 3720, B.4, and the check value of the catalogue of CRCs.
VECTORS = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]


@pytest.mark.parametrize("tables", [False, True])
@pytest.mark.parametrize(("content", "expected"), VECTORS)
def test_crc32c_of_published_vectors(content, expected, tables):
    assert crc32c(content, tables=tables) == expected


@pytest.mark.skipif(not crc32c_in_hardware(), reason="this processor has no CRC32C instruction")
@pytest.mark.parametrize("alignment", range(8))
def test_crc32c_of_any_size_and_alignment_by_instruction_equals_tables(alignment):
    content = memoryview(random.Random(1).randbytes(4096 + 8))[alignment:]
    for size in range(4097):
        piece = content[:size]
        assert crc32c(piece) == crc32c(piece, tables=True), size
