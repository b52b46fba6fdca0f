"""A feed of IEX messages in one process: an engine, what goes into it, and who reads its ring."""

import struct
from pathlib import Path
from typing import Any

import numpy as np

from udpfast.agents.feed.replayer import Replayer
from udpfast.client.books import Books
from udpfast.client.reader import Reader
from udpfast.config import parse_feed
from udpfast.core.layout import Kind, RecordFlag
from udpfast.market.updates import UPDATE_DTYPES, view_update
from udpfast.net.pcap import CAPTURED, CaptureBatch

DEEP, TOPS = 0x8004, 0x8003
AT_NS = 1_493_149_012_263_502_175


def level(side: str, price: int, size: int, symbol: bytes = b"ZIEXT") -> bytes:
    return struct.pack("<cBq8sIq", side.encode(), 1, AT_NS, symbol.ljust(8), size, price)


def quote(bid: int, ask: int) -> bytes:
    return struct.pack("<cBq8sIqqI", b"Q", 0, AT_NS, b"ZIEXT   ", 100, bid, ask, 100)


def trade(price: int) -> bytes:
    return struct.pack("<cBq8sIqq", b"T", 0, AT_NS, b"ZIEXT   ", 10, price, 7)


class Feed:
    """An engine, the datagrams that go into it, and who reads its ring."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        tables = {
            "name": "iex",
            "wire": {"framing": "iex_tp", "payload": "iex_deep", "streams_max": 4}
            | settings.pop("wire", {}),
            "streams": {"lines": [{"name": "A", "address": "127.0.0.1:9001"}]},
        }
        self.replayer = Replayer(parse_feed(tables | settings), directory)
        self.reader = Reader(f"ring:{directory}", start="begin")
        self.books = Books(self.reader)
        self.number, self.offset, self.sent = 1, 0, AT_NS
        self.records: list[Any] = []
        self.updates: list[Any] = []  # (record, what `view_update` shows of it)

    def send(self, *messages: bytes, protocol: int = DEEP, lose: bool = False) -> None:
        """Send one datagram, unless the network loses it; take what it makes."""
        body = b"".join(struct.pack("<H", len(one)) + one for one in messages)
        head = (1, 0, protocol, 1, 77, len(body), len(messages), self.offset, self.number)
        self.sent += 1_000_000
        datagram = struct.pack("<BBHIIHHqqq", *head, self.sent) + body
        self.number += len(messages)
        self.offset += len(body)
        if not lose:
            headers = np.zeros(1, CAPTURED)
            headers["timestamp_ns"], headers["size"] = self.sent, len(datagram)
            zero = np.zeros(1, np.uint8)
            self.replayer.replay(CaptureBatch(headers, datagram), zero, zero, 0, 1)
        self.take()

    def take(self) -> None:
        """Take what is in the ring."""
        while self.reader.lag:
            record = next(self.reader)
            if record.kind is not Kind.CONNECTION:
                self.records.append((record.kind, RecordFlag(record.flags), record.number))
            if record.kind in UPDATE_DTYPES:
                self.updates.append((record, view_update(record.kind, bytes(record.payload))))
            self.books.apply(record)

    def restart(self) -> None:
        """Begin to number from 1, as a sender does that starts again."""
        self.number, self.offset = 1, 0

    def book(self) -> tuple[list[list[float]], list[list[float]], bool]:
        """Return the levels of both sides, and whether they are in doubt."""
        book = self.books["IEX", "ZIEXT"]
        return book.bids().tolist(), book.asks().tolist(), book.stale

    def counter(self, name: str) -> int:
        """Return a counter of the feed."""
        return self.replayer.counters()["feed"][name]
