"""`Reader("zmq:...")`: the same records as those of a ring's reader, on real sockets."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zmq
import zmq.auth

from tests.agents.fanout import BOTH, Turned, caught_up, running
from tests.cases import nightly
from tests.client.instance import Instance
from tests.client.test_books_of_captures import replay
from tests.shared import shared
from tests.waiting import PATIENCE_S, wait_until
from udpfast import Books, Kind, Reader, ReadRecord
from udpfast.errors import ConfigError, FormatError, ImageError, RingClosedError, UdpfastError
from udpfast.log.ring import Ring
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.net.envelope import ENVELOPE_DTYPE, pack_names


def mixed(instance: Instance, count: int) -> None:
    """Append records of several kinds and symbols."""
    for i in range(count):
        instance.top(i, i + 1, symbol=("BTCUSDT", "ETHUSDT")[i % 2])
        instance.book([(i, 1)], [(i + 1, 1)], snapshot=i == 0)
        if i % 10 == 0:
            instance.append(Kind.GAP, bytes(24))


@pytest.mark.parametrize("socket", [0, 1])
def test_records_are_those_of_the_ring(instance: Instance, socket: int) -> None:
    with (
        running(instance.directory) as fanout,
        Reader(f"zmq:{fanout.addresses[socket]}") as reader,
        Reader(instance.address) as beside,
    ):
        mixed(instance, 500)
        instance.ring.close()
        expected = list(beside)
        found = list(reader)
        assert [bytes(record) for record in found] == [bytes(record) for record in expected]
        assert [record.symbol for record in found] == [record.symbol for record in expected]
        assert reader.lapped == 0
        assert reader.index == beside.index
        assert reader.lag == 0
        with pytest.raises(RingClosedError):
            reader.poll(timeout=0)


@pytest.mark.parametrize("socket", [0, 1])
def test_async_for_returns_the_records_of_the_ring(instance: Instance, socket: int) -> None:
    opened = threading.Event()

    async def read(address: str) -> list[bytes]:
        with Reader(address) as reader:
            opened.set()
            return [bytes(record) async for record in reader]

    def write() -> None:
        assert opened.wait(PATIENCE_S)
        for number in range(50):
            mixed(instance, 10)
            instance.ring.flush()
            if number % 10 == 0:
                time.sleep(0.002)  # the loop falls asleep in between
        instance.ring.close()

    with (
        running(instance.directory) as fanout,
        Reader(instance.address) as beside,
        ThreadPoolExecutor(1) as pool,
    ):
        written = pool.submit(write)
        found = asyncio.run(read(f"zmq:{fanout.addresses[socket]}"))
        written.result()
        assert found == [bytes(record) for record in beside]
        assert len(found) > 1000


def test_descriptor_alone_wakes_an_event_loop(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ticks that never come, and no spinning: a message does."""

    async def read(turned: Turned, reader: Reader) -> list[float]:
        loop = asyncio.get_running_loop()
        never = type("Timer", (), {"cancel": lambda self: None})()
        monkeypatch.setattr(loop, "call_later", lambda *_: never)
        found = []
        for number in range(20):
            arrival = asyncio.create_task(reader.arrival())
            for _ in range(20):
                await asyncio.sleep(0)
            assert not arrival.done()
            instance.top(float(number), 1.0)
            turned.turn()
            assert await arrival
            found += reader.poll(timeout=0).select(Kind.TOP_OF_BOOK)["bid_price"].tolist()
        return found

    with Turned(instance) as turned, turned.open() as reader:
        assert asyncio.run(read(turned, reader)) == [float(number) for number in range(20)]


@pytest.mark.parametrize("variant", ["rough", *nightly("clean")])
def test_books_of_a_capture_are_those_of_the_ring(variant: str, tmp_path: Path) -> None:
    directory = tmp_path / "live"
    capture = shared("wire", "capture", f"roq_udp_{variant}.pcap.gz")
    instance = Instance(directory, 1 << 26)
    with (
        replay(capture, tmp_path / "replayed") as source,
        Turned(instance) as turned,
        turned.open() as remote,
        Reader(instance.address) as local,
    ):
        for i, name in enumerate(names_of(source), 1):
            assert instance.names.intern(name) == i
        for record in source:  # what the feed wrote, into the ring that is sent
            append_as_it_is(instance, record)
        turned.end()
        books, remote_books = Books(), Books()
        for record, same in zip(local, remote, strict=True):
            assert bytes(record) == bytes(same)
            books.apply(record)
            remote_books.apply(same)
        assert list(books) == list(remote_books)
        assert len(books) > 0
        for key, book in books.items():
            other = remote_books[key]
            assert (book.stale, book.bids().tobytes()) == (other.stale, other.bids().tobytes())
            assert book.asks().tobytes() == other.asks().tobytes()
    instance.close()


def names_of(reader: Reader) -> list[str]:
    table = reader.names.table
    assert table is not None
    return [table[i] for i in range(1, len(table) + 1)]


def test_batches_follow_each_other_without_a_hole(instance: Instance) -> None:
    with running(instance.directory) as fanout, Reader(f"zmq:{fanout.addresses[0]}") as reader:
        mixed(instance, 2000)
        count = instance.ring.index
        seen = 0
        while seen < count:
            batch = reader.poll(limit=7)
            assert batch.lapped == 0
            assert 1 <= len(batch) <= 7
            assert batch.headers["index"].tolist() == list(range(seen, seen + len(batch)))
            seen += len(batch)
        assert len(reader.poll(timeout=0)) == 0
        assert len(reader.poll(timeout=0.001)) == 0


def test_a_topic_in_the_address_filters(instance: Instance) -> None:
    with (
        running(instance.directory) as fanout,
        Reader(f"zmq:{fanout.addresses[0]}#TOP_OF_BOOK/binance-usdm/ETHUSDT/") as reader,
    ):
        mixed(instance, 20)
        instance.ring.close()
        found = list(reader)
        assert [r.symbol for r in found if r.kind is Kind.TOP_OF_BOOK] == 10 * ["ETHUSDT"]
        assert [r.kind for r in found].count(Kind.GAP) == 2
        assert len(found) == 12
        assert reader.lapped == 0


def test_the_name_of_an_instance_is_an_address(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(instance.directory.parent))
    instance.directory.parent.chmod(0o700)
    with running(instance.directory, addresses=("ipc",)), Reader("zmq:feed") as reader:
        instance.top(1, 2)
        assert next(reader).kind is Kind.TOP_OF_BOOK


# --- missed records ---------------------------------------------------------------------------

SMALL = {"queue_bytes": 1 << 16, "batch_bytes": 1024, "batch_records": 64}


@pytest.mark.parametrize("topic", ["", "#TOP_OF_BOOK/binance-usdm/ETHUSDT/"])
def test_a_stalled_reader_learns_exactly_what_it_missed(instance: Instance, topic: str) -> None:
    records = 60_000
    with (
        running(instance.directory, addresses=("ipc",), **SMALL) as fanout,
        Reader(f"zmq:{fanout.addresses[0]}{topic}") as reader,
    ):
        every = 2 if topic else 1
        for i in range(records):
            instance.top(i, i + 1, symbol=("BTCUSDT", "ETHUSDT")[i % 2])
            if i % 1000 == 0:  # the fan-out itself misses nothing
                caught_up(fanout, instance)
        caught_up(fanout, instance)
        assert fanout.statistics()["unseen"] == 0
        drain = threading.Thread(target=append_until, args=(instance, stop := threading.Event()))
        drain.start()
        seen: list[int] = []
        missed = 0
        while not missed:  # what waited comes first, then the hole
            record = next(reader)
            missed += record.lapped
            if record.kind is not Kind.LAPPED:
                seen.append(record.index)
        stop.set()
        drain.join()
        instance.ring.close()
        for record in reader:
            missed += record.lapped
            if record.kind is not Kind.LAPPED:
                seen.append(record.index)
        written = sum(1 for i in range(instance.ring.index) if i % every == every - 1)
        assert missed > records // every // 10
        assert reader.lapped == missed
        assert len(seen) + missed == written
        assert seen == sorted(set(seen))


def append_until(instance: Instance, stop: threading.Event) -> None:
    while not stop.wait(0.001):
        instance.top(1, 2, symbol="BTCUSDT")
        instance.top(1, 2, symbol="ETHUSDT")


def test_what_the_fanout_itself_missed_is_told(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "feed", 1 << 14)
    with (
        running(instance.directory, addresses=("ipc",), linger_us=200_000) as fanout,
        Reader(f"zmq:{fanout.addresses[0]}") as reader,
        Reader(f"zmq:{fanout.addresses[0]}#TOP_OF_BOOK/") as filtered,
    ):
        for i in range(1000):  # many laps, before it looks again
            instance.top(i, i + 1)
        caught_up(fanout, instance)
        unseen = fanout.statistics()["unseen"]
        assert unseen > 0
        instance.ring.close()
        for each in (reader, filtered):
            records = list(each)
            assert sum(record.lapped for record in records) == unseen == each.lapped
            assert sum(record.lapped == 0 for record in records) + unseen == 1000
    instance.close()


def test_a_fanout_that_begins_anew_costs_what_it_did_not_send(instance: Instance) -> None:
    address = f"ipc://{instance.directory}/zmq"
    with running(instance.directory, addresses=("ipc",)) as fanout:
        reader = Reader(f"zmq:{address}")
        instance.top(1, 2)
        assert next(reader).index == 0
        caught_up(fanout, instance)
    for i in range(10):
        instance.top(i, 2)
    with running(instance.directory, addresses=("ipc",)) as fanout:
        # It read the ring from its beginning before the reader was there again.
        wait_until(
            lambda: not reader.poll(timeout=0.01) and fanout.statistics()["subscribers"] == 1
        )
        instance.top(5, 6)
        record = next(reader)
        assert (record.kind, record.lapped) == (Kind.LAPPED, 10)
        assert next(reader).index == 11
    reader.close()


def test_a_restarted_writer_says_so(instance: Instance) -> None:
    with running(instance.directory, addresses=("ipc",)) as fanout:
        reader = Reader(f"zmq:{fanout.addresses[0]}")
        instance.top(1, 2)
        instance.ring.region.close()  # its process was killed
        ring = Ring.create(instance.directory, instance.ring.capacity_bytes, PAYLOAD_HASH)
        assert ring.restarted
        ring.announce_restart(1)
        instance.ring = ring
        instance.top(3, 4)
        assert [next(reader).kind for _ in range(3)] == [
            Kind.TOP_OF_BOOK,
            Kind.RESTART,
            Kind.TOP_OF_BOOK,
        ]
        assert reader.epoch == 2
        assert reader.lapped == 0
        reader.close()


def test_a_restart_that_the_fanout_missed_renews_its_names(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "feed", 4096)
    with Turned(instance) as turned, turned.open() as reader:
        instance.top(1, 2, symbol="before")
        turned.turn()
        assert next(reader).symbol == "before"
        instance.names_region.close()
        instance.ring.region.close()
        instance = Instance(instance.directory, 4096)
        instance.ring.announce_restart(1)
        for _ in range(100):
            instance.top(1, 2, symbol="after")
        instance.ring.flush()
        turned.turn()
        assert next(reader).kind is Kind.LAPPED
        assert next(reader).symbol == "after"
    instance.close()


def test_a_ring_of_another_boot_in_the_place_of_the_old_one_says_so(instance: Instance) -> None:
    address = f"ipc://{instance.directory}/zmq"
    with running(instance.directory, addresses=("ipc",)) as fanout:
        reader = Reader(f"zmq:{address}")
        for i in range(10):
            instance.top(i, 2)
        assert [next(reader).index for _ in range(10)] == list(range(10))
    # Files in memory are numbered anew with each boot: the same inode, and another history.
    instance.ring.region.close()
    other = Instance(instance.directory.parent / "other")
    path = instance.directory / "ring"
    with path.open("r+b") as file:
        file.write((other.directory / "ring").read_bytes())
    other.close()
    with Ring.create(instance.directory, instance.ring.capacity_bytes, PAYLOAD_HASH) as ring:
        instance.ring = ring
        instance.top(3, 4)
        with (
            running(instance.directory, addresses=("ipc",)) as fanout,
            pytest.raises(RingClosedError, match="another ring has taken its place"),
        ):
            wait_until(
                lambda: not reader.poll(timeout=0.01) and fanout.statistics()["subscribers"] == 1
            )
            reader.poll(timeout=1.0)
    reader.close()


# --- opening, closing -------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait long for an answer that does not come."""
    monkeypatch.setattr("udpfast.client.zmq_source._ANSWER_S", 0.3)


@pytest.mark.usefixtures("impatient")
def test_nobody_there_is_told_in_time(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="no fan-out answers"):
        Reader(f"zmq:ipc://{tmp_path}/nobody")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("zmq:", "address must be"),
        ("zmq:tcp://nowhere", "expected a ZeroMQ endpoint"),
        ("zmq:udp://1.2.3.4:5", "expected a ZeroMQ endpoint"),
        ("zmq:ipc:///tmp/x?key=a", "key=FILE&server=FILE"),
        ("zmq:ipc:///tmp/x?key=/none&server=/none", "CURVE key file"),
        ("zmq:ipc:///tmp/x#" + 1000 * "x", "at most 1000"),
    ],
)
def test_a_wrong_address_is_refused(address: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Reader(address)


def test_a_topic_that_is_none_is_refused_with_the_reason(instance: Instance) -> None:
    with (
        running(instance.directory, addresses=("ipc",)) as fanout,
        pytest.raises(ConfigError, match="begin with a kind"),
    ):
        Reader(f"zmq:{fanout.addresses[0]}#rubbish")


def test_start_at_the_beginning_is_refused(instance: Instance) -> None:
    with pytest.raises(ConfigError, match="must be 'tail'"):
        Reader("zmq:ipc:///tmp/x", start="begin")


def test_reader_that_is_dropped_and_not_closed_hangs_nobody(
    instance: Instance, environment: dict[str, str]
) -> None:
    program = (
        "import gc, sys; from udpfast import Reader\n"
        "kept = [Reader(sys.argv[1])]; kept.append(kept); del kept; gc.collect()\n"
        "left = Reader(sys.argv[1]); print('done')\n"
    )
    with running(instance.directory, addresses=("ipc",)) as fanout:
        address = f"zmq:{fanout.addresses[0]}"
        ended = subprocess.run(
            [sys.executable, "-c", program, address],
            env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    assert (ended.stdout, ended.stderr, ended.returncode) == ("done\n", "", 0)


FORKED = """
import asyncio, os, sys
from udpfast import Reader, RingClosedError
reader = Reader(sys.argv[1])
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
def follow():
    asyncio.run(reader.arrival())
for read in (reader.poll, reader.wait, lambda: next(reader), follow):
    try:
        read()
    except RingClosedError as error:
        said = str(error)
        assert f"process {os.getppid()}" in said and f"child {os.getpid()}" in said, said
        assert sys.argv[1] in said, said
    else:
        sys.exit("no error")
reader.close()
print("done")
"""


def test_reader_in_a_forked_child_is_refused(
    instance: Instance, environment: dict[str, str]
) -> None:
    with running(instance.directory) as fanout:
        for address in fanout.addresses:
            ended = subprocess.run(
                [sys.executable, "-c", FORKED, f"zmq:{address}"],
                env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            )  # fmt: skip
            assert (ended.stdout, ended.stderr, ended.returncode) == ("done\n", "", 0)


def test_close_from_another_thread_ends_the_iteration(instance: Instance) -> None:
    with running(instance.directory, addresses=("ipc",)) as fanout:
        reader = Reader(f"zmq:{fanout.addresses[0]}")
        timer = threading.Timer(0.05, reader.close)
        timer.start()
        assert list(reader) == []
        assert reader.closed
        timer.join()


# --- CURVE ------------------------------------------------------------------------------------


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[Path]:
    """Return a directory with keys of a server, an admitted client, and another client."""
    directory = tmp_path / "keys"
    (directory / "allowed").mkdir(parents=True)
    for name in ("server", "client", "stranger"):
        zmq.auth.create_certificates(directory, name)
        (directory / f"{name}.key_secret").chmod(0o600)
    (directory / "client.key").rename(directory / "allowed" / "client.key")
    return directory


def query(keys: Path, client: str, server: str = "server") -> str:
    return f"?key={keys / client}.key_secret&server={keys / server}.key"


def guarded(keys: Path) -> dict[str, object]:
    return {
        "addresses": BOTH,
        "curve_key": str(keys / "server.key_secret"),
        "curve_clients": str(keys / "allowed"),
    }


def test_curve_lets_the_right_key_in_and_no_other(
    instance: Instance, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(instance.directory, **guarded(keys)) as fanout:
        ipc, tcp = (f"zmq:{address}" for address in fanout.addresses)
        with Reader(tcp + query(keys, "client")) as reader, Reader(ipc) as local:
            instance.top(1, 2)
            assert bytes(next(reader)) == bytes(next(local))
        monkeypatch.setattr("udpfast.client.zmq_source._ANSWER_S", 0.3)
        for wrong in ("", query(keys, "stranger"), query(keys, "client", "stranger")):
            with pytest.raises(TimeoutError, match="do the keys fit"):
                Reader(tcp + wrong)


def test_curve_key_that_is_removed_may_not_connect_and_one_that_is_added_may(
    instance: Instance, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(instance.directory, **guarded(keys)) as fanout:
        address = f"zmq:{fanout.addresses[1]}"
        Reader(address + query(keys, "client")).close()
        (keys / "allowed/client.key").rename(keys / "client.key")
        (keys / "stranger.key").rename(keys / "allowed/stranger.key")
        (keys / "allowed/broken.key").write_text("no key")
        Reader(address + query(keys, "stranger")).close()
        monkeypatch.setattr("udpfast.client.zmq_source._ANSWER_S", 0.3)
        with pytest.raises(TimeoutError, match="do the keys fit"):
            Reader(address + query(keys, "client"))


def test_curve_key_that_others_may_read_is_refused(instance: Instance, keys: Path) -> None:
    (keys / "server.key_secret").chmod(0o644)
    with (
        pytest.raises(ConfigError, match="readable only by its owner"),
        running(instance.directory, **guarded(keys)),
    ):
        pass


# --- hostile publishers -----------------------------------------------------------------------


def envelope(**fields: int) -> bytes:
    found = np.zeros((), ENVELOPE_DTYPE)
    for name, value in ({"magic": 0x7A706475, "version": 2, "layout": layout()} | fields).items():
        found[name] = value
    return found.tobytes()


def layout() -> int:
    from udpfast.log.ring import RING_LAYOUT

    return int(RING_LAYOUT ^ PAYLOAD_HASH)


class Impostor:
    """A PUB socket that is not a fan-out, or that breaks its rules."""

    def __init__(self, path: Path) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.XPUB)
        self.socket.rcvtimeo = 10_000
        self.socket.setsockopt(zmq.XPUB_VERBOSER, 1)
        self.address = f"ipc://{path}/impostor"
        self.socket.bind(self.address)

    def serve(self, *messages: bytes) -> None:
        self.serve_topic(b"~", *messages)

    def serve_topic(self, topic: bytes, *messages: bytes) -> None:
        while self.socket.recv() != b"\1" + topic:  # what the one before said last
            pass
        for message in messages:
            self.socket.send(message)

    def close(self) -> None:
        self.socket.close(linger=0)
        self.context.term()


@pytest.fixture
def impostor(tmp_path: Path) -> Iterator[Impostor]:
    """Return an impostor."""
    impostor = Impostor(tmp_path)
    yield impostor
    impostor.close()


def meet(impostor: Impostor, *messages: bytes) -> list[bytes]:
    """Read an impostor's messages; return the bytes of the records."""
    thread = threading.Thread(target=impostor.serve, args=messages)
    thread.start()
    try:
        with Reader(f"zmq:{impostor.address}") as reader:
            return [bytes(record) for record in reader]
    finally:
        thread.join()


BEGIN = b"~\1" + envelope(type=4)
END = b"~\0" + envelope(type=6)


def record(length: int, size: int, index: int = 0) -> bytes:
    from udpfast.core.layout import RECORD

    header = np.zeros((), RECORD)
    header["length"], header["kind"], header["index"] = length, Kind.MESSAGE, index
    return header.tobytes().ljust(size, b"\0")


@pytest.mark.parametrize(
    "message",
    [
        b"~\0",
        b"~\0rubbish",
        b"~\0" + envelope()[:-1],
        b"~\0" + envelope(magic=7),
        b"~\0" + envelope(version=9),
        b"~\0" + envelope(layout=1),
        b"~\0" + envelope(type=0),
        b"~\0" + envelope(type=99),
        b"~\0" + envelope(type=3, count=5) + pack_names(1, [b"a"]),
        b"~\0" + envelope(type=3, count=1) + pack_names(1, [121 * b"a"]),
        b"~\0" + envelope(type=3, count=0xFFFFFFFF),
        b"~\0" + envelope(type=1, count=1) + b"x",
        b"~\0" + envelope(type=1, count=1) + record(64, 64)[:63],
        b"~\0" + envelope(type=1, count=1) + record(63, 64),
        b"~\0" + envelope(type=1, count=1) + record(0, 64),
        b"~\0" + envelope(type=1, count=1) + record(-1, 64),
        b"~\0" + envelope(type=1, count=1) + record(65, 64),
        b"~\0" + envelope(type=1, count=1) + record(0x7FFFFFFF, 128),
    ],
)
def test_a_message_that_is_none_raises(impostor: Impostor, message: bytes) -> None:
    with pytest.raises(FormatError):
        meet(impostor, BEGIN, message, END)


def test_messages_of_other_topics_are_passed_over(impostor: Impostor) -> None:
    sound = b"~\0" + envelope(type=1, count=1, index=1) + record(72, 72)
    assert meet(impostor, BEGIN, b"~BOOK/\0" + envelope(type=99), sound, END) == [record(72, 72)]


def test_records_that_were_seen_already_are_passed_over(impostor: Impostor) -> None:
    def message(index: int, stream: int) -> bytes:
        body = record(64, 64, index) + record(64, 64, index + 1)
        return b"~\0" + envelope(type=1, count=2, index=index + 2, stream=stream) + body

    found = meet(impostor, BEGIN, message(0, 0), message(1, 7), message(1, 7), END)
    assert found == [record(64, 64, index) for index in range(3)]


def test_records_that_come_without_an_answer_are_all_read(impostor: Impostor) -> None:
    # The index also counts records of other topics between them.
    body = record(64, 64, 3) + record(64, 64, 7)
    first = b"~\0" + envelope(type=1, count=2, index=20) + body
    assert meet(impostor, first, END) == [record(64, 64, 3), record(64, 64, 7)]


def test_random_messages_end_in_an_error_or_in_nothing(impostor: Impostor) -> None:
    seed = 20261121
    random = np.random.default_rng(seed)
    sound = b"~\0" + envelope(type=1, count=2, index=2) + record(72, 72) + record(80, 80, 1)
    names = b"~\0" + envelope(type=3, count=2, names=2) + pack_names(1, [b"abc", b"de"])
    for number in range(150):
        message = bytearray((sound, names)[number % 2])
        for _ in range(random.integers(1, 5)):
            message[random.integers(2, len(message))] = random.integers(256)
        cut = bytes(message[: random.integers(2, len(message) + 1)])
        try:
            meet(impostor, BEGIN, cut, END)
        except UdpfastError:
            pass
        except Exception as error:
            raise AssertionError(f"seed {seed}, message {number}: {cut!r}") from error


# --- last values ------------------------------------------------------------------------------


def test_a_late_reader_gets_last_values_and_goes_on_from_there(instance: Instance) -> None:
    instance.append(Kind.SESSION, bytes(40), session=1)
    instance.book([(10, 1), (9, 2)], [(11, 1)], snapshot=True)
    instance.book([(10, 5)], [], follows=instance.number)
    instance.top(10, 11, session=1, object_type=4, object_id=8)
    with running(instance.directory, addresses=("ipc",)) as fanout:
        caught_up(fanout, instance)
        with (
            Reader(f"zmq:{fanout.addresses[0]}", image=True) as reader,
            Reader(f"zmq:{fanout.addresses[0]}") as plain,
            Reader(f"zmq:{fanout.addresses[0]}#TOP_OF_BOOK/", image=True) as filtered,
        ):
            assert reader.joining
            assert not plain.joining
            instance.book([(10, 7)], [], follows=instance.number)
            instance.ring.close()
            books = Books()
            records = list(reader)
            for record in records:
                books.apply(record)
            assert not reader.joining
            last = [record for record in records if record.flags & 1]
            assert {record.kind for record in last} >= {Kind.BOOK, Kind.TOP_OF_BOOK}
            assert [record.index for record in records if not record.flags & 1] == [4]
            [book] = books.values()
            assert book.bids().tolist() == [[10, 7], [9, 2]]
            assert [record.index for record in plain] == [4]
            kinds = {record.kind for record in filtered}
            assert Kind.TOP_OF_BOOK in kinds
            assert Kind.BOOK not in kinds


def test_fanout_without_last_values_refuses_who_wants_to_begin_with_them(
    instance: Instance,
) -> None:
    instance.top(1.0, 2.0)
    with running(instance.directory, addresses=("ipc",), last_values=False) as fanout:
        with pytest.raises(ImageError, match=r"set zmq\.last_values = true"):
            Reader(f"zmq:{fanout.addresses[0]}", image=True)
        with Reader(f"zmq:{fanout.addresses[0]}") as reader:
            instance.top(3.0, 4.0)
            assert next(reader).index == 1


def test_last_values_that_did_not_fit_are_missed_aloud(impostor: Impostor) -> None:
    def part(last: int, count: int) -> bytes:
        body = b"".join(record(64, 64, i) for i in range(count))
        return b"\1" + envelope(type=2, count=count, last=last) + body

    thread = threading.Thread(
        target=impostor.serve_topic,
        args=(
            b"",
            part(0, 2),
            part(5, 1),
            b"\1" + envelope(type=4, last=8),
            b"\0" + envelope(type=6),
        ),
    )
    thread.start()
    with Reader(f"zmq:{impostor.address}", image=True) as reader:
        records = list(reader)
    thread.join()
    assert [record.lapped for record in records if record.kind is Kind.LAPPED] == [3, 2]
    assert records[-1].kind is Kind.CONNECTION  # the feed had ended when they were sent


def test_books_of_late_joiners_are_those_of_the_ring(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "live", 1 << 26)
    capture = shared("wire", "capture", "roq_udp_rough.pcap.gz")
    with (
        replay(capture, tmp_path / "replayed") as source,
        Turned(instance) as turned,
        Reader(instance.address) as local,
    ):
        for name in names_of(source):
            instance.names.intern(name)
        late: list[tuple[Reader, Books]] = []
        records = list(source)
        for i, one in enumerate(records):
            append_as_it_is(instance, one)
            if i % (len(records) // 12) == 11:
                turned.turn()
                late.append((turned.open(image=True), Books()))
        turned.end()
        books = Books()
        for one in local:
            books.apply(one)
        for reader, joined in late:
            for one in reader:
                joined.apply(one)
            assert reader.lapped == 0
            reader.close()
            for key, book in books.items():
                if not book.stale:
                    assert not joined[key].stale, key
                    assert joined[key].bids().tobytes() == book.bids().tobytes()
                    assert joined[key].asks().tobytes() == book.asks().tobytes()
        assert len(late) == 12
    instance.close()


def append_as_it_is(instance: Instance, record: ReadRecord) -> None:
    """Append a record of another ring: all of its header but where it lies."""
    from udpfast.core.layout import RECORD

    data = bytes(record)
    header = np.frombuffer(data, RECORD, 1)[0]
    ours = ("length", "position", "index", "checksum")
    instance.ring.append(
        payload=data[64:], **{name: int(header[name]) for name in RECORD.names if name not in ours}
    )
