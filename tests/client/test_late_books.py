"""Books of late readers, compared with those of a reader from the start."""

import random
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.client.instance import Instance, small_image
from tests.client.ring_market import Market
from udpfast import Books, FormatError, Kind, Reader, RecordFlag
from udpfast.agents.feed.image_keeper import ImageKeeper

#: A time at which an image is due.
ALWAYS = 1 << 62

Key = tuple[str | None, str | None]


class FeedMarket(Market):
    """The records that a feed may publish about a market.

    Messages of an object pass only while the feed has it as sound, as reported in their session;
    each object has a name of its own; only readers report that a ring's writer is dead.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        self.sure: set[tuple[int, ...]] = set()
        super().__init__(directory, seed)

    def _append(self, kind: Kind, payload: bytes, flags: int = 0, **fields: Any) -> None:
        stream = fields.get("stream", 0)
        stream *= stream > 1  # Roq's two are one
        session, number = fields.get("session", 0), fields.get("object", 0)
        if kind is Kind.CONNECTION:
            return
        if kind in (Kind.SESSION, Kind.GAP):
            self.sure = {each for each in self.sure if each[0] != stream}
        elif session == 0:
            return
        elif kind is Kind.STALE:
            self.sure = {each for each in self.sure if each[:2] != (stream, number)}
        elif kind is Kind.RECOVERED:
            if len(payload) > 10:
                self.sure.add((stream, number, session))
        elif (stream, number, session) not in self.sure or flags & RecordFlag.UNGATED:
            return
        elif kind is Kind.BOOK and len(payload) > 88:
            names = self.instance.names
            ids = (names.intern("exchange"), names.intern(f"{stream}-{number & 0xFFFF}"))
            payload = payload[:64] + struct.pack("<II", *ids) + payload[72:]
        super()._append(kind, payload, flags, **fields)


def take(reader: Reader, books: Books) -> None:
    """Apply all records; a damaged one puts its book in doubt."""
    while reader.wait(0):
        try:
            books.apply(next(reader))
        except FormatError:
            continue


def sound(books: Books) -> dict[Key, tuple[Any, Any]]:
    """Return the contents of the sound books."""
    return {
        name: (book.bids().tolist(), book.asks().tolist())
        for name, book in books.items()
        if not book.stale
    }


def count_believed(always: Books, late: list[tuple[Reader, Books]], seed: int) -> int:
    """Return how many sound books late readers have: all are those of who was always there."""
    known = sound(always)
    believed = 0
    for _, books in late:
        found = sound(books)
        assert found == {name: known.get(name) for name in found}, f"seed {seed}"
        believed += len(found)
    return believed


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_late_reader_believes_nothing_that_one_who_was_there_does_not(
    tmp_path: Path, first: int
) -> None:
    believed = 0
    for seed in range(first, first + 20):
        rng = random.Random(seed)
        market = FeedMarket(tmp_path / str(seed), seed)
        always = Reader(market.address, start="begin"), Books()
        late: list[tuple[Reader, Books]] = []
        for _ in range(12):
            market.go_on(restarts=False)
            for each in (always, *late):
                take(*each)
            if always[0].lapped:
                break  # it was there no more than the others
            believed += count_believed(always[1], late, seed)
            if rng.random() < 0.4:
                late.append((Reader(market.address, start="tail"), Books()))
        for reader, _ in (always, *late):
            reader.close()
        market.close()
    assert believed > 0


def test_reader_with_an_image_believes_nothing_that_one_who_was_there_does_not(
    tmp_path: Path,
) -> None:
    # An image tells of objects without a value, too: whether they had messages before.
    believed = 0
    for seed in range(8):
        rng = random.Random(seed)
        market = FeedMarket(tmp_path / str(seed), seed)
        keeper = ImageKeeper(small_image(), market.instance.directory)
        keeper.on_start()
        always = Reader(market.address, start="begin"), Books()
        joined: list[tuple[Reader, Books]] = []
        for _ in range(12):
            market.go_on(restarts=False)
            while keeper.work(ALWAYS):
                pass
            keeper.publish()
            for each in (always, *joined):
                take(*each)
            if always[0].lapped:
                break
            believed += count_believed(always[1], joined, seed)
            if rng.random() < 0.5:
                joined.append((Reader(market.address, image=True), Books()))
        keeper.on_stop()
        for reader, _ in (always, *joined):
            reader.close()
        market.close()
    assert believed > 0


def test_late_reader_knows_of_the_objects_that_it_heard_of(instance: Instance) -> None:
    # Two objects of one name: a reader that has both cannot decide whose book it is.
    def snapshot(number: int, bid: float) -> None:
        where = {"object_id": number, "stream": 1, "session": 1}
        instance.append(Kind.RECOVERED, bytes(24), object_type=3, **where)
        instance.book([(bid, 1)], [(bid + 1, 1)], snapshot=True, follows=50, **where)
        instance.ring.flush()

    with Reader(instance.address) as reader:
        always = Books()
        snapshot(1, 10)
        snapshot(2, 20)
        take(reader, always)
        assert not sound(always)
        with Reader(instance.address) as other:
            late = Books()
            snapshot(2, 30)
            take(other, late)
            assert [bids[0][0] for bids, _ in sound(late).values()] == [30]
            snapshot(1, 10)
            take(other, late)
            assert not sound(late)
