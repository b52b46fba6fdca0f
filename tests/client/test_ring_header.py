"""`udpfast.h` as a reader: a C program reads the same records and books as Python."""

import contextlib
import os
import random
import shutil
import struct
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import udpfast
from tests.cases import nightly
from tests.client.instance import Instance, NextWriter
from tests.client.ring_market import Market
from tests.client.test_dead_writer import STUCK_NS, die, fail, live
from tests.client.test_reader import feed_of_its_own, kill
from tests.shared import ROOT
from tests.test_header import compiler
from tests.waiting import PATIENCE_S, wait_until
from udpfast import Batch, Books, Kind, Reader, RecordFlag
from udpfast.core.clock import monotonic_ns
from udpfast.core.layout import (
    GAP,
    OBJECT_STATE,
    SESSION,
    ConnectionScope,
    ConnectionStatus,
    LappedReason,
    Stream,
)  # fmt: skip
from udpfast.errors import FormatError, RingClosedError
from udpfast.log.ring import RING_LAYOUT, Ring
from udpfast.market.updates import BOOK, PAYLOAD_HASH, TOP_OF_BOOK, TRADES
from udpfast.shm.region import Region

STRICT = (
    "-Wall", "-Wextra", "-Wshadow", "-Wcast-align", "-Werror", "-pedantic",
    f"-I{udpfast.get_include()}",
)  # fmt: skip
SANITIZED = ("-g", "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
DRIVERS = [
    ROOT / f"tests/client/{name}.c" for name in ("ring_driver", "bus_driver", "header_misuse")
]
EXAMPLES = sorted((ROOT / "docs/examples").glob("*.c"))
STARTS = {"tail": 0, "oldest": 1, "begin": 2}
FLIGHT_UNKNOWN = -(1 << 31)
SYMBOL_OFFSET = TOP_OF_BOOK.fields["symbol_id"][1]
UPDATE_HEADER_SIZE = TOP_OF_BOOK.fields["bid_price"][1]
#: In an update's `present`: the event goes on in the next update of the book.
PRESENT_MORE = 16
ENDED, ABSENT, NOT_READY, REFUSED, DAMAGED, REMOVED = -1, -32, -33, -34, -35, -36
CLOSED = -38
LOST = f" status {ConnectionStatus.DISCONNECTED:d} {ConnectionScope.WRITER:d}"
SEEDS = (*range(4), 1085, 1101)
MORE_SEEDS = range(4, 12)


class CReader:
    """The program `ring_driver`, which returns all new records for each line."""

    def __init__(
        self,
        program: Path,
        address: str,
        start: str = "tail",
        limit: int = 64,
        wait_ns: int | None = None,
    ) -> None:
        command = [str(program), address, str(STARTS[start]), str(limit)]
        command += [] if wait_ns is None else [str(wait_ns)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, errors="replace"
        )
        self.opened = self._line()

    def _line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().rstrip("\n")

    def read(self, request: str = "poll") -> list[str]:
        """Return records, books and, in the last line, the result of the last poll."""
        assert self.process.stdin
        self.process.stdin.write(f"{request}\n")
        self.process.stdin.flush()
        lines = [self._line()]
        while lines[-1] and lines[-1][0] not in "-0123456789":
            lines.append(self._line())
        return lines

    def close(self) -> None:
        """End it, so that sanitizers can report errors."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait() == 0


class PythonReader:
    """Return the same lines from `Reader` and `Books`."""

    def __init__(self, address: str, start: str = "tail") -> None:
        self.reader = Reader(address, start=start)
        self.books = Books()

    def read(self) -> list[str]:
        lines: list[str] = []
        applied, ended = 0, "0 "
        try:
            empty = 0
            while empty < 2:  # the first empty poll may have found the log's next file
                batch = self.reader.poll(1, timeout=0)
                empty = 0 if len(batch) else empty + 1
                if empty:
                    continue
                lines += self._said(batch)
                try:
                    applied += self.books.apply_batch(batch)
                except FormatError:
                    lines.append("failed")
        except RingClosedError:
            ended = f"{ENDED} "
        for (exchange, symbol), book in self.books.items():
            lines.append(
                f"book name {exchange} name {symbol} {book.stale:d} {book.removals_unknown} "
                f"{book.levels_refused} :{levels(book.bids())} :{levels(book.asks())}"
                f"{' partial' * book.partial}"
            )
        lines.append(f"books {len(self.books)} {self.books.unnamed} {self.books.contested}")
        return [*lines, f"applied {applied}", ended]

    def _said(self, batch: Batch) -> Iterator[str]:
        header, payload = batch.headers[0], bytes(batch.payload(0))
        if batch.lapped:
            yield (
                f"record {Kind.LAPPED:d} {header['index'] - np.uint64(batch.lapped)} "
                f"{header['position']} 0 {Stream.NONE:d} {FLIGHT_UNKNOWN} missed {batch.lapped} "
                f"{LappedReason.READER:d}"
            )
        line = "record " + " ".join(
            str(header[name])
            for name in ("kind", "index", "position", "number", "stream", "flight_ns")
        )
        if header["kind"] == Kind.CONNECTION:
            status, scope = struct.unpack_from("<II", payload)
            line += f" status {status} {scope}"
        elif header["kind"] >= Kind.BOOK and len(payload) >= UPDATE_HEADER_SIZE:
            (symbol,) = struct.unpack_from("<I", payload, SYMBOL_OFFSET)
            line += f" name {self.reader.names[symbol] or ''}"
        yield line


def levels(side: np.ndarray) -> str:
    return "".join(f" {price:.17g} {quantity:.17g}" for price, quantity in side.tolist())


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("driver") / "driver"
    subprocess.run(
        [compiler(), "-std=c11", *STRICT, *SANITIZED, "-o", target, DRIVERS[0]], check=True
    )
    return target


@pytest.fixture
def read(program: Path) -> Iterator[Callable[..., CReader]]:
    readers: list[CReader] = []

    def open_reader(*words: Any) -> CReader:
        readers.append(CReader(program, *words))
        return readers[-1]

    yield open_reader
    for reader in readers:
        reader.close()


Read = Callable[..., CReader]

C = ("gcc -std=c11", "clang -std=c11")
CPP = ("g++ -std=c++17 -x c++", "clang++ -std=c++17 -x c++")


# What a compiler warns of depends on how much it optimizes, which takes a quarter of a minute; what
# is C and no C++ it finds before that.
@pytest.mark.parametrize(
    ("command", "level"),
    [
        *product((*C, *CPP), ["-fsyntax-only"]),
        *nightly(*product((*C, *CPP), ["-O0", "-O1", "-O2", "-O3"])),
    ],
)
def test_header_and_examples_are_c_and_cpp_without_warnings(
    tmp_path: Path, command: str, level: str
) -> None:
    tool, *words = command.split()
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool} on this host")
    program = tmp_path / "program"
    behind = tmp_path / "behind.c"  # the C library was already told to hide what is not ISO C
    behind.write_text(
        '#include <stdio.h>\n#include <string.h>\n#include "udpfast.h"\n#include "udpfast_bus.h"\n'
        "int main(void) { return UDPFAST_RECORD_SIZE - 64; }\n"
    )
    assert len(EXAMPLES) >= 2
    for source in (*EXAMPLES, *DRIVERS, behind):
        whole = [tool, *words, level, *STRICT, "-o", str(program), str(source)]
        subprocess.run(whole, check=True)
    if level != "-fsyntax-only":
        assert subprocess.run([program], check=False).returncode == 0


@pytest.mark.parametrize("limit", [1, 4096])
@pytest.mark.parametrize("seed", [*SEEDS, *nightly(*MORE_SEEDS)])
def test_market_at_random_is_read_as_python_reads_it(
    read: Read, tmp_path: Path, seed: int, limit: int
) -> None:
    """With gaps, laps, sessions, restarts in the same or the next file, and late names."""
    market = Market(tmp_path / "feed", seed)
    ours, theirs = PythonReader(market.address), read(market.address, "tail", limit)
    assert theirs.opened == "0 open"
    for _ in range(60):
        market.go_on()
        assert theirs.read() == ours.read(), f"seed {seed}"
    market.close()
    expected, found = ours.read(), theirs.read()
    (lost,) = [line for line in found if line.endswith(LOST)]  # Python's reader tells its books
    assert [line for line in found[:-1] if line != lost] == expected[:-1], f"seed {seed}"
    assert found[-1].startswith(f"{ENDED} ")
    assert expected[-1] == f"{ENDED} "


def test_damaged_update_leaves_the_event_that_the_last_one_began(
    read: Read, instance: Instance
) -> None:
    ours, theirs = PythonReader(instance.address), read(instance.address)
    assert theirs.opened == "0 open"
    more = instance.update(BOOK, "binance-usdm", "BTCUSDT", present=PRESENT_MORE, update_type=1)
    for payload in (more.tobytes(), more.tobytes()[:-1]):
        instance.append(Kind.BOOK, payload, object_type=3, object_id=7)
    instance.ring.flush()
    lines = ours.read()
    assert "failed" in lines and sum(line.endswith(" partial") for line in lines) == 1
    assert theirs.read() == lines


def test_market_at_random_has_all_that_it_is_for(tmp_path: Path) -> None:
    """The markets of the comparison above have each of these often enough."""
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        market = Market(tmp_path / f"feed-{seed}", seed)
        ours = PythonReader(market.address)
        for _ in range(60):
            market.go_on()
            lines = ours.read()
            seen.update(f"kind {line.split()[1]}" for line in lines if line.startswith("record"))
            seen.update(
                f"stale {line.split(' :')[0].split()[-3]}"
                for line in lines
                if line.startswith("book ")
            )
            seen.update(line.split()[0] for line in lines)
            seen["contested"] += ours.books.contested
            seen["unnamed"] += ours.books.unnamed
        market.close()
    kinds = (
        Kind.GAP,
        Kind.SESSION,
        Kind.STALE,
        Kind.RECOVERED,
        Kind.RESTART,
        Kind.LAPPED,
        Kind.BOOK,
    )
    for what in (*[f"kind {kind:d}" for kind in kinds], "stale 0", "stale 1", "failed", "contested",
                 "unnamed"):  # fmt: skip
        assert seen[what] > 20, what


@pytest.mark.parametrize("ended", [False, True])
def test_open_that_waits_finds_the_next_writer(read: Read, tmp_path: Path, ended: bool) -> None:
    if ended:
        before = Instance(tmp_path / "feed")
        before.append(Kind.MESSAGE, b"before")
        before.close()
    made: list[Instance] = []
    writer = threading.Timer(0.05, lambda: made.append(Instance(tmp_path / "feed")))
    writer.start()
    theirs = read(f"ring:{tmp_path}/feed", "tail", 64, -1)
    writer.join()
    assert theirs.opened == "0 open"
    made[0].append(Kind.MESSAGE, b"after")
    made[0].ring.flush()
    assert len([line for line in theirs.read() if line.startswith("record ")]) == 1
    made[0].close()


def test_open_that_waited_in_vain_says_so_or_opens_the_ended_ring(
    read: Read, tmp_path: Path
) -> None:
    assert read(f"ring:{tmp_path}/feed", "tail", 64, 30_000_000).opened.startswith(f"{ABSENT} ")
    instance = Instance(tmp_path / "feed")
    instance.append(Kind.MESSAGE, b"before")
    instance.close()
    theirs = read(instance.address, "tail", 64, 30_000_000)
    assert theirs.opened == "0 open" and theirs.read()[-1].startswith(f"{ENDED} ")
    theirs = read(instance.address, "oldest", 64, -1)  # what it has is what is wanted
    assert (
        len([line for line in theirs.read() if line.startswith(f"record {Kind.MESSAGE:d} ")]) == 1
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("markt", "did you mean 'market'?"),
        ("ring:amrket", "did you mean 'market'?"),
        ("cme", "is its feed running (udpfast run)?"),
        ("x" * 200, "is its feed running (udpfast run)?"),
    ],
)
def test_missing_instance_is_told_a_similar_one(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    for there in ("market", "y" * 200, ".groups"):
        (tmp_path / there).mkdir(mode=0o700)
    opened = read(name).opened
    assert opened.startswith(f"{ABSENT} ") and opened.endswith(f"no such instance; {said}")


@pytest.mark.parametrize("start", STARTS)
def test_reader_begins_where_python_begins(read: Read, tmp_path: Path, start: str) -> None:
    market = Market(tmp_path / "feed", 1)
    market.instance.top(1.0, 2.0)
    market.instance.ring.flush()
    pairs = [(PythonReader(market.address, start), read(market.address, start))]
    while market.instance.ring.position < 10 * market.instance.ring.capacity_bytes:
        market.go_on(restarts=False)
        if start != "begin":
            pairs.append((PythonReader(market.address, start), read(market.address, start)))
            assert pairs[-1][1].read() == pairs[-1][0].read()
    for ours, theirs in pairs[:5]:
        assert theirs.read() == ours.read()
    if start == "begin":
        opened = read(market.address, start).opened
        assert opened.startswith(f"{DAMAGED} ")
        assert opened.endswith("its first record has been overwritten")
    market.close()


def test_lapped_reader_in_c_counts_every_record(read: Read, tmp_path: Path) -> None:
    instance = Instance(tmp_path / "feed", 1 << 14)
    reader = read(instance.address)
    got = missed = 0
    for number in (3, 500, 1, 0, 5000, 120):
        for _ in range(number):
            instance.append(Kind.MESSAGE, b"x" * 8)
        instance.ring.flush()
        lines = [line.split() for line in reader.read() if line.startswith("record")]
        missed += sum(int(words[8]) for words in lines if int(words[1]) == Kind.LAPPED)
        got += sum(int(words[1]) == Kind.MESSAGE for words in lines)
    assert missed > 5000
    assert got + missed == instance.ring.index
    instance.close()


def test_writer_that_dies_and_comes_back_is_said_in_band(read: Read, tmp_path: Path) -> None:
    child = feed_of_its_own(tmp_path / "feed", 3)
    reader = read(f"ring:{tmp_path / 'feed'}", "begin")
    assert sum(line.startswith(f"record {Kind.MESSAGE:d} ") for line in reader.read()) == 3
    kill(child)
    dead, ready = (
        f" status {status:d} {ConnectionScope.WRITER:d}"
        for status in (ConnectionStatus.DISCONNECTED, ConnectionStatus.READY)
    )
    assert reader.read("wait")[0].endswith(dead)
    child = feed_of_its_own(tmp_path / "feed", 1)
    assert reader.read("wait")[0].endswith(ready)
    assert reader.read("wait")[0].startswith(f"record {Kind.RESTART:d} ")
    assert reader.read("wait")[0].startswith(f"record {Kind.MESSAGE:d} ")
    kill(child)


@pytest.mark.parametrize("unread", [0, 3])
@pytest.mark.parametrize("failed", [False, True], ids=["killed", "failed"])
@pytest.mark.parametrize("middle", [0, 1, 200])
def test_reader_across_three_files_of_a_log_misses_what_python_misses(
    read: Read, tmp_path: Path, middle: int, failed: bool, unread: int
) -> None:
    directory = tmp_path / "feed"
    readers: list[Any] = []
    for place, records in enumerate((10, middle, 5)):
        instance = Instance(directory, 1 << (16 + place))
        if place == 0:
            readers = [PythonReader(instance.address), read(instance.address)]
        else:
            instance.ring.announce_restart(1)
        for number in range(records):
            instance.append(Kind.MESSAGE, bytes(20), session=1)
            if place == 0 and number == records - unread - 1:
                instance.ring.flush()
                assert readers[1].read() == readers[0].read()
        instance.ring.flush()
        instance.names_region.close()
        if place < 2 and failed:
            instance.ring.close(failed=True)
        elif place < 2:
            instance.ring.region.close()
    ours, theirs = (reader.read() for reader in readers)
    # What the file between had is missing, told by the first record behind it, or none was there.
    assert theirs == ours
    missed = sum(int(line.split(" missed ")[1].split()[0]) for line in theirs if "missed" in line)
    records = sum(line.startswith("record ") and "missed" not in line for line in theirs)
    assert missed + records == unread + (1 + middle) + (1 + 5)
    instance.ring.close()


@pytest.mark.parametrize("capacity", [1 << 20, 1 << 21], ids=["same file", "another file"])
def test_writer_that_failed_is_said_in_band_and_ends_no_reader(
    read: Read, instance: Instance, capacity: int
) -> None:
    reader = read(instance.address, "begin")
    instance.append(Kind.MESSAGE, b"x")
    instance.ring.close(failed=True)
    instance.names_region.close()
    assert reader.read("wait")[0].startswith(f"record {Kind.MESSAGE:d} 0 ")
    assert reader.read("wait")[0].endswith(LOST)
    with Ring.create(instance.directory, capacity, PAYLOAD_HASH) as ring:
        ring.announce_restart(1)
        found = reader.read("wait") + reader.read("wait")
    assert any(line.startswith(f"record {Kind.RESTART:d} 1 ") for line in found), found
    assert reader.read()[-1].startswith(f"{ENDED} ")


def test_log_that_another_one_replaced_is_lapped_by_an_unknown_number(
    read: Read, instance: Instance
) -> None:
    reader = read(instance.address)
    (instance.directory / "ring").unlink()
    with Ring.create(instance.directory, 1 << 20, PAYLOAD_HASH) as ring:
        ring.append(Kind.MESSAGE, b"x")
        ring.append(Kind.MESSAGE, b"x")
        assert reader.read("wait")[0].endswith(f" missed 1 {LappedReason.UNKNOWN:d}")
        assert reader.read("wait")[0].startswith(f"record {Kind.MESSAGE:d} 0 ")
        assert reader.read("wait")[0].startswith(f"record {Kind.MESSAGE:d} 1 ")


@pytest.mark.parametrize(("loss", "code"), [
    ("ended", ENDED), ("removed", REMOVED), ("damaged", DAMAGED),
])  # fmt: skip
def test_books_of_a_reader_that_lost_its_feed_are_stale(
    read: Read, instance: Instance, loss: str, code: int
) -> None:
    live(instance)
    ours, theirs = PythonReader(instance.address, "oldest"), read(instance.address, "oldest")
    assert book_of(ours.read()) == book_of(theirs.read()) == "0"
    if loss == "ended":
        instance.close()
    elif loss == "removed":
        (instance.directory / "ring").unlink()
    else:
        write_word(instance, instance.ring.position, 8 | Kind.MESSAGE << 32)
    said: list[str] = []
    wait_until(lambda: said.extend(theirs.read()) or said[-1].startswith(f"{code} "))
    assert sum(line.endswith(LOST) for line in said) == 1
    assert [line.split(" ")[5] for line in said if line.startswith("book name")][-1] == "1"
    with pytest.raises(FormatError) if loss == "damaged" else contextlib.nullcontext():
        wait_until(lambda: ours.read()[-1].startswith(f"{ENDED} "))
    assert [book.stale for book in ours.books.values()] == [True]


def test_ring_removed_while_its_writer_works_is_lost_once_and_for_good(
    read: Read, instance: Instance
) -> None:
    """Records come all the time: they are neither a new writer's nor a reason to go on."""
    live(instance)
    ours, theirs = Reader(instance.address, start="oldest"), read(instance.address, "oldest")
    books = Books(ours)
    books.poll()
    aside = (instance.directory / "ring").rename(instance.directory / "aside")
    said: list[str] = []

    def write() -> None:
        instance.append(Kind.MESSAGE, b"x")
        instance.ring.flush()

    def is_lost_in_c() -> bool:
        write()
        said.extend(theirs.read())
        return said[-1].startswith(f"{REMOVED} ")

    def is_lost_in_python() -> bool:
        write()
        try:
            books.poll(timeout=1)
        except RingClosedError:
            return True
        return False

    wait_until(is_lost_in_c)
    wait_until(is_lost_in_python)
    for turn in range(3):
        if turn == 2:
            aside.rename(instance.directory / "ring")  # put back: what was written since is lost
        write()
        said += theirs.read()
        with pytest.raises(RingClosedError):
            ours.poll(timeout=0)
    assert [line for line in said if " status " in line] == [
        line for line in said if line.endswith(LOST)
    ][:1]
    lost = said.index(next(line for line in said if line.endswith(LOST)))
    assert not [line for line in said[lost + 1 :] if line.startswith("record ")]
    assert [line for line in said if line.startswith("book name")][-1].split(" ")[5] == "1"
    assert [book.stale for book in books.values()] == [True]


def test_pad_of_a_whole_lap_is_damage(read: Read, instance: Instance) -> None:
    capacity = instance.ring.capacity_bytes
    write_word(instance, 0, capacity | Kind.PAD << 32)
    assert read(instance.address, "begin").read()[-1].startswith(f"{DAMAGED} ")
    with Reader(instance.address, start="begin") as reader, pytest.raises(FormatError):
        reader.poll(timeout=1)


def write_word(instance: Instance, position: int, word: int) -> None:
    """Write a commit word into a ring, as no writer does."""
    with (instance.directory / "ring").open("r+b") as file:
        file.seek(4096 + position % instance.ring.capacity_bytes)
        file.write(word.to_bytes(8, "little"))


@pytest.mark.parametrize("end", ["killed", "failed", "closed"])
def test_open_wait_waits_for_the_next_writer_however_the_last_one_ended(
    program: Path, instance: Instance, end: str
) -> None:
    instance.append(Kind.MESSAGE, b"before")
    {"killed": die, "failed": fail, "closed": Instance.close}[end](instance)
    writer = NextWriter(instance.directory)
    reader = CReader(program, instance.address, wait_ns=int(PATIENCE_S * 1e9))
    assert writer.begun.is_set()
    assert reader.opened.startswith("0 ")
    writer.instance().close()
    reader.process.kill()
    reader.process.communicate()


def test_ring_that_was_removed_never_looks_finished(read: Read, instance: Instance) -> None:
    reader = read(instance.address)
    (instance.directory / "ring").unlink()
    assert reader.read("wait")[0].endswith(LOST)
    assert reader.read("wait")[-1].startswith(f"{REMOVED} ")


def test_quote_without_doubt_is_told_from_one_in_doubt(tmp_path: Path, instance: Instance) -> None:
    """The example asks for every kind of update whether its object is in doubt."""
    target = tmp_path / "follow"
    source = ROOT / "docs/examples/follow.c"
    subprocess.run([compiler(), "-std=c11", *STRICT, "-O1", "-o", target, source], check=True)
    state = np.zeros((), OBJECT_STATE)
    state["object"] = 7
    where = {"object_id": 7, "session": 1}
    instance.append(Kind.SESSION, bytes(48), session=1)
    instance.append(Kind.RECOVERED, state.tobytes(), **where)
    instance.top(1.0, 2.0, **where)
    instance.append(Kind.STALE, state.tobytes(), **where)
    instance.top(2.0, 3.0, stream=1, **where)
    instance.append(Kind.RECOVERED, state.tobytes(), **where)
    instance.top(3.0, 4.0, **where)
    instance.append(Kind.GAP, np.array((5, 6, 2, 0, 1, 0), GAP).tobytes(), session=1)
    instance.top(4.0, 5.0, flags=RecordFlag.UNGATED, symbol="IEX", **where)
    instance.top(5.0, 6.0, stream=1, **where)
    instance.ring.close()
    output = subprocess.run([target, instance.address], capture_output=True, text=True, check=True)
    assert output.stdout.splitlines() == [
        "BTCUSDT 1 2", "BTCUSDT 2 3 stale", "BTCUSDT 3 4", "lost 2 messages", "IEX 4 5",
        "BTCUSDT 5 6 stale", "the feed is gone",
    ]  # fmt: skip


def doubts(reader: CReader) -> dict[str, int]:
    """Return what the last top (by symbol) and the last trades ("trades SYMBOL") are."""
    reader.read()
    found = {}
    for line in reader.read("doubts")[:-1]:
        _, kind, _, symbol, doubted = line.split()
        found["trades " * (int(kind) == Kind.TRADES) + symbol] = int(doubted)
    return found


def test_tops_and_trades_of_a_venue_are_in_doubt_from_a_loss_on(
    read: Read, instance: Instance
) -> None:
    """A feed of tops alone: STALE and RECOVERED name the instrument, and there is no book."""
    reader = read(instance.address, "begin")
    numbers = {"A": 5, "B": 6}
    session = np.array((0, 1, 1, 0, 1, 0, 0, 0), SESSION).tobytes()

    def say(kind: Kind, symbol: str, flags: int = 0, **fields: int) -> None:
        dtype = {Kind.TOP_OF_BOOK: TOP_OF_BOOK, Kind.TRADES: TRADES}.get(kind, OBJECT_STATE)
        payload = instance.update(dtype, "NASDAQ", symbol, **fields).tobytes()
        trades = 0x40000000 if kind == Kind.TRADES else 0
        instance.ring.append(
            kind, payload, flags=RecordFlag.UNGATED | flags, object=numbers[symbol] | trades,
            stream=2, session=1,
        )  # fmt: skip
        instance.ring.flush()

    def lose() -> None:
        lost = np.array((5, 6, 2, 0, 1, 0), GAP).tobytes()
        instance.append(Kind.GAP, lost, stream=2, session=1)
        instance.ring.flush()

    instance.append(Kind.SESSION, session, stream=2, session=1)
    for symbol in numbers:
        say(Kind.TOP_OF_BOOK, symbol)
        say(Kind.TRADES, symbol)
    assert doubts(reader) == {"A": 0, "B": 0, "trades A": 0, "trades B": 0}
    lose()
    assert doubts(reader) == {"A": 1, "B": 1, "trades A": 1, "trades B": 1}
    say(Kind.TRADES, "A", RecordFlag.DOUBT)
    assert doubts(reader)["trades A"] == 1
    say(Kind.RECOVERED, "A", continues=1)  # what it was holds on
    assert doubts(reader) == {"A": 0, "B": 1, "trades A": 1, "trades B": 1}
    say(Kind.TRADES, "A")
    say(Kind.TOP_OF_BOOK, "B")  # as one who says nothing but tops
    assert doubts(reader) == {"A": 0, "B": 0, "trades A": 0, "trades B": 1}
    say(Kind.STALE, "A")
    assert doubts(reader) == {"A": 1, "B": 0, "trades A": 1, "trades B": 1}
    say(Kind.RECOVERED, "A")
    say(Kind.TOP_OF_BOOK, "A")
    assert doubts(reader)["A"] == 0
    end = instance.ring.position + (2 << 20)
    while instance.ring.position < end:
        instance.append(Kind.MESSAGE, bytes(1000))
    say(Kind.TOP_OF_BOOK, "B")
    assert doubts(reader) == {"A": 1, "B": 0, "trades A": 1, "trades B": 1}
    instance.append(Kind.SESSION, session, stream=2, session=2)
    instance.ring.flush()
    assert doubts(reader)["B"] == 1
    say(Kind.TOP_OF_BOOK, "B")
    instance.append(Kind.SESSION, session, stream=3, session=2)
    instance.ring.flush()
    assert doubts(reader)["B"] == 0
    instance.ring.close()
    assert set(doubts(reader).values()) == {1}


def test_ring_whose_names_were_removed_is_said_to_have_no_books(read: Read, tmp_path: Path) -> None:
    directory = tmp_path / "feed"
    directory.mkdir(mode=0o700)
    update = np.zeros((), BOOK)
    update["exchange_id"], update["symbol_id"], update["update_type"] = 1, 2, 1
    with Ring.create(directory, 1 << 20, PAYLOAD_HASH, names=7) as ring:
        ring.append(Kind.BOOK, update.tobytes(), session=1)
        ring.flush()
        lines = read(f"ring:{directory}", "begin").read()
        assert "failed" in lines and "books 0 1 0" in lines
        with pytest.warns(
            RuntimeWarning, match="/names: there is none: the reader knows no"
        ) as said:
            reader = Reader(f"ring:{directory}", start="begin")
            books = Books(reader)
            books.poll()
        assert (len(said), len(books), books.unnamed) == (1, 0, 1)
        reader.close()


# --- mistakes of a program ------------------------------------------------------------------------


# --- damaged files --------------------------------------------------------------------------------


def test_instance_that_is_not_there_may_be_tried_again(read: Read, tmp_path: Path) -> None:
    for address in (f"ring:{tmp_path}/nothing", f"ring:{tmp_path}"):
        assert read(address).opened.startswith(f"{ABSENT} ")
    for address in ("ring:", "ring:..", "", "store:orders", "zmq:tcp://127.0.0.1:5555"):
        assert read(address).opened.startswith(f"{REFUSED} address must be 'ring:NAME'")


@pytest.mark.parametrize(("offset", "value", "said"), [
    (0, b"X", "expected a file of udpfast, found other bytes"),
    (8, b"\x07", "expected version 1, found 7: it is of another version of udpfast"),
    (12, b"NAME", "expected kind RING, found 'NAME'"),
    (16, b"\1\1\1\1\1\1\1\1", "found 0101010101010101: it is of another version of udpfast"),
    (24, b"\x01", "expected size"),
    (56, b"\x05", "expected ready 1, found 5"),
    (56, b"\x00", "expected ready 1, found 0"),
])  # fmt: skip
def test_header_that_differs_is_refused_with_both_values(
    read: Read, instance: Instance, offset: int, value: bytes, said: str
) -> None:
    instance.close()
    with (instance.directory / "ring").open("r+b") as file:
        file.seek(offset)
        file.write(value)
    opened = read(instance.address).opened
    code = NOT_READY if said.endswith("found 0") else REFUSED
    assert opened.startswith(f"{code} "), opened
    assert said in opened


def test_file_that_others_made_or_can_write_is_refused(
    read: Read, instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = instance.directory / "ring"
    ring.chmod(0o660)
    assert (
        "expected that only its owner may write, found mode 0660" in read(instance.address).opened
    )
    ring.chmod(0o600)
    instance.directory.chmod(0o770)
    assert "found mode 0770" in read(instance.address).opened
    instance.directory.chmod(0o700)
    kept = ring.rename(tmp_path / "kept")
    ring.symlink_to(kept)
    assert "found a symbolic link" in read(instance.address).opened
    ring.unlink()
    os.mkfifo(ring, 0o600)
    assert "expected a regular file" in read(instance.address).opened
    ring.unlink()
    ring.write_bytes(bytes(100))
    ring.chmod(0o600)
    assert read(instance.address).opened.startswith(f"{NOT_READY} ")
    ring.unlink()
    kept.rename(ring)
    if os.geteuid() == 0:
        os.chown(ring, 12345, -1)
        assert "expected owner 0 (or root), found 12345" in read(instance.address).opened
        for users, opens in (("nobody,12345", True), ("12344", False), ("no-such-user", False)):
            monkeypatch.setenv("UDPFAST_TRUST", users)
            assert (read(instance.address).opened == "0 open") == opens
        assert (
            "UDPFAST_TRUST: expected users, found 'no-such-user'" in read(instance.address).opened
        )


def test_ring_with_an_odd_capacity_is_refused(read: Read, tmp_path: Path) -> None:
    (tmp_path / "feed").mkdir(mode=0o700)
    with Region.create(
        tmp_path / "feed/ring", "RING", 4 * 4096, RING_LAYOUT ^ PAYLOAD_HASH
    ) as region:
        region.mark_ready()
        opened = read(f"ring:{tmp_path / 'feed'}").opened
    assert "expected a capacity that is a power of two and at least 4096, found 12288" in opened


@pytest.mark.parametrize("seed", range(30))
def test_damaged_ring_or_names_are_refused_and_never_crash(
    read: Read, tmp_path: Path, seed: int
) -> None:
    """Random bytes in records, headers and the name table give an error or other records."""
    rng = random.Random(seed)
    market = Market(tmp_path / "feed", seed)
    for _ in range(10):
        market.go_on(restarts=False)
    market.instance.ring.flush()
    readers = [read(market.address, start) for start in ("tail", "oldest")]
    for name, first in (("ring", 128), ("names", 4096)):
        path = market.instance.directory / name
        with path.open("r+b") as file:
            size = path.stat().st_size
            for _ in range(rng.choice((1, 10, 2000))):
                file.seek(rng.randrange(first, min(size, first + rng.choice((512, size)))))
                file.write(rng.randbytes(rng.choice((1, 8))))
    for reader in (*readers, *[read(market.address, start) for start in STARTS]):
        code, _, problem = reader.opened.partition(" ")
        assert code == "0" or int(code) in (REFUSED, DAMAGED, NOT_READY), reader.opened
        if code == "0":
            code, _, problem = reader.read()[-1].partition(" ")
            assert int(code) in (0, ENDED, REFUSED, DAMAGED, REMOVED)
        assert problem or code == "0"
    market.abandon()


def test_lap_does_not_end_the_doubt_of_a_loop_that_catches_up(read: Read, tmp_path: Path) -> None:
    instance = Instance(tmp_path / "feed")
    live(instance)
    instance.ring.note_current(monotonic_ns())
    theirs = read(instance.address, "oldest")
    assert book_of(theirs.read()) == "0"
    instance.ring.note_current(monotonic_ns() - STUCK_NS)
    wait_until(lambda: book_of(theirs.read()) == "1")
    end = instance.ring.position + (2 << 20)
    while instance.ring.position < end:
        instance.append(Kind.MESSAGE, bytes(1000))
    instance.ring.flush()
    lines = theirs.read()
    assert next(line for line in lines if line[:6] == "record").startswith(
        f"record {Kind.LAPPED:d} "
    )
    instance.append(Kind.RECOVERED, bytes(24), object_type=3, object_id=7, session=1)
    instance.book([(12, 1)], [(13, 1)], snapshot=True, stream=1, follows=50)
    instance.ring.flush()
    lines = theirs.read()
    assert f"record {Kind.BOOK:d} " in "".join(lines)
    assert book_of(lines) == "1"
    instance.ring.note_current(monotonic_ns())
    wait_until(lambda: book_of(theirs.read()) == "0")
    instance.close()


def book_of(lines: list[str]) -> str:
    """Return whether the only book is stale."""
    (line,) = [line for line in lines if line.startswith("book name")]
    return line.split(" ")[5]
