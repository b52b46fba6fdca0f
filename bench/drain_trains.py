"""Bursts of datagrams whose numbers go on from one burst to the next, so that all are delivered."""

from __future__ import annotations

from typing import Any

import numpy as np

from udpfast.core.layout import Encoding
from udpfast.payload.roq.encode import encode_book

__all__ = ["BOOK_OBJECT_TYPE", "FRAME", "Train", "books", "fragments", "in_order", "swapped"]

#: The 16-byte frame before every payload.
FRAME = np.dtype(
    [
        ("control", "u1"),
        ("fragment", "u1"),
        ("fragment_max", "u1"),
        ("object_type", "u1"),
        ("object_id", "<u2"),
        ("session_id", "<u2"),
        ("seqno", "<u4"),
        ("last_seqno", "<u4"),
    ]
)
FRAGMENT_SIZE = 512
FRAGMENTS = 256
SWAP_EVERY = 100
SWAP_DISTANCE = 64
BOOK_OBJECTS = 64
BOOK_OBJECT_TYPE = 1

Rows = np.ndarray[Any, np.dtype[np.uint8]]


class Train:
    """One burst: a row per datagram.

    Attributes
    ----------
    rows : 2-D array of bytes
    messages : int
        How many there are in a burst; `advance` moves every seqno on by as many.
    opening : 2-D array of bytes or None
        Datagrams to send once, before the first burst.
    """

    def __init__(self, rows: Rows, messages: int, opening: Rows | None = None) -> None:
        """Take the rows of the first burst."""
        self.rows = rows
        self.messages = messages
        self.opening = opening
        self.frames = rows[:, : FRAME.itemsize].view(FRAME)[:, 0]

    def __len__(self) -> int:
        """Return how many datagrams a burst has."""
        return len(self.rows)

    @property
    def size(self) -> int:
        """Bytes of a datagram, frame included."""
        return int(self.rows.shape[1])

    @property
    def checksum(self) -> int:
        """The sum of the seqnos of all datagrams."""
        return int(self.frames["seqno"].astype(np.uint64).sum())

    def advance(self) -> None:
        """Turn this burst into the next one."""
        self.frames["seqno"] += self.messages
        self.frames["last_seqno"][self.frames["object_type"] != 0] += self.messages


def in_order(size: int, count: int) -> Train:
    """Return opaque messages of one datagram each, in order."""
    train = Train(np.zeros((count, size), np.uint8), count)
    train.frames["control"] = int(Encoding.NATIVE)
    train.frames["session_id"] = 1
    train.frames["seqno"] = np.arange(1, count + 1)
    train.rows[:, FRAME.itemsize :] = np.arange(size - FRAME.itemsize, dtype=np.uint8)
    return train


def swapped(size: int, count: int, seed: int = 1) -> Train:
    """Return `in_order` with one datagram in 100 exchanged with one less than 64 behind it."""
    train = in_order(size, count)
    random = np.random.default_rng(seed)
    for block in range(0, count - SWAP_EVERY + 1, SWAP_EVERY):
        first = block + int(random.integers(0, SWAP_EVERY - SWAP_DISTANCE))
        other = first + int(random.integers(1, SWAP_DISTANCE))
        train.rows[[first, other]] = train.rows[[other, first]]
    return train


def fragments(count: int) -> Train:
    """Return messages of 256 fragments; `count` datagrams, a multiple of 256."""
    if count % FRAGMENTS:
        raise ValueError(f"expected a multiple of {FRAGMENTS} datagrams, found {count}")
    train = in_order(FRAME.itemsize + FRAGMENT_SIZE, count)
    numbers = np.arange(count)
    train.messages = count // FRAGMENTS
    train.frames["seqno"] = 1 + numbers // FRAGMENTS
    train.frames["fragment"] = numbers % FRAGMENTS
    train.frames["fragment_max"] = FRAGMENTS - 1
    return train


def book_payload(symbol: str, levels: int = 10) -> bytes:
    """Return a FlatBuffers book update with so many levels, half of them bids."""
    bids = [(100.0 - 0.01 * level, 5.0 + level) for level in range(levels // 2)]
    asks = [(100.01 + 0.01 * level, 7.0 + level) for level in range(levels - levels // 2)]
    return bytes(encode_book("exchange", symbol, bids=bids, asks=asks))


def books(count: int) -> Train:
    """Return updates of ten levels, of 64 objects in turn, each linked to the one before it.

    The opening makes the objects LIVE: the first update of each, linked to none.
    """
    payloads = [book_payload(f"SYMBOL{number:02}") for number in range(BOOK_OBJECTS)]
    train = in_order(FRAME.itemsize + len(payloads[0]), BOOK_OBJECTS + count)
    for number, row in enumerate(train.rows):
        row[FRAME.itemsize :] = np.frombuffer(payloads[number % BOOK_OBJECTS], np.uint8)
    frames = train.frames
    frames["control"] = int(Encoding.FLATBUFFERS)
    frames["object_type"] = BOOK_OBJECT_TYPE
    frames["object_id"] = np.arange(len(frames)) % BOOK_OBJECTS
    frames["last_seqno"][BOOK_OBJECTS:] = frames["seqno"][:-BOOK_OBJECTS]
    return Train(train.rows[BOOK_OBJECTS:].copy(), count, train.rows[:BOOK_OBJECTS].copy())
