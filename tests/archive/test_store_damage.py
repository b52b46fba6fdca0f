"""A damaged file of a store is copied again from another host, or the store is refused."""

import os
import random
from pathlib import Path

import pytest

from lab.bus_damage import HOWS, damage_file, store_files
from tests.archive.test_store import BYTES, content
from tests.bus.drive import MS, T0, Copy, lead, outbox, outbox_sender, register
from tests.cases import nightly
from udpfast.agents.bus.store_disk import StoreDisk
from udpfast.archive.bus_files import Live, shared_directory
from udpfast.archive.store import StoreLog
from udpfast.archive.store_names import StoreNames
from udpfast.bus.log import Store
from udpfast.bus.outbox import OutboxState
from udpfast.bus.outbox_sender import OutboxSender
from udpfast.bus.sequencer import Sequencer
from udpfast.bus.wire import send_datagram
from udpfast.config.bus import StoreConfig
from udpfast.errors import FormatError, RegionError
from udpfast.log.segment import segment_path
from udpfast.market.names import NameTable
from udpfast.shm.names import names_table

#: Number of records of the largest size that fill four segments.
MESSAGES = 650
NAMES = [f"instrument-{number}".encode() for number in range(100)]


def opened(folder: Path, host: str) -> Store:
    return Store(StoreLog(folder, "orders", segment_bytes=BYTES, copied=True), host)


def follow(source: Store, copy: Store) -> None:
    """Copy everything, with room for each segment as it is needed."""
    link = Copy(source, copy, any_source=True, drain=True)
    for _ in range(60):
        link.pump()
        if copy.log.identity != bytes(16):
            copy.log.keep()
        link.work(MS)
    link.source.close("over")


def build(folder: Path, *, killed: bool) -> None:
    """Leave the stores of a writer and of its copy as `kill -9` or a clean stop does."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            write(folder, killed=killed)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(process, 0)[1] == 0


def write(folder: Path, *, killed: bool) -> None:
    log = StoreLog(folder / "S", "orders", segment_bytes=BYTES, create=True)
    table = NameTable(names_table(log.begin_names(256)))
    for name in NAMES:
        table.intern(name)
    seq = lead(Store(log, "S"))
    register(seq)
    for number in range(1, MESSAGES + 1):
        seq.receive(
            send_datagram(seq.store.key, seq.store.epoch, 1, 1, number, 1, [(1, bytes(1388))]),
            MS, T0 + MS,
        )  # fmt: skip
        log.keep(sync=number % 100 == 0)
    log.flush()
    other = opened(folder / "one", "one")
    follow(seq.store, other)
    other.log.flush()
    assert content(other) == content(seq.store)
    assert log.count == 4
    if not killed:
        other.log.close()
        log.close()


LOGGED = [
    *("journal", "state", "layouts", "names", "middle", "last"),
    *nightly("first", "last but one"),
]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("what", LOGGED)
@pytest.mark.parametrize("role", ["S", "one"])
def test_store_with_a_damaged_file_is_whole_again(
    tmp_path: Path, role: str, what: str, how: str
) -> None:
    for seed in range(2):
        rng = random.Random(f"{role} {what} {how} {seed}")
        folder = tmp_path / str(seed)
        build(folder, killed=bool(seed % 2))
        other = opened(folder / ("one" if role == "S" else "S"), "other")
        damage_file(store_files(folder / role)[what], how, rng)
        try:
            store = opened(folder / role, role)
        except RegionError as refused:
            assert str(folder) in str(refused)
        else:
            # The seal of an early segment hides this damage; `udpfast verify` finds it.
            check(store, other, early=what in ("first", "middle") and how in ("zeroed", "flipped"))
            if what == "names":
                check_names(store)
            store.log.close()
        other.log.close()


def check(store: Store, other: Store, *, early: bool) -> None:
    """Check that an opened copy is a prefix of another one, and becomes equal to it."""
    expected = content(other)
    begin = store.log.first()[0]
    if not early:
        assert expected[begin:].startswith(content(store))
        assert bool(store.log.notes) or store.end == other.end
    follow(other, store)
    assert (store.end, store.epoch) == (other.end, other.epoch)
    assert store.log.last == other.log.last
    assert store.lineage.pairs == other.lineage.pairs
    if not early:
        assert content(store) == expected[begin:]


def check_names(store: Store) -> None:
    """Check that a copy has all names again, or reports what is wrong with its file."""
    try:
        table = StoreNames(store.log.directory).table(1)
        found = [table.bytes(number) for number in range(1, len(table) + 1)]
    except (FileNotFoundError, FormatError):
        found = []
    assert found == NAMES or any(".names" in note for note in store.log.notes)


@pytest.mark.parametrize("how", HOWS)
def test_daemon_goes_on_whatever_it_said_of_itself_before(tmp_path: Path, how: str) -> None:
    settings = StoreConfig("S", 9400, segment_bytes=BYTES, replicas=("one",))
    build(tmp_path, killed=True)
    for seed in range(10):
        disk = StoreDisk(tmp_path / "one", "orders", "one", settings, create=False)
        disk.tell(following=True)
        if seed:
            assert Live(tmp_path / "one").read().end == disk.store.end
            assert Live(tmp_path / "one").shared == shared_directory(tmp_path / "one")
        disk.end(disk.description())
        damage_file(store_files(tmp_path / "one")["live"], how, random.Random(seed))


def deliver(seq: Sequencer, carried: OutboxSender) -> None:
    for datagram in carried.work(MS, True):
        seq.receive(datagram, MS, T0 + MS)


@pytest.mark.parametrize("number", [0, 3, 100, 150, 190])
def test_store_that_nobody_copies_knows_senders_and_messages_behind_damage(
    tmp_path: Path, number: int
) -> None:
    alone = Store(StoreLog(tmp_path, "orders", segment_bytes=BYTES, create=True), "S")
    seq, box = lead(alone), outbox(slots=256)
    carried, watch = outbox_sender(seq, box)
    deliver(seq, carried)
    watch.work()  # it is registered
    for _ in range(199):
        box.send(b"x")
    deliver(seq, carried)
    places = [int.from_bytes(each[8:16], "little") for each in alone.log.records(0, alone.end)]
    alone.log.close()
    path = segment_path(tmp_path, 1)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - BYTES + places[number])
        file.write(bytes(8))
    alone = Store(StoreLog(tmp_path, "orders", segment_bytes=BYTES, create=True), "S")
    later = lead(alone)
    assert [sender["next"] for sender in later.known()] == [200]
    _, watch = outbox_sender(later, box)
    watch.work()
    assert box.state is OutboxState.REGISTERED
    assert box.counts()["seen"] == 199
    alone.log.close()
