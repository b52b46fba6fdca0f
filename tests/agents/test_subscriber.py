"""The loop of a feed, turn by turn: what is given up as lost, and when."""

import socket
import time
from contextlib import contextmanager

import pytest

from bench.loops.turns import Turns
from lab.frames import datagram
from udpfast.agents.feed.engine import Engine
from udpfast.agents.feed.feed_loop import FeedLoop
from udpfast.config import parse_feed
from udpfast.core.layout import Kind
from udpfast.log.cursor import RingCursor
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.net.ports import free_ports

MS = 1_000_000
BATCH = 4
SILENT_MS = 10_000
S = 1_000 * MS


@pytest.fixture(params=["none", "kernel"])
def feed(request, tmp_path):
    """Return engine, turns, and a function that sends to line 0 or 1."""
    with opened(tmp_path, request.param) as made:
        yield made


def config_of(ports, timestamps):
    return parse_feed(
        {
            "name": "test",
            "ring": {"capacity_bytes": 1 << 22},
            "objects": {"collect_bytes": 1 << 20},
            "receive": {"batch": BATCH, "timestamps": timestamps, "rcvbuf_bytes": 1 << 17},
            "session": {"inactivity_timeout_ms": SILENT_MS},
            "window": {"lost_packet_wait_us": 5_000, "slab_cells": 1024},
            "incremental": {
                "lines": [
                    {"name": name, "address": f"127.0.0.1:{port}"}
                    for name, port in zip("AB", ports, strict=True)
                ]
            },
        }
    )


@contextmanager
def opened(directory, timestamps):
    ports = free_ports(2)
    config = config_of(ports, timestamps)
    engine = Engine(config, directory)
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


@pytest.mark.parametrize("held_up_ms", [6, 20, 200, 5_000])
def test_hole_that_is_read_late_waits_from_when_it_is_read(feed, held_up_ms):
    engine, turns, send = feed
    send(0, 1)
    turns.turn(MS)
    turns.turn(2 * MS)
    # Just before the loop goes on one line brings 3, just after it the other one brings 2.
    send(0, 3)
    now_ns = (2 + held_up_ms) * MS
    turns.turn(now_ns)
    turns.turn(now_ns + 4 * MS)
    assert lost(engine) == 0
    send(1, 2)
    turns.turn(now_ns + 4 * MS)
    assert lost(engine) == 0
    assert engine.read_counters()["incremental"]["messages"] == 3


@pytest.mark.parametrize("stopped_ms", [10, 100])
def test_stop_between_the_clock_of_a_turn_and_its_reading_makes_no_hole_older(feed, stopped_ms):
    engine, turns, send = feed
    send(0, 1)
    turns.turn(MS)
    turns.turn(2 * MS)
    # The loop read its clock and was stopped; when it goes on, it finds 3, but not yet 2.
    time.sleep(stopped_ms / 1000)
    send(0, 3)
    turns.turn(2 * MS + 1)
    now_ns = (2 + stopped_ms) * MS
    turns.turn(now_ns)
    assert lost(engine) == 0
    send(1, 2)
    turns.turn(now_ns + MS)
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


def stall(feed, after):
    """Let line 0 bring more than its socket holds while the loop stands; return the next number.

    The loop takes what lies in the socket when it goes on.
    """
    engine, turns, send = feed
    send(0, 1)
    turns.turn(MS)
    turns.turn(2 * MS)
    send(0, *range(2, 2001))
    for turn in range(1000):
        if not turns.turn(after + turn * MS):
            break
    assert engine.read_counters()["incremental"]["messages"] < 2000
    return 2001


def said(engine):
    """Return kind and payload of all records but messages."""
    with RingCursor.attach(engine.directory, "begin", payload_hash=PAYLOAD_HASH) as cursor:
        found = []
        while count := cursor.poll():
            found += [
                (Kind(kind), bytes(cursor.payloads[at : at + 40]))
                for kind, at in zip(cursor.headers["kind"], cursor.offsets[:count], strict=False)
                if kind != Kind.MESSAGE
            ]
    return found


def current_ns(engine):
    with RingCursor.attach(engine.directory, payload_hash=PAYLOAD_HASH) as cursor:
        return cursor.current_ns


def test_readers_are_not_told_that_all_was_read_before_the_loss_of_a_stall_is(feed):
    engine, turns, send = feed
    number = stall(feed, 30 * S)
    turns.turn(31 * S)
    assert current_ns(engine) == 2 * MS
    send(0, number)
    for turn in range(100):
        turns.turn(31 * S + turn * MS)
        if current_ns(engine) != 2 * MS:
            break
    assert lost(engine) > 0
    assert current_ns(engine) > 31 * S


def test_line_that_is_silent_after_a_stall_holds_readers_until_that_is_said(feed):
    engine, turns, _ = feed
    stall(feed, 30 * S)
    now_ns = 32 * S
    while current_ns(engine) == 2 * MS:
        now_ns += 90 * MS
        turns.turn(now_ns)
    counted = engine.read_counters()["incremental"]
    assert counted["disconnected"] == 1
    assert now_ns < 45 * S
    # What was dropped is not known: all books are in doubt before readers may trust them.
    assert (counted["gaps"], counted["lost"]) == (1, 0)
    kinds = [kind for kind, _ in said(engine)]
    assert kinds.index(Kind.GAP) > kinds.index(Kind.CONNECTION)


def test_feed_that_never_heard_anything_says_so_at_its_own_time(feed):
    engine, turns, _ = feed
    before_ns = time.time_ns()
    for now_ns in range(S, 13 * S, 200 * MS):
        turns.turn(now_ns)
    with RingCursor.attach(engine.directory, "begin", payload_hash=PAYLOAD_HASH) as cursor:
        headers = cursor.headers[: cursor.poll()]
        times = headers["received_ns"][headers["kind"] == Kind.CONNECTION].tolist()
    assert len(times) >= 2
    assert all(before_ns <= each <= time.time_ns() for each in times)


def test_line_that_is_silent_after_a_stall_leaves_no_doubt_if_the_other_one_dropped_nothing(feed):
    engine, turns, send = feed
    stall(feed, 30 * S)
    now_ns, number = 32 * S, engine.read_counters()["incremental"]["messages"]
    while current_ns(engine) == 2 * MS:
        number += 1
        now_ns += 90 * MS
        send(1, number)
        turns.turn(now_ns)
    counted = engine.read_counters()["incremental"]
    assert 41 * S < now_ns < 45 * S
    assert (counted["gaps"], counted["disconnected"]) == (0, 0)


@pytest.mark.parametrize("silent", [False, True])
def test_readers_are_not_told_that_all_was_read_before_the_loss_of_closed_lines_is(
    tmp_path, silent
):
    # All lines failed, and are opened again 30 s later: what came meanwhile shows with the first
    # datagram of each.
    ports = free_ports(2)
    config = config_of(ports, "none")
    engine = Engine(config, tmp_path)
    loop = FeedLoop(engine, config)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:

        def send(line, seqno):
            sock.sendto(datagram(bytes(8), seqno=seqno, control=1), ("127.0.0.1", ports[line]))

        with Turns(loop) as turns:
            send(0, 1)
            send(1, 1)
            turns.turn(MS)
            turns.turn(2 * MS)
        before_ns = current_ns(engine)
        for turn in range(300):
            loop.pass_time(before_ns + turn * 50 * MS)
        assert current_ns(engine) == before_ns  # nobody listened
        with Turns(FeedLoop(engine, config, reopened=True)) as turns:
            now_ns = before_ns + 30 * S
            turns.turn(now_ns)
            assert current_ns(engine) == before_ns
            send(0, 10)
            if not silent:
                send(1, 10)
            while current_ns(engine) == before_ns:
                now_ns += 10 * MS
                turns.turn(now_ns)
            assert lost(engine) == 8
            counted = engine.read_counters()["incremental"]
            assert counted["gaps"] == 1  # A has shown what B did not bring either
            assert (now_ns > before_ns + 39 * S) == silent
    engine.close()


def test_stall_without_loss_holds_nobody(feed):
    engine, turns, send = feed
    send(0, 1)
    turns.turn(MS)
    send(0, *range(2, 10))
    for turn in range(10):
        turns.turn(30 * S + turn * MS)
    assert current_ns(engine) > 30 * S


def test_line_is_not_silent_while_the_loop_did_not_listen(feed):
    engine, turns, send = feed
    send(0, 1)
    send(1, 1)
    turns.turn(MS)
    send(0, 2)
    for turn in range(10):
        turns.turn(30 * S + turn * MS)
    counters = engine.read_counters()
    assert counters["incremental"]["disconnected"] == 0
    assert counters["incremental.B"]["disconnected"] == 0  # what it sent may come at any moment
    now_ns = 30 * S
    while counters["incremental.B"]["disconnected"] == 0:
        now_ns += 100 * MS
        turns.turn(now_ns)
        counters = engine.read_counters()
    assert 38 * S < now_ns <= 41 * S


def test_stalls_are_counted_with_their_time_and_turns_that_come_late_a_little_are_not(feed):
    engine, turns, _ = feed
    for now_ns in (MS, 2 * MS, 100 * MS, 30 * S, 30 * S + MS, 31 * S):
        turns.turn(now_ns)
    counted = engine.read_counters()["feed"]
    assert counted["stalls"] == 2
    assert counted["stalled_ns"] == 30 * S - 100 * MS + 999 * MS
