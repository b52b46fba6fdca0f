"""A composite of an app's store and two feeds' stores, on one host, written and merged by hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.bus.drive import T0, lead, register, send
from tests.client.test_store_source import BYTES, Kept
from udpfast.archive.bus_files import describe_composite
from udpfast.archive.store_names import StoreNames
from udpfast.bus.merger import Merger
from udpfast.bus.node import Node
from udpfast.core.clock import monotonic_ns
from udpfast.core.layout import CONTROL_DTYPES, Kind, Stream
from udpfast.log.journal import Journal
from udpfast.market.names import NameTable
from udpfast.market.updates import BOOK, LAYOUTS, LEVEL, REFERENCE_DATA, TOP_OF_BOOK
from udpfast.shm.names import names_table

FEEDS = ("left", "right")
MS = 1_000_000


class FedStore:
    """A store as its feed leaves it; `kept` is the store's state in the daemon."""

    def __init__(self, folder: Path, capacity: int = 64) -> None:
        self.folder = folder
        self.capacity = capacity
        self.session = self.number = 0
        self.kept = Kept(folder)
        lead(self.kept.store)
        self.kept.tell()
        self.kept.live.introduce("S", folder, by_feed=True)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Let the feed write; afterwards the daemon has the store again."""
        self.kept.store.log.close()
        files = StoreNames(self.folder)
        self._journal = Journal.open(self.folder, LAYOUTS, name="orders", segment_bytes=BYTES)
        number, region = files.begin(self.capacity, self._journal.names)
        self._names = NameTable(names_table(region))
        self._segment = number, files.mark(number)
        if self._journal.names != number:
            self._roll()
        yield
        self._journal.close()
        region.close()
        self.kept = Kept(self.folder, create=False)
        self.kept.tell()

    def _roll(self) -> None:
        self._journal.prepare()
        number, mark = self._segment
        assert self._journal.roll(monotonic_ns(), number, T0, names_mark=mark)

    def put(self, kind: Kind, payload: bytes, flags: int = 0, **fields: int) -> None:
        self.number += 1
        at_ns = T0 + self.number * MS
        header = {"number": self.number, "session": self.session, "object": 7 + (3 << 16)}
        self._journal.append(kind, payload, flags, at_ns, at_ns + 500, **(header | fields))

    def say(self, kind: Kind, header: dict[str, int] | None = None, **fields: Any) -> None:
        payload = np.zeros((), CONTROL_DTYPES[kind])
        for name, value in fields.items():
            payload[name] = value
        self.put(kind, payload.tobytes(), **(header or {}))

    def begin(self) -> None:
        """Begin a session."""
        self.session += 1
        self.say(Kind.SESSION, new_id=1000 + self.session)

    def state(self, kind: Kind, exchange: str, symbol: str, number: int = 7) -> None:
        """Report that a book is in doubt, or is sound."""
        self.say(kind, {"object": number | 3 << 16}, object=number | 3 << 16, continues=1,
                 exchange_id=self._names.intern(exchange) if exchange else 0,
                 symbol_id=self._names.intern(symbol) if symbol else 0)  # fmt: skip

    def book(
        self, exchange: str, symbol: str, price: float, number: int = 7, *, snapshot: bool = True
    ) -> None:
        update = np.zeros((), BOOK)
        update["exchange_id"] = self._names.intern(exchange)
        update["symbol_id"] = self._names.intern(symbol)
        update["bid_count"] = update["row_count"] = 1
        update["present"], update["update_type"] = 6, 1 if snapshot else 2
        row = np.zeros(1, LEVEL)
        row["price"], row["quantity"] = price, 1.0
        self.put(Kind.BOOK, update.tobytes() + row.tobytes(), int(snapshot),
                 object=number | 3 << 16)  # fmt: skip

    def top(self, exchange: str, symbol: str, price: float) -> None:
        update = np.zeros((), TOP_OF_BOOK)
        update["exchange_id"] = self._names.intern(exchange)
        update["symbol_id"] = self._names.intern(symbol)
        update["bid_price"], update["ask_price"] = price, price + 1
        self.put(Kind.TOP_OF_BOOK, update.tobytes())

    def define(self, exchange: str, symbol: str, tick_size: float) -> None:
        update = np.zeros((), REFERENCE_DATA)
        update["exchange_id"] = self._names.intern(exchange)
        update["symbol_id"] = self._names.intern(symbol)
        update["tick_size"] = tick_size
        self.put(Kind.REFERENCE_DATA, update.tobytes())

    def restart(self) -> None:
        self.say(Kind.RESTART, {"stream": Stream.NONE, "number": 0})


class FedComposite:
    """`orders` of an app, `left` and `right` of feeds, and their order log."""

    def __init__(self, folder: Path, capacity: int = 64) -> None:
        self.folder = folder
        self.orders = Kept(folder / "orders")
        self.apps = lead(self.orders.store)
        register(self.apps)
        self.feeds = [FedStore(folder / name, capacity) for name in FEEDS]
        self.order = Kept(folder / "order")
        self.node = Node(self.order.store, [], None, lambda: 1)
        self.node.sequencer = lead(self.order.store)
        self.address = f"composite:{folder / 'order'}"
        describe_composite(
            folder / "order", [folder / "orders", *(feed.folder for feed in self.feeds)]
        )
        self.sent = 0
        self._now_ns = 0

    def send(self, count: int = 1) -> None:
        send(self.apps, self.sent + 1, count)
        self.sent += count

    def work(self) -> None:
        """Merge the records that are there."""
        kept = [self.orders, *(feed.kept for feed in self.feeds)]
        merger = Merger(self.node, [Node(each.store, [], None, lambda: 1) for each in kept])
        while True:
            self._now_ns += MS
            count = merger.work(self._now_ns, T0 + self._now_ns)
            for each in (*kept, self.order):
                each.tell()
            if not count:
                break
