"""Addresses of one line: which stream each brings, told by its bytes or by its place."""

import pytest

from tests.feed.test_streams import NAMES, datagram
from udpfast.core.layout import SESSION, Kind
from udpfast.feed.pipeline import FeedMessage, FeedPipeline
from udpfast.wire.framing import Framing

TOLD_BY_PLACE = [name for name in NAMES if Framing(name).facts.address_shift >= 0]
TOLD_BY_BYTES = [name for name in NAMES if Framing(name).facts.address_shift < 0]


class Feed:
    """A pipeline of two lines with several addresses each."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pipeline = FeedPipeline(
            framing=name, lines_incremental=2, lines_snapshot=0, window=256, streams=8
        )
        self.out: list[FeedMessage] = []
        self.now_ns = 0

    def send(self, number: int, address: int, line: int = 0) -> None:
        self.now_ns += 1000
        data = datagram(self.name, number, run=address)
        self.pipeline.accept(0, line, data, self.now_ns, self.now_ns, address=address)
        self.out += self.pipeline.take()

    def numbers(self) -> dict[int, list[int]]:
        """Numbers by stream."""
        found: dict[int, list[int]] = {}
        for one in self.out:
            if one.kind is Kind.MESSAGE:
                found.setdefault(one.stream, []).append(one.number)
        return found


def test_every_framing_is_told_one_way_or_the_other() -> None:
    assert TOLD_BY_PLACE and TOLD_BY_BYTES
    # What a venue's header says apart is told by it.
    assert {"cboe_pitch", "iex_tp", "deribit_sbe", "eurex_eobi"} <= set(TOLD_BY_BYTES)


@pytest.mark.parametrize("name", TOLD_BY_PLACE)
def test_each_address_is_a_stream_that_both_lines_bring(name: str) -> None:
    feed = Feed(name)
    for number in range(5, 60):
        for address in (0, 1, 2):
            # Line B brings what A lost, and copies of the rest.
            if number % 7 != address:
                feed.send(number + 1000 * address, address, 0)
            feed.send(number + 1000 * address, address, 1)
    streams = feed.numbers()
    first = [numbers[0] for numbers in streams.values()]
    assert sorted(first) == [5, 1005, 2005]
    for numbers in streams.values():
        assert numbers == list(range(numbers[0], numbers[0] + 55))
    assert [one.kind for one in feed.out if one.kind is Kind.GAP] == []


@pytest.mark.parametrize("name", TOLD_BY_PLACE)
def test_session_says_at_which_place_its_address_is(name: str) -> None:
    feed = Feed(name)
    for number in range(1, 4):
        for address in (0, 1, 127):
            feed.send(number, address)
    offset = int(SESSION.fields["stream"][1])
    keys = [
        int.from_bytes(one.payload[offset : offset + 4], "little")
        for one in feed.out
        if one.kind is Kind.SESSION
    ]
    shift = Framing(name).facts.address_shift
    assert sorted(key >> shift for key in keys) == [0, 1, 127]
    assert len({key & ((1 << shift) - 1) for key in keys}) == 1


@pytest.mark.parametrize("name", TOLD_BY_BYTES)
def test_place_means_nothing_where_the_bytes_tell_the_stream(name: str) -> None:
    feed = Feed(name)
    for number in range(5, 60):
        feed.send(number, number % 3, 0)  # one stream on three addresses, as its sender likes
    assert feed.numbers() == {2: list(range(5, 60))}
