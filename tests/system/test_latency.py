"""Latency of a live instance: from the publisher's stamp to the strategy, in `udpfast stat`."""

import json
import os
import socket
import struct
import time

import pytest
from click.testing import CliRunner

import udpfast
from tests.waiting import PATIENCE_S, wait_until
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.cli.main import cli
from udpfast.client.latency import read_hops
from udpfast.payload.roq.encode import SourceInfo, encode_top_of_book

pytestmark = pytest.mark.system

SO_TIMESTAMPING = 37
RX_SOFTWARE, SOFTWARE = 8, 16  # <linux/net_tstamp.h>
AHEAD_NS = 3_600_000_000  # of our clock: a publisher whose clock was never set


@pytest.fixture
def stamps():
    """Have the kernel stamp what comes: it begins some time after the first socket asks for it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, RX_SOFTWARE | SOFTWARE)
        for _ in range(1000):
            sock.sendto(b"", sock.getsockname())
            if sock.recvmsg(0, 256)[1]:
                break
            time.sleep(0.001)
        else:
            pytest.skip("this kernel stamps no datagrams on loopback")
        yield


@pytest.fixture
def tables(port, tmp_path, monkeypatch):
    """Return the settings of a feed on loopback, below tmp_path."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    lines = [{"name": "A", "address": f"127.0.0.1:{port}"}]
    return {
        "name": "test",
        "ring": {"capacity_bytes": 1 << 22},
        "objects": {"collect_bytes": 1 << 20},
        "incremental": {"lines": lines},
    }


def send_tops(port, seqnos, offset_ns=0, stamped=True):
    """Send tops of book whose send stamp is `offset_ns` off our clock."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", port))
        for seqno in seqnos:
            stamp = time.time_ns() + offset_ns if stamped else 0
            payload = encode_top_of_book(
                "deribit", "BTC", bid_price=1.0, source=SourceInfo(send_time_utc=stamp)
            )
            header = struct.pack("<BBBBHHII", 2, 0, 0, 0, 0, 7, seqno, 0)
            sock.send(header + bytes(payload))


def test_latency_of_every_hop_counts_every_message(stamps, tables, port):
    with (
        Subscriber(tables),
        udpfast.Reader("ring:test", timeout=PATIENCE_S, name="strategy") as reader,
    ):
        send_tops(port, range(1, 301))
        send_tops(port, range(301, 311), stamped=False)
        send_tops(port, range(311, 321), offset_ns=AHEAD_NS)
        updates = 0
        while updates < 320:
            batch = reader.poll(timeout=PATIENCE_S)
            assert len(batch), "records are missing"
            updates += int((batch.headers["kind"] == udpfast.Kind.TOP_OF_BOOK).sum())
        found = udpfast.latency("test")
    origin = found["origin_to_kernel"]
    assert (origin["count"], origin["below"]) == (310, 10)
    assert 0 < origin["p50"] < 1_000_000_000 < origin["max"] + AHEAD_NS
    assert found["kernel_to_loop"]["count"] == found["loop_to_strategy"]["count"] == 320
    assert found["kernel_to_strategy"]["p50"] >= found["kernel_to_loop"]["p50"]
    assert found[f"kernel_to_strategy.strategy-{os.getpid()}"] == found["kernel_to_strategy"]


def test_stat_latency_of_a_dead_instance_and_since_a_look(stamps, tables, port):
    with Subscriber(tables) as subscriber:
        send_tops(port, range(1, 51))
        wait_until(lambda: subscriber.counters()["feed"]["updates"] >= 50, "updates")
        earlier = read_hops(subscriber.directory)
    result = CliRunner().invoke(cli, ["stat", "test", "--latency", "--json"])
    assert result.exit_code == 0, result.output
    shown = json.loads(result.output)["latency_ns"]
    assert shown["origin_to_kernel"]["count"] == shown["kernel_to_loop"]["count"] == 50
    assert (shown["kernel_to_loop"]["p50"]) == earlier["kernel_to_loop"].summary()["p50"]
    table = CliRunner().invoke(cli, ["stat", "test", "--latency"]).output.splitlines()
    assert table[0].split() == [
        "latency,", "us", "count", "p50", "p90", "p99", "p99.9", "max", "below", "0",
    ]  # fmt: skip
    assert [line.split()[:2] for line in table[1:]] == [
        ["origin_to_kernel", "50"],
        ["kernel_to_loop", "50"],
        ["loop_to_ring", str(shown["loop_to_ring"]["count"])],
    ]
