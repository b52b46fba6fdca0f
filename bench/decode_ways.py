"""What `bench_decode` and the micro level decode, apply and encode: books of one instrument.

The payloads have the layout of the official runtime: written from the end, every table behind its
vtable, defaults left out. A removal is a level without a quantity.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np

from udpfast.core.layout import Kind
from udpfast.log.cursor import RingCursor
from udpfast.log.ring import Ring
from udpfast.market.book import OrderBook
from udpfast.market.names import NameTable
from udpfast.payload.roq.decode import Decoder
from udpfast.payload.roq.encode import encode_book, encode_top_of_book, encode_trades

from .decode_events import INSTRUMENT, PRECISIONS, TIME, TIMES, event, kinds
from .loops.feed_cost import WindowLoop
from .loops.micro import (
    BookLoop,
    DecodeLoop,
    EncodeLoop,
    Loop,
    RingLoop,
    VerifyLoop,
)

__all__ = [
    "OTHER_LOOPS",
    "Operation",
    "book_event",
    "decode_loops",
    "deep_book",
    "hot_payloads",
    "kind_loops",
    "other_loops",
    "updates",
]

#: What takes a count and returns ns.
Operation = Loop | WindowLoop

#: What `other_loops` returns.
OTHER_LOOPS = (
    "window, 80 B",
    "window, 528 B",
    "ring, 64 B",
    "ring, 416 B",
    "book, 10 levels set",
    "book, 10 levels, 40 % removed",
    "encode a book of 10",
)

TICK = 0.5


def book_event(
    rng: random.Random, levels: int, removals: float = 0.0, orders: bool = False
) -> bytes:
    """Return an incremental MarketByPriceUpdate, half of its levels on each side."""
    sides = {}
    for side, best in ((-1, 100.0), (1, 100.5)):
        sides[side] = [
            {"price": best + side * TICK * rank}
            | ({} if rng.random() < removals else {"quantity": 1.0 + rng.random()})
            | ({"number_of_orders": 3, "update_action": 2} if orders else {})
            for rank in range(levels // 2)
        ]
    value = {"bids": sides[-1], "asks": sides[1], "update_type": 2, "max_depth": 20}
    return event("MarketByPriceUpdate", INSTRUMENT | TIMES | PRECISIONS | value)


def hot_payloads() -> dict[str, list[bytes | bytearray]]:
    """Return payloads of the three kinds that a feed is made of."""
    rng = random.Random(1)
    common: dict[str, Any] = {"stream_id": 1, "exchange_time_utc": TIME, "exchange_sequence": 7}
    top: dict[str, Any] = common | {"bid_quantity": 2.0, "ask_price": 101.0, "ask_quantity": 3.0}
    instrument = ("binance-futures", "BTCUSDT")
    return {
        "book of 10": [book_event(rng, 10) for _ in range(16)],
        "top of book": [
            encode_top_of_book(*instrument, bid_price=1.0 + i, **top) for i in range(16)
        ],
        "one trade": [
            encode_trades(*instrument, [(1, 1.0 + i, 2.0, "123")], **common) for i in range(16)
        ],
    }


def decode_loops() -> dict[str, Operation]:
    """Return the loops that decode, by what they take; "general" ones by the general path."""
    rng = random.Random(2)
    hot = hot_payloads()
    books = hot["book of 10"]
    return {
        "book of 10": DecodeLoop(books),
        "book of 10, general path": DecodeLoop(books, True),
        "book of 10, verified only": VerifyLoop(books),
        "book of 10, 30 % removals": DecodeLoop([book_event(rng, 10, 0.3) for _ in range(64)]),
        "book of 10, counts of orders": DecodeLoop(
            [book_event(rng, 10, 0.3, orders=True) for _ in range(64)]
        ),
        "book of 100": DecodeLoop([book_event(rng, 100) for _ in range(4)]),
        "top of book": DecodeLoop(hot["top of book"]),
        "one trade": DecodeLoop(hot["one trade"]),
    }


def kind_loops() -> dict[str, Operation]:
    """Return the loops that decode all other kinds."""
    return {name: DecodeLoop([payload]) for name, payload in kinds().items()}


def updates(payloads: list[bytes]) -> list[bytes]:
    """Return decoded updates."""
    decoder = Decoder(NameTable())
    found = [decoder.decode(payload) for payload in payloads]
    assert {item.kind for item in found} == {Kind.BOOK}
    return [item.payload for item in found]


def deep_book(levels: int = 1000) -> OrderBook:
    """Return a book with half of the levels on each side, next to each other."""
    ranks = np.arange(levels // 2)
    quantities = np.ones(levels // 2)
    bids = np.column_stack((100.0 - TICK * ranks, quantities))
    asks = np.column_stack((100.5 + TICK * ranks, quantities))
    book = OrderBook()
    book.apply(updates([bytes(encode_book("e", "s", bids=bids, asks=asks, update_type=1))])[0])
    assert book.levels == (levels // 2, levels // 2)
    return book


def other_loops(folder: Path) -> dict[str, Operation]:
    """Return loops of window, ring, book and encoder; the ring lies in `folder`."""
    rng = random.Random(1)
    near = updates([book_event(rng, 10) for _ in range(16)])
    # Levels near the top come and go: half of the updates remove what the others set.
    mixed = updates([book_event(rng, 10, 0.4) for _ in range(64)])
    ring = Ring.create(folder / "micro.ring", 1 << 20)
    cursor = RingCursor.attach(folder / "micro.ring")
    header = bytes((2, 0, 0, 1))
    loops = (
        WindowLoop(header + bytes(76)),
        WindowLoop(header + bytes(524)),
        RingLoop([bytes(64)] * 16, ring, cursor),
        RingLoop([bytes(416)] * 16, ring, cursor),
        BookLoop(near, deep_book()),
        BookLoop(mixed, deep_book()),
        EncodeLoop(near),
    )
    return dict(zip(OTHER_LOOPS, loops, strict=True))
