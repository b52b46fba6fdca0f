"""The flow of orders that benchmarks send: deep books, each level the sum of its orders."""

from pathlib import Path

import numpy as np
import pytest

from bench.order_trains import OrderTrain
from udpfast import Books, Reader
from udpfast.agents.feed.replayer import Replayer
from udpfast.config import parse_feed
from udpfast.net.pcap import CAPTURED, CaptureBatch


def play(replayer: Replayer, rows: np.ndarray) -> None:
    headers = np.zeros(len(rows), CAPTURED)
    headers["size"] = rows.shape[1]
    headers["offset"] = np.arange(len(rows)) * rows.shape[1]
    where = np.zeros(len(rows), np.uint8)
    replayer.replay(CaptureBatch(headers, rows.tobytes()), where, where, 0, len(rows))


@pytest.mark.parametrize("messages", [1, 7, 30])
def test_levels_of_deep_books_are_the_sums_of_their_orders(tmp_path: Path, messages: int) -> None:
    directory = tmp_path / "feed"
    directory.mkdir(mode=0o700)
    config = parse_feed(
        {
            "name": "flow",
            "wire": {"framing": "moldudp64", "payload": "itch"},
            "streams": {"lines": [{"name": "A", "address": "127.0.0.1:0"}]},
            "books": {"levels": True, "top": True, "orders": True, "orders_max": 20_000},
        }
    )
    replayer = Replayer(config, directory)
    books = Books(Reader(f"ring:{directory}"))
    train = OrderTrain(3, 3_000, messages, 210 // messages)
    assert train.opening is not None
    for part in np.array_split(train.opening, 10):
        play(replayer, part)
        while len(books.poll(timeout=0)):
            pass
    deepest = 0
    for _ in range(40):
        play(replayer, train.rows)
        while len(books.poll(timeout=0)):
            pass
        train.advance()
        for one in books.instruments():
            assert one[2::3] == (False, False)
            book, orders = books[one[:2]], books.orders(str(one.exchange), str(one.symbol))
            for levels, sums in (
                (book.bids(), orders.bid_levels()),
                (book.asks(), orders.ask_levels()),
            ):
                assert levels.tolist() == [list(row[:2]) for row in sums.tolist()]
                deepest = max(deepest, len(levels))
    assert len(books) == 3
    assert deepest > 32
    assert replayer.counters()["feed"]["orders_unknown"] == 0
    replayer.close()
