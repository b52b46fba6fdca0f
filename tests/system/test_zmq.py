"""`udpfast run` with `[zmq]`: from a publisher's datagrams to readers in other processes."""

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S, wait_until
from udpfast import Books, Publisher, Reader
from udpfast.config import parse_publish
from udpfast.log.readers import list_readers
from udpfast.net.ports import free_ports
from udpfast.payload.roq.encode import encode_book
from udpfast.shm.roster import AgentEntry, AgentState, read_roster

pytestmark = pytest.mark.system

UPDATES = 300
SYMBOLS = ("BTC", "ETH")
READERS = {"ipc": "", "tcp": "", "one symbol": "#BOOK/example/ETH"}


def publish(incremental: int, snapshot: int) -> None:
    """Publish two books: their snapshots, then updates that move the best bids."""
    tables = {
        "incremental": [{"address": f"127.0.0.1:{incremental}"}],
        "snapshot": [{"address": f"127.0.0.1:{snapshot}"}],
    }
    bids = [(100.0 - i, 1.0) for i in range(10)]
    asks = [(101.0 + i, 1.0) for i in range(10)]
    with Publisher(parse_publish(tables)) as publisher:
        for number, symbol in enumerate(SYMBOLS, 1):
            whole = encode_book("example", symbol, bids=bids, asks=asks, update_type=1)
            publisher.send(whole, object_type=41, object_id=number, snapshot=True)
        for quantity in range(1, UPDATES + 1):
            for number, symbol in enumerate(SYMBOLS, 1):
                update = encode_book("example", symbol, bids=[(100.0, float(quantity))])
                publisher.send(update, object_type=41, object_id=number)


def read_all(reader: Reader) -> list[bytes]:
    """Read to the end of the ring."""
    with reader:
        return [bytes(record) for record in reader]


def read_in_a_loop(address: str, opened: threading.Event) -> list[bytes]:
    """Do so in an event loop."""

    async def read() -> list[bytes]:
        with Reader(address, timeout=PATIENCE_S) as reader:
            opened.set()
            return [bytes(record) async for record in reader]

    return asyncio.run(read())


def fanout(directory: Path) -> AgentEntry:
    """Return what the feed says of its fan-out."""
    return next(entry for entry in read_roster(directory) if entry.name == "zmq")


def books_of(reader: Reader) -> Books:
    """Take what is there until both books have their last update."""
    books = Books(reader)
    wanted = {("example", symbol) for symbol in SYMBOLS}

    def complete() -> bool:
        books.poll(timeout=0.02)
        return {key for key in books if books[key].best()[1] == UPDATES} == wanted

    wait_until(complete, "both books")
    return books


@pytest.mark.parametrize("processes", ["one", "each"])
def test_run_sends_its_ring_by_zeromq_until_the_end(
    processes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    incremental, snapshot, fanned_out = free_ports(3)
    tcp = f"tcp://127.0.0.1:{fanned_out}"
    (tmp_path / "feed.toml").write_text(
        f'name = "test"\nring.capacity_bytes = {1 << 22}\n'
        f'objects.collect_bytes = {1 << 20}\nrun.processes = "{processes}"\n'
        f'zmq.enabled = true\nzmq.addresses = ["ipc", "{tcp}"]\n'
        "zmq.heartbeat_ms = 60000\n"  # no machine is so loaded that it counts as silent
        f'[[incremental.lines]]\nname = "A"\naddress = "127.0.0.1:{incremental}"\n'
        f'[[snapshot.lines]]\nname = "A"\naddress = "127.0.0.1:{snapshot}"\n'
    )
    command = [sys.executable, "-m", "udpfast", "run", str(tmp_path / "feed.toml")]
    directory = tmp_path / "shm" / "test"
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as feed,
        ThreadPoolExecutor() as pool,
    ):
        try:
            assert feed.stdout is not None
            assert "test at" in feed.stdout.readline()
            wait_until((directory / "zmq").exists, "the fan-out's socket")
            local = Reader("ring:test", start="begin")
            remote = {
                name: Reader(f"zmq:{tcp if name == 'tcp' else 'test'}{topic}", timeout=PATIENCE_S)
                for name, topic in READERS.items()
            }
            found = {name: pool.submit(read_all, reader) for name, reader in remote.items()}
            opened = threading.Event()
            found["event loop"] = pool.submit(read_in_a_loop, "zmq:test", opened)
            assert opened.wait(PATIENCE_S)
            publish(incremental, snapshot)
            wait_until(lambda: local.lag >= len(SYMBOLS) * (UPDATES + 1), "the messages")
            with Reader("zmq:test", image=True, timeout=PATIENCE_S) as late:
                assert {book.stale for book in books_of(late).values()} == {False}
            assert "zmq" in [info.name for info in list_readers(directory)]
            wait_until(lambda: fanout(directory).state is AgentState.RUNNING, "the fan-out")
            assert (fanout(directory).pid == feed.pid) == (processes == "one")
        finally:
            feed.terminate()
        assert feed.wait(PATIENCE_S) == 0
        expected = read_all(local)
        assert len(expected) > len(SYMBOLS) * UPDATES
        for name in ("ipc", "tcp", "event loop"):
            assert found[name].result(PATIENCE_S) == expected
        one_symbol = found["one symbol"].result(PATIENCE_S)
        assert set(one_symbol) <= set(expected)
        assert UPDATES < len(one_symbol) < len(expected) - UPDATES
