"""Messages of IEX by the way that a feed goes: update by update, books kept by `OrderBook`.

The updates are turned back into the rows that `decode_iex` makes, so that both are compared with
the same expectation. What updates do not carry is 0 there: the flags of trades and quotes.
"""

import math
import struct
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lab.program import memory
from udpfast.agents.feed.replayer import Replayer
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind
from udpfast.market.book import OrderBook
from udpfast.market.updates import Update, view_update
from udpfast.net.pcap import CAPTURED, CaptureBatch
from udpfast.payload.iex.decode import DecodedIex
from udpfast.payload.iex.layouts import PRICE_DECIMALS
from udpfast.wire.framing import NumberedMessage

from .books import venue_config

__all__ = ["IexUpdates", "scaled"]

_STATUSES = {0: ord("?"), 2: ord("P"), 5: ord("T"), 7: ord("H")}
_MORE = 16  # PRESENT_MORE
_TOPS, _DEEP = 0x8003, 0x8004
_AT_NS = 1_700_000_000_000_000_000
_BATCH = 4096


class IexUpdates:
    """What the updates of one session say.

    Parameters
    ----------
    messages : iterable
        All of them, from number 1 on.
    deep : bool
        DEEP, otherwise TOPS.
    **settings
        Of `venue_config`.

    Attributes
    ----------
    decoded : DecodedIex
        Rows of T, 8, 5, Q and H, as they were on the wire.
    books : dict of str to OrderBook
        By symbol.
    """

    def __init__(self, messages: Iterable[NumberedMessage], deep: bool, **settings: Any) -> None:
        rows: dict[str, Any] = {}
        self.decoded = DecodedIex(rows)
        self._rows = rows
        self.books: dict[str, OrderBook] = {}
        messages = list(messages)
        self._numbers = [number for number, _ in messages]
        payload = "iex_deep" if deep else "iex_tops"
        config = venue_config("iex_tp", payload, 1, top=not deep, **settings)
        with tempfile.TemporaryDirectory(dir=memory()) as directory:
            instance = Path(directory, "feed")
            instance.mkdir()
            replayer = Replayer(config, instance)
            with Reader(f"ring:{instance}", start="begin") as reader:
                for batch in _batches(messages, _DEEP if deep else _TOPS):
                    zeros = np.zeros(len(batch.headers), np.uint8)
                    replayer.replay(batch, zeros, zeros, 0, len(batch.headers))
                    self._read(reader)
                replayer.finish()
                self._read(reader)
            replayer.close()

    def _read(self, reader: Reader) -> None:
        while reader.lag:
            record = next(reader)
            if record.kind not in (Kind.BOOK, Kind.TRADES, Kind.TOP_OF_BOOK, Kind.MARKET_STATUS):
                continue
            payload = bytes(record.payload)
            symbol = record.symbol or ""
            self._take(view_update(record.kind, payload), symbol)
            if record.kind is Kind.BOOK:
                self.books.setdefault(symbol, OrderBook()).apply(payload)

    def _take(self, update: Update, symbol: str) -> None:
        header = update.header
        row = {
            "number": self._numbers[int(header["exchange_sequence"]) - 1],
            "time_ns": int(header["exchange_time_utc"]),
            "symbol": symbol.encode(),
            "flags": 0,
        }
        if update.kind is Kind.MARKET_STATUS:
            kind = "H"
            row["flags"] = _STATUSES[int(header["trading_status"])]
        elif update.kind is Kind.TOP_OF_BOOK:
            kind = "Q"
            for side in ("bid", "ask"):
                row[f"{side}_price"] = scaled(header[f"{side}_price"])
                row[f"{side}_size"] = int(header[f"{side}_quantity"])
        else:
            (one,) = update.rows
            row |= {"price": scaled(one["price"]), "size": int(one["quantity"])}
            if update.kind is Kind.TRADES:
                kind = "T"
                row["trade_id"] = int(one["trade_id"])
            else:
                kind = "8" if header["bid_count"] else "5"
                row["flags"] = int(not header["present"] & _MORE)
        self._rows.setdefault(kind, []).append(row)


def _batches(messages: Iterable[NumberedMessage], protocol: int) -> Iterator[CaptureBatch]:
    # Each message in a datagram of its own; numbers from 1, as of a session that was seen whole.
    offset = 0
    datagrams: list[bytes] = []
    for number, (_, data) in enumerate(messages, 1):
        body = struct.pack("<H", len(data)) + data
        head = (1, 0, protocol, 1, 1, len(body), 1, offset, number, _AT_NS + number)
        datagrams.append(struct.pack("<BBHIIHHqqq", *head) + body)
        offset += len(body)
        if len(datagrams) == _BATCH:
            yield _batch(datagrams)
            datagrams = []
    yield _batch(datagrams)


def _batch(datagrams: list[bytes]) -> CaptureBatch:
    headers = np.zeros(len(datagrams), CAPTURED)
    headers["timestamp_ns"] = _AT_NS
    headers["size"] = [len(one) for one in datagrams]
    headers["offset"] = np.cumsum([0, *headers["size"][:-1]])[: len(datagrams)]
    return CaptureBatch(headers, b"".join(datagrams))


def scaled(price: float) -> int:
    """Return a price as on the wire, where no such side is 0."""
    return 0 if math.isnan(price) else round(price * 10**PRICE_DECIMALS)
