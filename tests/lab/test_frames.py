"""Datagrams by hand, against the golden headers and the real parser's message."""

import pytest

from lab.frames import datagram, datagrams, heartbeat
from udpfast.core.layout import Kind
from udpfast.feed.pipeline import FeedPipeline


@pytest.mark.parametrize("revision", ["current", "legacy"])
@pytest.mark.parametrize("byteorder", ["little", "big"])
@pytest.mark.parametrize("size", [1, 512, 513, 1024, 131072])
def test_message_is_what_the_feed_makes_of_its_datagrams(
    revision: str, byteorder: str, size: int
) -> None:
    payload = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
    engine = FeedPipeline(revision=revision, byteorder=byteorder)
    came = []
    for at, data in enumerate(
        datagrams(
            payload,
            session_id=9,
            seqno=77,
            last_seqno=70,
            object_type=3,
            object_id=515,
            snapshot=True,
            revision=revision,
            byteorder=byteorder,
        )
    ):
        engine.accept(0, 0, data, at, at)
        came += [message for message in engine.take() if message.kind == Kind.MESSAGE]
    (message,) = came
    assert (message.session_id, message.seqno, message.last_seqno) == (9, 77, 70)
    assert (message.object_type, message.object_id, message.payload) == (3, 515, payload)
    assert bool(message.flags & 1) is (revision == "current")


def test_header_lies_where_the_protocol_says() -> None:
    data = datagram(
        b"p",
        session_id=0x0A0B,
        seqno=0x01020304,
        last_seqno=0x05060708,
        object_type=3,
        object_id=0x0C0D,
        fragment=1,
        fragment_max=2,
        control=0x12,
    )
    assert data.hex() == "120102030d0c0b0a040302010807060570"


def test_heartbeat_is_a_header_alone() -> None:
    assert len(heartbeat(seqno=(1 << 32) + 5)) == 16
    assert heartbeat(seqno=(1 << 32) + 5)[8:12] == b"\x05\x00\x00\x00"


def test_message_beyond_256_fragments_is_refused() -> None:
    with pytest.raises(ValueError, match="131072"):
        datagrams(bytes(131073))
