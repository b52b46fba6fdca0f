"""Damaged datagrams through every framing: a reason or sound units, and not a byte beyond them.

A page that nobody may read lies right behind every datagram: a step beyond it ends the process.
"""

import os
import random
from functools import cache
from pathlib import Path

from udpfast.net.pcap import CaptureReader
from udpfast.wire.framing import FRAMINGS, Malformed

from .framings import build, draw
from .guarded_frame import GuardedFraming
from .mutate import mutated

__all__ = ["field_changed", "fuzz_wire", "real_datagrams"]

#: Where sizes, counts and lengths go wrong, beside those near the size of the datagram.
_EDGES = (0, 1, 2, 3, 8, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF, 2**31, 2**32 - 1)
_HEAD = 64


def fuzz_wire(seed: int, count: int, name: str = "") -> dict[str, int]:
    """Read `count` datagrams of a framing, most of them damaged.

    Parameters
    ----------
    seed, count : int
    name : str
        The framing; without one the seed chooses.

    Returns
    -------
    dict
        How many datagrams were sound, and how many were refused for which reason.

    Raises
    ------
    ValueError
        A unit is not what units promise to be.
    """
    rng = random.Random(seed)
    name = name or FRAMINGS[seed % len(FRAMINGS)]
    guarded = GuardedFraming(name)
    valid = [build(name, draw(name, rng)) for _ in range(48)] + list(real_datagrams(name))
    outcomes: dict[str, int] = {}
    for _ in range(count):
        datagram = rng.choice(valid)
        for _damage in range(rng.choice((0, 1, 1, 1, 2, 4))):
            if rng.random() < 0.5:
                datagram = field_changed(datagram, rng)
            else:
                datagram = mutated(datagram, valid, rng)
        try:
            found, _ = guarded.walk(datagram)
        except ValueError as error:
            raise ValueError(f"{name}: {error} in {datagram.hex()}") from None
        outcome = "sound" if found > 0 else Malformed(found).name.lower()
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


@cache
def real_datagrams(name: str) -> tuple[bytes, ...]:
    """Return the datagrams of the shared captures of a framing, where they are."""
    shared = Path(os.environ.get("UDPFAST_SHARED", "../shared"))
    found: list[bytes] = []
    for path in sorted((shared / "data" / "pcap" / "singles" / name).glob("*.pcap")):
        with CaptureReader(path) as reader:
            found += [datagram.payload for datagram in reader]
    return tuple(found)


def field_changed(data: bytes, rng: random.Random) -> bytes:
    """Change a number of either byte order, anywhere in the head, or in front of a message."""
    size = rng.choice((1, 1, 2, 2, 2, 4, 8))
    if len(data) < size:
        return data
    place = rng.randrange(min(len(data) - size + 1, _HEAD) if rng.random() < 0.7 else len(data))
    place = min(place, len(data) - size)
    near = len(data) - rng.choice((0, 1, 2, 8, 12, 16, 20, 40, place))
    value = rng.choice((*_EDGES, near, near + 1, near - 1)) & (1 << 8 * size) - 1
    number = value.to_bytes(size, "little")
    return data[:place] + (number if rng.random() < 0.5 else number[::-1]) + data[place + size :]
