"""Loops of snapshots and definitions on sockets: who joins late and loses much has every book."""

import random
import socket
from collections.abc import Iterable

from lab.conformance.books import Followed
from tests.agents.cme_books import ALL, check, truth_of
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.agents.market.cme_market import CmeMarket
from udpfast.client.books import Books
from udpfast.client.reader import Reader
from udpfast.net.ports import free_ports

LOSS = 0.2
LATE = 100  # datagrams


class Exchange:
    """A market on sockets: each line, and each loop, loses what it wants."""

    def __init__(self, seed: int) -> None:
        self.market = CmeMarket(seed, rate_per_s=500, seconds=0.6)
        self.ports = free_ports(2 + len(self.market.loops))
        self._pick = random.Random(seed)

    def tables(self) -> dict[str, object]:
        lines = [{"name": f"L{port}", "address": f"127.0.0.1:{port}"} for port in self.ports]
        return {
            "name": "loops",
            "wire": {
                "framing": self.market.framing,
                "payload": self.market.payload,
                "streams_max": 8,
            },
            "streams": {"lines": lines[:2]},
            "definitions": {"lines": lines[2:3]},
            "recovery": {"lines": lines[3:]},
            "window": {"lost_packet_wait_us": 2_000},
            "ring": {"carry": "both", "capacity_bytes": 1 << 24},
            "books": {"orders": True, "orders_max": 4_000},
        }

    def send(self, datagrams: Iterable[tuple[int, int, bytes]], sock: socket.socket) -> None:
        for _, line, data in datagrams:
            for port in self.ports[:2] if line == 0 else self.ports[1 + line : 2 + line]:
                if self._pick.random() >= LOSS:
                    sock.sendto(data, ("127.0.0.1", port))


def test_late_joiner_with_losses_on_every_line_has_every_book() -> None:
    exchange = Exchange(11)
    market = exchange.market
    played = iter(market)
    for _ in range(LATE):  # nobody listens yet
        next(played)
    with (
        Subscriber(exchange.tables()) as subscriber,
        Reader("ring:loops", start="begin") as reader,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
    ):
        known, number = Followed(Books()), 0
        exchange.send(played, sock)
        truth = truth_of(market)
        for _ in range(20):  # the loops turn on, as an exchange's do
            exchange.send(market.ending(), sock)
            last = market.heartbeat(0)
            sock.sendto(last, ("127.0.0.1", exchange.ports[0]))
            while number < int.from_bytes(last[:4], "little"):
                record = next(reader)
                known.take(record)
                number = max(number, record.number)
            sound = check(known, truth)
            if sound == ALL:
                break
        assert sound == ALL
        counted = subscriber.counters()
    assert counted["incremental"]["gaps"] > 0
    assert counted["feed"]["recovered_snapshot"] > 0
