"""Damage to bytes, from a seeded generator: what a bad line, or somebody ill-meaning, may send."""

import random
from collections.abc import Callable, Sequence

__all__ = ["mutated", "random_bytes"]

#: The edges of integers of 1, 2, 4 and 8 bytes, where sizes and offsets go wrong.
_EDGES = (0, 1, 2, 4, 16, 127, 255, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**64 - 1)


def mutated(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """Return a damaged copy of `data`.

    Parameters
    ----------
    data : bytes
        Something valid.
    others : sequence of bytes
        Other valid ones, to splice with.
    rng : random.Random
        Decides everything.
    """
    return rng.choice(_MUTATIONS)(data, others, rng)


def random_bytes(rng: random.Random, size_max: int) -> bytes:
    """Return 0 to `size_max` bytes without any meaning."""
    return rng.randbytes(rng.randint(0, size_max))


def _flip(data: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    # 1 to 8 bytes changed, anywhere.
    changed = bytearray(data)
    for _index in range(rng.randint(1, 8) if data else 0):
        changed[rng.randrange(len(data))] ^= rng.randint(1, 255)
    return bytes(changed)


def _flip_head(data: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    # One bit of the first 16 bytes: the header of a datagram, the root of a payload.
    changed = bytearray(data)
    if data:
        changed[rng.randrange(min(16, len(data)))] ^= 1 << rng.randint(0, 7)
    return bytes(changed)


def _number(data: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    # An aligned number at the edge of its range, or near the size of the whole.
    size = rng.choice((1, 2, 4, 4, 8))
    if len(data) < size:
        return data
    place = rng.randrange(len(data) // size) * size
    value = rng.choice((*_EDGES, len(data), len(data) - 4, len(data) - place))
    number = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return data[:place] + number + data[place + size :]


def _truncate(data: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    return data[: rng.randint(0, len(data))]


def _extend(data: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    return data + random_bytes(rng, 64)


def _splice(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    # The beginning of one and the end of another.
    other = rng.choice(others)
    return data[: rng.randint(0, len(data))] + other[rng.randint(0, len(other)) :]


def _replace(data: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    return random_bytes(rng, len(data) + 32)


_MUTATIONS: tuple[Callable[[bytes, Sequence[bytes], random.Random], bytes], ...] = (
    _flip,
    _flip,
    _flip_head,
    _number,
    _number,
    _truncate,
    _extend,
    _splice,
    _replace,
)
