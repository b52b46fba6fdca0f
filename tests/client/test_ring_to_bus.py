"""The example `ring_to_bus.c`: a strategy that reads a feed's ring and sends into a store."""

import mmap
import select
import signal
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bus.drive import sequenced
from tests.client.instance import Instance
from tests.client.test_bus_header import SANITIZED, STRICT, kept
from tests.client.test_image_header import keeper_of
from tests.client.test_image_join import ALWAYS
from tests.client.test_store_source import Kept
from tests.shared import ROOT
from tests.test_header import compiler
from tests.waiting import PATIENCE_S
from udpfast.archive.bus_files import shared_directory
from udpfast.bus.outbox import Outbox
from udpfast.core.layout import Kind

__all__ = ["kept"]  # a fixture

Start = Callable[[Instance], "subprocess.Popen[str]"]

BUYERS, SELLERS = ([(100.0, 9.0)], [(101.0, 2.0)]), ([(100.0, 1.0)], [(101.0, 4.0)])


@contextmanager
def daemon(kept: Kept) -> Iterator[None]:
    """Say all the time that the store's daemon works, and at the end that it does not."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.05):
            kept.tell()

    kept.tell()
    teller = threading.Thread(target=work)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
        kept.tell(ago_ns=1_000_000_000)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("strategy") / "ring_to_bus"
    source = ROOT / "docs/examples/ring_to_bus.c"
    subprocess.run([compiler(), "-std=c11", *STRICT, *SANITIZED, "-o", target, source], check=True)
    return target


@pytest.fixture
def start(program: Path, kept: Kept) -> Iterator[Start]:
    """Start it, and return it when it is ready; its output has both streams."""
    started: list[subprocess.Popen[str]] = []

    def begin(instance: Instance) -> subprocess.Popen[str]:
        words = [program, instance.address, f"store:{kept.folder}", "imbalance-1", "3"]
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        started.append(process)
        assert process.stdout
        assert "ready\n" in iter(process.stdout.readline, "")
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().rstrip()


def publish(
    instance: Instance, sides: tuple[list[tuple[float, float]], list[tuple[float, float]]]
) -> None:
    instance.book(*sides, snapshot=True)
    instance.ring.flush()


def begin(instance: Instance) -> None:
    instance.append(Kind.SESSION, bytes(48), session=1)
    instance.append(Kind.RECOVERED, bytes(24), object_type=3, object_id=7, session=1)


def test_strategy_sends_what_sound_books_say(start: Start, instance: Instance, kept: Kept) -> None:
    with daemon(kept):
        strategy = start(instance)
        begin(instance)
        for bid, ask in ((9.0, 2.0), (9.5, 2.0), (1.0, 4.0), (1.0, 1.0), (9.0, 1.0)):
            instance.book([(100.0, bid)], [(101.0, ask)], snapshot=True)
        instance.append(Kind.STALE, bytes(24), object_type=3, object_id=7, session=1)
        instance.book([(100.0, 1.0)], [(101.0, 9.0)], snapshot=True)  # the feed is in doubt of it
        instance.ring.close()
        told, _ = strategy.communicate(timeout=PATIENCE_S)
    assert strategy.returncode == 0
    assert told.splitlines() == [
        "order 1: buy BTCUSDT at 101",
        "order 2: sell BTCUSDT at 100",
        "order 3: buy BTCUSDT at 101",
    ]  # fmt: skip
    with (shared_directory(kept.store.log.directory) / "imbalance-1.outbox").open("r+b") as file:
        box = Outbox(mmap.mmap(file.fileno(), 0))
    seq = sequenced(box, 5)
    found = [record for record in seq.store.log.records(0, seq.store.end) if record[4] == Kind.BUS]
    orders = [struct.unpack_from("<64sdqI", record, 64) for record in found]
    assert [(symbol.rstrip(b"\0"), price, side) for symbol, price, _, side in orders] == [
        (b"BTCUSDT", 101.0, 1), (b"BTCUSDT", 100.0, 2), (b"BTCUSDT", 101.0, 1),
    ]  # fmt: skip


def test_strategy_sends_nothing_while_the_bus_takes_nothing_and_says_so(
    start: Start, instance: Instance, kept: Kept
) -> None:
    with daemon(kept):
        strategy = start(instance)
        begin(instance)
        publish(instance, BUYERS)
        assert line(strategy) == "order 1: buy BTCUSDT at 101"
    for _ in range(3):
        publish(instance, SELLERS)
    assert line(strategy) == (
        "ring_to_bus: the bus takes no orders: 1 sent before are not in its stream yet"
    )
    with daemon(kept):
        publish(instance, SELLERS)
        assert [line(strategy), line(strategy)] == [
            "ring_to_bus: the bus takes orders again", "order 2: sell BTCUSDT at 100",
        ]  # fmt: skip


def test_strategy_that_was_lapped_joins_again_and_trades_on(
    start: Start, tmp_path: Path, kept: Kept
) -> None:
    instance = Instance(tmp_path / "feed", 1 << 16)
    keeper = keeper_of(instance.directory)

    def keep() -> None:
        instance.ring.flush()
        while keeper.work(ALWAYS):
            pass
        keeper.publish()

    begin(instance)
    keep()
    with daemon(kept):
        strategy = start(instance)
        publish(instance, BUYERS)
        assert line(strategy) == "order 1: buy BTCUSDT at 101"
        strategy.send_signal(signal.SIGSTOP)
        for _ in range(2_000):  # more than the ring holds
            instance.book([(100.0, 2.0)], [(101.0, 2.0)], snapshot=True)
            keeper.work(ALWAYS)
        keep()
        strategy.send_signal(signal.SIGCONT)
        said = line(strategy)
        assert said.startswith("ring_to_bus: missed ")
        assert said.endswith(" records: taking all books from the image")
        assert strategy.stdout
        # What comes while it joins is part of the state that it joins: it decides at the next one.
        while not select.select([strategy.stdout], [], [], 0.01)[0]:
            instance.book([(100.0, 1.0)], [])  # no snapshot
            instance.ring.flush()
            instance.book([], [(101.0, 9.0)])
            instance.ring.flush()
        assert line(strategy) == "order 2: sell BTCUSDT at 100"
