"""Books of venues that no snapshot announces: which are sound, which wait, which are stranded."""

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.client.instance import small_image
from tests.payload.itch_market import ItchMarket
from tests.payload.order_market import OrderMarket, PitchMarket
from udpfast import Books, Reader
from udpfast.agents.feed.image_keeper import ImageKeeper
from udpfast.agents.feed.replayer import Replayer
from udpfast.config import parse_feed
from udpfast.core.clock import realtime_ns
from udpfast.monitor.objects import ObjectStates
from udpfast.monitor.status import InstanceStatus, read_status
from udpfast.monitor.troubles import feed_troubles
from udpfast.net.pcap import CAPTURED, CaptureBatch

AT_NS = 1_700_000_000_000_000_000
MARKETS = [ItchMarket, PitchMarket]


class Fed:
    """A feed of one line, with an image, and a reader's books."""

    def __init__(self, directory: Path, market: type[OrderMarket], **tables: Any) -> None:
        self.directory = directory
        settings = {
            "name": "venue",
            "wire": {"framing": market.framing, "payload": market.payload, "streams_max": 4},
            "streams": {"lines": [{"name": "A", "address": "127.0.0.1:9000"}]},
            "window": {"size": 256, "lost_packet_wait_us": 1_000},
            "ring": {"capacity_bytes": 1 << 24},
            "books": {"orders_max": 5_000},
        }
        self.replayer = Replayer(parse_feed(settings | tables), directory)
        self.keeper = ImageKeeper(small_image(objects=64), directory)
        self.keeper.on_start()
        self.reader = Reader(f"ring:{directory}", start="begin")
        self.books = Books(self.reader)
        self.at_ns = AT_NS

    def take(self, datagram: bytes) -> None:
        """Receive a datagram, later than any hole lasts."""
        self.at_ns += 5_000_000
        headers = np.zeros(1, CAPTURED)
        headers["timestamp_ns"], headers["size"] = self.at_ns, len(datagram)
        place = np.zeros(1, np.uint8)
        self.replayer.replay(CaptureBatch(headers, datagram), place, place, 0, 1)

    def status(self) -> InstanceStatus:
        """Return what the monitor finds, once image and reader are up to date."""
        while self.keeper.work(1 << 62):
            pass
        self.keeper.publish()
        while len(self.books.poll(timeout=0)):
            pass
        return read_status(self.directory)

    def objects(self) -> ObjectStates:
        found = self.status().objects
        assert found is not None
        return found

    def waiting(self) -> tuple[int, int]:
        counted = self.status().counters["feed"]
        return counted["objects_waiting"], counted["objects_stranded"]

    def close(self) -> None:
        self.reader.close()
        self.keeper.on_stop()
        self.replayer.close()


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:

        def start(market: type[OrderMarket], **tables: Any) -> Fed:
            made = Fed(tmp_path, market, **tables)
            stack.callback(made.close)
            return made

        yield start


def play(feed: Fed, market: OrderMarket, first: int, last: int) -> None:
    """Send the messages of these numbers, one a datagram."""
    for number in range(first, last + 1):
        feed.take(market.datagram(number, [market.messages[number - 1]]))


@pytest.mark.parametrize("market", MARKETS)
def test_books_that_were_there_from_the_first_message_are_sound(
    fed: Any, market: type[OrderMarket]
) -> None:
    feed = fed(market)
    play(feed, market(1, 60), 1, 60)
    found = feed.objects()
    assert (found.sound, found.doubted) == (len(feed.books), 0)
    assert not [book for book in feed.books.values() if book.stale]
    assert feed.waiting() == (0, 0)
    assert feed_troubles("venue", feed.status()) == []


@pytest.mark.parametrize("market", MARKETS)
def test_feed_that_starts_behind_its_market_is_named_and_says_what_to_do(
    fed: Any, market: type[OrderMarket]
) -> None:
    feed = fed(market)
    play(feed, market(2, 60), 31, 60)
    status = feed.status()
    known = status.counters["feed"]["objects"]
    assert feed.waiting() == (0, known) and known > 1
    found = feed.objects()
    assert (found.sound, found.in_doubt["first"]) == (0, known)

    def troubles(age_s: float) -> list[str]:
        started_ns = realtime_ns() - int(age_s * 1e9)
        aged = msgspec.structs.replace(status, alive=True, state="open", silent=(), agents=())
        return feed_troubles("venue", msgspec.structs.replace(aged, started_ns=started_ns))

    assert troubles(1) == []
    (text,) = troubles(60)
    assert text.startswith(
        f"feed venue: {known} of {known} objects wait for a snapshot, but nothing"
    )
    assert not [
        each
        for each in feed_troubles("venue", msgspec.structs.replace(status, alive=False))
        if "snapshot" in each
    ]


def test_feed_with_a_server_of_snapshots_waits_and_is_not_stranded(fed: Any) -> None:
    server = {"server": "127.0.0.1:9", "held_changes": 1 << 16}
    feed = fed(PitchMarket, snapshot_server=server)
    play(feed, PitchMarket(3, 60), 31, 60)
    waiting, stranded = feed.waiting()
    assert waiting == feed.status().counters["feed"]["objects"] and stranded == 0


@pytest.mark.parametrize("market", MARKETS)
@pytest.mark.parametrize("seed", range(6))
def test_what_is_counted_in_doubt_is_what_a_reader_doubts(
    fed: Any, market: type[OrderMarket], seed: int
) -> None:
    pick = random.Random(seed)
    feed = fed(market)
    sent = market(seed, 200)
    number = 1
    while number < 200:
        if pick.random() < 0.02:
            number += pick.randint(1, 3)  # lost
        play(feed, sent, number, min(number, 200))
        number += 1
        if pick.random() < 0.1:
            found = feed.objects()
            stale = [book for book in feed.books.values() if book.stale]
            unknown = feed.status().counters["feed"]["objects"] - len(feed.books)
            assert found.sound == len(feed.books) - len(stale)
            assert len(stale) <= found.doubted <= len(stale) + unknown
