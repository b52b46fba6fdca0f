"""An instance that a test fills: a ring and a name table, as a subscriber leaves them."""

import threading
from pathlib import Path
from typing import Any

import numpy as np

from udpfast.config import ImageConfig
from udpfast.core.layout import OBJECT_STATE, Kind, ObjectStatus, RecordFlag, Stream
from udpfast.log.ring import Ring
from udpfast.market.names import NameTable, name_table_size
from udpfast.market.updates import BOOK, LEVEL, PAYLOAD_HASH, TOP_OF_BOOK
from udpfast.shm.names import create_names, names_table

REGION_PAGE = 4096
NAMES_CAPACITY = 64


def small_image(**settings: Any) -> ImageConfig:
    """Return the settings of an image that is brought up to date each turn, and is small."""
    return ImageConfig(**{"interval_ms": 0, "capacity_bytes": 1 << 22, **settings})


class Instance:
    """A ring with names in a directory, with short methods to append records."""

    def __init__(
        self, directory: Path, capacity_bytes: int = 1 << 20, names: int = NAMES_CAPACITY
    ) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        self.directory = directory
        self.names_region = create_names(directory / "names", name_table_size(names))
        self.names = NameTable(names_table(self.names_region), capacity=names)
        self.names_region.mark_ready()
        self.ring = Ring.create(directory, capacity_bytes, PAYLOAD_HASH)
        self.number = 0
        #: The last number in the appended records, by session and object.
        self.contained: dict[tuple[int, int], int] = {}

    @property
    def address(self) -> str:
        return f"ring:{self.directory}"

    def append(
        self,
        kind: int,
        payload: bytes = b"",
        flags: int = 0,
        *,
        object_type: int = 0,
        object_id: int = 0,
        follows: int = 0,
        **fields: int,
    ) -> None:
        """Append a record as a feed would, with `fields` of its header.

        `follows` is the number of its object's message before; 0: it has none. `number` counts up
        unless it is given.
        """
        self.number += 1
        header = {"number": self.number, "object": object_type << 16 | object_id}
        if kind == Kind.MESSAGE or Kind.BOOK <= kind < Kind.BUS:
            header["session"] = 1  # records about an object belong to a session
        header |= fields
        key = header.get("session", 0), header["object"]
        if kind == Kind.RECOVERED and len(payload) == OBJECT_STATE.itemsize:
            state = np.frombuffer(payload, OBJECT_STATE).copy()
            state["continues"] = self.contained.get(key) == follows
            payload = state.tobytes()
        elif kind == Kind.MESSAGE or kind >= Kind.BOOK:
            incremental = header.get("stream", 0) == Stream.INCREMENTAL
            contained = header["number"] if incremental else follows
            if not incremental or flags & RecordFlag.RELEASED:
                contained = max(contained, self.contained.get(key, 0))
            if not flags & RecordFlag.UNGATED:
                self.contained[key] = contained
            flags |= RecordFlag.FIRST if incremental and follows == 0 else 0
        self.ring.append(
            kind,
            payload,
            flags=flags,
            received_ns=1_000 + self.number,
            published_ns=2_000 + self.number,
            **header,
        )

    def update(
        self, dtype: np.dtype[Any], exchange: str, symbol: str | bytes, **fields: Any
    ) -> Any:
        update = np.zeros((), dtype)
        update["exchange_id"] = self.names.intern(exchange, exchange=True)
        update["symbol_id"] = self.names.intern(symbol)
        for name, value in fields.items():
            update[name] = value
        return update

    def stale(self, symbol: str) -> None:
        state = self.update(OBJECT_STATE, "binance-usdm", symbol, status=ObjectStatus.STALE)
        self.append(Kind.STALE, state.tobytes())

    def top(self, bid: float, ask: float, symbol: str = "BTCUSDT", **fields: int) -> None:
        update = self.update(TOP_OF_BOOK, "binance-usdm", symbol, bid_price=bid, ask_price=ask)
        self.append(Kind.TOP_OF_BOOK, update.tobytes(), **fields)

    def book(
        self,
        bids: list[tuple[float, float]],
        asks: list[tuple[float, float]],
        symbol: str = "BTCUSDT",
        snapshot: bool = False,
        flags: int = 0,
        **fields: int,
    ) -> None:
        rows = np.zeros(len(bids) + len(asks), LEVEL)
        for row, (price, quantity) in zip(rows, bids + asks, strict=True):
            row["price"], row["quantity"] = price, quantity
        update = self.update(
            BOOK,
            "binance-usdm",
            symbol,
            bid_count=len(bids),
            ask_count=len(asks),
            row_count=len(rows),
            present=2 | 4,
            update_type=1 if snapshot else 2,
        )
        fields = {"object_type": 3, "object_id": 7, "session": 1} | fields
        self.append(Kind.BOOK, update.tobytes() + rows.tobytes(), flags | snapshot, **fields)

    def close(self) -> None:
        self.ring.close()
        self.names_region.close()


class NextWriter:
    """The next writer of an instance, which begins after a moment, in another thread."""

    def __init__(self, directory: Path) -> None:
        self.begun = threading.Event()
        self._directory = directory
        self._made: list[Instance] = []
        self._timer = threading.Timer(0.3, self._begin)
        self._timer.start()

    def _begin(self) -> None:
        self.begun.set()
        self._made.append(Instance(self._directory))

    def instance(self) -> Instance:
        """Return what it writes, once it has begun."""
        self._timer.join()
        return self._made[0]
