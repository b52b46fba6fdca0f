"""Late readers get the state first, then the ring, and end equal to a reader from the start."""

import random
from pathlib import Path

import numpy as np
import pytest

from tests.cases import nightly
from tests.client.instance import Instance, small_image
from tests.shared import shared
from udpfast import Books, Reader, RecordFlag
from udpfast.agents.feed.image_keeper import ImageKeeper
from udpfast.agents.feed.replayer import Replayer
from udpfast.config import parse_feed
from udpfast.core.layout import SESSION, Kind
from udpfast.market.state_bytes import ENTRY_HASH
from udpfast.net.pcap import CaptureReader
from udpfast.shm.image import Image, ImageView

#: UDP port -> (channel, line), from the capture's description.
LINES = {9001: (0, 0), 9101: (0, 1), 9002: (1, 0)}

#: Times at which a keeper does not write its image yet, and at which it does.
NEVER, ALWAYS = 0, 1 << 62

Content = dict[tuple[str, str], tuple[bytes, bytes]]


def content(books: Books) -> Content:
    """Return the sound books by name; a missing book counts as stale."""
    return {
        key: (book.bids().tobytes(), book.asks().tobytes())
        for key, book in books.items()
        if not book.stale
    }


class Strategy:
    """A reader with books; checks that its records have no hole and no repetition."""

    def __init__(self, directory: Path, **options: object) -> None:
        self.reader = Reader(f"ring:{directory}", **options)  # type: ignore[arg-type]
        self.books = Books(self.reader)
        self.snapshots = 0
        self.expected: int | None = None

    def follow(self) -> None:
        while True:
            joining = self.reader.joining
            batch = self.books.poll(timeout=0)
            if len(batch) == 0:
                return
            assert not batch.lapped
            indices = batch.headers["index"]
            if joining:
                assert (batch.headers["flags"] & RecordFlag.SNAPSHOT).all()
                assert (indices < self.reader.index).all()
                self.snapshots += len(batch)
                continue
            if self.expected is not None:
                assert indices[0] == self.expected
            assert (np.diff(indices) == 1).all()
            self.expected = int(indices[-1]) + 1


def feed(directory: Path, capture: Path, capacity_bytes: int = 1 << 22):
    """Yield after each step of a capture's replay into a ring."""
    lines = [{"name": name, "address": "127.0.0.1:0"} for name in "AB"]
    config = parse_feed(
        {
            "name": "capture",
            "incremental": {"lines": lines},
            "snapshot": {"lines": lines[:1]},
            "ring": {"capacity_bytes": capacity_bytes},
        }
    )
    replayer = Replayer(config, directory)
    yield
    with CaptureReader(capture) as captured:
        while (batch := captured.read_batch()) is not None:
            ports = batch.headers["destination_port"]
            channels = np.array([LINES[port][0] for port in ports], np.uint8)
            lines = np.array([LINES[port][1] for port in ports], np.uint8)
            for start in range(0, len(ports), 200):
                replayer.replay(batch, channels, lines, start, min(start + 200, len(ports)))
                yield
    replayer.finish()
    yield
    replayer.close()


@pytest.mark.parametrize("variant", ["rough", *nightly("clean")])
def test_reader_that_joins_at_any_moment_has_the_books_of_one_that_was_there(
    variant: str, tmp_path: Path
) -> None:
    directory = tmp_path / "feed"
    directory.mkdir(mode=0o700)
    rng = random.Random(17)
    capture = shared("wire", "capture", f"roq_udp_{variant}.pcap.gz")
    steps = feed(directory, capture)
    next(steps)
    keeper = ImageKeeper(small_image(), directory)
    keeper.on_start()
    always = Strategy(directory, start="begin")
    joined: list[Strategy] = []
    joins = stale = 0
    for step, _ in enumerate(steps):
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            keeper.work(rng.choice([NEVER, ALWAYS]))
        always.follow()
        if rng.random() < 0.5:
            joined.append(Strategy(directory, image=True))
            joins += 1
        expected = content(always.books)
        stale += len(always.books) - len(expected)
        for strategy in joined:
            strategy.follow()
            assert content(strategy.books) == expected, (step, keeper.index)
            assert strategy.reader.index == always.reader.index
        if len(joined) > 4:
            joined.pop(rng.randrange(len(joined))).reader.close()
    assert joins > 100
    assert stale > (20 if variant == "rough" else 0)


def test_reader_whose_image_went_ahead_while_it_was_read_gets_no_update_twice(
    tmp_path: Path,
) -> None:
    # The keeper goes on while a joiner looks: the mark that it read first is of before, the objects
    # are of later, and so may lie beyond what the ring's end was then.
    instance = Instance(tmp_path / "feed")
    session = np.zeros((), SESSION)
    session["new_id"] = 1
    instance.append(Kind.SESSION, session.tobytes(), session=1)
    instance.book([(10.0, 1.0)], [(11.0, 1.0)], snapshot=True, stream=1)
    instance.ring.flush()
    keeper = ImageKeeper(small_image(objects=8), instance.directory)
    keeper.on_start()
    while keeper.work(1 << 62):
        pass
    keeper.publish()
    with ImageView.attach(instance.directory, ENTRY_HASH) as view:
        mark = view.entry(0)
    before = instance.number
    instance.book([(10.0, 2.0)], [], follows=before)
    instance.book([(10.0, 0.0), (9.0, 3.0)], [], follows=before + 1)
    while keeper.work(1 << 62):
        pass
    keeper.publish()
    with ImageView.attach(instance.directory, ENTRY_HASH) as view:
        ahead = view.entry(1)
    keeper.on_stop()
    with Image.create(instance.directory, 9, 1 << 20, ENTRY_HASH) as image:
        assert image.put(0, mark)
        assert image.put(1, ahead)
        with Reader(instance.address, image=True) as reader:
            joined = [next(reader)]
            while reader.joining:
                joined.append(next(reader))
            assert joined[-1].index == before + 1
            instance.book([(8.0, 4.0)], [], follows=before + 2)
            instance.ring.close()
            assert [record.number for record in reader] == [before + 3]
    instance.names_region.close()
