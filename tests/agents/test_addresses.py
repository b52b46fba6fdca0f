"""Lines of many addresses in one loop: what each brings, which is silent, sockets by turns."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.loops.turns import Turns
from lab.framings import Sent, build
from udpfast.agents.feed.engine import Engine
from udpfast.agents.feed.feed_loop import FeedLoop
from udpfast.client.reader import Reader
from udpfast.config import parse_feed
from udpfast.core.layout import Kind
from udpfast.net.ports import free_ports
from udpfast.shm.counters import CounterBlock

MS = 1_000_000
COUNT = 6


class Feed:
    """A feed of two lines with six addresses each, and what is sent to them."""

    def __init__(self, directory: Path, **receive: Any) -> None:
        self.ports = free_ports(2 * COUNT)
        self.config = parse_feed(
            {
                "name": "test",
                "ring": {"capacity_bytes": 1 << 22},
                "wire": {"framing": "cme_mdp3", "streams_max": 16},
                "receive": receive,
                "window": {"lost_packet_wait_us": 5_000, "size": 256, "slab_cells": 1024},
                "session": {"inactivity_timeout_ms": 1_000},
                "streams": {
                    "lines": [
                        {
                            "name": name,
                            "addresses": [f"127.0.0.1:{port}" for port in self.of_line(line)],
                        }
                        for line, name in enumerate("AB")
                    ]
                },
            }
        )
        self.directory = directory
        self.engine = Engine(self.config, directory)
        self.loop = FeedLoop(self.engine, self.config)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def of_line(self, line: int) -> list[int]:
        return self.ports[line * COUNT : (line + 1) * COUNT]

    def send(self, line: int, address: int, *numbers: int) -> None:
        for number in numbers:
            message = b"%d of %d" % (number, address)
            data = build("cme_mdp3", Sent(number, (message,), sent_ns=10**18))
            self.socket.sendto(data, ("127.0.0.1", self.of_line(line)[address]))

    def messages(self) -> list[bytes]:
        """What came out, in its order; ends the feed."""
        self.engine.close()
        with Reader(f"ring:{self.directory}", start="begin") as reader:
            return [bytes(one.payload)[10:] for one in reader if one.kind == Kind.MESSAGE]

    def addresses(self, line: str) -> dict[str, dict[str, int]]:
        with CounterBlock.attach(self.directory) as block:
            return block.read_addresses()[line]


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Feed]:
    made = Feed(tmp_path)
    yield made
    made.engine.close()
    made.socket.close()


@pytest.fixture(params=[{}, {"gro": True}, {"timestamps": "none"}, {"busy_poll_us": 1}])
def any_feed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Feed]:
    """One way to receive after the other; the last asks every socket at each turn."""
    made = Feed(tmp_path, **request.param)
    yield made
    made.engine.close()
    made.socket.close()


def test_every_address_is_received_and_belongs_to_its_stream(any_feed: Feed) -> None:
    feed = any_feed
    with Turns(feed.loop) as turns:
        turns.turn(MS)
        for number in range(1, 31):
            for address in range(COUNT):
                if number == 1 or number % COUNT != address:  # what line A has not lost
                    feed.send(0, address, number)
                feed.send(1, address, number)
        for turn in range(2, 20):
            turns.turn(turn * MS)
    found = feed.messages()
    for address in range(COUNT):
        mine = [one for one in found if one.endswith(b" of %d" % address)]
        assert mine == [b"%d of %d" % (number, address) for number in range(1, 31)]
    assert sum(one["datagrams"] for one in feed.addresses("incremental.A").values()) == 30 * 5 + 1
    assert [one["datagrams"] for one in feed.addresses("incremental.B").values()] == [30] * COUNT


def test_line_counts_what_all_its_addresses_bring(feed: Feed) -> None:
    with Turns(feed.loop) as turns:
        turns.turn(MS)
        for address in range(COUNT):
            feed.send(0, address, *range(1, 11))
        for turn in range(2, 10):
            turns.turn(turn * MS)
    counters = feed.engine.read_counters()
    assert counters["incremental.A"]["datagrams"] == 10 * COUNT
    assert counters["incremental.A"]["delivered"] == 10 * COUNT
    assert counters["feed"]["streams"] == COUNT


def looks(turns: Turns, from_ms: int, to_ms: int) -> None:
    """Let time pass: each turn looks at one socket, so that all have their look."""
    for now_ms in range(from_ms, to_ms, 8):
        turns.turn(now_ms * MS)


def test_silent_address_is_counted_at_its_line_and_named(feed: Feed) -> None:
    with Turns(feed.loop) as turns:
        looks(turns, 1, 400)
        for address in range(COUNT):
            if address != 4:
                feed.send(0, address, 1)
        looks(turns, 400, 1300)
        silent = feed.addresses("incremental.A")
        assert [one["silent"] for one in silent.values()] == [0, 0, 0, 0, 1, 0]
        assert list(silent)[4] == f"127.0.0.1:{feed.of_line(0)[4]}"
        assert [one["heard_ns"] > 0 for one in silent.values()].count(False) == 1
        counters = feed.engine.read_counters()
        assert counters["incremental.A"]["addresses_silent"] == 1
        assert counters["incremental.B"]["addresses_silent"] == COUNT
        feed.send(0, 4, 1)
        for address in (0, 1):
            feed.send(0, address, 2)
        looks(turns, 1300, 1600)
        silent = feed.addresses("incremental.A")
        assert [one["silent"] for one in silent.values()] == [0, 0, 1, 1, 0, 1]


@pytest.mark.parametrize("stamps", ["none", "kernel"])
def test_drops_of_all_sockets_add_up_at_their_line(tmp_path: Path, stamps: str) -> None:
    feed = Feed(tmp_path, timestamps=stamps, rcvbuf_bytes=4096)
    with Turns(feed.loop) as turns:
        turns.turn(MS)
        for address in range(COUNT):
            feed.send(0, address, *range(1, 201))
        looks(turns, 2, 600)
        counted = feed.engine.read_counters()["incremental.A"]
        assert counted["kernel_drops"] + counted["datagrams"] == 200 * COUNT
        assert counted["kernel_drops"] > COUNT
    feed.engine.close()
    feed.socket.close()


def test_socket_that_is_put_in_place_of_another_is_heard(feed: Feed) -> None:
    with Turns(feed.loop) as turns:
        turns.turn(MS)
        receiver = feed.loop.receivers[3]
        assert receiver.replace_socket()
        feed.send(0, 3, *range(1, 4))
        turns.turn(2 * MS)
        turns.turn(3 * MS)
        assert feed.engine.read_counters()["incremental.A"]["datagrams"] == 3


def test_slots_are_shared_by_all_sockets_of_a_loop(feed: Feed) -> None:
    """What waits in many sockets goes through the same few bytes, each whole."""
    with Turns(feed.loop) as turns:
        for address in range(COUNT):
            feed.send(1, address, *range(1, 101))
        turn = 1
        while turns.turn(turn * MS) > 0:
            turn += 1
    found = feed.messages()
    assert sorted(found) == sorted(
        b"%d of %d" % (number, address) for number in range(1, 101) for address in range(COUNT)
    )
