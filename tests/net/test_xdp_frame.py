"""Parsing a frame: headers of all forms, checksums, and no read beyond the end."""

import random
import struct

import pytest

from lab.fuzz_frames import fuzz_frames
from lab.guarded_frame import OUTCOMES, walk_frame
from tests.net.ethernet import FRAGMENT_HEADER, TCP, ethernet, ipv4, ipv6, udp

V4 = ("10.0.0.1", "239.1.2.3")
V6 = ("fd99::1", "ff15::7")
HOP_BY_HOP = struct.pack(">BB", 17, 0) + bytes(6)
FIRST_FRAGMENT = struct.pack(">BBHI", 17, 0, 1, 9)

WHOLE = {
    "plain": ethernet(ipv4(*V4, udp(*V4, b"payload", 9001))),
    "one tag": ethernet(ipv4(*V4, udp(*V4, b"payload", 9001)), tags=(0x8100,)),
    "two tags": ethernet(ipv4(*V4, udp(*V4, b"payload", 9001)), tags=(0x88A8, 0x8100)),
    "options": ethernet(ipv4(*V4, udp(*V4, b"payload", 9001), options=b"\1" * 40)),
    "padded": ethernet(ipv4(*V4, udp(*V4, b"payload", 9001))) + bytes(20),
    "do not fragment": ethernet(ipv4(*V4, udp(*V4, b"payload", 9001), fragment=0x4000)),
    "ipv6": ethernet(ipv6(*V6, udp(*V6, b"payload", 9001))),
    "ipv6 tag": ethernet(ipv6(*V6, udp(*V6, b"payload", 9001)), tags=(0x8100,)),
    "ipv6 options": ethernet(
        ipv6(*V6, udp(*V6, b"payload", 9001), protocol=0, extension=HOP_BY_HOP)
    ),
}


@pytest.mark.parametrize("shape", WHOLE)
@pytest.mark.parametrize("checksums", [0, 1, 2])
def test_walk_finds_the_datagram_in_every_shape(shape: str, checksums: int) -> None:
    walked = walk_frame(WHOLE[shape], checksums)
    assert walked.outcome == "datagram"
    assert (walked.payload, walked.source_port, walked.destination_port) == (b"payload", 7, 9001)
    if "ipv6" not in shape:
        assert walked.source == bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1])
        assert walked.destination == bytes(10) + b"\xff\xff" + bytes([239, 1, 2, 3])


@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 9, 15, 16, 63, 512, 528, 1472])
@pytest.mark.parametrize("ends", [V4, V6])
def test_walk_sums_payloads_of_every_size(size: int, ends: tuple[str, str]) -> None:
    payload = random.Random(size).randbytes(size)
    around = ipv4 if ends is V4 else ipv6
    right = ethernet(around(*ends, udp(*ends, payload, 9001)))
    assert walk_frame(right, 2).payload == payload
    for at in (len(right) - 1, len(right) - size // 2 - 1, len(right) - size - 8):
        wrong = bytearray(right)
        wrong[at] ^= 0x40
        assert walk_frame(bytes(wrong), 2).outcome == "checksum"


@pytest.mark.parametrize(
    ("checksum", "ends", "outcomes"),  # with checksums off, auto, on
    [
        ("right", V4, ("datagram", "datagram", "datagram")),
        ("partial", V4, ("datagram", "datagram", "checksum")),
        ("partial", V6, ("datagram", "datagram", "checksum")),
        ("wrong", V4, ("datagram", "checksum", "checksum")),
        ("wrong", V6, ("datagram", "checksum", "checksum")),
        ("none", V4, ("datagram", "datagram", "datagram")),
        ("none", V6, ("datagram", "checksum", "checksum")),
    ],
)
def test_walk_believes_checksums_as_it_is_told(
    checksum: str, ends: tuple[str, str], outcomes: tuple[str, ...]
) -> None:
    around = ipv4 if ends is V4 else ipv6
    frame = ethernet(around(*ends, udp(*ends, b"payload", 9001, checksum=checksum)))
    assert tuple(walk_frame(frame, how).outcome for how in range(3)) == outcomes


def test_walk_ipv4_header_sum_counts_too() -> None:
    frame = ethernet(ipv4(*V4, udp(*V4, b"payload", 9001), damage=0x10))
    assert [walk_frame(frame, how).outcome for how in range(3)] == [
        "datagram", "checksum", "checksum"]  # fmt: skip


REFUSED = {
    "first fragment": (ethernet(ipv4(*V4, udp(*V4, b"part", 9001), fragment=0x2000)), "fragment"),
    "later fragment": (ethernet(ipv4(*V4, b"more of the rest", fragment=5)), "fragment"),
    "ipv6 fragment": (
        ethernet(
            ipv6(
                *V6, udp(*V6, b"part", 9001), protocol=FRAGMENT_HEADER, extension=FIRST_FRAGMENT
            )
        ),
        "fragment",
    ),
    "tcp": (ethernet(ipv4(*V4, bytes(20), protocol=TCP)), "foreign"),
    "arp": (b"\xff" * 12 + b"\x08\x06" + bytes(28), "foreign"),
    "version": (ethernet(b"\x55" + bytes(30)), "malformed"),
    "udp shorter than its header": (
        ethernet(ipv4(*V4, struct.pack(">HHHH", 7, 9001, 7, 0))), "malformed"),
    "udp of no size": (ethernet(ipv4(*V4, struct.pack(">HHHH", 7, 9001, 0, 0))), "malformed"),
    "udp beyond ip": (ethernet(ipv4(*V4, struct.pack(">HHHH", 7, 9001, 9, 0))), "malformed"),
    "cut": (WHOLE["plain"][:-1], "malformed"),
    "header only": (WHOLE["plain"][:34], "malformed"),
    "empty": (b"", "malformed"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_walk_says_what_a_refused_frame_was(name: str) -> None:
    frame, outcome = REFUSED[name]
    assert walk_frame(frame).outcome == outcome


def test_walk_first_fragment_tells_its_port() -> None:
    assert walk_frame(REFUSED["first fragment"][0]).destination_port == 9001
    assert walk_frame(REFUSED["ipv6 fragment"][0]).destination_port == 9001


def test_walk_of_every_prefix_ends_inside_it() -> None:
    for frame in WHOLE.values():
        for size in range(len(frame)):
            walked = walk_frame(frame[:size])
            assert walked.outcome in OUTCOMES
            assert len(walked.payload) <= size


@pytest.mark.parametrize("seed", range(1, 11))
def test_walk_of_damaged_frames_says_what_a_slow_walk_says(seed: int) -> None:
    outcomes = fuzz_frames(seed, 2_000)
    assert sum(outcomes.values()) == 2_000
    assert min(outcomes[name] for name in OUTCOMES) > 50
