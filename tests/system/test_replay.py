"""A feed's run, kept and replayed: the same records, to the last byte, in every way."""

import json
import signal
import socket
import struct
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from tests.shared import shared
from tests.waiting import PATIENCE_S, wait_until
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.archive.feed_settings import write_feed
from udpfast.cli.main import cli
from udpfast.client.reader import Reader
from udpfast.config import parse_feed
from udpfast.core.layout import Kind
from udpfast.errors import RegionError
from udpfast.log.journal import Journal
from udpfast.log.journal_state import journal_state
from udpfast.market.updates import LAYOUTS
from udpfast.net.ports import free_ports

pytestmark = pytest.mark.system

FEED = """
name = "kept"
incremental.lines = [
    {{ name = "A", address = "127.0.0.1:{0}" }},
    {{ name = "B", address = "127.0.0.1:{1}" }},
]
snapshot.lines = [{{ name = "A", address = "127.0.0.1:{2}" }}]
receive.rcvbuf_bytes = 16777216
window.lost_packet_wait_us = 2000
ring.capacity_bytes = 16777216
objects.collect_bytes = 1048576

[record]
enabled = true
what = "both"
directory = "{3}"
segment_bytes = 4194304
"""
LINE = [{"name": "A", "address": "127.0.0.1:9001"}]
LINES = ("--incremental", 9001, "--incremental", 9101, "--snapshot", 9002)


def call(*arguments):
    """Run a verb; return its exit code and what its last line says as JSON."""
    found = CliRunner().invoke(cli, [str(each) for each in arguments])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.output
    return found.exit_code, json.loads(found.stdout.splitlines()[-1])


def make_feed(directory):
    """Return the file of a feed of two lines and a snapshot line, kept in directory / "journal"."""
    path = directory / "feed.toml"
    path.write_text(FEED.format(*free_ports(3), directory / "journal"))
    return path


def port_of(feed):
    """Return the port of a feed's first line."""
    return int(feed.read_text().split("127.0.0.1:")[1].split('"')[0])


def records_in(directory, alive=True):
    """Return the number of records in a journal; None: it is not there, or nobody writes it."""
    try:
        state = journal_state(directory)
    except (FileNotFoundError, RegionError):
        return None
    return state.index if state.alive or not alive else None


@pytest.fixture
def feed(tmp_path, monkeypatch):
    """Return the file of a feed that is kept in tmp_path / "journal"."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    return make_feed(tmp_path)


def test_run_that_was_kept_is_replayed_to_the_same_records(feed, tmp_path):
    capture, journal = shared("wire", "capture", "roq_udp_rough.pcap.gz"), tmp_path / "journal"
    with Subscriber(str(feed)) as subscriber:
        wait_until(lambda: records_in(journal / "raw") is not None, "the recorder")
        code, sent = call(
            *("replay", capture, *LINES, "--config", feed, "--to", "udp", "--speed", 60, "--json")
        )
        assert (code, sent["sent"]) == (0, 74_023)
        received = subscriber.counters
        wait_until(
            lambda: (
                journal_state(journal / "raw").index
                >= sum(received()[scope]["datagrams"] for scope in received() if "." in scope)
            ),
            "all datagrams in the journal",
        )
    code, live = call("replay", journal, "--json")
    assert code == 0 and live["kinds"]["GAP"] > 10 and live["kinds"]["BOOK"] > 1000
    expected = f"sha256:{live['sha256']}"
    for batch in (1, 8, 64):
        code, found = call(
            *("replay", journal, "--raw", "--batch", batch, "--expect", expected, "--json")
        )
        assert (code, found["missed"], found["records"]) == (0, 0, live["records"])
        assert found["books"] == live["books"]
    code, found = call("replay", journal, "--raw", "--to", tmp_path / "a.pcapng.gz", "--json")
    assert (code, found["written"]) == (0, found["capture"]["frames"]["datagrams"])
    for batch in (1, 8, 64):
        code, found = call(
            *("replay", tmp_path / "a.pcapng.gz", "--config", feed, "--batch", batch),
            *("--expect", expected, "--json"),
        )
        assert (code, found["records"]) == (0, live["records"])
    code, found = call("replay", journal, "--raw", "--expect", "sha256:" + "0" * 64, "--json")
    assert code == 1 and not found["as_expected"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Return the journal of a short run: 3 whole messages a millisecond apart, a hole, 200 more.

    Its feed's file lies beside it.
    """
    directory = tmp_path_factory.mktemp("kept")
    feed, journal = make_feed(directory), directory / "journal"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("UDPFAST_SHM", str(directory / "shm"))
        with (
            Subscriber(str(feed)) as subscriber,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
        ):
            wait_until(lambda: records_in(journal / "raw") is not None, "the recorder")
            for seqno in [*range(1, 4), *range(10, 210)]:
                sock.sendto(message(seqno), ("127.0.0.1", port_of(feed)))
                time.sleep(0.001)
            wait_until(
                lambda: subscriber.counters()["incremental"]["messages"] == 203, "all messages"
            )
    return journal


def message(seqno):
    """Return a whole opaque message of object type 0."""
    return struct.pack("<BBBBHHII", 1, 0, 0, 0, 0, 7, seqno, 0) + b"payload!"


def test_part_of_a_journal_is_what_lies_between_two_times_or_positions(kept):
    with Reader(f"journal:{kept}") as reader:
        records = list(reader)
    messages = [record for record in records if record.kind is Kind.MESSAGE]
    first, last = messages[50], messages[150]
    during = [
        record
        for record in messages
        if first.published_ns <= record.published_ns < last.published_ns
    ]
    for start, end, count in (
        (("--from", first.published_ns), ("--until", last.published_ns), len(during)),
        (("--from-position", first.position), ("--until-position", last.position), 100),
    ):
        code, found = call("replay", kept, *start, *end, "--json")
        assert (code, found["kinds"]) == (0, {"MESSAGE": count})
    code, found = call("replay", kept, "--raw", "--from", first.published_ns, "--json")
    behind = [record for record in messages if record.published_ns >= first.published_ns]
    assert code == 0 and found["kinds"]["MESSAGE"] == len(behind)
    with Reader(f"journal:{kept}", start=("position", first.position)) as reader:
        assert next(reader).index == first.index


def test_replay_to_a_ring_is_read_like_a_feed(kept, tmp_path, monkeypatch):
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    with Reader(f"journal:{kept}") as reader:
        expected = [(r.kind, r.received_ns, bytes(r.payload)) for r in reader]
    for what in ([], ["--raw"]):
        name = f"again{len(what)}"
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "udpfast", "replay", str(kept), *what, "--to", f"ring:{name}"]
            + ["--speed", "1", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        with Reader(f"ring:{name}", start="begin", timeout=PATIENCE_S) as reader:
            found = [(r.kind, r.received_ns, bytes(r.payload)) for r in reader]
        assert time.monotonic() - began > 0.2  # 203 ms at the recorded pace
        assert found == expected
        output = process.communicate()[0]
        assert process.returncode == 0
        assert json.loads(output)["records"] == len(expected)


def test_raw_capture_goes_out_over_udp_as_it_came(kept):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", port_of(kept.parent / "feed.toml")))
        sock.settimeout(PATIENCE_S)
        code, found = call("replay", kept, "--raw", "--to", "udp", "--json")
        assert (code, found["sent"], found["unreachable"]) == (0, 203, 0)
        received = [sock.recv(2048) for _ in range(203)]
    assert received == [message(seqno) for seqno in [*range(1, 4), *range(10, 210)]]


def test_pcap_of_a_run_has_its_datagrams_at_the_lines_addresses(kept, tmp_path):
    feed = kept.parent / "feed.toml"
    code, found = call("replay", kept, "--raw", "--to", tmp_path / "a.pcap", "--json")
    assert (code, found["written"]) == (0, 203)
    code, found = call("replay", tmp_path / "a.pcap", "--config", feed, "--json")
    assert code == 0 and found["kinds"]["MESSAGE"] == 203 and found["kinds"]["GAP"] == 1


def test_messages_among_records_are_received_once_more(feed, tmp_path):
    lines = feed.read_text().replace("[record]", 'ring.carry = "messages"\n[record]')
    feed.write_text(lines)
    journal, port = tmp_path / "journal", port_of(feed)
    capture = shared("wire", "capture", "roq_udp_clean.pcap.gz")
    with Subscriber(str(feed)) as subscriber:
        wait_until(lambda: records_in(journal) is not None, "the recorder")
        call("replay", capture, *LINES, "--config", feed, "--to", "udp", "--speed", 60, "--json")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(message(7), ("127.0.0.1", port))
        wait_until(
            lambda: records_in(journal) == subscriber.counters()["feed"]["records"], "all records"
        )
    with Reader(f"journal:{journal}") as reader:
        kept = [record for record in reader if record.kind is Kind.MESSAGE]
    assert max(len(record.payload) for record in kept) > 512
    code, found = call("replay", journal, "--to", "engine", "--json")
    # What the feed withheld is not there: its objects are doubtful to the second feed until the
    # next snapshot, and it withholds more.
    assert code == 0 and 0.5 * len(kept) < found["kinds"]["MESSAGE"] <= len(kept)
    verdicts = {name for name, count in found["ledger"]["by_verdict"].items() if count}
    assert not verdicts & {"too_short", "too_long", "short_fragment", "fragment_max_changed"}
    code, found = call("replay", journal, "--to", tmp_path / "a.pcap", "--json")
    assert code == 0 and found["written"] == found["capture"]["frames"]["datagrams"] > len(kept)


def test_decoded_updates_are_no_messages(tmp_path):
    with Journal.open(tmp_path / "j", LAYOUTS, segment_bytes=1 << 18) as journal:
        journal.append(Kind.TOP_OF_BOOK, bytes(64))
    write_feed(parse_feed({"name": "x", "incremental": {"lines": LINE}}), tmp_path / "j")
    found = CliRunner().invoke(cli, ["replay", str(tmp_path / "j"), "--to", "engine"])
    assert found.exit_code != 0 and "ring.carry" in str(found.exception)


def test_replay_says_what_it_cannot_do(kept, tmp_path):
    for arguments, words in (
        ((kept, "--from", "2026-08-21T09:30"), "time zone"),
        ((kept, "--from", "1", "--from-position", "1"), "choose one of --from and"),
        ((kept, "--expect", "md5:1"), "sha256:"),
        ((kept, "--to", "somewhere"), "ring:NAME"),
        ((tmp_path / "none.pcap",), "no such file"),
        ((tmp_path / "nothing",), "no such journal"),
    ):
        found = CliRunner().invoke(cli, ["replay", *map(str, arguments)])
        assert found.exit_code != 0 and words in found.output + str(found.exception)


def run_feed(feed, journal, port, seqnos, end):
    """Run a feed in a process of its own until it has these messages, then send it a signal."""
    raw = journal / "raw"
    before = records_in(raw, alive=False) or 0
    process = subprocess.Popen(
        [sys.executable, "-m", "udpfast", "run", str(feed)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert "kept" in process.stdout.readline()
        wait_until(lambda: records_in(raw) is not None, "the recorder")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for seqno in seqnos:
                sock.sendto(message(seqno), ("127.0.0.1", port))
        wait_until(lambda: journal_state(raw).index >= before + len(seqnos), "all messages")
    finally:
        process.send_signal(end)
        process.communicate()
    wait_until(lambda: not journal_state(raw).alive, "the recorder's end")


def test_runs_that_were_killed_or_stopped_are_replayed_one_by_one(feed, tmp_path):
    journal, port = tmp_path / "journal", port_of(feed)
    # A hole is open when the first is killed: nobody ever said that it was lost.
    run_feed(feed, journal, port, [1, 2, 3, 5], signal.SIGKILL)
    run_feed(feed, journal, port, range(6, 20), signal.SIGTERM)
    run_feed(feed, journal, port, range(20, 40), signal.SIGINT)
    code, live = call("replay", journal, "--json")
    assert code == 0 and live["kinds"]["RESTART"] == 2
    for batch in (1, 64):
        code, found = call("replay", journal, "--raw", "--batch", batch, "--json")
        assert (code, found["runs"], found["ledger"]["datagrams"]) == (0, 3, 38)
        assert found["sha256"] == live["sha256"]
