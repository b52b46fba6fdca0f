"""A feed that asks servers: messages that no line brought, and books as of a number."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lab.conformance.books import Followed
from lab.request_servers import (
    Answer,
    GrpServer,
    RequestServer,
    Said,
    grp_server,
    iex_server,
    iex_tcp_server,
    mold_server,
)
from tests.payload.itch_market import SESSION, STOCKS, ItchMarket, datagram
from tests.payload.order_market import DeepPlusMarket, OrderMarket, PitchMarket
from tests.payload.test_served_books import check
from tests.shared import shared
from tests.waiting import wait_until
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.agents.recovery.asked import Request
from udpfast.agents.recovery.asking import Refusal
from udpfast.agents.recovery.grp import GrpAsking
from udpfast.client.books import Books
from udpfast.client.reader import Reader
from udpfast.config import Login, RetransmissionConfig
from udpfast.core.clock import monotonic_ns
from udpfast.core.layout import Kind
from udpfast.net.ports import free_ports
from udpfast.shm.answers import read_tallies

LOST = {30, 31, 32, 50, 77}
MESSAGES = 120
MARKETS = {
    "itch": ItchMarket(1, MESSAGES),
    "pitch": PitchMarket(1, MESSAGES),
    "iex_deep_plus": DeepPlusMarket(1, MESSAGES),
}
LOGIN = 'session = "0001"\nuser = "TEST"\npassword = "SECRET"\n'
LONG_US, SHORT_US = 60_000_000, 200_000

#: What a request server sends of a market's messages.
Serve = Callable[[OrderMarket, int, int], Said]


def tables(name: str, ports: list[int], market: OrderMarket, **more: Any) -> dict[str, Any]:
    lines = [{"name": "AB"[i], "address": f"127.0.0.1:{ports[i]}"} for i in range(2)]
    return {
        "name": name,
        "wire": {"framing": market.framing, "payload": market.payload, "streams_max": 4},
        "streams": {"lines": lines},
        "window": {"lost_packet_wait_us": 2_000, "slab_cells": 512},
        "objects": {"max": 64, "collect_bytes": 1 << 16},
        "ring": {"carry": "both", "capacity_bytes": 1 << 22, "names": 64},
        "books": {"orders": True, "orders_max": 5_000},
    } | more


@contextmanager
def served(
    market: OrderMarket, serve: Serve, group: str, *, tcp: bool = False
) -> Iterator[RequestServer]:
    """Run the request server of a venue."""

    def reply(stream: int, first: int, count: int) -> Said:
        return serve(market, first, count)

    with ExitStack() as stack:
        if market.payload == "itch":
            yield stack.enter_context(mold_server(SESSION, reply))
        elif market.payload == "pitch":
            yield stack.enter_context(grp_server(reply, group))
        elif tcp:
            iex = DeepPlusMarket
            yield stack.enter_context(iex_tcp_server(iex.PROTOCOL, iex.CHANNEL, iex.SESSION, reply))
        else:
            iex = DeepPlusMarket
            yield stack.enter_context(iex_server(iex.PROTOCOL, iex.CHANNEL, iex.SESSION, reply))


def publish(market: OrderMarket, ports: list[int], lost: set[int]) -> None:
    """Send all messages on two lines, one in a datagram, but some on neither."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for number, message in enumerate(market.messages, 1):
            for port in ports if number not in lost else []:
                sock.sendto(market.datagram(number, [message]), ("127.0.0.1", port))


def part(market: OrderMarket, first: int, count: int, after_s: float = 0.0) -> list[Answer]:
    messages = market.messages[first - 1 : first - 1 + count]
    return [Answer(market.datagram(first, messages), after_s)]


def all_of(market: OrderMarket, first: int, count: int) -> Said:
    return part(market, first, count)


def first_of(market: OrderMarket, first: int, count: int) -> Said:
    return part(market, first, 1)


def each_by_itself_backwards(market: OrderMarket, first: int, count: int) -> Said:
    return [part(market, n, 1)[0] for n in reversed(range(first, first + count))]


def twice(market: OrderMarket, first: int, count: int) -> Said:
    return part(market, first, count) + part(market, first, count, after_s=0.02)


def a_little_late(market: OrderMarket, first: int, count: int) -> Said:
    return part(market, first, count, after_s=0.05)  # ten times as late as it is asked again


def more_than_asked(market: OrderMarket, first: int, count: int) -> Said:
    return part(market, max(1, first - 2), count + 4)


def nothing(market: OrderMarket, first: int, count: int) -> Said:
    return []


def too_late(market: OrderMarket, first: int, count: int) -> Said:
    return part(market, first, count, after_s=1.0)


def of_another_session(market: OrderMarket, first: int, count: int) -> Said:
    data = part(market, first, count)[0].data
    if market.payload == "itch":
        return [Answer(b"0000000043" + data[10:])]
    return [Answer(data[:8] + b"\1" + data[9:])]


def not_asked_for(market: OrderMarket, first: int, count: int) -> Said:
    return part(market, 1, 3)


def no_datagram(market: OrderMarket, first: int, count: int) -> Said:
    return [Answer(b"?"), Answer(part(market, first, count)[0].data[:-1])]


class Outcome(NamedTuple):
    """What was counted when all messages came or are lost, and what the server was asked."""

    counted: dict[str, int]
    agent: dict[str, int]
    requests: list[tuple[int, int, int]]


def outcome(
    folder: Path, venue: str, serve: Serve, wait_us: int, after: str = "requests", **more: Any
) -> Outcome:
    market = MARKETS[venue]
    ports = free_ports(3)
    group = f"127.0.0.1:{ports[2]}"
    login = folder / "login"
    login.write_text(LOGIN)
    login.chmod(0o600)
    cboe = {"answers": group, "login": str(login)} if venue == "pitch" else {}
    with served(market, serve, group, tcp=more.get("tcp", False)) as server:
        asking = {"server": server.address, "wait_us": wait_us, "retry_us": 5_000} | cboe | more
        with Subscriber(tables("asks", ports[:2], market, retransmission=asking)) as subscriber:
            if venue == "pitch":
                assert isinstance(server, GrpServer)
                grp = server
                wait_until(lambda: grp.logins, "a login")
            publish(market, ports[:2], LOST)

            def is_over() -> bool:
                counted = subscriber.counters()["incremental"]
                return counted["messages"] + counted["lost"] == MESSAGES

            wait_until(is_over, "all messages, or their gaps")
            found = subscriber.counters()["incremental"]
            if found["lost"]:
                wait_until(lambda: tallies(subscriber)[after], after)
            return Outcome(found, tallies(subscriber), server.requests)


def tallies(subscriber: Subscriber, agent: str = "retransmission") -> dict[str, int]:
    return read_tallies(subscriber.directory, agent)


@pytest.mark.parametrize(
    ("venue", "serve"),
    [
        ("itch", first_of),
        ("itch", twice),
        ("itch", a_little_late),
        ("pitch", all_of),
        ("pitch", each_by_itself_backwards),
        ("pitch", more_than_asked),
        ("iex_deep_plus", each_by_itself_backwards),
        ("iex_deep_plus", a_little_late),
    ],
)
def test_server_fills_what_no_line_brought(tmp_path: Path, venue: str, serve: Serve) -> None:
    found = outcome(tmp_path, venue, serve, LONG_US)
    assert found.counted["lost"] == found.counted["gaps"] == 0
    assert found.agent["messages"] >= len(LOST)
    assert found.agent["refusals"] == 0


@pytest.mark.parametrize(
    ("venue", "serve", "after"),
    [
        ("itch", nothing, "requests"),
        ("itch", too_late, "late"),
        ("itch", of_another_session, "strange"),
        ("itch", not_asked_for, "strange"),
        ("itch", no_datagram, "strange"),
        # Somebody else may have asked for what comes to a group.
        ("pitch", too_late, "late"),
        ("pitch", not_asked_for, "others"),
        ("pitch", no_datagram, "strange"),
        ("iex_deep_plus", of_another_session, "strange"),
        ("iex_deep_plus", not_asked_for, "strange"),
    ],
)
def test_server_that_does_not_help_changes_nothing(
    tmp_path: Path, venue: str, serve: Serve, after: str
) -> None:
    found = outcome(tmp_path, venue, serve, SHORT_US, after)
    assert found.counted["lost"] == len(LOST)
    assert found.counted["gaps"] == 3
    assert found.agent["messages"] == 0


def in_pieces(market: OrderMarket, first: int, count: int) -> Said:
    return [part(market, n, 1)[0] for n in range(first, first + count)]


@pytest.mark.parametrize("serve", [all_of, in_pieces, twice, a_little_late])
def test_iex_is_asked_over_tcp(tmp_path: Path, serve: Serve) -> None:
    found = outcome(tmp_path, "iex_deep_plus", serve, LONG_US, tcp=True)
    assert found.counted["lost"] == 0
    assert found.agent["messages"] >= len(LOST)
    # What is under way is not asked for again: ranges have to rise.
    asked = [first for _, first, _ in found.requests]
    assert asked == sorted(set(asked))


@pytest.mark.parametrize(
    ("serve", "after"),
    [
        (nothing, "requests"),
        (of_another_session, "strange"),
        (not_asked_for, "strange"),
        (lambda *_: b"closed", "failures"),
        (lambda *_: [Answer(b"?" * 100)], "failures"),
    ],
)
def test_iex_over_tcp_that_does_not_help_changes_nothing(
    tmp_path: Path, serve: Serve, after: str
) -> None:
    found = outcome(tmp_path, "iex_deep_plus", serve, SHORT_US, after, tcp=True)
    assert found.counted["lost"] == len(LOST)
    assert found.counted["gaps"] == 3
    assert found.agent["messages"] == 0


@pytest.mark.parametrize("status", [b"O", b"M", b"?"])
def test_refused_request_is_said_and_not_sent_again_at_once(
    tmp_path: Path, status: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    found = outcome(tmp_path, "pitch", lambda *_: status, SHORT_US, "refusals", retry_us=10_000_000)
    assert found.counted["lost"] == len(LOST)
    asked = [n for _, first, count in found.requests for n in range(first, first + count)]
    assert asked
    assert len(asked) == len(set(asked))  # each number at most once
    assert capfd.readouterr().err.count("it refused a request") == 1


@pytest.mark.parametrize(
    ("status", "alone", "pause_s"), [(b"O", True, 60), (b"S", False, 1), (b"?", True, 60)]
)
def test_refusal_says_what_is_not_to_be_asked_for_and_how_long(
    status: bytes, alone: bool, pause_s: int
) -> None:
    group = f"127.0.0.1:{free_ports(1)[0]}"
    with grp_server(lambda *_: status, group) as server:
        table = RetransmissionConfig(server=server.address, answers=group)
        asking = GrpAsking(table, Login({"session": "0001"}))
        try:
            wait_until(lambda: asking.keep(monotonic_ns()) >= 0 and asking.ready, "a login")
            asking.ask(Request(3, 70_000, 5), monotonic_ns())
            found: list[Refusal] = []

            def refused() -> bool:
                asking.keep(monotonic_ns())
                found.extend(asking.refusals())
                return bool(found)

            wait_until(refused, "a refusal")
        finally:
            asking.close()
    (refusal,) = found
    assert refusal.request == (Request(3, 70_000, 5) if alone else None)
    assert refusal.pause_ns == pause_s * 1_000_000_000


def test_venues_limits_are_kept(tmp_path: Path) -> None:
    found = outcome(tmp_path, "itch", nothing, SHORT_US, requests_per_day=2)
    assert len(found.requests) == 1  # half of a day's at once, the other half in its course
    assert found.agent["quota"] == 1


def test_connection_that_ends_is_made_again(tmp_path: Path) -> None:
    login = tmp_path / "login"
    login.write_text(LOGIN)
    login.chmod(0o600)
    market, ports = MARKETS["pitch"], free_ports(3)
    group = f"127.0.0.1:{ports[2]}"
    with grp_server(lambda _, first, count: part(market, first, count), group) as server:
        asking = {"server": server.address, "answers": group, "login": str(login)}
        asking |= {"wait_us": LONG_US, "retry_us": 5_000}
        with Subscriber(tables("asks", ports[:2], market, retransmission=asking)) as subscriber:
            wait_until(lambda: server.logins, "a login")
            server.drop()
            wait_until(lambda: len(server.logins) == 2, "another login")
            assert server.logins[0] == b"0001TEST  SECRET    "
            publish(market, ports[:2], LOST)
            wait_until(
                lambda: subscriber.counters()["incremental"]["messages"] == MESSAGES, "them all"
            )


def test_answer_for_somebody_else_fills_a_hole(tmp_path: Path) -> None:
    market, ports = MARKETS["pitch"], free_ports(3)
    group = f"127.0.0.1:{ports[2]}"
    with grp_server(lambda *_: b"U", group) as server:
        asking = {"server": server.address, "answers": group, "wait_us": LONG_US}
        with Subscriber(tables("asks", ports[:2], market, retransmission=asking)) as subscriber:
            wait_until(lambda: server.logins, "a login")
            publish(market, ports[:2], {50})
            wait_until(lambda: tallies(subscriber)["refusals"], "a refusal")
            server.send(part(market, 48, 5)[0].data)
            wait_until(
                lambda: subscriber.counters()["incremental"]["messages"] == MESSAGES, "them all"
            )
            assert tallies(subscriber)["answers"] == 1  # to the request that was refused, too


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
    with Subscriber(
        tables("live", ports[:2], MARKETS["itch"], retransmission=asking)
    ) as subscriber:
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
            Subscriber(tables("late", ports, market, snapshot_server=asking)) as subscriber,
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
