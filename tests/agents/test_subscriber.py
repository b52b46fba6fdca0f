"""The loop of a feed, turn by turn: what is given up as lost, and when."""

import socket
import time

import pytest

from bench.loops.turns import Turns
from lab.frames import datagram
from udpfast.agents.feed.engine import Engine
from udpfast.agents.feed.feed_loop import FeedLoop
from udpfast.config import parse_feed
from udpfast.net.ports import free_ports

MS = 1_000_000
BATCH = 4


@pytest.fixture(params=["none", "kernel"])
def feed(request, tmp_path):
    """Return engine, turns, and a function that sends to line 0 or 1."""
    ports = free_ports(2)
    config = parse_feed(
        {
            "name": "test",
            "ring": {"capacity_bytes": 1 << 22},
            "objects": {"collect_bytes": 1 << 20},
            "agent": {"huge_pages": False},
            "receive": {"batch": BATCH, "timestamps": request.param},
            "window": {"lost_packet_wait_us": 5_000},
            "incremental": {
                "lines": [
                    {"name": name, "address": f"127.0.0.1:{port}"}
                    for name, port in zip("AB", ports, strict=True)
                ]
            },
        }
    )
    engine = Engine(config, tmp_path)
    with (
        Turns(FeedLoop(engine, config)) as turns,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
    ):

        def send(line, *seqnos):
            for seqno in seqnos:
                sock.sendto(datagram(bytes(8), seqno=seqno, control=1), ("127.0.0.1", ports[line]))

        yield engine, turns, send
    engine.close()


def lost(engine):
    return engine.read_counters()["incremental"]["lost"]


def test_hole_that_waited_is_lost(feed):
    engine, turns, send = feed
    send(0, 1, 3)
    for now_ns in (MS, 2 * MS, 3 * MS):
        turns.turn(now_ns)
    assert lost(engine) == 0
    turns.turn(20 * MS)
    assert lost(engine) == 1


def test_stop_delivers_what_lies_in_the_sockets(feed):
    engine, turns, send = feed
    turns.turn(MS)
    send(0, *range(1, 41))
    send(1, *range(41, 44))
    turns.__exit__()
    assert engine.read_counters()["incremental"]["messages"] == 43
    assert lost(engine) == 0


def test_hole_is_not_lost_while_what_fills_it_waits_in_a_socket(feed):
    engine, turns, send = feed
    send(0, 1, 3)
    for now_ns in (MS, 2 * MS, 3 * MS):
        turns.turn(now_ns)
    # The loop is held up for 17 ms; meanwhile the other line brought 2, behind others.
    send(1, *[1] * (2 * BATCH), 2)
    for turn in range(4):
        turns.turn(20 * MS + turn)
    assert lost(engine) == 0
    assert engine.read_counters()["incremental"]["messages"] == 3


def test_hole_is_lost_though_a_line_is_never_read_to_its_end(feed):
    engine, turns, send = feed
    send(0, 1, 3)
    turns.turn(MS)
    turns_done = 0
    while lost(engine) == 0:
        send(1, *[1] * BATCH)
        turns.turn((20 + turns_done) * MS)
        turns_done += 1
        assert turns_done < 1000
    assert turns_done > 500


def test_line_is_told_by_unix_time_when_it_was_heard_last(feed):
    engine, turns, send = feed
    send(0, 1)
    turns.turn(MS)
    before_ns = time.time_ns()
    turns.turn(301 * MS)
    after_ns = time.time_ns()
    counters = engine.read_counters()
    assert before_ns <= counters["incremental.A"]["heard_ns"] + 300 * MS <= after_ns
    assert counters["incremental.B"]["heard_ns"] == 0
