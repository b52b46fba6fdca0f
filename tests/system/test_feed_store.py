"""A feed that writes a bus's store: real datagrams, processes and files; killed, full, copied."""

import itertools
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE_S, wait_until
from udpfast.archive.bus_files import read_description
from udpfast.archive.store import StoreView
from udpfast.client.app import App
from udpfast.client.counters import counters
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind, LappedReason
from udpfast.errors import ConfigError, ImageError, RingClosedError
from udpfast.log.journal_state import journal_state
from udpfast.log.verify import verify_segments
from udpfast.monitor.losses import read_losses
from udpfast.monitor.status import read_host, read_status
from udpfast.net.ports import free_port

pytestmark = pytest.mark.system

SYMBOLS = ("AAPL", "MSFT", "ZIEXT")
SEGMENT = 1 << 18
QUOTES = {Kind.TOP_OF_BOOK}
Start = Callable[..., subprocess.Popen[str]]


class Market:
    """Who publishes: IEX's datagrams, of one message each."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.number = self._offset = 0

    def send(self, count: int) -> None:
        """Send so many, at a pace that a loaded machine follows."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(("127.0.0.1", self._port))
            self._send(sock, count)

    def _send(self, sock: socket.socket, count: int) -> None:
        for at in range(count):
            symbol = SYMBOLS[self.number % len(SYMBOLS)].encode().ljust(8)
            now_ns = time.time_ns()
            price = self.number + 1
            body = struct.pack("<cBq8sIqqI", b"Q", 0, now_ns, symbol, 100, price, price, 100)
            body = struct.pack("<H", len(body)) + body
            head = (1, 0, 0x8003, 1, 77, len(body), 1, self._offset, self.number + 1, now_ns)
            sock.send(struct.pack("<BBHIIHHqqq", *head) + body)
            self.number += 1
            self._offset += len(body)
            if at % 20 == 19:
                time.sleep(0.001)


def feed_tables(port: int, segment: int = SEGMENT, names: int = 64, **more: str) -> str:
    """Return a feed's file; `more`: lines behind the first ones, tables; segment 0: the bus's."""
    return (
        'name = "iex"\noutput = "store"\nrun.drain_ms = 60_000\n'
        f"window.slab_cells = 512\nobjects.max = 64\nring.names = {names}\n"
        + (f"store.segment_bytes = {segment}\n" if segment else "")
        + "".join(f"{line}\n" for line in more.values())
        + '[wire]\nframing = "iex_tp"\npayload = "iex_tops"\nstreams_max = 4\n'
        f'[[streams.lines]]\nname = "A"\naddress = "127.0.0.1:{port}"\n'
    )  # fmt: skip


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return a function that starts udpfast below `tmp_path`, and kill what it started."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "journals"))
    processes = []

    def begin(*arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "udpfast", *map(str, arguments)]
        processes.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def ready(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """Return a process that has said its first line; fail with whatever else it said."""
    assert process.stdout is not None
    patience = threading.Timer(PATIENCE_S, process.kill)
    patience.start()
    line = process.stdout.readline()
    patience.cancel()
    if "INFO udpfast" not in line:
        process.kill()  # it may go on, and would never come to an end of what it says
        raise AssertionError((line, *process.communicate()))
    return process


@pytest.mark.parametrize("end", ["exit(1)", "time.sleep(1e6)"])
def test_process_that_says_something_else_first_is_not_ready(end: str) -> None:
    code = f"import sys, time; print('why', file=sys.stderr); print('odd', flush=True); {end}"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", code], text=True, **pipes)
    with pytest.raises(AssertionError, match=r"'odd\\n', '', 'why\\n'"):
        ready(process)


def taken(name: str = "iex") -> int:
    """Return the messages that a feed has received."""
    return counters(name)["incremental"]["messages"]


def records(address: str, kinds: set[Kind] | None = None) -> list[Any]:
    """Return all that a store has, or all of some kinds."""
    found = []
    with Reader(address, start="begin", timeout=PATIENCE_S) as reader:
        while reader.wait(0.2):
            record = next(reader)
            if kinds is None or record.kind in kinds:
                found.append(record)
    return found


def described(store: Path) -> dict[str, Any]:
    """Return what a daemon says of a store; of one that said nothing so far, nothing."""
    try:
        return read_description(store)
    except FileNotFoundError:
        return {"feed": {"state": ""}, "waits": "", "end": 0}


def content(directory: Path) -> bytes:
    """Return all records of a store as bytes."""
    view = StoreView(directory)
    return b"".join(view.records(view.first()[0], 1 << 62))


def test_killed_feed_goes_on_in_its_store_and_nothing_is_lost(start: Start, tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "feed.toml"
    file.write_text(feed_tables(port))
    market, store = Market(port), tmp_path / "journals" / "iex"
    process = ready(start("run", file))
    market.send(1500)
    wait_until(lambda: taken() > 200, "messages")
    process.kill()
    process.communicate()
    counted = counters("iex")["feed"]["records"]
    with Reader("store:iex", start="begin", name="strategy") as reader:
        first = 0
        while reader.wait(0.2):
            first += next(reader).kind is not Kind.RESTART
        # A record is committed first, then counted.
        assert first - counted in (0, 1)
        process = ready(start("run", file))
        before = market.number
        market.send(3000)
        wait_until(lambda: taken() == market.number - before, "messages")
        second, said = [], []
        while reader.wait(0.5):
            record = next(reader)
            said.append(record.kind)
            if record.kind in QUOTES:
                second.append(record.symbol)
        assert said[0] is Kind.RESTART
        assert Counter(second) == Counter(SYMBOLS[n % 3] for n in range(before, market.number))
        assert Kind.LAPPED not in said
        status = read_status("iex")
        assert (status.life, status.epoch) == ("running", 2)
        assert (status.output, status.state) == ("store", "open")
        assert (list(read_host().instances), read_host().unreadable) == (["iex"], {})
        assert {one.name: one.lag for one in status.readers} == {"strategy": 0}
        assert read_losses(status.path).ledger.adds_up
        described = read_description(store)
        assert described["readers"][0]["name"] == "strategy"
    process.terminate()
    assert process.wait(PATIENCE_S) == 0
    restarts = records("store:iex", {Kind.RESTART})
    epochs = [int.from_bytes(bytes(each.payload)[:8], "little") for each in restarts]
    assert len(epochs) == 2
    assert epochs[0] < epochs[1]
    assert len({each.session for each in records("store:iex", QUOTES)}) == 2
    checks = list(verify_segments(store))
    assert len(checks) > 1
    assert not [problem for check in checks for problem in check.problems]
    stamps = [each.published_ns for each in records("store:iex")]
    assert stamps == sorted(stamps)


def test_feed_whose_store_has_a_damaged_end_says_so_and_goes_on_behind(
    start: Start, tmp_path: Path
) -> None:
    port = free_port()
    file = tmp_path / "feed.toml"
    file.write_text(feed_tables(port))
    market = Market(port)
    process = ready(start("run", file))
    market.send(300)
    wait_until(lambda: taken() == 300, "messages")
    process.kill()
    process.communicate()
    segment = max((tmp_path / "journals" / "iex").glob("0*.segment"))
    before = records("store:iex")
    last = before[-1]
    content = bytearray(segment.read_bytes())
    content[content.index(bytes(before[-40].payload))] ^= 1
    segment.write_bytes(content)
    process = ready(start("run", file))
    wait_until(lambda: any(record.kind is Kind.RESTART and record.index > last.index
                           for record in records("store:iex")), "the store to go on")  # fmt: skip
    said = read_description(tmp_path / "journals" / "iex")["said"]
    assert "are damaged or missing" in "".join(said)
    process.terminate()
    assert "are damaged or missing" in "".join(process.communicate())
    found = records("store:iex")
    missing = [record for record in found if record.kind is Kind.LAPPED]
    assert {record.data["reason"] for record in missing} == {LappedReason.DAMAGE}
    assert sum(record.lapped or 1 for record in found) == found[-1].index + 1


def bus_file(folder: Path, feed: Path) -> Path:
    """Write bus.toml of a feed's store with a copy, and a composite of it; return it."""
    file = folder / "bus.toml"
    file.write_text(
        '[hosts]\nS = "127.0.0.1"\none = "127.0.0.2"\n'
        f'[stores.iex]\nsequencer = "S"\nreplicas = ["one"]\nport = {free_port()}\n'
        f'feed = "{feed.name}"\nsegment_bytes = {SEGMENT}\nsync_ms = 5\n'
        f'[composites.all]\ninputs = ["iex"]\nhost = "one"\nport = {free_port()}\n'
    )
    return file


def bus(
    start: Start, tmp_path: Path, **more: str
) -> tuple[Market, Path, Callable[[str], subprocess.Popen[str]]]:
    """Return a market, bus.toml of its feed's store, and what runs one of its hosts."""
    port = free_port()
    feed = tmp_path / "feed.toml"
    feed.write_text(feed_tables(port, segment=0, **more))
    file = bus_file(tmp_path, feed)

    def run(host: str) -> subprocess.Popen[str]:
        return ready(start("bus", "run", file, "--host", host, "--directory", tmp_path / host))

    return Market(port), file, run


def test_feed_whose_host_lost_its_disk_goes_on_in_what_a_copy_has(
    start: Start, tmp_path: Path
) -> None:
    market, file, run = bus(start, tmp_path)
    own, copy = tmp_path / "S" / "iex", tmp_path / "one" / "iex"
    hosts = {host: run(host) for host in ("S", "one")}
    wait_until(lambda: described(own)["feed"]["state"] == "running", "the feed")
    market.send(300)
    wait_until(lambda: taken() == market.number, "messages")
    # What both daemons said of their ends may be equally old.
    wait_until(lambda: content(own) == content(copy), "the copy to be the same")
    hosts["S"].kill()
    hosts["S"].communicate()
    before = content(copy)
    shutil.rmtree(own)
    hosts["S"] = run("S")
    wait_until(lambda: "copies the store from one" in described(own)["waits"], "the word")
    assert described(own)["feed"]["state"] == "starting"
    assert described(own)["end"] == 0
    done = start("bus", "promote", file, "iex", "--host", "S", "--directory", tmp_path / "S",
                 "--wait", PATIENCE_S)  # fmt: skip
    assert done.wait(PATIENCE_S) == 0, done.communicate()
    wait_until(lambda: described(own)["feed"]["state"] == "running", "the feed")
    market.send(300)
    wait_until(lambda: taken() == 300, "messages")
    assert content(own).startswith(before)
    wait_until(lambda: content(own) == content(copy), "the copy to be the same")
    assert len(records(f"store:{copy}", QUOTES)) == 600
    hosts["S"].terminate()
    assert hosts["S"].wait(PATIENCE_S) == 0


def test_copies_and_composites_have_a_feeds_records_and_names(start: Start, tmp_path: Path) -> None:
    market, file, run = bus(start, tmp_path)
    own, copy = tmp_path / "S" / "iex", tmp_path / "one" / "iex"
    hosts = {host: run(host) for host in ("S", "one")}
    wait_until(lambda: described(own)["feed"]["state"] == "running", "the feed")
    market.send(1500)
    wait_until(lambda: taken() > 200, "messages")
    for host, process in hosts.items():
        process.kill()
        process.communicate()
        hosts[host] = run(host)
    before = market.number
    market.send(1500)
    wait_until(lambda: taken() == market.number - before, "messages")
    wait_until(lambda: content(copy) == content(own), "the copy")
    quotes = records(f"store:{copy}", QUOTES)
    known = [quote.symbol for quote in quotes[-1500:]]
    assert known == [SYMBOLS[n % 3] for n in range(before, market.number)]
    assert [each.position for each in quotes] == [
        each.position for each in records(f"store:{own}", QUOTES)
    ]
    wait_until(
        lambda: len(records(f"composite:{tmp_path / 'one' / 'all'}", QUOTES)) == len(quotes),
        "the composite",
    )
    composite = records(f"composite:{tmp_path / 'one' / 'all'}", QUOTES)
    assert [each.symbol for each in composite] == [each.symbol for each in quotes]
    shown = subprocess.run(
        [sys.executable, "-m", "udpfast", "bus", "stat", file, "--directory", tmp_path / "S"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for store in (own, copy):
        with pytest.raises(ConfigError, match="must name a store that apps write"):
            App(f"store:{store}", "app")
    assert "feed: running" in shown
    assert "copy one: 0 records" in shown
    refused = subprocess.run(
        [sys.executable, "-m", "udpfast", "bus", "promote", file, "iex", "--host", "one",
         "--directory", tmp_path / "one"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert refused.returncode == 1
    assert refused.stderr == ("udpfast: not promoted: this store is written by a feed\n")
    subprocess.run(
        [sys.executable, "-m", "udpfast", "record", f"composite:{tmp_path / 'one' / 'all'}",
         tmp_path / "all", "--end"],
        capture_output=True, check=True,
    )  # fmt: skip
    copied = records(f"journal:{tmp_path / 'all'}", QUOTES)
    assert [each.symbol for each in copied] == [each.symbol for each in quotes]
    for process in hosts.values():
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


ZMQ = "[zmq]\nenabled = true\n"


def subscriber(**options: Any) -> Reader:
    """Return a reader of what the feed sends by ZeroMQ."""
    wait_until(
        lambda: ("zmq", 0) in [(each.name, each.lag) for each in read_status("iex").readers],
        "the fan-out",
    )
    return Reader("zmq:iex?silent_ms=0", timeout=PATIENCE_S, **options)


def take(reader: Reader, pause_s: float = 0.5) -> list[tuple[int, Kind, bytes]]:
    """Return what comes until nothing does for a while, or the writer ends it."""
    found = []
    while reader.wait(pause_s):
        record = next(reader)
        found.append((record.index, record.kind, bytes(record.payload)))
    return found


def missed(found: list[tuple[int, Kind, bytes]]) -> int:
    """Return how many records LAPPED says are missing."""
    return sum(
        struct.unpack_from("<Q", payload)[0] for _, kind, payload in found if kind is Kind.LAPPED
    )


def stored(first: int) -> dict[int, tuple[int, Kind, bytes]]:
    """Return by its index each record that the store has from one on."""
    return {
        each.index: (each.index, each.kind, bytes(each.payload))
        for each in records("store:iex")
        if each.index >= first
    }


def theirs(
    found: list[tuple[int, Kind, bytes]], kept: dict[int, tuple[int, Kind, bytes]]
) -> list[tuple[int, Kind, bytes]]:
    """Return the store's records among those that a subscriber got; no other is there."""
    of_reader = {Kind.LAPPED, Kind.ROLLBACK}
    stored = [each for each in found if each[1] not in of_reader and each == kept.get(each[0])]
    others = [each for each in found if each not in stored]
    assert {kind for _, kind, _ in others} <= {*of_reader, Kind.CONNECTION}
    return stored


@pytest.mark.parametrize("processes", ["one", "each"])
def test_subscribers_get_what_the_store_has_until_its_feed_ends(
    processes: str, start: Start, tmp_path: Path
) -> None:
    port = free_port()
    file = tmp_path / "feed.toml"
    first = f"run.processes = {processes!r}"
    file.write_text(feed_tables(port, run=first, zmq=ZMQ))
    market = Market(port)
    process = ready(start("run", file))
    with subscriber() as reader:
        market.send(1500)
        wait_until(lambda: taken() == market.number, "messages")
        found = take(reader)
        joined = found[0][0]
        assert missed(found) == 0
        assert found == list(stored(joined).values())
        process.kill()
        process.communicate()
        process = ready(start("run", file))
        wait_until(lambda: taken() == 0, "the second feed")
        market.send(900)
        wait_until(lambda: taken() == 900, "messages")
        with subscriber(image=True) as late:
            kinds = [kind for _, kind, _ in take(late)]
            assert kinds.count(Kind.TOP_OF_BOOK) == len(SYMBOLS)
        found += take(reader)
        market.send(600)
        wait_until(lambda: taken() == 1500, "messages")
        process.terminate()
        found += take(reader, PATIENCE_S)
        assert process.wait(PATIENCE_S) == 0
        with pytest.raises(RingClosedError, match=r"the writer (has )?closed"):
            reader.poll(timeout=PATIENCE_S)
    kept = stored(joined)
    assert len(theirs(found, kept)) + missed(found) == len(kept)
    assert missed(found) < 1500  # what was sent while the reader was connecting again


def test_subscriber_is_told_what_a_store_lost_with_its_hosts_power(
    start: Start, tmp_path: Path
) -> None:
    port = free_port()
    file = tmp_path / "feed.toml"
    file.write_text(feed_tables(port, zmq=ZMQ))
    market, store, synced = Market(port), tmp_path / "journals" / "iex", tmp_path / "synced"
    process = ready(start("run", file))
    market.send(300)
    wait_until(lambda: taken() == 300, "messages")
    with subscriber() as reader:
        shutil.copytree(store, synced)  # what the disk has
        market.send(300)
        wait_until(lambda: taken() == 600, "messages")
        before = take(reader)
        process.kill()
        process.communicate()
        for kept in synced.iterdir():  # in place: a copy would be a journal of its own
            with (store / kept.name).open("r+b") as lost:
                lost.write(kept.read_bytes())
        ready(start("run", file))
        market.send(300)
        wait_until(lambda: taken() == 300, "messages")
        after = take(reader, 2.0)
        market.send(400)
        wait_until(lambda: taken() == 700, "messages")
        after += take(reader)
    assert len(before) == 300
    (rollback,) = (each for each in after if each[1] is Kind.ROLLBACK)
    count, position = struct.unpack("<QQ", rollback[2])
    assert count == 300
    restart = records("store:iex", {Kind.RESTART})[-1]
    assert position == restart.position
    assert Kind.TOP_OF_BOOK in [kind for _, kind, _ in after]
    assert {kind for _, kind, _ in after[: after.index(rollback)]} <= {Kind.CONNECTION}
    kept = stored(restart.index)
    assert len(theirs(after, kept)) + missed(after) == len(kept)


def test_late_reader_of_a_store_begins_with_its_image(start: Start, tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "feed.toml"
    image = "[image]\nenabled = true\ncapacity_bytes = 65536\nobjects = 64"
    file.write_text(feed_tables(port, image=image))
    market = Market(port)
    process = ready(start("run", file))
    market.send(900)
    wait_until(lambda: taken() == 900, "messages")
    status = read_status("iex")
    wait_until(lambda: [each.name for each in read_status("iex").readers] == ["image"], "it")
    assert status.output == "store"
    with Reader("store:iex", image=True, timeout=PATIENCE_S) as reader:
        market.send(300)
        wait_until(lambda: taken() == 1200, "messages")
        quotes = []
        while reader.wait(0.5):
            record = next(reader)
            if record.kind in QUOTES:
                quotes.append((record.symbol, float(record.data["bid_price"])))
        expected = [(SYMBOLS[n % 3], (n + 1) / 10_000) for n in range(897, 1200)]
        assert sorted(quotes[:3]) == sorted(expected[:3])
        assert quotes[3:] == expected[3:]
        assert reader.lag == 0
    process.terminate()
    assert process.wait(PATIENCE_S) == 0
    with pytest.warns(RuntimeWarning, match="its feed has ended, and wrote last at"):
        late = Reader("store:iex", image=True)
    with late:
        kinds = [next(late).kind for _ in range(2)]
        assert kinds[0] is Kind.CONNECTION and kinds[1] is not Kind.CONNECTION
        while late.wait(0):
            next(late)
        process = ready(start("run", file))
        assert Kind.RESTART in [record.kind for record in itertools.islice(late, 2)]
    process.terminate()
    assert process.wait(PATIENCE_S) == 0
    shutil.rmtree(tmp_path / "shm" / "iex")
    with pytest.raises(ImageError, match="its feed does not run on this host"):
        Reader("store:iex", image=True)


def test_subscribers_of_a_gated_store_wait_for_its_copy(start: Start, tmp_path: Path) -> None:
    market, file, run = bus(start, tmp_path, zmq=ZMQ)
    file.write_text(file.read_text().replace("sync_ms = 5\n", "sync_ms = 5\ngate = 1\n"))
    own = tmp_path / "S" / "iex"
    hosts = {host: run(host) for host in ("S", "one")}
    wait_until(lambda: described(own)["feed"]["state"] == "running", "the feed")
    with subscriber() as reader:
        market.send(300)
        found = take(reader)
        assert len([each for each in found if each[1] is Kind.TOP_OF_BOOK]) == 300
        hosts["one"].kill()
        hosts["one"].communicate()
        market.send(300)
        wait_until(lambda: taken() == 600, "messages")
        shown = take(reader)
        assert shown == []
        hosts["one"] = run("one")
        wait_until(lambda: described(own)["released"] == described(own)["end"], "the copy")
        shown = take(reader)
        assert len([each for each in shown if each[1] is Kind.TOP_OF_BOOK]) == 300
        assert missed(found + shown) == 0
        hosts["S"].terminate()
        take(reader, PATIENCE_S)
        assert hosts["S"].wait(PATIENCE_S) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_full_disk_is_counted_said_and_over_when_there_is_room(
    start: Start, tmp_path: Path
) -> None:
    disk = tmp_path / "journals"
    disk.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "none", disk],
        capture_output=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip("may not mount")
    try:
        _fill_and_free(start, tmp_path, disk)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def _fill_and_free(start: Start, tmp_path: Path, disk: Path) -> None:
    port = free_port()
    file = tmp_path / "feed.toml"
    # Its names take some kilobytes; the ballast goes when there shall be room.
    file.write_text(feed_tables(port, names=16))
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    ready(start("run", file))
    market = Market(port)
    journal = disk / "iex"
    while not read_description(journal)["problem"]:
        market.send(500)
    market.send(5000)
    wait_until(lambda: taken() == market.number, "messages")
    assert "No space left" in read_description(journal)["problem"]
    # While it is full, everybody sees how much is missing already.
    wait_until(lambda: read_description(journal)["dropped"] >= 1000, "drops that are counted")
    assert journal_state(journal).dropped >= 1000
    ballast.unlink()
    wait_until(lambda: not read_description(journal)["problem"], "room")
    market.send(10)
    wait_until(lambda: taken() == market.number, "messages")
    found = records("store:iex")
    lapped = [each for each in found if each.kind is Kind.LAPPED]
    said = [struct.unpack_from("<QI", each.payload) for each in lapped]
    assert {reason for _, reason in said} == {LappedReason.DISK}
    missed = sum(records for records, _ in said)
    kept = sum(each.kind in QUOTES for each in found)
    assert kept + missed == market.number
    assert missed >= 1000
    assert read_description(journal)["dropped"] == missed


def test_wrong_settings_are_one_line(start: Start, tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "feed.toml"

    def refused(*arguments: object) -> tuple[int, str]:
        process = start(*arguments)
        _, said = process.communicate(timeout=PATIENCE_S)
        return process.returncode, said

    for tables, said in (
        (
            feed_tables(port, table="[record]\nenabled = true"),
            'record.what: expected "raw" with output = "store" (a store is ',
        ),
        (feed_tables(port, segment=300_001), "expected a multiple of 4096"),
    ):
        file.write_text(tables)
        code, line = refused("run", file)
        assert code == 2
        assert said in line
        assert line.count("\n") == 1
    file.write_text(feed_tables(port))
    ready(start("run", file))
    code, line = refused("run", file)
    assert code == 3
    assert line.count("\n") == 1
    assert str(tmp_path / "journals" / "iex") in line
    other = tmp_path / "other.toml"
    other.write_text(feed_tables(port).replace('output = "store"\n', ""))
    bus = bus_file(tmp_path, other)
    code, line = refused("bus", "run", bus, "--host", "S", "--directory", tmp_path / "S")
    assert (code, line.count("\n")) == (2, 1)
    assert "stores.iex.feed: expected a feed with output = \"store\", found 'ring'" in line
