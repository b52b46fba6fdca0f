"""The agent that asks a snapshot server: what it hands on, and what it leaves out."""

import socket
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.payload.itch_market import ItchMarket
from tests.payload.order_market import DeepPlusMarket, OrderMarket, PitchMarket
from tests.waiting import wait_until
from udpfast.agents.recovery.snapshot_server import SnapshotServer
from udpfast.config import FeedConfig, parse_feed
from udpfast.errors import ConfigError
from udpfast.shm.answers import AnswersRegion, Wanted, read_tallies

MS = 1_000_000
SESSION = 42
MARKET = ItchMarket(3, 200)


def config(port: int, market: OrderMarket = MARKET, **more: Any) -> FeedConfig:
    return parse_feed(
        {
            "name": "served",
            "wire": {"framing": market.framing, "payload": market.payload, "streams_max": 4},
            "streams": {"lines": [{"name": "A", "address": "127.0.0.1:9000"}]},
            "snapshot_server": {"server": f"127.0.0.1:{port}", "pause_ms": 50, "timeout_ms": 500}
            | more,
        }
    )


class World:
    """An agent, its feed's loop, and its server, in one thread."""

    def __init__(self, folder: Path, listener: socket.socket, stream: int = 0, **more: Any) -> None:
        self.folder, self.listener, self.stream = folder, listener, stream
        self.loop = AnswersRegion.create(folder, "snapshot_server", 1, 0)
        self.loop.region.mark_ready()
        self.agent = SnapshotServer(config(listener.getsockname()[1], **more), folder)
        self.now_ns = 1
        self.want(100, 150)

    def want(self, last: int, number: int, session: int = SESSION, numbering: int = 1) -> None:
        """Have the feed lack everything up to `last`, while it has come to `number`."""
        self.loop.say([Wanted(session, last, last, number, self.stream, numbering)])

    def serve(self, *answers: bytes) -> bytes:
        """Answer the agent's next connection; return what it asked."""
        asked = b""
        self.now_ns += 50 * MS
        self.listener.settimeout(0.0)
        client: socket.socket | None = None

        def connected() -> bool:
            nonlocal client
            self.agent.work(self.now_ns)
            try:
                client, _ = self.listener.accept()
            except BlockingIOError:
                return False
            return True

        wait_until(connected, "a connection")
        assert client is not None
        with client:
            client.setblocking(False)

            def has_asked() -> bool:
                nonlocal asked
                self.agent.work(self.now_ns)
                try:
                    asked = client.recv(100)
                except BlockingIOError:
                    return False
                return True

            wait_until(has_asked, "a login")
            client.setblocking(True)
            for answer in answers:
                client.sendall(answer)
                self.agent.work(self.now_ns)
        return asked

    def taken(self) -> list[bytes]:
        """Return what the loop is handed, until that is all."""
        found: list[bytes] = []
        for _ in range(100):
            self.agent.work(self.now_ns)
            found += self.loop.take()
        return found

    def counts(self, name: str) -> Callable[[], bool]:
        """Return what tells whether something was counted, having done a turn."""

        def counted() -> bool:
            self.agent.work(self.now_ns)
            return bool(self.tallies[name])

        return counted

    @property
    def tallies(self) -> dict[str, int]:
        return read_tallies(self.folder, "snapshot_server")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = World(tmp_path, listener)
        yield made
        made.agent.close()
        made.loop.close()


def last_number(datagrams: list[bytes]) -> int:
    """Return the number of the end of a round."""
    return int.from_bytes(datagrams[-1][8:16], sys.byteorder)


def test_snapshot_is_handed_on_whole(world: World) -> None:
    asked = world.serve(MARKET.snapshot(120))
    assert asked == struct.pack(">Hc", 47, b"L") + b" " * 26 + b"1".rjust(20)
    found = world.taken()
    assert len(found) == 6  # five stocks, and the end
    assert last_number(found) == 120
    assert world.tallies["snapshots"] == 1


def test_feed_that_lacks_nothing_asks_nobody(world: World) -> None:
    world.loop.say([])
    assert world.taken() == []
    assert world.tallies["requests"] == 0


def test_snapshot_waits_until_the_feed_has_come_so_far(world: World) -> None:
    world.serve(MARKET.snapshot(160))
    assert world.taken() == []
    world.want(100, 160)
    assert last_number(world.taken()) == 160


@pytest.mark.parametrize(
    ("tally", "answer"),
    [
        ("too_old", MARKET.snapshot(99)),
        ("refusals", struct.pack(">Hc", 2, b"J") + b"A"),
        ("failures", MARKET.snapshot(120)[:-30]),
        ("failures", b""),
        ("failures", MARKET.snapshot(120)[:200] + struct.pack(">Hc", 1, b"Z")),
        ("broken", b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(20_000)),
        ("broken", MARKET.snapshot(120).replace(b"MSFT", b"AAPL", 1)),
        ("broken", MARKET.snapshot(120).replace(b"G" + b"121".rjust(20), b"G" + b"x".rjust(20))),
    ],
)
def test_what_is_no_help_is_counted_and_left_out(world: World, tally: str, answer: bytes) -> None:
    world.serve(answer)
    wait_until(world.counts(tally), tally)
    assert world.taken() == []
    assert world.tallies["silent"] == 1
    # Another attempt comes in time, and helps.
    world.serve(MARKET.snapshot(120))
    assert last_number(world.taken()) == 120
    assert world.tallies["silent"] == 0


def spin(kind: int, body: bytes) -> bytes:
    return struct.pack("<HBBIBB", 10 + len(body), 1, 0, 0, 2 + len(body), kind) + body


def snap(kind: bytes, body: bytes) -> bytes:
    return struct.pack("<Hc", 1 + len(body), kind) + body


PITCH, DEEP_PLUS = PitchMarket(3, 200), DeepPlusMarket(3, 200)
PITCH_STREAM, DEEP_PLUS_STREAM = PITCH.UNIT, DEEP_PLUS.PROTOCOL << 16 | DEEP_PLUS.CHANNEL
OFFERED = PITCH.greeting(120)


@pytest.mark.parametrize(
    ("market", "stream", "answers", "asked"),
    [
        (PITCH, PITCH_STREAM, (OFFERED + PITCH.snapshot(120),), b"\x1e\0\1"),
        (
            PITCH,
            PITCH_STREAM,
            (PITCH.greeting(99) + OFFERED[-14:] + PITCH.snapshot(120),),  # the first is too old
            b"\x1e\0\1",
        ),
        (DEEP_PLUS, DEEP_PLUS_STREAM, (DEEP_PLUS.snapshot(120),), b"\x39\0r"),
    ],
)
def test_each_venues_server_is_spoken_with(
    tmp_path: Path, market: OrderMarket, stream: int, answers: tuple[bytes, ...], asked: bytes
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        world = World(tmp_path, listener, stream, market=market)
        assert world.serve(*answers).startswith(asked)
        found = world.taken()
        assert last_number(found) == 120
        assert world.tallies["snapshots"] == 1
        live = sum(len(side) for book in market.books[120].values() for side in book.values())
        assert world.tallies["orders"] == live
        world.agent.close()
        world.loop.close()


@pytest.mark.parametrize(
    ("market", "stream", "tally", "answer"),
    [
        (PITCH, PITCH_STREAM, "refusals", spin(2, b"N")),
        (PITCH, PITCH_STREAM, "refusals", OFFERED + spin(0x82, struct.pack("<IIc", 0, 0, b"S"))),
        (PITCH, PITCH_STREAM, "refusals", OFFERED + spin(0x82, struct.pack("<IIc", 0, 0, b"O"))),
        (PITCH, PITCH_STREAM, "broken", OFFERED + PITCH.snapshot(120)[:-6] + b"\6\x83\1\0\0\0"),
        (
            PITCH,
            PITCH_STREAM,
            "broken",
            OFFERED + spin(0x82, struct.pack("<IIc", 120, 9, b"A")) + PITCH.snapshot(120)[19:],
        ),
        (PITCH, PITCH_STREAM, "broken", b"\5\0\1\3" + bytes(30)),
        (PITCH, PITCH_STREAM, "broken", OFFERED[:5] + b"HTTP/1.1 400 Bad Request" * 9),
        (PITCH, PITCH_STREAM, "failures", OFFERED + PITCH.snapshot(120)[:-14]),
        (DEEP_PLUS, DEEP_PLUS_STREAM, "refusals", snap(b"e", b"A")),
        (DEEP_PLUS, DEEP_PLUS_STREAM, "refusals", snap(b"e", b"Q")),
        (DEEP_PLUS, DEEP_PLUS_STREAM, "too_old", snap(b"e", b"R")),
        (DEEP_PLUS, DEEP_PLUS_STREAM, "broken", snap(b"s", bytes(8)) + snap(b"d", bytes(50))),
        (
            DEEP_PLUS,
            DEEP_PLUS_STREAM,
            "broken",
            snap(b"s", bytes(8)) + snap(b"d", DEEP_PLUS.datagram(1, [DEEP_PLUS.delete(7, 1)])),
        ),
        (DEEP_PLUS, DEEP_PLUS_STREAM, "broken", snap(b"d", DEEP_PLUS.snapshot(120))),
        (DEEP_PLUS, DEEP_PLUS_STREAM, "too_old", DEEP_PLUS.snapshot(99)),
    ],
)
def test_what_is_no_help_of_each_venue_is_left_out(
    tmp_path: Path, market: OrderMarket, stream: int, tally: str, answer: bytes
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        world = World(tmp_path, listener, stream, market=market)
        world.serve(answer)
        wait_until(world.counts(tally), tally)
        assert world.taken() == []
        assert world.tallies["snapshots"] == 0
        world.agent.close()
        world.loop.close()


def test_units_are_asked_for_at_their_own_servers(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        units = [{"unit": 3, "server": f"127.0.0.1:{listener.getsockname()[1]}"}]
        world = World(tmp_path, listener, 3, market=PITCH, server="", units=units)
        world.stream = 4
        world.want(100, 150)
        world.agent.work(world.now_ns)
        assert world.tallies["requests"] == 0  # nobody is asked for that unit
        world.stream = 3
        world.want(100, 150)
        world.serve(OFFERED + PITCH.snapshot(120))
        assert last_number(world.taken()) == 120
        world.agent.close()
        world.loop.close()


def test_attempts_of_a_day_are_limited(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        world = World(tmp_path, listener, requests_per_day=1)
        world.serve(struct.pack(">Hc", 2, b"J") + b"A")
        wait_until(world.counts("refusals"), "a refusal")
        world.now_ns += 80_000 * 1_000 * MS
        world.taken()
        assert (world.tallies["requests"], world.tallies["quota"]) == (1, 1)
        world.now_ns += 10_000 * 1_000 * MS
        world.serve(MARKET.snapshot(120))
        assert last_number(world.taken()) == 120
        world.agent.close()
        world.loop.close()


def test_server_that_goes_back_is_not_believed(world: World) -> None:
    world.serve(MARKET.snapshot(140))
    assert last_number(world.taken()) == 140
    world.serve(MARKET.snapshot(130))
    assert world.taken() == []
    assert world.tallies["too_old"] == 1


def test_snapshot_of_an_ended_session_is_left_out(world: World) -> None:
    world.serve(MARKET.snapshot(160))
    world.want(1, 170, session=SESSION + 1, numbering=2)
    assert world.taken() == []


def test_numbers_that_began_anew_under_the_same_session_are_served(world: World) -> None:
    world.serve(MARKET.snapshot(140))
    assert last_number(world.taken()) == 140
    world.want(1, 20, numbering=2)
    world.serve(MARKET.snapshot(10))
    assert last_number(world.taken()) == 10
    assert world.tallies["too_old"] == 0


def test_snapshot_of_numbers_that_began_anew_meanwhile_is_left_out(world: World) -> None:
    world.serve(MARKET.snapshot(160))
    world.want(1, 170, numbering=2)
    assert world.taken() == []


def test_gap_behind_a_snapshot_makes_it_too_old(world: World) -> None:
    world.serve(MARKET.snapshot(160))
    world.want(165, 170)
    assert world.taken() == []
    assert world.tallies["too_old"] == 1


def test_snapshot_ahead_of_the_feed_for_ever_is_given_up(world: World) -> None:
    world.serve(MARKET.snapshot(160))
    assert world.taken() == []
    world.now_ns += 500 * MS
    world.agent.work(world.now_ns)
    assert world.tallies["broken"] == 1


def test_server_that_says_nothing_is_given_up(world: World) -> None:
    world.agent.work(world.now_ns)
    world.now_ns += 500 * MS
    wait_until(world.counts("failures"), "the end of its time")


def test_attempts_are_apart(world: World) -> None:
    world.serve(struct.pack(">Hc", 2, b"J") + b"A")
    wait_until(world.counts("refusals"), "a refusal")
    world.taken()
    assert world.tallies["requests"] == 1


def test_larger_snapshot_than_allowed_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        world = World(tmp_path, listener, orders_max=2)
        world.serve(MARKET.snapshot(120))
        wait_until(world.counts("broken"), "a verdict")
        assert world.taken() == []
        world.agent.close()
        world.loop.close()


def test_login_comes_from_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    login = tmp_path / "login"
    login.write_text('user = "USER1"\npassword = "secret"\n')
    login.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        world = World(tmp_path, listener, login=str(login))
        assert world.serve(b"")[3:19] == b"USER1 secret    "
        world.agent.close()
        world.loop.close()


@pytest.mark.parametrize(
    ("mode", "text", "said"),
    [
        (0o640, 'user = "u"\npassword = "p"', "only its owner"),
        (0o600, 'user = "u"', "expected user and password, found user"),
        (0o600, "user = [", "expected TOML"),
        (0o600, 'user = "u"\npassword = "12345678901"', "at most 10 characters, found 11"),
        (0o600, 'user = "u"\npassword = 3', "text of ASCII"),
        (0o600, None, "No such file"),
    ],
)
def test_wrong_login_file_is_refused_and_not_shown(
    tmp_path: Path, mode: int, text: str | None, said: str
) -> None:
    login = tmp_path / "login"
    if text is not None:
        login.write_text(text)
        login.chmod(mode)
    with pytest.raises(ConfigError, match=said) as refused:
        SnapshotServer(config(9, login=str(login)), tmp_path)
    assert "12345678901" not in str(refused.value)


def test_agent_ends_with_its_feed(world: World) -> None:
    world.loop.close()
    assert world.agent.work(world.now_ns) is None
