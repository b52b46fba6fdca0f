"""Messages of the fan-out, byte by byte, and invalid messages."""

import pytest

from udpfast.errors import FormatError
from udpfast.net.envelope import ENVELOPE_DTYPE, EnvelopeType, pack_names, unpack, unpack_names

OFFSETS = {
    "magic": 0,
    "version": 4,
    "type": 5,
    "layout": 8,
    "ring": 16,
    "epoch": 24,
    "began": 32,
    "began_at": 40,
    "stream": 48,
    "sequence": 56,
    "unseen": 64,
    "index": 72,
    "tail": 80,
    "count": 88,
    "table": 92,
    "names": 96,
    "last": 100,
}


def envelope(**fields: int) -> bytes:
    import numpy as np

    found = np.zeros((), ENVELOPE_DTYPE)
    for name, value in ({"magic": 0x7A706475, "version": 2} | fields).items():
        found[name] = value
    return found.tobytes()


def test_envelope_has_the_documented_offsets() -> None:
    assert ENVELOPE_DTYPE.itemsize == 104
    assert {name: ENVELOPE_DTYPE.fields[name][1] for name in OFFSETS} == OFFSETS


@pytest.mark.parametrize("place", [0, 1])
def test_unpack_takes_topic_envelope_and_body_apart(place: int) -> None:
    message = unpack(b"BOOK/" + bytes([place]) + envelope(type=EnvelopeType.ALIVE) + b"body")
    assert (message.topic, message.answer, message.body) == (b"BOOK/", bool(place), b"body")
    assert message.envelope["type"] == EnvelopeType.ALIVE


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        b"BOOK/",
        b"BOOK/\0",
        b"\0" + envelope()[:-1],
        b"\0" + envelope(magic=1),
        b"\0" + envelope(version=1),
        100 * b"\xff",
    ],
)
def test_unpack_foreign_message_is_refused(message: bytes) -> None:
    with pytest.raises(FormatError, match="magic 7a706475, version 2"):
        unpack(message)


def test_names_come_back_as_they_were_packed() -> None:
    names = [b"deribit", b"", 120 * b"x"]
    assert unpack_names(pack_names(7, names), 3) == (7, names)


@pytest.mark.parametrize("count", [0, 1, 3, 1 << 31])
def test_unpack_names_other_count_is_refused(count: int) -> None:
    with pytest.raises(FormatError):
        unpack_names(pack_names(1, [b"a", b"b"]), count)


def test_unpack_names_truncated_anywhere_is_refused() -> None:
    body = pack_names(1, [b"ab", b"cd"])
    for size in range(len(body)):
        with pytest.raises(FormatError):
            unpack_names(body[:size], 2)
