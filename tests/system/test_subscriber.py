"""The subscriber with real sockets: sums, takeover, signals, entitlement."""

import errno
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading

import pytest

from tests.waiting import PATIENCE_S, wait_until
from udpfast import Reader
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.core.layout import Kind
from udpfast.errors import ConfigError, ImageError, WriterExistsError
from udpfast.log.cursor import RingCursor
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.monitor.ledger import ledger_of
from udpfast.shm.region import Region

pytestmark = pytest.mark.system


@pytest.fixture
def tables(port, tmp_path, monkeypatch):
    """Return the settings of a feed on loopback, below tmp_path."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    return {
        "name": "test",
        "ring": {"capacity_bytes": 1 << 22},
        "objects": {"collect_bytes": 1 << 20},
        "incremental": {"lines": [{"name": "A", "address": f"127.0.0.1:{port}"}]},
    }


def send(port, seqnos, session_id=7):
    """Send whole opaque messages of object type 0."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", port))
        for seqno in seqnos:
            sock.send(struct.pack("<BBBBHHIIQ", 1, 0, 0, 0, 0, session_id, seqno, 0, seqno))


def test_subscriber_counts_and_delivers_every_datagram(tables, port):
    with Subscriber(tables) as subscriber:
        with RingCursor.attach(
            subscriber.directory, start="begin", payload_hash=PAYLOAD_HASH
        ) as cursor:
            send(port, range(1, 1001))
            wait_until(lambda: subscriber.counters()["incremental"]["messages"] == 1000, "messages")
            seqnos = []
            while count := cursor.poll():
                seqnos += [
                    int(header["number"])
                    for header in cursor.headers[:count]
                    if header["kind"] == Kind.MESSAGE
                ]
        assert seqnos == list(range(1, 1001))
        assert ledger_of(subscriber.counters()).adds_up
        assert subscriber.counters()["incremental.A"]["kernel_drops"] == 0


def test_subscriber_stop_closes_the_ring_and_counters_stay(tables, port):
    with Subscriber(tables) as subscriber:
        directory = subscriber.directory
    assert subscriber.counters()["incremental.A"]["receive_errors"] == 0
    with RingCursor.attach(directory, payload_hash=PAYLOAD_HASH) as cursor:
        assert cursor.closed_by_writer


@pytest.mark.parametrize("broken", ["_find_bypass", "_find_notes", "_watch_lines"])
def test_subscriber_start_that_fails_late_leaves_no_loop_behind(tables, monkeypatch, broken):
    def fail(*_):
        raise OSError(errno.EMFILE, "too many open files")

    before = threading.enumerate()
    subscriber = Subscriber(tables)
    with monkeypatch.context() as patch:
        patch.setattr(Subscriber, broken, fail)
        with pytest.raises(OSError, match="too many open files"):
            subscriber.start()
    assert threading.enumerate() == before
    with subscriber:  # the instance is free again
        assert not subscriber.ended


def test_subscriber_stop_that_is_interrupted_ends_the_loop_before_its_memory(tables, monkeypatch):
    end_watch = Subscriber._end_watch

    def interrupt(subscriber):
        end_watch(subscriber)
        raise KeyboardInterrupt

    before = threading.enumerate()
    subscriber = Subscriber(tables)
    subscriber.start()
    monkeypatch.setattr(Subscriber, "_end_watch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        subscriber.stop()
    assert threading.enumerate() == before


def test_subscriber_says_whether_it_keeps_an_image_before_readers_find_it(tables):
    with Subscriber(tables), pytest.raises(ImageError, match="there is none"):
        Reader("ring:test", image=True, timeout=None)
    with Subscriber(tables | {"image": {"enabled": True}}):
        Reader("ring:test", image=True, timeout=None).close()
    with Subscriber(tables), pytest.raises(ImageError, match="there is none"):
        Reader("ring:test", image=True, timeout=None)


def test_subscriber_second_one_is_refused(tables):
    said = rf"^feed {tables['name']} runs already \(pid {os.getpid()}\)"
    with Subscriber(tables), pytest.raises(WriterExistsError, match=said):
        Subscriber(
            {**tables, "incremental": {"lines": [{"name": "A", "address": "127.0.0.1:0"}]}}
        ).start()


def test_subscriber_refused_sender_is_counted_not_delivered(tables, port):
    tables["incremental"]["lines"][0]["senders"] = ["127.0.0.2"]
    with Subscriber(tables) as subscriber:
        send(port, range(50))
        wait_until(lambda: subscriber.counters()["incremental.A"]["datagrams"] == 50, "datagrams")
        line = subscriber.counters()["incremental.A"]
        assert line["sender_refused"] == 50
        assert subscriber.counters()["incremental"]["messages"] == 0


def test_subscriber_port_in_use_names_it(tables, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", port))
        with pytest.raises(OSError, match=f"cannot bind: 127.0.0.1:{port}"):
            Subscriber(tables).start()


def test_subscriber_that_could_not_start_lets_go_of_all_lines(tables, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        tables["incremental"]["lines"].append({"name": "taken", "address": address})
        subscriber = Subscriber(tables)
        with pytest.raises(OSError, match="cannot bind"):
            subscriber.start()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(("127.0.0.1", port))
        subscriber.stop()
    with subscriber:
        pass


def test_subscriber_wrong_settings_are_refused():
    with pytest.raises(ConfigError, match="incremental"):
        Subscriber({"name": "test"})


def run_process(tables, tmp_path):
    """Start `udpfast run` on the settings; return when it receives."""
    line = tables["incremental"]["lines"][0]
    path = tmp_path / "feed.toml"
    path.write_text(
        f'name = "test"\n[ring]\ncapacity_bytes = {1 << 22}\n'
        f'[[incremental.lines]]\nname = "A"\naddress = "{line["address"]}"\n'
    )
    # Whoever runs the tests may ignore hang-ups, as nohup does, and children inherit that.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "udpfast", "run", str(path)], stdout=subprocess.PIPE, text=True
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    assert "test" in process.stdout.readline()
    return process


@pytest.mark.parametrize("rebooted", [False, True])
def test_subscriber_started_again_says_in_its_journal_that_another_one_writes(
    tables, port, tmp_path, rebooted
):
    journal = tmp_path / "journal"
    tables["record"] = {"enabled": True, "directory": str(journal)}
    for seqnos in (range(1, 11), range(51, 61)):
        with Subscriber(tables) as subscriber:
            send(port, seqnos)
            wait_until(lambda: subscriber.counters()["incremental"]["messages"] == 10, "messages")
        if rebooted:
            shutil.rmtree(subscriber.directory)
    with Reader(f"journal:{journal}") as reader:
        kinds = [record.kind for record in reader]
    lives = [Kind.SESSION, Kind.RESTART, Kind.SESSION]
    assert [kind for kind in kinds if kind in lives] == lives


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_run_ends_cleanly_by_signal(tables, tmp_path, number):
    process = run_process(tables, tmp_path)
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    with RingCursor.attach(tmp_path / "shm" / "test", payload_hash=PAYLOAD_HASH) as cursor:
        assert cursor.closed_by_writer


def test_run_killed_writer_is_taken_over_and_readers_are_told(tables, tmp_path, port):
    process = run_process(tables, tmp_path)
    directory = tmp_path / "shm" / "test"
    cursor = RingCursor.attach(directory, start="begin", payload_hash=PAYLOAD_HASH)
    kinds = []

    def seen(kind):
        count = cursor.poll()
        kinds.extend(Kind(kind) for kind in cursor.headers["kind"][:count])
        return kind in kinds

    send(port, range(10))
    wait_until(lambda: seen(Kind.MESSAGE) and kinds.count(Kind.MESSAGE) == 10, "messages")
    process.kill()
    process.communicate()
    process = run_process(tables, tmp_path)
    wait_until(lambda: seen(Kind.RESTART), "RESTART")
    assert cursor.epoch == 2
    send(port, range(10, 20))
    wait_until(lambda: kinds.count(Kind.MESSAGE) == 20 or seen(Kind.LAPPED), "messages")
    assert Kind.LAPPED not in kinds
    cursor.close()
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


@pytest.mark.parametrize("strict", [False, True])
def test_subscriber_says_which_huge_pages_it_did_not_get(tables, tmp_path, strict):
    with Region.create(tmp_path / "probe", "TEST", 4 << 20, 0) as probe:
        refused = probe.collapse()[2]  # what the kernel says of files that lie there
    if refused and strict:
        with pytest.raises(PermissionError, match="ring: got 0 of 4,194,304 bytes"):
            Subscriber({**tables, "agent": {"strict": True}}).start()
    wanted = {"strict": strict, "huge_pages": not strict}
    with Subscriber({**tables, "agent": wanted}) as subscriber:
        notes = [note for note in subscriber.notes if note.startswith("huge pages for the ring")]
        assert len(notes) == (bool(refused) and not strict)
