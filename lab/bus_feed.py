"""A feed whose store a bus copies, and recorders of its composite, under faults.

    market --UDP--> S: feed -> store iex --TCP--> one, its copy
           apps --> S: store orders ------TCP--> one, its copy
    composite all = orders + iex, ordered on one; a recorder on each host copies it to a journal

Each quote of the market carries its number. In one life of the feed, each number is in the store
once, or a GAP or a LAPPED says that it is missing; numbers grow from one life to the next. At the
end both hosts have the same records in all stores, and live readers have read exactly these. The
recorders were stopped and killed meanwhile, and yet their journals are equal to that of a recorder
which begins at the end.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import random
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from udpfast.archive.bus_files import read_description
from udpfast.cli.bus_hosts import STORE
from udpfast.cli.child import child_command
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind, LappedReason
from udpfast.log.verify import verify_segments
from udpfast.net.ports import free_port

from .bus_disk import SmallDisk
from .bus_trial import HOSTS, SETTINGS, BusTrial, expect

__all__ = ["fill_feed_disk", "fill_recorder_disk", "trouble_feed", "trouble_recorders"]

FEED, COMPOSITE = "iex", "all"
SEGMENT = 1 << 18
TABLES = """
[stores.iex]
sequencer = "S"
replicas = ["one"]
port = {}
feed = "iex.toml"
segment_bytes = 262144

[composites.all]
inputs = ["orders", "iex"]
host = "one"
replicas = ["S"]
port = {}
"""
#: The table of names is small, so that records fill a small disk, and not names.
FEED_FILE = """
name = "iex"
output = "store"
[wire]
framing = "iex_tp"
payload = "iex_tops"
[[streams.lines]]
name = "A"
address = "127.0.0.1:{}"
[ring]
names = 16
"""
SYMBOLS = (b"AAPL", b"MSFT", b"ZIEXT")
#: The most datagrams at once, the most messages in a datagram, and the longest pause.
BURST, MESSAGES, PAUSE_S = 20, 4, 0.04
#: A link is dead after 1 s of silence: a process is frozen for less than that, or for longer.
FROZEN_S = (0.3, 2.0)


class _Market:
    """Publishes quotes of IEX in a thread; the price of each quote is its number."""

    def __init__(self, port: int, seed: int) -> None:
        self.number = 0  # quotes sent
        self._offset = 0
        self._rng = random.Random(seed)
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._address = ("127.0.0.1", port)
        self._quiet = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(self._rng.random() * PAUSE_S):
            if self._quiet.is_set():
                self._publish(0)
                continue
            for _ in range(self._rng.randint(1, BURST)):
                self._publish(self._rng.randint(1, MESSAGES))

    def be_quiet(self) -> None:
        """From now on publish only heartbeats, so that the feed does not report a silent line."""
        self._quiet.set()

    def _publish(self, count: int) -> None:
        now_ns = time.time_ns()
        body = b""
        for number in range(self.number + 1, self.number + 1 + count):
            symbol = SYMBOLS[number % len(SYMBOLS)].ljust(8)
            quote = struct.pack("<cBq8sIqqI", b"Q", 0, now_ns, symbol, 100, number, number, 100)
            body += struct.pack("<H", len(quote)) + quote
        head = (1, 0, 0x8003, 1, 77, len(body), count, self._offset, self.number + 1, now_ns)
        self._sock.sendto(struct.pack("<BBHIIHHqqq", *head) + body, self._address)
        self.number += count
        self._offset += len(body)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._sock.close()


class _Numbers:
    """Checks that each quote is there once, or reported as missing."""

    def __init__(self) -> None:
        self.last = self.quotes = self.lives = self.gaps = self.dropped = 0
        self._told: int | None = None  # missing by reports since the last quote; None: a new life

    def take(self, record: Any) -> None:
        if record.kind is Kind.RESTART:
            self.lives += 1
            self._told = None
        elif record.kind is Kind.GAP:
            self.gaps += int(record.data["count"])
            self._tell(int(record.data["count"]))
        elif record.kind is Kind.LAPPED:
            expect(record.data["reason"] == LappedReason.DISK, f"no loss but the disk's: {record}")
            self.dropped += record.lapped
            self._tell(record.lapped)
        elif record.kind is Kind.TOP_OF_BOOK:
            number = round(float(record.data["bid_price"]) * 10_000)
            missing = number - self.last - 1
            expect(missing >= 0, f"a number above {self.last}, found {number}")
            expect(
                self._told is None or missing == self._told,
                f"{self._told} quotes missing before {number}, as was said, found {missing}",
            )
            expect(record.symbol.encode() == SYMBOLS[number % len(SYMBOLS)], "the name of a quote")
            self.last, self._told = number, 0
            self.quotes += 1

    def _tell(self, count: int) -> None:
        if self._told is not None:
            self._told += count


class _Witness:
    """A live reader that continues whatever happens to daemons, with a digest of its records."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.count = 0
        self._digest = hashlib.sha256()
        self._reader = Reader(address, start="begin")

    def look(self) -> None:
        """Read all new records."""
        while self._reader.wait(0):
            record = next(self._reader)
            if record.kind is not Kind.CONNECTION:
                self._digest.update(_essence(record))
                self.count += 1

    def close(self) -> str:
        self._reader.close()
        return self._digest.hexdigest()


def _essence(record: Any) -> bytes:
    # The part of a record that is the same for all readers of a store or a composite.
    fields = (record.kind, record.index, record.number, record.session, record.published_ns,
              record.received_ns)  # fmt: skip
    return repr(fields).encode() + bytes(record.payload)


class FeedTrial(BusTrial):
    """Hosts of a bus with apps, a feed, a composite of both, and one recorder of it per host."""

    def __init__(self, folder: Path, seed: int) -> None:
        feed_port, *ports = (free_port() for _ in range(3))
        super().__init__(folder, seed, SETTINGS, tables=TABLES.format(*ports))
        (folder / "iex.toml").write_text(FEED_FILE.format(feed_port))
        self._shm = os.environ.get("UDPFAST_SHM")
        os.environ["UDPFAST_SHM"] = str(folder / "shm")
        self.recorders: dict[str, subprocess.Popen[bytes]] = {}
        self._said: dict[str, int] = {}  # bytes in the log of a recorder before it began
        self.witnesses: list[_Witness] = []
        self._market_port = feed_port
        self.market: _Market | None = None

    def close(self) -> None:
        """End all processes and threads."""
        if self.market is not None:
            self.market.close()
        for recorder in self.recorders.values():
            recorder.kill()
            recorder.wait()
        super().close()
        if self._shm is None:
            del os.environ["UDPFAST_SHM"]
        else:
            os.environ["UDPFAST_SHM"] = self._shm

    def processes(self) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
        """Iterate over daemons and recorders."""
        yield from super().processes()
        for host, recorder in self.recorders.items():
            yield f"the recorder of {host}", recorder

    def begin_all(self) -> None:
        """Start daemons, apps, the market, the recorders and the live readers."""
        self.begin("one")
        self.market = _Market(self._market_port, self.rng.getrandbits(64))
        self.until(lambda: self.quotes("one") > 100, "quotes in the copy", self.look)
        self.until(self._has_composite, "a composite on both hosts", self.look)
        for host in HOSTS:
            self.record(host)
            self.witnesses += [_Witness(f"store:{self.path(host, FEED)}"),
                               _Witness(f"composite:{self.path(host, COMPOSITE)}")]  # fmt: skip

    def _has_composite(self) -> bool:
        try:
            return all(self.lives(host, COMPOSITE).end for host in HOSTS)
        except FileNotFoundError:
            return False

    def quotes(self, host: str) -> int:
        """Return how many records of the feed a host has; 0 before it has the store."""
        try:
            return int(read_description(self.path(host, FEED))["records"])
        except FileNotFoundError:
            return 0

    def kept(self, host: str) -> Path:
        """Return the directory of the journal that the recorder of a host writes."""
        return self.folder / f"kept-{host}" / "journal"

    def record(self, host: str) -> None:
        """Start the recorder of a host."""
        with (self.folder / f"record-{host}.log").open("ab") as log:
            self._said[host] = log.tell()
            self.recorders[host] = subprocess.Popen(
                child_command("record", f"composite:{self.path(host, COMPOSITE)}",
                              str(self.kept(host)), "--segment-bytes", str(SEGMENT)),
                stdout=log, stderr=log,
            )  # fmt: skip

    def stop_recorder(self, host: str) -> None:
        """Stop the recorder of a host cleanly, as soon as it has begun."""
        log = self.folder / f"record-{host}.log"
        self.until(lambda: log.stat().st_size > self._said[host], "a recorder that begins")
        _end(self.recorders[host])

    def look(self) -> None:
        """Check that apps have read nothing wrong, and let the live readers read."""
        super().look()
        for witness in self.witnesses:
            witness.look()

    def more(self, *hosts: str, records: int = 100) -> None:
        """Wait until some hosts, or all, have more records of the feed."""
        before = {host: self.quotes(host) for host in hosts or HOSTS}
        self.until(
            lambda: all(self.quotes(host) >= known + records for host, known in before.items()),
            f"more of the feed on {', '.join(before)}", self.look,
        )  # fmt: skip

    def end(self) -> dict[str, Any]:
        """Stop everything, check all records, and return counts of them."""
        assert self.market is not None
        self.more()
        self.market.be_quiet()
        # Records of the last datagrams reach the store as soon as the feed is idle.
        self.until(self._is_all_there, "the last quote in both copies", self.look)
        found = self.finish()
        self.until(self._is_composed, "the whole composite on both hosts", self.look)
        for store in (FEED, COMPOSITE):
            digests = {host: self.copy(host, store=store).sha256 for host in HOSTS}
            expect(len(set(digests.values())) == 1, f"the same {store} on all hosts: {digests}")
        for host in HOSTS:
            self.stop_recorder(host)
            self._record_rest(host, self.kept(host))
            self._record_rest(host, self.folder / f"late-{host}")
        copies = [each for host in HOSTS
                  for each in (self.kept(host), self.folder / f"late-{host}")]  # fmt: skip
        for copy in copies[1:]:
            _expect_same(f"journal:{copies[0]}", f"journal:{copy}")
        for directory in copies:
            problems = [each for check in verify_segments(directory) for each in check.problems]
            expect(not problems, f"a sound journal in {directory}, found {problems}")
        for witness in self.witnesses:
            self.until(functools.partial(_has_read_all, witness), "all to be read", witness.look)
            expect(witness.close() == _digest(witness.address), f"what is in {witness.address}")
        numbers = self._numbers("S")
        expect(numbers.last == self.market.number, "the last quote")
        return {"quotes": numbers.quotes, "lives": numbers.lives, "lost by the network":
                numbers.gaps, "dropped": numbers.dropped, **found}  # fmt: skip

    def _is_all_there(self) -> bool:
        assert self.market is not None
        return self.are_equal(FEED) and self._last_quote() == self.market.number

    def _last_quote(self) -> int:
        with Reader(f"store:{self.path('one', FEED)}", start="begin") as reader:
            numbers = [0]
            while reader.wait(0):
                record = next(reader)
                quote = record.data
                if record.kind is Kind.TOP_OF_BOOK and quote is not None:
                    numbers.append(round(float(quote["bid_price"]) * 10_000))
        return numbers[-1]

    def _is_composed(self) -> bool:
        records = sum(_count(f"store:{self.path('one', store)}") for store in (STORE, FEED))
        return self.are_equal(COMPOSITE) and all(
            _count(f"composite:{self.path(host, COMPOSITE)}") == records for host in HOSTS
        )

    def _numbers(self, host: str) -> _Numbers:
        numbers = _Numbers()
        for record in _all(f"store:{self.path(host, FEED)}"):
            numbers.take(record)
        return numbers

    def _record_rest(self, host: str, journal: Path) -> None:
        subprocess.run(
            child_command("record", f"composite:{self.path(host, COMPOSITE)}", str(journal),
                          "--segment-bytes", str(SEGMENT), "--end"),
            check=True, capture_output=True,
        )  # fmt: skip


def _all(address: str) -> Iterator[Any]:
    # Yield all records from the first on, except CONNECTION.
    with Reader(address, start="begin") as reader:
        while reader.wait(0):
            record = next(reader)
            if record.kind is not Kind.CONNECTION:
                yield record


def _expect_same(address: str, other: str) -> None:
    pairs = itertools.zip_longest(_all(address), _all(other))
    for number, pair in enumerate(pairs):
        one, two = ("nothing" if each is None else _essence(each) for each in pair)
        expect(one == two, f"record {number} of {address} in {other}, {one!r}, found {two!r}")


def _digest(address: str) -> str:
    digest = hashlib.sha256()
    for record in _all(address):
        digest.update(_essence(record))
    return digest.hexdigest()


def _count(address: str) -> int:
    return sum(1 for _ in _all(address))


def _has_read_all(witness: _Witness) -> bool:
    return witness.count == _count(witness.address)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    expect((code := process.wait()) == 0, f"a process to end in good order, found {code}")


def _trouble(
    trial: FeedTrial,
    process: subprocess.Popen[bytes],
    stop: Callable[[], object],
    again: Callable[[], object],
) -> str:
    # Stop, kill or freeze a process. If it has ended, start it again after a while.
    what = trial.rng.choice(("stopped", "killed", "frozen"))
    pause_s = trial.rng.uniform(*FROZEN_S)
    if what == "frozen":
        process.send_signal(signal.SIGSTOP)
        _wait(trial, pause_s)
        process.send_signal(signal.SIGCONT)
        return what
    if what == "stopped":
        stop()
    else:
        process.kill()
        process.wait()
    _wait(trial, pause_s / 2)
    again()
    return what


def _wait(trial: FeedTrial, pause_s: float) -> None:
    until = time.monotonic() + pause_s
    trial.until(lambda: time.monotonic() > until, "time to pass", trial.look)


def trouble_feed(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Stop, kill and freeze the daemon that receives a feed into its store, and the copying one."""
    found = dict.fromkeys(("stopped", "killed", "frozen"), 0)
    with FeedTrial(folder, seed) as trial:
        trial.begin_all()
        for _ in range(times):
            host = trial.rng.choice(list(HOSTS))
            daemon = trial.daemons[host]
            stop, again = functools.partial(_end, daemon), functools.partial(trial.start, host)
            found[_trouble(trial, daemon, stop, again)] += 1
            if trial.rng.random() < 0.7:  # otherwise the daemon may not be ready yet
                trial.wait_for_stream(host)
                trial.more(records=trial.rng.randint(1, 1000))
        for host in HOSTS:
            trial.wait_for_stream(host)
        return {**found, **trial.end()}


def trouble_recorders(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Stop, kill and freeze recorders of a composite, and sometimes kill a daemon."""
    found = dict.fromkeys(("stopped", "killed", "frozen"), 0)
    with FeedTrial(folder, seed) as trial:
        trial.begin_all()
        for _ in range(times):
            host = trial.rng.choice(list(HOSTS))
            if trial.rng.random() < 0.2:
                trial.kill(host)
                trial.start(host)
            stop = functools.partial(trial.stop_recorder, host)
            again = functools.partial(trial.record, host)
            found[_trouble(trial, trial.recorders[host], stop, again)] += 1
            trial.more(records=trial.rng.randint(1, 300))
        for host in HOSTS:
            trial.wait_for_stream(host)
        return {**found, **trial.end()}


def fill_feed_disk(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Fill the disk of the host that receives a feed: the loop continues, and reports it."""
    with SmallDisk(folder / "S" / FEED) as disk, FeedTrial(folder, seed) as trial:
        trial.begin_all()
        for _ in range(times):
            trial.until(lambda: _feed_state(trial)["problem"], "a full disk", trial.look)
            _wait_for_drops(trial)
            disk.grow(trial.rng.randint(1, 3))
            trial.until(lambda: not _feed_state(trial)["problem"], "room on the disk", trial.look)
        disk.grow(1024)
        trial.more()
        found = trial.end()
        expect(found["dropped"] == _feed_state(trial)["dropped"], "what was dropped to be said")
        return {"full": times, **found}


def _wait_for_drops(trial: FeedTrial) -> None:
    dropped = _feed_state(trial)["dropped"]
    trial.until(lambda: _feed_state(trial)["dropped"] > dropped, "drops", trial.look)


def _feed_state(trial: FeedTrial) -> dict[str, Any]:
    return read_description(trial.path("S", FEED))


def fill_recorder_disk(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Fill the disk of a recorder: it ends, and continues once there is room."""
    with SmallDisk(folder / "kept-S") as disk, FeedTrial(folder, seed) as trial:
        trial.begin_all()
        for _ in range(times):
            trial.until(trial.recorders["S"].poll, "a full disk", trial.look)
            said = (folder / "record-S.log").read_text().splitlines()[-1]
            expect("No space left" in said, f"a word about the disk, found {said}")
            disk.grow(trial.rng.randint(1, 3))
            trial.record("S")
        disk.grow(1024)
        if trial.recorders["S"].poll() is not None:
            trial.record("S")
        return {"full": times, **trial.end()}
