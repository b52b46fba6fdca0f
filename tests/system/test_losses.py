"""Losses forced at each stage: the counter of that stage moves, and every sum stays equal."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import udpfast
from tests.waiting import PATIENCE_S, wait_until
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.cli.draw import print_losses
from udpfast.cli.main import cli
from udpfast.core.counter import FEED_COUNTERS, VERDICTS
from udpfast.core.layout import RECORD
from udpfast.monitor.ledger import ledger_of
from udpfast.monitor.losses import HostLosses, Losses, read_losses
from udpfast.monitor.metrics import metrics_text
from udpfast.monitor.status import read_status
from udpfast.net.bad_network import Arrival, LineFaults, network
from udpfast.net.ports import free_ports

pytestmark = pytest.mark.system

REGION_PAGE = 4096  # the feed's counters begin behind it


@pytest.fixture
def ports():
    """Return two UDP ports that nobody uses."""
    return free_ports(2)


@pytest.fixture
def tables(ports, tmp_path, monkeypatch):
    """Return the settings of a feed of one line, below tmp_path."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    return {
        "name": "test",
        "ring": {"capacity_bytes": 1 << 22},
        "objects": {"collect_bytes": 1 << 20},
        "incremental": {"lines": [{"name": "A", "address": f"127.0.0.1:{ports[0]}"}]},
    }


def message(seqno, size=8):
    """Return a whole opaque message of object type 0."""
    return struct.pack("<BBBBHHII", 1, 0, 0, 0, 0, 7, seqno, 0) + bytes(size)


def send(port, seqnos, size=8):
    """Send messages as fast as the socket takes them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", port))
        for seqno in seqnos:
            sock.send(message(seqno, size))


def queued(port):
    """Return how many bytes wait in the UDP socket on a port, by the kernel's table."""
    for row in Path("/proc/net/udp").read_text().splitlines()[1:]:
        _, local, _, _, queues, *_ = row.split()
        if int(local.split(":")[1], 16) == port:
            return int(queues.split(":")[1], 16)
    raise AssertionError(f"nobody receives on port {port}")


def lost(losses, stage, what):
    """Return what a stage lost, over all its places."""
    return sum(one.count for one in losses.stages if (one.stage, one.what) == (stage, what))


def test_kernel_drops_of_a_paused_loop_equal_the_kernels_own_count(tables, ports, tmp_path):
    path = tmp_path / "feed.toml"
    path.write_text(
        'name = "test"\n[receive]\nrcvbuf_bytes = 131072\n[ring]\ncapacity_bytes = 4194304\n'
        f'[[incremental.lines]]\nname = "A"\naddress = "127.0.0.1:{ports[0]}"\n'
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "udpfast", "run", str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert "test" in process.stdout.readline()
        send(ports[0], range(1, 11))
        wait_until(lambda: udpfast.counters("test")["incremental"]["messages"] == 10, "the start")
        process.send_signal(signal.SIGSTOP)
        send(ports[0], range(11, 2001), size=256)
        process.send_signal(signal.SIGCONT)
        # The next datagram, when there is room for it, shows what is missing before it.
        wait_until(lambda: udpfast.counters("test")["incremental"]["messages"] > 10, "the wake")
        wait_until(lambda: queued(ports[0]) == 0, "room in the socket")
        send(ports[0], range(2001, 2011))

        def settled():
            counters = udpfast.counters("test")
            line = counters["incremental.A"]
            channel = counters["incremental"]
            return (
                line["datagrams"] + line["kernel_drops"] == 2010
                and channel["messages"] + channel["lost"] == 2010
            )

        wait_until(settled, f"sums are not equal: {udpfast.counters('test')}")
        losses = read_losses(tmp_path / "shm" / "test")
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        process.stdout.close()
    drops = lost(losses, "kernel", "kernel_drops")
    assert drops > 0
    assert drops == lost(losses, "window", "lost")
    assert [one.drops for one in losses.host.sockets] == [drops]
    assert losses.host.rcvbuf_errors >= drops
    assert losses.ledger.adds_up
    assert read_losses(tmp_path / "shm" / "test").ledger.adds_up  # dead as well


#: Seconds that the feed waits for what is missing.
WAIT_S = 0.2


def taken():
    """Return how many messages were delivered, or given up."""
    incremental = udpfast.counters("test")["incremental"]
    return incremental["messages"] + incremental["lost"]


@pytest.mark.parametrize("ahead", [0, 1])
def test_hole_that_the_loop_reads_late_is_as_young_as_it_is(tmp_path, monkeypatch, ports, ahead):
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    path = tmp_path / "feed.toml"
    path.write_text(
        f'name = "test"\n[window]\nlost_packet_wait_us = {WAIT_S * 1e6:.0f}\n'
        "[ring]\ncapacity_bytes = 4194304\n"
        + "".join(
            f'[[incremental.lines]]\nname = "{name}"\naddress = "127.0.0.1:{port}"\n'
            for name, port in zip("AB", ports, strict=True)
        )
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "udpfast", "run", str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert "test" in process.stdout.readline()
        for line in (0, 1):
            send(ports[line], [1])
        late = 0  # a busy host held this test up, and the hole was as old as the wait
        for seqno in range(2, 18, 2):
            wait_until(lambda seqno=seqno: taken() == seqno - 1, f"what comes before {seqno}")
            # Wherever in a turn it stops: when it goes on, it reads a number whose predecessor
            # the other line brings just behind it.
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.25)
            began = time.monotonic()
            send(ports[ahead], [seqno + 1])
            process.send_signal(signal.SIGCONT)
            time.sleep(0.001)
            send(ports[1 - ahead], [seqno, seqno + 1])
            late += time.monotonic() - began > WAIT_S / 2
        wait_until(lambda: taken() == 17, "the last one")
        counted = udpfast.counters("test")["incremental"]
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        process.stdout.close()
    assert counted["lost"] <= late < 8


@pytest.mark.parametrize("seed", [1, 2])
def test_losses_of_a_bad_network_are_gaps_of_what_no_line_brought(tables, ports, seed):
    tables["incremental"]["lines"].append({"name": "B", "address": f"127.0.0.1:{ports[1]}"})
    tables["window"] = {"lost_packet_wait_us": 3_000_000}  # however the host delays the sender
    sent = [Arrival(seqno, 0, line, message(seqno)) for seqno in range(1, 1001) for line in (0, 1)]
    faults = LineFaults(loss=0.2, duplicate=0.05, reorder=0.02, reorder_depth=3)
    arrived = list(network(sent, faults, seed=seed))
    edges = {(seqno, line) for seqno in (1, 1000) for line in (0, 1)}  # what lies between is known
    seqno_of = {id(one): struct.unpack_from("<I", one.datagram, 8)[0] for one in arrived}
    brought = {seqno_of[id(one)] for one in arrived} | {seqno for seqno, _ in edges}
    with (
        Subscriber(tables) as subscriber,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
    ):
        for line in (0, 1):
            sock.sendto(message(1), ("127.0.0.1", ports[line]))
        wait_until(lambda: subscriber.counters()["incremental"]["sessions"] == 1, "the session")
        for one in arrived:
            if 1 < seqno_of[id(one)] < 1000:
                sock.sendto(one.datagram, ("127.0.0.1", ports[one.line]))
        for line in (0, 1):
            sock.sendto(message(1000), ("127.0.0.1", ports[line]))
        total = 4 + sum(1 < seqno < 1000 for seqno in seqno_of.values())

        def settled():
            counters = subscriber.counters()
            channel = counters["incremental"]
            return (
                sum(counters[f"incremental.{name}"]["datagrams"] for name in "AB") == total
                and channel["messages"] + channel["lost"] == 1000
            )

        wait_until(settled, f"seed {seed}: sums are not equal")
    losses = read_losses(subscriber.directory)
    assert lost(losses, "window", "lost") == 1000 - len(brought) > 0, f"seed {seed}"
    assert lost(losses, "kernel", "kernel_drops") == 0
    assert lost(losses, "verdict", "duplicate") > 0
    assert losses.ledger.adds_up, f"seed {seed}: {losses.ledger.sums}"


def test_losses_of_a_slow_reader_are_its_own_and_exact(tables, ports):
    with (
        Subscriber(tables) as subscriber,
        udpfast.Reader("ring:test", name="slow") as slow,
        udpfast.Reader("ring:test", name="fast") as fast,
    ):
        read = {"slow": 0, "fast": 0}
        for first in range(1, 12_001, 1000):
            send(ports[0], range(first, first + 1000), size=512)
            wait_until(
                lambda up=first + 999: subscriber.counters()["incremental"]["messages"] == up,
                "messages",
            )
            while batch := fast.poll(timeout=0):
                read["fast"] += len(batch)
        behind = next(one for one in read_status_of("test")["readers"] if one["name"] == "slow")
        assert (behind["alive"], behind["pid"]) == (True, os.getpid())
        # What the ring has no more is lapped, although the reader has not looked since.
        assert behind["lag"] + behind["lapped"] >= 12_000
        assert behind["lag"] * (RECORD.itemsize + 512) <= behind["lag_bytes"] <= 1 << 22
        while batch := slow.poll(timeout=0):
            read["slow"] += len(batch)
        losses = read_losses(subscriber.directory)
        status = read_status_of("test")
    readers = {reader["name"]: reader for reader in status["readers"]}
    for name, records in read.items():
        reader = readers[name]
        assert reader["read"] == records
        assert reader["began_index"] + reader["read"] + reader["lapped"] == status["records"]
        assert (reader["lag"], reader["lag_bytes"]) == (0, 0)
    assert readers["fast"]["lapped"] == 0
    assert readers["slow"]["lapped"] == lost(losses, "ring", "lapped") > 1000
    assert losses.ledger.adds_up, losses.ledger.sums


def read_status_of(name):
    """Return what `udpfast stat --json` prints."""
    result = CliRunner().invoke(cli, ["stat", name, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_stat_losses_prints_each_stage_and_the_sums(tables, ports):
    with Subscriber(tables) as subscriber:
        send(ports[0], [1, 2, 4])
        wait_until(lambda: subscriber.counters()["incremental"]["lost"] == 1, "the gap")
    result = CliRunner().invoke(cli, ["stat", "test", "--losses"])
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.output.splitlines()]
    assert ["window", "incremental", "lost", "1"] in rows
    assert "incremental.A: units, verdicts: 3 = 3" in result.output
    assert "the sums are equal" in result.output
    as_json = CliRunner().invoke(cli, ["stat", "test", "--losses", "--json"])
    assert json.loads(as_json.output)["host"]["sockets"] is None


def test_losses_that_do_not_add_up_are_said(tables, ports):
    with Subscriber(tables) as subscriber:
        send(ports[0], [1, 2, 3])
        wait_until(lambda: subscriber.counters()["feed"]["ungated"] == 3, "messages")
    assert read_losses(subscriber.directory).ledger.adds_up
    slot = [info.name for info in FEED_COUNTERS].index("ungated")
    with (subscriber.directory / "counters").open("r+b") as file:
        file.seek(REGION_PAGE + 8 * slot)
        file.write(struct.pack("<q", 2))
    result = CliRunner().invoke(cli, ["stat", "test", "--losses"])
    assert result.exit_code == 1
    assert "3 IS NOT 2" in result.output
    assert "THE SUMS DIFFER" in result.output
    # Whoever is asked says the same.
    plain = CliRunner().invoke(cli, ["stat", "test"])
    assert plain.exit_code == 1
    assert "3 IS NOT 2" in plain.output
    assert not read_status("test").ledger.adds_up
    assert 'udpfast_feed_ledger_difference{feed="test"} 2.0' in metrics_text(["test"])


def test_sums_of_a_feed_that_counts_meanwhile_are_no_alarm(capsys):
    # A look at a live feed is not one moment: some counters may be a datagram older than others.
    line = dict.fromkeys((info.name for info in VERDICTS), 0)
    ledger = ledger_of({"incremental.A": {**line, "datagrams": 1, "units_more": 0}})
    host = HostLosses(0, 0, 0, 0, 0, 0, None)
    for live, said in ((True, "the feed counted while it was read"), (False, "THE SUMS DIFFER")):
        print_losses(Losses(live, (), (), ledger, host), False)
        assert said in capsys.readouterr().out
