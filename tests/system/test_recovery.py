"""A feed that asks servers: messages that no line brought, and books as of a number."""

import json
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab.conformance.books import Followed
from tests.payload.itch_market import SESSION, STOCKS, ItchMarket, datagram
from tests.payload.test_served_books import check
from tests.ports import free_ports
from tests.shared import shared
from tests.waiting import wait_until
from udpfast.agents.subscriber import Subscriber
from udpfast.client.books import Books
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind
from udpfast.shm.answers import read_tallies

LOST = {30, 31, 32, 50, 77}
MESSAGES = 120

#: What a request server does with a request: datagrams to send back.
Serve = Callable[[ItchMarket, int, int], list[bytes]]


def tables(name: str, ports: list[int], **more: Any) -> dict[str, Any]:
    lines = [{"name": "AB"[i], "address": f"127.0.0.1:{ports[i]}"} for i in range(2)]
    return {
        "name": name,
        "wire": {"framing": "moldudp64", "payload": "itch"},
        "streams": {"lines": lines},
        "window": {"lost_packet_wait_us": 2_000},
        "ring": {"carry": "both", "capacity_bytes": 1 << 24},
        "books": {"orders": True, "orders_max": 50_000},
    } | more


@contextmanager
def requests_served(market: ItchMarket, serve: Serve) -> Iterator[int]:
    """Run a request server on a port of the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))

        def run() -> None:
            while True:
                data, client = sock.recvfrom(100)
                if not data:
                    return
                assert data[:10] == SESSION
                first, count = struct.unpack(">QH", data[10:])
                for answer in serve(market, first, count):
                    sock.sendto(answer, client)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield sock.getsockname()[1]
        finally:
            sock.sendto(b"", sock.getsockname())
            thread.join()


def publish(market: ItchMarket, ports: list[int], lost: set[int]) -> None:
    """Send all messages on two lines, one in a datagram, but some on neither."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for number, message in enumerate(market.messages, 1):
            for port in ports if number not in lost else []:
                sock.sendto(datagram(number, [message]), ("127.0.0.1", port))


def all_of(market: ItchMarket, first: int, count: int) -> list[bytes]:
    return [datagram(first, market.messages[first - 1 : first - 1 + count])]


def first_of(market: ItchMarket, first: int, count: int) -> list[bytes]:
    return all_of(market, first, 1)


def nothing(market: ItchMarket, first: int, count: int) -> list[bytes]:
    return []


def of_another_session(market: ItchMarket, first: int, count: int) -> list[bytes]:
    messages = market.messages[first - 1 : first - 1 + count]
    return [datagram(first, messages, session=b"0000000043")]


def not_asked_for(market: ItchMarket, first: int, count: int) -> list[bytes]:
    return all_of(market, 1, 3)


def no_datagram(market: ItchMarket, first: int, count: int) -> list[bytes]:
    return [b"?", all_of(market, first, count)[0][:-1]]


def outcome(name: str, serve: Serve, wait_us: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return the counters of the streams, and the agent's, when all messages came or are lost."""
    market = ItchMarket(1, MESSAGES)
    ports = free_ports(2)
    with requests_served(market, serve) as port:
        asking = {"server": f"127.0.0.1:{port}", "wait_us": wait_us, "retry_us": 5_000}
        with Subscriber(tables(name, ports, retransmission=asking)) as subscriber:
            publish(market, ports, LOST)
            scope = "incremental"

            def is_over() -> bool:
                counted = subscriber.counters()[scope]
                return counted["messages"] + counted["lost"] == MESSAGES

            wait_until(is_over, "all messages, or their gaps")
            found = subscriber.counters()[scope]
            if found["lost"]:
                wait_until(lambda: tallies(subscriber)["requests"], "a request")
            return found, tallies(subscriber)


def tallies(subscriber: Subscriber, agent: str = "retransmission") -> dict[str, int]:
    return read_tallies(subscriber.directory, agent)


@pytest.mark.parametrize("serve", [all_of, first_of])
def test_server_fills_what_no_line_brought(serve: Serve) -> None:
    counted, agent = outcome("asks", serve, 60_000_000)
    assert counted["lost"] == counted["gaps"] == 0
    assert agent["messages"] >= len(LOST)
    assert agent["strange"] == 0


@pytest.mark.parametrize("serve", [nothing, of_another_session, not_asked_for, no_datagram])
def test_server_that_does_not_help_changes_nothing(serve: Serve) -> None:
    counted, agent = outcome("asks", serve, 100_000)
    assert counted["lost"] == len(LOST)
    assert counted["gaps"] == 3
    assert agent["messages"] == 0
    assert bool(agent["strange"]) == (serve is not nothing)


def test_live_venue_is_followed_without_a_gap(tmp_path: Path) -> None:
    truth, final, counted, agent = live(tmp_path, loss=0.2, retransmission=60_000_000)
    assert counted["lost"] == 0
    assert agent["messages"] > 0
    assert final == truth


def live(folder: Path, loss: float, retransmission: int) -> tuple[Any, Any, Any, Any]:
    """Follow a venue with losses on both lines; return its books, ours, and what was counted."""
    serve = shared("venues", "gen", "itch_serve.py")
    seed, count = "7", "3000"
    ports = free_ports(4)
    subprocess.run(
        [sys.executable, serve.with_name("itch_gen.py"), folder / "truth", seed, count],
        check=True,
        capture_output=True,
    )
    truth = json.loads((folder / "truth" / "truth.json").read_text())["checkpoints"][-1]
    a, b, requests, glimpse = (f"127.0.0.1:{port}" for port in ports)
    asking = {"server": requests, "wait_us": retransmission, "retry_us": 5_000}
    with Subscriber(tables("live", ports[:2], retransmission=asking)) as subscriber:
        with Reader("ring:live") as reader:
            venue = subprocess.Popen(
                [sys.executable, serve, seed, count, "--a", a, "--b", b, "--requests", requests]
                + ["--glimpse", glimpse, "--rate", "6000", "--loss", str(loss)]
                + ["--wait", "0", "--linger", "0.4"],
                stdout=subprocess.PIPE,
            )
            known = Followed(Books())
            said, _ = venue.communicate()
            sent = json.loads(said)["sent"]
            wait_until(lambda: subscriber.counters()["incremental"]["messages"] >= sent, "them all")
            while reader.lag:
                known.take(next(reader))
        orders = book_digest(known)
        return (
            truth["orders_sha256"],
            orders,
            subscriber.counters()["incremental"],
            tallies(subscriber),
        )


def book_digest(known: Followed) -> str:
    from lab.conformance.books import book_lines, digest

    return digest(book_lines(known, "NASDAQ")[0])


def test_late_feed_has_sound_books_of_a_snapshot_server() -> None:
    market = ItchMarket(2, 300)
    with served_books(market, number=200) as port:
        ports = free_ports(2)
        asking = {"server": f"127.0.0.1:{port}", "pause_ms": 50}
        with (
            Subscriber(tables("late", ports, snapshot_server=asking)) as subscriber,
            Reader("ring:late") as reader,
        ):
            known, number = Followed(Books()), 0
            send(market, ports, 150, 249)
            wait_until(lambda: tallies(subscriber, "snapshot_server")["snapshots"], "a snapshot")
            send(market, ports, 250, 300)
            while number < 300 or reader.lag:
                record = next(reader)
                known.take(record)
                if record.kind == Kind.MESSAGE:
                    number = record.number
                    check(known, market, number)
            assert check(known, market, 300) == len(STOCKS)


def send(market: ItchMarket, ports: list[int], first: int, last: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for number in range(first, last + 1):
            for port in ports:
                sock.sendto(datagram(number, [market.messages[number - 1]]), ("127.0.0.1", port))


@contextmanager
def served_books(market: ItchMarket, number: int) -> Iterator[int]:
    """Run a snapshot server that always tells the books as of one number."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            while True:
                client, _ = listener.accept()
                with client:
                    asked = client.recv(100)
                    if asked[:1] == b"!":
                        return
                    assert asked[2:3] == b"L"
                    assert len(asked) == 49
                    client.sendall(market.snapshot(number))

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            with socket.create_connection(listener.getsockname()) as last:
                last.sendall(b"!")
            thread.join()
