"""Single orders in the image: a late reader has every queue that a reader from the start has."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lab.conformance.books import Line, read_set
from tests.cases import nightly
from tests.shared import shared
from udpfast import Books, Reader
from udpfast.agents.feed.image_keeper import ImageKeeper
from udpfast.agents.feed.replayer import Replayer
from udpfast.config import ImageConfig
from udpfast.core.layout import Kind, RecordFlag
from udpfast.net.pcap import CAPTURED, CaptureBatch, CapturedDatagram

ALWAYS = 1 << 62
#: Datagrams between two looks.
STEPS = {"itch_small": 3, "pitch_2": 100, "cme_1": 100}

Queues = dict[tuple[str, str], list[tuple[bytes, float, float, int]]]


class Strategy:
    """A reader with books, and the names of all instruments that had orders."""

    def __init__(self, directory: Path, **options: object) -> None:
        self.reader = Reader(f"ring:{directory}", **options)  # type: ignore[arg-type]
        self.books = Books(self.reader)
        self.names: set[tuple[str, str]] = set()

    def follow(self) -> None:
        while True:
            batch = self.books.poll(timeout=0)
            if len(batch) == 0:
                return
            for i in np.flatnonzero(batch.headers["kind"] == Kind.ORDERS).tolist():
                header = batch.update(i).header
                if batch.headers["flags"][i] & RecordFlag.SNAPSHOT:  # an execution made no row
                    assert not batch.update(i).rows["reason"].any()
                exchange, symbol = (
                    str(batch.names[int(header[key])]) for key in ("exchange_id", "symbol_id")
                )
                self.names.add((exchange, symbol))

    def doubts(self) -> dict[tuple[str, str], bool]:
        """Return of every queue that holds orders whether it is in doubt."""
        found = {name: self.books.orders(*name) for name in self.names}
        return {name: queues.stale for name, queues in found.items() if len(queues)}

    def sound(self) -> Queues:
        """Return every queue that is not in doubt."""
        found = {}
        for exchange, symbol in self.names:
            queues = self.books.orders(exchange, symbol)
            if not queues.stale:
                found[exchange, symbol] = [
                    (row["order_id"], float(row["price"]), float(row["quantity"]), row["priority"])
                    for row in (*queues.bids(), *queues.asks())
                ]
        return found


def feed(directory: Path, name: str, capture: str) -> Iterator[None]:
    """Yield after each step of a set's replay into a ring."""
    config, datagrams = read_set(shared("venues", "books", name), capture, window=1 << 12)
    replayer = Replayer(config, directory)
    yield
    for start in range(0, len(datagrams), STEPS[name]):
        play(replayer, datagrams[start : start + STEPS[name]])
        yield
    replayer.finish()
    yield
    replayer.close()


def play(replayer: Replayer, part: list[tuple[Line, CapturedDatagram]]) -> None:
    headers = np.zeros(len(part), CAPTURED)
    headers["timestamp_ns"] = [one.timestamp_ns for _, one in part]
    sizes = [len(one.payload) for _, one in part]
    headers["size"] = sizes
    headers["offset"] = np.cumsum([0, *sizes[:-1]])
    batch = CaptureBatch(headers, b"".join(one.payload for _, one in part))
    channels = np.array([line[0] for line, _ in part], np.uint8)
    lines = np.array([line[1] for line, _ in part], np.uint8)
    replayer.replay(batch, channels, lines, 0, len(part))


@pytest.mark.parametrize("capture", ["feed", *nightly("clean")])
@pytest.mark.parametrize("name", list(STEPS))
def test_reader_that_joins_late_has_the_orders_of_one_that_was_there(
    name: str, capture: str, tmp_path: Path
) -> None:
    directory = tmp_path / "feed"
    directory.mkdir(mode=0o700)
    if not (shared("venues", "books", name) / f"{capture}.pcap.gz").exists():
        pytest.skip(f"{name} has no {capture}")
    steps = feed(directory, name, capture)
    next(steps)
    keeper = ImageKeeper(ImageConfig(interval_ms=0, capacity_bytes=1 << 26), directory)
    keeper.on_start()
    always = Strategy(directory, start="begin")
    compared = doubted = 0
    followed: list[Strategy] = []
    for step, _ in enumerate(steps):
        always.follow()
        while keeper.work(ALWAYS) > 0:
            pass
        keeper.publish()
        if step % 7 == 3:
            followed.append(Strategy(directory, image=True))
        expected = always.sound()
        for late in followed[-2:]:  # the last but one goes on by the ring's own updates
            late.follow()
            assert late.sound() == {
                key: rows for key, rows in expected.items() if key in late.names
            }
            missing = set(expected) - late.names
            assert all(not expected[key] for key in missing), f"no orders of {missing}"
            assert late.doubts() == always.doubts()
            compared += sum(len(rows) > 0 for rows in expected.values())
            doubted += sum(always.doubts().values())
    assert compared > 5
    assert (doubted > 0) == (capture == "feed")
    for one in (always, *followed):
        one.reader.close()
    keeper.on_stop()
