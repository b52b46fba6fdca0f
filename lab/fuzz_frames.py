"""Damaged Ethernet frames through the walk that AF_XDP receives with, beside a slow one in Python.

A page that nobody may read lies right behind every frame: a step beyond it ends the process.
"""

import ipaddress
import random
import struct
from collections.abc import Sequence

from .guarded_frame import OUTCOMES, walk_frame
from .mutate import mutated

__all__ = ["WalkError", "fuzz_frames", "slow_walk"]

_UDP, _FRAGMENT = 17, 44
_TAGS = (0x8100, 0x88A8, 0x9100)
_OFF, _AUTO, _ON = range(3)  # CHECKSUMS_* of net/xdp_frame.pxd
_ROOM = 4096

_V4 = (bytes([10, 99, 0, 1]), bytes([239, 1, 2, 3]))
_V6 = (ipaddress.ip_address("fd99::1").packed, ipaddress.ip_address("ff15::7").packed)


class WalkError(Exception):
    """The two walks disagree about a frame."""


def fuzz_frames(seed: int, count: int) -> dict[str, int]:
    """Walk through `count` frames, most of them damaged.

    Returns
    -------
    dict
        How many frames had each outcome.

    Raises
    ------
    WalkError
        Outcome or payload is not what the slow walk says.
    """
    rng = random.Random(seed)
    valid = [_frame(rng) for _ in range(64)]
    outcomes = dict.fromkeys(OUTCOMES, 0)
    for _ in range(count):
        frame = rng.choice(valid)
        for _damage in range(rng.choice((0, 1, 1, 1, 2))):
            frame = (_header_changed if rng.random() < 0.7 else _damaged)(frame, valid, rng)
        frame = frame[:_ROOM]
        checksums = rng.randrange(3)
        walked = walk_frame(frame, checksums)
        expected = slow_walk(frame, checksums)
        if (walked.outcome, walked.payload) != expected:
            raise WalkError(
                f"checksums {checksums}: expected {expected}, found "
                f"{(walked.outcome, walked.payload)} in {frame.hex()}"
            )
        outcomes[walked.outcome] += 1
    return outcomes


def slow_walk(frame: bytes, checksums: int) -> tuple[str, bytes]:
    """Return what a frame is and its payload, read step by step."""
    if len(frame) < 15:
        return "malformed", b""
    at, kind = 14, _big(frame, 12)
    while kind in _TAGS:
        if len(frame) < at + 5:
            return "malformed", b""
        at, kind = at + 4, _big(frame, at + 2)
    if kind == 0x0800:
        return _slow_ipv4(frame[at:], checksums)
    if kind == 0x86DD:
        return _slow_ipv6(frame[at:], checksums)
    return "foreign", b""


def _slow_ipv4(network: bytes, checksums: int) -> tuple[str, bytes]:
    if len(network) < 20:
        return "malformed", b""
    size = (network[0] & 15) * 4
    total = _big(network, 2) or len(network)
    if network[0] >> 4 != 4 or size < 20 or total < size:
        return "malformed", b""
    if _big(network, 6) & 0x3FFF:
        return "fragment", b""
    if network[9] != _UDP:
        return "foreign", b""
    return _slow_udp(network[size:], total - size, network[12:20], network[:size], checksums)


def _slow_ipv6(network: bytes, checksums: int) -> tuple[str, bytes]:
    if len(network) < 40 or network[0] >> 4 != 6:
        return "malformed", b""
    left, following, at = _big(network, 4), network[6], 40
    while following in (0, 43, 60):
        if left < 8 or len(network) < at + 8:
            return "malformed", b""
        following, size = network[at], (network[at + 1] + 1) * 8
        if size > left:
            return "malformed", b""
        at, left = at + size, left - size
    if following == _FRAGMENT:
        return "fragment", b""
    if following != _UDP:
        return "foreign", b""
    return _slow_udp(network[at:], left, network[8:40], b"", checksums)


def _slow_udp(
    rest: bytes, left: int, ends: bytes, header: bytes, checksums: int
) -> tuple[str, bytes]:
    # `header`: of IPv4, which has a sum of its own.
    if left < 8 or len(rest) < 8 or not 8 <= _big(rest, 4) <= min(left, len(rest)):
        return "malformed", b""
    whole = rest[: _big(rest, 4)]
    pseudo = ends + struct.pack(">HH", _UDP, len(whole))
    field = _big(whole, 6)
    if checksums == _OFF:
        right = True
    elif header and _sum(header) != 0xFFFF:
        right = False
    elif field == 0:
        right = bool(header)
    else:
        partial = checksums == _AUTO and field == _sum(pseudo)
        right = partial or _sum(pseudo + whole) == 0xFFFF
    return ("datagram", whole[8:]) if right else ("checksum", b"")


def _big(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "big")


def _sum(data: bytes) -> int:
    # The folded one's complement sum of big-endian words (RFC 1071).
    data += bytes(len(data) % 2)
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def _frame(rng: random.Random) -> bytes:
    v4 = rng.random() < 0.6
    source, destination = _V4 if v4 else _V6
    body = rng.randbytes(rng.choice((0, 1, 16, 63, 80, 528, 1400)))
    size = 8 + len(body)
    head = struct.pack(">HHH", 7, 9001, size)
    pseudo = source + destination + struct.pack(">HH", _UDP, size)
    field = {
        "right": _sum(pseudo + head + b"\0\0" + body) ^ 0xFFFF or 0xFFFF,
        "partial": _sum(pseudo),
        "none": 0,
    }[rng.choice(("right", "right", "partial", "none"))]
    network = head + struct.pack(">H", field) + body
    network = (_ipv4 if v4 else _ipv6)(source + destination, network, rng)
    tags = rng.choice(((), (), (0x8100,), (0x88A8, 0x8100)))
    kinds = (*tags, 0x0800 if v4 else 0x86DD)
    frame = bytes(12) + struct.pack(">H", kinds[0])
    frame += b"".join(struct.pack(">HH", 100, kind) for kind in kinds[1:])
    padding = bytes(rng.choice((0, 0, 18)))
    return frame + network + padding


def _ipv4(ends: bytes, body: bytes, rng: random.Random) -> bytes:
    options = b"\1" * rng.choice((0, 0, 0, 4, 40))
    words, fragment = 5 + len(options) // 4, rng.choice((0, 0, 0, 0x4000, 0x2000, 5))
    total = 4 * words + len(body)
    head = struct.pack(">BBHHHBBH", 0x40 | words, 0, total, 1, fragment, 64, _UDP, 0)
    right = _sum(head + ends + options) ^ 0xFFFF
    return head[:10] + struct.pack(">H", right) + ends + options + body


def _ipv6(ends: bytes, body: bytes, rng: random.Random) -> bytes:
    first, extension = rng.choice(
        (
            (_UDP, b""),
            (_UDP, b""),
            (0, bytes([_UDP, 0]) + bytes(6)),
            (60, bytes([43, 1]) + bytes(14) + bytes([_UDP, 0]) + bytes(6)),
            (0, bytes([_FRAGMENT, 0]) + bytes(6) + struct.pack(">BBHI", _UDP, 0, 1, 9)),
            (_FRAGMENT, struct.pack(">BBHI", _UDP, 0, 1, 9)),
        )
    )
    size = len(extension) + len(body)
    return struct.pack(">IHBB", 6 << 28, size, first, 64) + ends + extension + body


def _header_changed(frame: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    # A byte of the headers, or the frame ends within them.
    if len(frame) < 13 or rng.random() < 0.1:
        return frame[: rng.randint(0, 80)]
    changed = bytearray(frame)
    changed[rng.randrange(12, min(80, len(frame)))] = rng.choice(
        (*range(9), 255, rng.randrange(256))
    )
    return bytes(changed)


def _damaged(frame: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    return mutated(frame, others, rng)
