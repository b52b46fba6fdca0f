"""A complete feed over AF_XDP: the same records as over sockets, and counters that add up."""

import contextlib
import random
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.loops.turns import Turns
from bench.namespaces import Wire
from lab.frames import datagram, datagrams
from tests.net.ethernet import ethernet, ipv4, udp
from tests.waiting import wait_until
from udpfast.agents.feed.engine import Engine
from udpfast.agents.feed.feed_loop import FeedLoop
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.client.latency import latency
from udpfast.client.publisher import Publisher
from udpfast.client.reader import Reader
from udpfast.config import parse_feed, parse_publish
from udpfast.core.layout import FRAME, Kind, RecordFlag
from udpfast.log.cursor import RingCursor
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.monitor.ledger import ledger_of

pytestmark = pytest.mark.system

ADDRESSES = {"A": ("10.99.0.2", 9101), "B": ("239.9.9.1", 9102)}
Record = tuple[int, bytes]


@pytest.fixture(autouse=True)
def instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep instances below tmp_path."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))


def tables(name: str, path: str, **xdp: object) -> dict[str, Any]:
    return {
        "name": name,
        "ring": {"capacity_bytes": 1 << 24, "carry": "messages"},
        "objects": {"collect_bytes": 1 << 20},
        "window": {"lost_packet_wait_us": 5_000_000},
        "receive": {"path": path},
        "xdp": {"frames": 4096, **xdp},
        "incremental": {
            "lines": [
                {"name": line, "address": f"{host}:{port}", "interface": "vb"}
                for line, (host, port) in ADDRESSES.items()
            ]
        },
    }


def received(
    link: Wire, settings: dict[str, Any], send: Callable[[], int], **frames: int
) -> tuple[list[Record], dict[str, dict[str, int]]]:
    """Run a feed until it has the messages of `send`; return its records and its counters.

    It ends only after a number of frames of each line too, because the last ones may be copies.
    """
    with ExitStack() as stack:
        with link.inside(link.b):  # the loop's thread begins in this one's namespace
            subscriber = stack.enter_context(Subscriber(settings))
        if settings["receive"]["path"] == "xdp":  # what became slower is said
            assert [note.split(":")[1] for note in subscriber.notes] == [" frames are copied"]
        reader = stack.enter_context(Reader(f"ring:{settings['name']}", start="begin"))
        expected = send()
        wait_until(
            lambda: subscriber.counters()["incremental"]["messages"] >= expected,
            f"{expected} messages",
        )
        for line, count in frames.items():
            wait_until(
                lambda scope=f"incremental.{line}", least=count: (
                    subscriber.counters()[scope]["frames"] >= least
                ),
                f"{count} frames of line {line}",
            )
        subscriber.stop()  # closes the ring, which ends the iteration
        records = [
            (record.number, bytes(record.payload)[FRAME.itemsize :])
            for record in reader
            if record.kind == Kind.MESSAGE
        ]
    return records, subscriber.counters()


@pytest.mark.parametrize("mode", ["generic", "native"])
def test_feed_over_two_lines_brings_the_records_that_sockets_bring(
    link: Wire, rng: random.Random, mode: str
) -> None:
    sent = []
    for seqno in range(1, 301):
        payload = rng.randbytes(rng.choice([1, 80, 512, 513, 4000]))
        sent += datagrams(payload, session_id=7, seqno=seqno, object_type=0)
    lost_by_a = {at for at in range(10, len(sent)) if rng.random() < 0.1}

    def send() -> int:
        with link.sender() as sender:
            for at, datagram in enumerate(sent):
                if at not in lost_by_a:
                    sender.sendto(datagram, ADDRESSES["A"])
                sender.sendto(datagram, ADDRESSES["B"])
        return 300

    frames = {"A": len(sent) - len(lost_by_a), "B": len(sent)}
    over_xdp, counters = received(link, tables("xdp", "xdp", mode=mode), send, **frames)
    over_sockets, _ = received(link, tables("socket", "socket"), send)
    assert over_xdp == over_sockets
    assert [seqno for seqno, _ in over_xdp] == list(range(1, 301))
    assert ledger_of(counters).adds_up
    for line, count in frames.items():
        own = counters[f"incremental.{line}"]
        assert own["frames"] == own["datagrams"] == count
        assert own["no_timestamp"] == 0


@pytest.mark.parametrize("stamps", ["auto", "none"])
@pytest.mark.parametrize("mode", ["native", "generic"])
def test_feed_measures_its_hops_by_stamps_of_its_own_program(
    link: Wire, mode: str, stamps: str
) -> None:
    """The driver stamps each datagram; without stamps the loop does."""
    settings = tables(f"hops-{mode}-{stamps}", "xdp", mode=mode)
    settings["receive"]["timestamps"] = stamps
    begun_ns = time.time_ns()
    with ExitStack() as stack:
        with link.inside(link.b):
            subscriber = stack.enter_context(Subscriber(settings))
        reader = stack.enter_context(Reader(f"ring:{settings['name']}", start="begin"))
        with link.sender() as sender:
            for seqno in range(1, 301):
                for each in datagrams(b"x", session_id=7, seqno=seqno, object_type=0):
                    sender.sendto(each, ADDRESSES["A"])
        wait_until(lambda: subscriber.counters()["incremental"]["messages"] >= 300, "300 messages")
        hops = latency(settings["name"])["kernel_to_loop"]
        line = subscriber.counters()["incremental.A"]
        messages = (record for record in reader if record.kind is Kind.MESSAGE)
        records = [next(messages) for _ in range(300)]
    stamped = stamps == "auto"
    assert line["no_timestamp"] == (0 if stamped else 300)
    assert hops["count"] == (300 if stamped else 0)
    flags = {bool(record.flags & RecordFlag.NO_TIMESTAMP) for record in records}
    assert flags == {not stamped}
    received = [record.received_ns for record in records]
    assert received == sorted(received)
    assert begun_ns < received[0] <= received[-1] < time.time_ns()
    if stamped:
        assert all(record.received_ns <= record.published_ns for record in records)
        assert len(set(received)) == len(received)


def test_feed_of_a_publisher_is_received_whole(link: Wire) -> None:
    def send() -> int:
        with link.inside(link.a):
            host, port = ADDRESSES["A"]
            publisher = Publisher(parse_publish({"incremental": [{"address": f"{host}:{port}"}]}))
        with publisher:
            for number in range(500):
                publisher.send(b"%d" % number * 50, 0, 0)
        return 500

    records, counters = received(link, tables("published", "xdp"), send)
    assert [payload for _, payload in records] == [b"%d" % number * 50 for number in range(500)]
    line = counters["incremental.A"]
    assert line["frames"] == line["datagrams"]
    assert line["kernel_drops"] == 0


def test_feed_counts_foreign_frames_beside_its_datagrams(link: Wire) -> None:
    def send() -> int:
        with link.sender() as sender:
            for seqno in range(1, 51):
                for datagram in datagrams(b"x", session_id=7, seqno=seqno):
                    sender.sendto(datagram, ADDRESSES["A"])
            sender.sendto(bytes(3000), ADDRESSES["B"])  # longer than the MTU: in fragments
        return 50

    _, counters = received(link, tables("foreign", "xdp"), send, A=50, B=1)
    for line in ("A", "B"):
        own = counters[f"incremental.{line}"]
        refused = ("fragment", "checksum", "malformed", "foreign")
        assert own["frames"] == own["datagrams"] + sum(own[f"frames_{name}"] for name in refused)
    assert counters["incremental.B"]["frames_fragment"] == 1


def test_hole_is_not_lost_while_what_fills_it_waits_behind_foreign_frames(
    link: Wire, tmp_path: Path
) -> None:
    batch, ms = 4, 1_000_000
    settings = tables("held", "xdp") | {"window": {"lost_packet_wait_us": 5_000}}
    config = parse_feed(settings | {"receive": {"path": "xdp", "batch": batch}})
    ends = "10.99.0.1", ADDRESSES["B"][0]

    def frame(seqno: int, checksum: str = "right") -> bytes:
        payload = datagram(b"x", seqno=seqno)
        return ethernet(ipv4(*ends, udp(*ends, payload, ADDRESSES["B"][1], checksum=checksum)))

    engine = Engine(config, tmp_path)
    with ExitStack() as stack:
        with link.inside(link.b):
            turns = stack.enter_context(Turns(FeedLoop(engine, config)))
        sender, raw = stack.enter_context(link.sender()), stack.enter_context(link.raw())
        for seqno in (1, 3):
            sender.sendto(datagram(b"x", seqno=seqno), ADDRESSES["A"])
        while engine.read_counters()["incremental.A"]["frames"] < 2:
            turns.turn(ms)
        for _ in range(3):
            for seqno in range(batch - 1):
                raw.send(frame(seqno % 2))
            raw.send(frame(1, checksum="wrong"))
        raw.send(frame(2))
        while engine.read_counters()["incremental.B"]["frames"] < batch:
            turns.turn(2 * ms)
        for turn in range(4):  # the loop was held up for 18 ms
            turns.turn(20 * ms + turn)
        counters = engine.read_counters()
    engine.close()
    assert counters["incremental.B"]["frames_checksum"] == 3
    assert (counters["incremental"]["lost"], counters["incremental"]["messages"]) == (0, 3)


@pytest.mark.parametrize("heard", [True, False])
def test_readers_are_told_of_what_a_queue_dropped_in_a_stall_before_all_was_read(
    link: Wire, tmp_path: Path, heard: bool
) -> None:
    second = 1_000_000_000
    settings = tables("stalled", "xdp", frames=64) | {
        "session": {"inactivity_timeout_ms": 1000},
        "window": {"lost_packet_wait_us": 5_000},
    }
    config = parse_feed(settings)
    engine = Engine(config, tmp_path)

    def current_ns() -> int:
        with RingCursor.attach(engine.directory, payload_hash=PAYLOAD_HASH) as cursor:
            return cursor.current_ns

    with ExitStack() as stack:
        with link.inside(link.b):
            turns = stack.enter_context(Turns(FeedLoop(engine, config)))
        sender = stack.enter_context(link.sender())
        sender.sendto(datagram(b"x", seqno=1), ADDRESSES["A"])
        while engine.read_counters()["incremental.A"]["frames"] < 1:
            turns.turn(1_000_000)
        turns.turn(2_000_000)
        for seqno in range(2, 1000):
            sender.sendto(datagram(b"x", seqno=seqno), ADDRESSES["A"])
        now_ns = 30 * second
        while turns.turn(now_ns):
            now_ns += 100_000
        now_ns += 10_000_000
        turns.turn(now_ns)
        assert current_ns() == 2_000_000
        lines = [engine.read_counters()[f"incremental.{name}"] for name in ADDRESSES]
        assert sum(line["kernel_drops"] for line in lines) > 0
        for line in ("A", "B") if heard else ():
            sender.sendto(datagram(b"x", seqno=1000), ADDRESSES[line])
        while current_ns() == 2_000_000:
            now_ns += 10_000_000
            turns.turn(now_ns)
        counted = engine.read_counters()["incremental"]
    engine.close()
    assert counted["gaps"] >= 1
    assert (counted["lost"] > 0) == heard
    assert (now_ns < 31 * second) == heard


def test_feed_strict_refuses_huge_pages_that_are_not_there(link: Wire) -> None:
    if int(Path("/proc/sys/vm/nr_hugepages").read_text()):
        pytest.skip("this host has huge pages")
    settings = tables("strict", "xdp", huge_pages=True) | {
        "agent": {"strict": True, "huge_pages": False}
    }
    with (
        link.inside(link.b),
        pytest.raises(PermissionError, match="XDP huge pages: asked for on, got off"),
    ):
        Subscriber(settings).start()
    with link.inside(link.b), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(ADDRESSES["A"])  # nothing is left behind


@pytest.mark.parametrize("queues", [2, 1, 4])
def test_feed_receives_again_when_its_interface_was_made_again(link: Wire, queues: int) -> None:
    # Another interface stays, so the feed continues.
    lines = [
        {"name": "A", "address": "10.99.0.2:9101", "interface": "vb"},
        {"name": "B", "address": "127.0.0.1:9102", "interface": "lo"},
    ]
    settings = tables(f"remade{queues}", "xdp") | {"incremental": {"lines": lines}}
    said: list[str] = []
    with link.inside(link.b):
        subscriber = Subscriber(settings)
        subscriber.start()
        local = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        for cut in (False, True, True):
            if cut:
                link.cut()
                _hear(subscriber, "B", lambda payload: local.sendto(payload, ("127.0.0.1", 9102)))
                link.join(queues)
                wait_until(lambda: said.extend(subscriber.take_events()) or said[-1:] == [OPEN])
                said.clear()
            _hear(subscriber, "A", lambda payload: _send(link, payload))
        counters = subscriber.counters()
        assert counters["incremental.A"]["reopened"] == 2
        assert counters["incremental.B"]["reopened"] == 0
        # One failed call per queue and loss, not as many as the loop can make.
        assert counters["incremental.A"]["receive_errors"] < 40
    finally:
        subscriber.stop()
        local.close()
        link.cut()
        link.join(2)


OPEN = "vb (AF_XDP): is open again"


def _hear(subscriber: Subscriber, line: str, send: Callable[[bytes], object]) -> None:
    before = subscriber.counters()[f"incremental.{line}"]["datagrams"]

    def heard() -> bool:
        send(datagram(b"x", session_id=7, seqno=1, control=1))
        return subscriber.counters()[f"incremental.{line}"]["datagrams"] > before

    wait_until(heard)


def _send(link: Wire, payload: bytes) -> None:
    with contextlib.suppress(OSError), link.sender() as sender:
        sender.sendto(payload, ADDRESSES["A"])
