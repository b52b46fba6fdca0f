"""Journals with records of every kind, as a recorder makes them."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.client.instance import Instance
from udpfast.agents.feed.recorder import Recorder
from udpfast.config import RecordConfig
from udpfast.core.layout import (
    CONTROL_DTYPES,
    ConnectionScope,
    ConnectionStatus,
    Kind,
    LappedReason,
    ObjectStatus,
    ObjectWait,
    RecordFlag,
    SessionReason,
)
from udpfast.log.journal import Journal
from udpfast.market.updates import LAYOUTS, ROW_DTYPES, UPDATE_DTYPES

#: 2026-11-20 23:59:59.5 UTC: a day ends within the first second.
BEGIN_NS = 1_795_219_199_500_000_000
STEP_NS = 1_000_000
SESSION_ID = 4711
SEGMENT_BYTES = 1 << 18
#: Rounds of the journal that most tests share, 18 records each.
ROUNDS = 240
RECORDS = 18 * ROUNDS

Fields = dict[str, Any]


class Market(Instance):
    """An instance with a record per millisecond, by two lines in turn."""

    def put(self, kind: int, payload: bytes = b"", flags: int = 0, **fields: Any) -> None:
        """Append a record with `fields` in its header."""
        self.number += 1
        header = {"line": self.number % 2, "number": self.number, "session": 1, "object": 7}
        at_ns = BEGIN_NS + self.number * STEP_NS
        times = {"received_ns": at_ns + 1_234, "published_ns": at_ns + 5_678}
        self.ring.append(kind, payload, flags=flags, **(header | times | fields))

    def say(self, kind: Kind, **fields: Any) -> None:
        """Append one of the feed's own records."""
        payload = np.zeros((), CONTROL_DTYPES[kind])
        for name, value in fields.items():
            payload[name] = value
        self.put(kind, payload.tobytes())

    def tell(
        self,
        kind: Kind,
        rows: Sequence[Fields] = (),
        symbol: str = "BTCUSDT",
        header: Fields | None = None,
        **fields: Any,
    ) -> None:
        """Append an update with rows; `header` as for `put`."""
        update = self.update(UPDATE_DTYPES[kind], "binance-usdm", symbol, **fields)
        update["row_count"] = len(rows)
        content = np.zeros(len(rows), ROW_DTYPES.get(kind, "u1"))
        for target, row in zip(content, rows, strict=True):
            for name, value in row.items():
                target[name] = value
        self.put(kind, update.tobytes() + content.tobytes(), **(header or {}))


def fill(market: Market, rounds: int) -> None:
    """Append `rounds` times 18 records: every kind that has a table, and one that has none."""
    for each in range(rounds):
        market.say(
            Kind.SESSION, new_id=SESSION_ID, reason=SessionReason.FIRST, first_number=each, unseen=3
        )
        _tell_prices(market, each)
        _tell_facts(market, each)
        _say_doubts(market, each)


def _tell_prices(market: Market, each: int) -> None:
    symbol = f"SYM{each % 5}"
    at_ns = BEGIN_NS + each * STEP_NS
    levels = [
        {"price": 100.5 - i, "quantity": float(i), "number_of_orders": i, "update_action": 1}
        for i in range(each % 4 + 1)
    ]
    stamps = {
        "source_send_time_utc": at_ns - 5_000_000,
        "exchange_time_utc": at_ns - 9_000_000,
        "source_seqno": each,
        "exchange_sequence": (1 << 64) - 1 - each,
        "update_type": 2,
        "stream_id": 3,
    }
    market.tell(Kind.BOOK, levels, symbol, bid_count=1, ask_count=len(levels) - 1, **stamps)
    snapshot = {"flags": int(RecordFlag.SNAPSHOT), "stream": 1}
    market.tell(Kind.BOOK, levels, symbol, snapshot, bid_count=0, ask_count=len(levels))
    market.tell(
        Kind.TOP_OF_BOOK,
        (),
        symbol,
        bid_price=1.5,
        bid_quantity=each,
        ask_price=float("nan"),
        ask_quantity=float("nan"),
        **stamps,
    )
    trades = [
        {"price": 99.5, "quantity": 2.0, "side": 1 + i % 2, "trade_id": b"T%d" % i * i}
        for i in range(3)
    ]
    market.tell(Kind.TRADES, trades, symbol, **stamps)
    orders = [{"price": 3.5, "order_id": "Zürich".encode(), "side": 2, "action": 1, "priority": 9}]
    market.tell(Kind.ORDERS, orders, symbol)


def _tell_facts(market: Market, each: int) -> None:
    market.tell(Kind.STATISTICS, [{"type": 1, "value": 5.5, "end_time_utc": 77}])
    market.tell(
        Kind.REFERENCE_DATA,
        [{"min_price": 0.0, "tick_size": 0.5}] * (each % 3),
        description=b"bitcoin\xff",
        tick_size=0.5,
        multiplier=float("nan"),
        discard=1,
        security_type=2,
    )
    market.tell(Kind.MARKET_STATUS, trading_status=3)
    market.tell(Kind.GATEWAY_STATUS, account=b"A1")
    market.put(Kind.MESSAGE, bytes(range(each % 200)))


def _say_doubts(market: Market, each: int) -> None:
    market.say(Kind.GAP, first=each, last=each + 2, count=3, reason=2, waited_ns=10**6)
    symbol_id = market.names.intern("BTCUSDT")
    state = {"object": 3 << 16 | 7, "applied": each, "symbol_id": symbol_id}
    waits = ObjectWait.SNAPSHOT_SILENT
    market.say(Kind.STALE, status=ObjectStatus.STALE, waits=waits, **state)
    market.say(Kind.RECOVERED, status=ObjectStatus.LIVE, **state)
    market.say(
        Kind.CONNECTION,
        status=ConnectionStatus.DISCONNECTED,
        scope=ConnectionScope.LINE,
        silent_ns=10**9,
    )
    market.say(Kind.DISAGREEMENT, number=each, fragment=1, line_first=1, line_other=0)
    market.say(Kind.RESTART, epoch=2, restarted_ns=BEGIN_NS)
    market.say(Kind.LAPPED, missed=each, reason=LappedReason.DISK)


def record(market: Market, journal: Path, close: bool = True) -> Recorder:
    """Copy all records of the ring into a journal."""
    config = RecordConfig(directory=str(journal), segment_bytes=SEGMENT_BYTES, sync_ms=1)
    recorder = Recorder(config, market.directory, "feed")
    recorder.on_start()
    drive(recorder)
    if close:
        recorder.on_stop()
    return recorder


def drive(recorder: Recorder) -> None:
    """Let a recorder work until the journal has all records of the ring, and seals segments."""
    recording = recorder.recordings[0]
    for now_ns in range(200_000):
        done = recorder.work(now_ns)
        assert recording.failure is None
        recorder.keep()
        if done == 0 and recording.backlog == 0 and not recording.journal.ending:
            return
    raise AssertionError("expected an end of its work")


def make_journal(directory: Path, rounds: int) -> Path:
    """Return the directory of a closed journal of `rounds` times 18 records."""
    market = Market(directory / "feed", 1 << 22)
    fill(market, rounds)
    record(market, directory / "journal")
    market.close()
    return directory / "journal"


def append_and_die(directory: Path, first: int, count: int) -> None:
    """Append messages to a journal in a process that is killed afterwards."""
    child = os.fork()
    if child == 0:
        journal = Journal.open(directory, LAYOUTS, name="feed", segment_bytes=SEGMENT_BYTES)
        for number in range(first, first + count):
            at_ns = BEGIN_NS + number * STEP_NS
            content = number.to_bytes(8, "little") * 200
            journal.append(Kind.MESSAGE, content, received_ns=at_ns, published_ns=at_ns)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
