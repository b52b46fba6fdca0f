"""A connection with IEX's gap fill server: what is asked for on it, and when it is given up."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from lab.request_servers import Answer, IexTcpServer, Said, iex_tcp_server
from tests.payload.order_market import DeepPlusMarket
from tests.waiting import wait_until
from udpfast.agents.recovery.asked import Request
from udpfast.agents.recovery.iex_tcp import IexTcpAsking
from udpfast.config import RetransmissionConfig
from udpfast.errors import FormatError
from udpfast.net.ports import free_ports

MARKET = DeepPlusMarket(1, 60)
STREAM = MARKET.PROTOCOL << 16 | MARKET.CHANNEL
MS = 1_000_000


def whole(stream: int, first: int, count: int) -> Said:
    return [Answer(MARKET.datagram(first, MARKET.messages[first - 1 : first - 1 + count]))]


def half(stream: int, first: int, count: int) -> Said:
    return [Answer(MARKET.datagram(first, MARKET.messages[first - 1 : first - 1 + count // 2]))]


@contextmanager
def connected(
    reply: Callable[[int, int, int], Said],
) -> Iterator[tuple[IexTcpAsking, IexTcpServer]]:
    with iex_tcp_server(MARKET.PROTOCOL, MARKET.CHANNEL, MARKET.SESSION, reply) as server:
        asking = IexTcpAsking(RetransmissionConfig(server=server.address, tcp=True))
        asking.name_session(b"", MARKET.SESSION)
        try:
            turn(asking, lambda: asking.ready)
            yield asking, server
        finally:
            asking.close()


def turn(asking: IexTcpAsking, holds: Callable[[], object], now_ns: int = 0) -> list[bytes]:
    """Keep the connection until something holds; return what came."""
    found: list[bytes] = []

    def once() -> object:
        asking.keep(now_ns)
        found.extend(asking.receive())
        return holds()

    wait_until(once)
    return found


def test_what_is_under_way_is_not_asked_for_again() -> None:
    with connected(half) as (asking, server):
        for _ in range(3):
            asking.ask(Request(STREAM, 10, 6), 0)
        asking.ask(Request(STREAM, 12, 2), 0)
        turn(asking, lambda: server.requests)
        assert server.requests == [(STREAM, 10, 6)]


def test_numbers_before_those_that_came_are_asked_for_on_a_connection_of_their_own() -> None:
    with connected(whole) as (asking, server):
        asking.ask(Request(STREAM, 40, 3), 0)
        asking.ask(Request(STREAM, 20, 2), 0)
        asking.ask(Request(STREAM, 10, 2), 0)
        turn(asking, lambda: len(server.requests) == 3)
        assert server.requests == [(STREAM, 40, 3), (STREAM, 10, 2), (STREAM, 20, 2)]
        assert server.connections == 2


def test_answer_that_does_not_go_on_is_given_up_and_asked_for_anew() -> None:
    with connected(half) as (asking, server):
        asking.ask(Request(STREAM, 10, 6), 0)
        came = turn(asking, lambda: server.requests)
        while not came:
            came = turn(asking, lambda: True)
        with pytest.raises(TimeoutError, match="sent nothing of what it was asked for"):
            turn(asking, lambda: False, 500 * MS)
        assert not asking.ready
        assert asking.keep(900 * MS) == 0  # not at once
        turn(asking, lambda: asking.ready, 1_600 * MS)
        asking.ask(Request(STREAM, 13, 3), 1_600 * MS)
        turn(asking, lambda: len(server.requests) == 2, 1_600 * MS)
        assert server.requests[1] == (STREAM, 13, 3)


def test_server_that_closes_refuses_what_it_was_asked_for() -> None:
    with connected(lambda *_: b"closed") as (asking, _):
        asking.ask(Request(STREAM, 10, 6), 0)
        with pytest.raises(ConnectionResetError, match="refuses a request"):
            turn(asking, lambda: False)


@pytest.mark.parametrize("data", [b"?" * 100, b"\2" + bytes(99)])
def test_bytes_that_are_no_segments_end_the_connection(data: bytes) -> None:
    with connected(lambda *_: [Answer(data)]) as (asking, _):
        asking.ask(Request(STREAM, 10, 6), 0)
        with pytest.raises(FormatError, match="expected segments of IEX-TP 1"):
            turn(asking, lambda: False)


def test_segments_are_whole_however_their_bytes_were_cut() -> None:
    segments = [MARKET.datagram(n, MARKET.messages[n - 1 : n + 2]) for n in (1, 4, 7)]
    data = b"".join(segments)
    pieces = [Answer(data[at : at + 7], after_s=at / 10_000) for at in range(0, len(data), 7)]
    with connected(lambda *_: pieces) as (asking, _):
        asking.ask(Request(STREAM, 1, 9), 0)
        came: list[bytes] = []
        while len(came) < 3:
            came += turn(asking, lambda: True)
        assert came == segments


def test_nobody_there_is_a_failure_and_tried_again() -> None:
    (port,) = free_ports(1)
    asking = IexTcpAsking(RetransmissionConfig(server=f"127.0.0.1:{port}", tcp=True))
    with pytest.raises(OSError, match=r"refused"):
        turn(asking, lambda: False)
    with socket.create_server(("127.0.0.1", port)):
        turn(asking, lambda: asking.ready, 1_100 * MS)
    asking.close()
