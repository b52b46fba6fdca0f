"""Which datagrams of a capture are lines of one feed."""

import ipaddress
import struct
from pathlib import Path

import pytest

from lab.framings import Sent, build
from udpfast.agents.feed.replay_lines import flow_at, guess_lines
from udpfast.errors import ConfigError
from udpfast.wire.framing import Framing

PORT = 30001


def written(path: Path, feeds: dict[str, tuple[bytes, int]]) -> Path:
    """A capture of groups on one port: of each its session, and the messages of its datagrams."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 101))
        for group, (session, packed) in feeds.items():
            for first in range(1, 61, packed):
                messages = tuple(b"%s %d" % (session, first + i) for i in range(packed))
                data = build("moldudp64", Sent(first, messages, (), session))
                frame = struct.pack(">HHIHH", 0x4500, 28 + len(data), 0, 0x4011, 0)
                frame += ipaddress.ip_address("10.0.0.1").packed
                frame += ipaddress.ip_address(group).packed
                frame += struct.pack(">HHHH", 5, PORT, 8 + len(data), 0) + data
                file.write(struct.pack("<IIII", first, 0, len(frame), len(frame)) + frame)
    return path


def test_lines_that_pack_the_same_messages_otherwise_are_of_one_feed(tmp_path: Path) -> None:
    feeds = {f"239.1.1.{n}": (b"0000000001", packed) for n, packed in enumerate((1, 3, 10), 1)}
    path = written(tmp_path / "a.pcap", feeds)
    assert guess_lines(path, Framing("moldudp64")) == {
        "incremental": [flow_at(group, PORT) for group in feeds],
        "snapshot": [],
    }


def test_feeds_of_one_port_are_told_apart_by_their_groups(tmp_path: Path) -> None:
    feeds = {"239.1.1.1": (b"0000000001", 3), "239.1.1.2": (b"0000000002", 3)}
    path = written(tmp_path / "a.pcap", feeds)
    with pytest.raises(ConfigError, match=f"found 2 feeds: 239.1.1.1:{PORT}; 239.1.1.2:{PORT}"):
        guess_lines(path, Framing("moldudp64"))
