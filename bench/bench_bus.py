"""What does a bus cost: a copy of a store over TCP, a message's place in the order, a restart?

    store --> SenderThread --TCP on loopback, another process--> ReceiverThread --> copy
    bytes -----------------TCP on loopback, another process------------------> nowhere  (the floor)

    datagrams of many messages --> sequencer --> store        one core
    the same with a tag on each piece of a link, as with `key_file`
    a store with 0, 1, 4, 8 copies: what an append costs
    the same beside a thread that only reads: what of it is the way of cache lines
    app.send --> daemon --> sequencer --> copy --> app    real daemons, idle between two messages
    a store whose writer was killed: until it writes again
    a segment's file to a socket, in memory or on the disk: as it is mapped, or by sendfile

A copy has every record checked, placed and committed; the floor moves the same bytes, and looks at
none of them. Latencies: from when a record was due to be appended until its writer has the copy's
acknowledgement, both ends spinning.

Run it with `udpfast bench run bus`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from udpfast.agents.bus.link_thread import link_thread
from udpfast.archive.store import StoreLog
from udpfast.bus.link_receiver import LinkReceiver
from udpfast.bus.link_seal import LinkSeal
from udpfast.bus.link_sender import LinkSender
from udpfast.bus.log import Store
from udpfast.bus.seal import NONCE_SIZE
from udpfast.bus.sequencer import Sequencer, SequencerVerdict
from udpfast.bus.wire import SendFlag, epoch_after, name_bytes, send_datagram
from udpfast.core.agent import Agent, AgentRunner
from udpfast.core.clock import monotonic_ns
from udpfast.shm.histogram import LatencyHistogram

from .bus_seen import daemons, seen
from .bus_send import sent
from .child import to_child
from .lab_parts import MemoryLog
from .loops.append_cost import BareReader, append_times
from .loops.store_hop import StorePace, TcpEcho, TcpPace
from .result import Row
from .trials import Benchmark, Outcome, Settings, interleave

__all__ = ["BENCHMARK"]

TCP = "TCP alone"
SIZE = 256
CHUNK = 1 << 18
#: Bytes of one call of the floor: 64 records.
FLOOR_BYTES = 64 * (64 + SIZE)
LAYOUT = 1
T0 = 1_700_000_000_000_000_000
#: Messages of a datagram: as many of 32 bytes as fit.
BATCH = 38
COPY_GOALS = {"copy": "P26: <= 1.25"}
ACK_GOALS = {"copy": "P26: <= 1.25"}
ORDER_GOALS = {"sequencer": "P27: <= 500 ns"}
ALONE = "0 copies"
MAPPED = "sendmsg of the mapped file"
APPEND_GOALS = {f"{copies} copies": "P26: <= 1.05" for copies in (1, 4, 8)}
#: Between two times that four records are appended, beside a bare reader.
APPEND_GAP_NS = 5_000
READERS = {"nobody reads": None, "a reader spins": 0, "a reader looks every 50 us": 50_000}
SEEN_GOALS = {"send to seen, another host": "P27: <= 15000 ns"}
RESTART_GOALS = {"restart": "P26: <= 1000 ms"}
#: Records per second (0: the next when the one before is acknowledged), the percentile that
#: counts, and its goal.
RATES = (
    (0, 50.0, ACK_GOALS),
    (167_000, 99.0, {"copy": "P26 p99: <= 20000 ns"}),
    (1_670_000, 99.9, {"copy": "P26 p99.9: <= 5400000 ns"}),
)


def capacity(records: int, size: int) -> int:
    """Return bytes of one segment for so many records."""
    return (records * (64 + size) + (1 << 20)) // 4096 * 4096


def registered(store: Store) -> Sequencer:
    """Return the writer of an empty store, with one sender registered."""
    made = Sequencer(store, epoch_after(0, 1, promoted=True), 0, T0)
    body = (1).to_bytes(8, "little") + name_bytes("app") + name_bytes("host")
    made.receive(
        send_datagram(made.store.key, made.store.epoch, 0, 0, 0, 0, flags=SendFlag.REGISTER,
                      body=body), 0, T0)  # fmt: skip
    return made


def sequencer(records: int, size: int) -> Sequencer:
    """Return the writer of an empty store in memory that is touched already."""
    log = MemoryLog(capacity(records, size), LAYOUT, bytes(range(16)))
    log.prepare(log.capacity)
    return registered(Store(log, "S"))


def datagrams(seq: Sequencer, count: int, size: int, batch: int) -> list[bytes]:
    """Return so many messages of one sender, in datagrams."""
    payload = bytes(size)
    return [
        send_datagram(seq.store.key, seq.store.epoch, 1, 1, first, 1,
                      [(7, payload)] * min(batch, count + 1 - first))
        for first in range(1, count + 1, batch)
    ]  # fmt: skip


def filled(records: int) -> Store:
    """Return a store of messages of `SIZE` bytes."""
    seq = sequencer(records, SIZE)
    for datagram in datagrams(seq, records, SIZE, 4):
        seq.receive(datagram, 0, T0)
    return seq.store


def raw(records: int) -> float:
    """Return ns per record of the kernel's part alone."""
    total = records * (64 + SIZE)
    content = bytes(FLOOR_BYTES)

    def take(sock: socket.socket) -> None:
        into, left = bytearray(CHUNK), total
        while left:
            taken = sock.recv_into(into, min(CHUNK, left))
            assert taken, "the source is gone"
            left -= taken
        sock.sendall(b"!")

    def give(sock: socket.socket) -> float:
        begun = time.perf_counter_ns()
        for at in range(0, total, FLOOR_BYTES):
            sock.sendall(content[: min(FLOOR_BYTES, total - at)])
        assert sock.recv(1) == b"!"
        return time.perf_counter_ns() - begun

    return to_child(take, give) / records


def _carry(
    end: LinkSender | LinkReceiver,
    sock: socket.socket,
    idle: str,
    done: Callable[[], bool],
    core: int | None = None,
    *beside: Agent,
    seal: LinkSeal | None = None,
) -> float:
    # As a daemon does: a thread for the bytes, and a loop for what it cannot do. How long it took.
    sock.setblocking(False)
    thread = link_thread(end, sock.fileno(), idle, seal=seal)
    begun = time.perf_counter_ns()
    with AgentRunner((*beside, thread), idle=thread.idle, core=core):
        while not (done() or thread.broken):
            assert not end.closed, end.closed
            end.work(monotonic_ns(), 0)
            end.attend()
            time.sleep(0.001)
        took = time.perf_counter_ns() - begun
    sock.setblocking(True)
    return took


def _seal(sealed: bool, *, began: bool) -> LinkSeal | None:
    return LinkSeal([bytes(32)], os.urandom(NONCE_SIZE), began=began) if sealed else None


def _hear(sock: socket.socket, size: int, seal: LinkSeal | None) -> bytes:
    # What the other end says next, which may be nothing yet.
    said = sock.recv(size)
    assert said, "the other end is gone"
    if seal is None:
        return said
    heard = seal.unwrap(said)
    sock.sendall(seal.wrap(b""))  # what waited for the other end's greeting
    return heard


def follow(
    sock: socket.socket, log: MemoryLog, host: str = "one", seal: LinkSeal | None = None
) -> LinkReceiver:
    """Return a copy that follows the store at the other end of a connection."""
    consumer = LinkReceiver(Store(log, host), 2, monotonic_ns())
    said = consumer.output()
    sock.sendall(said if seal is None else seal.wrap(said))
    while not consumer.following:
        consumer.feed(_hear(sock, consumer.room, seal), monotonic_ns())
        assert not consumer.closed, consumer.closed
    return consumer


def serve(sock: socket.socket, store: Store, seal: LinkSeal | None = None) -> LinkSender:
    """Return the store's end of a connection on which a copy follows."""
    source = LinkSender(store, 1, monotonic_ns())
    if seal is not None:
        sock.sendall(seal.wrap(b""))
    while not source.following:
        source.feed(_hear(sock, CHUNK, seal), monotonic_ns())
        assert not source.closed, source.closed
    said = source.output(1)
    sock.sendall(said if seal is None else seal.wrap(said))
    return source


def copy(store: Store, records: int, *, sealed: bool = False) -> float:
    """Return ns per record of a copy, until the source has heard of the last."""

    def take(sock: socket.socket) -> None:
        log = MemoryLog(1 << 16, LAYOUT)
        log.prepare(capacity(records, SIZE))
        seal = _seal(sealed, began=True)
        _carry(follow(sock, log, seal=seal), sock, "backoff", lambda: False, seal=seal)
        assert log.last == store.log.last

    def give(sock: socket.socket) -> float:
        seal = _seal(sealed, began=False)
        source = serve(sock, store, seal)
        took = _carry(source, sock, "backoff", lambda: source.acked == store.end, seal=seal)
        source.close("done")
        return took

    return to_child(take, give) / records


def _ends(take: Callable[[socket.socket], None], pace: Callable[[socket.socket], Outcome]
          ) -> Outcome:  # fmt: skip
    outcomes: list[Outcome] = []

    def give(sock: socket.socket) -> float:
        outcomes.append(pace(sock))
        return outcomes[0].value

    to_child(take, give)
    return outcomes[0]


def _timed(pace: StorePace | TcpPace, percent: float) -> Outcome:
    histogram = LatencyHistogram()
    values = pace.latencies
    for value in values[len(values) // 10 :].tolist():
        histogram.record(value)
    return Outcome(float(histogram.percentile(percent)), histogram, "every record was acknowledged")


def _idle(cores: tuple[int, int]) -> str:
    # Two that spin on one core wait for each other's time slices.
    return "spin" if cores[0] != cores[1] else "yield"


def acknowledged(cores: tuple[int, int], count: int, gap_ns: int, percent: float) -> Outcome:
    """Time records from when they are due until a copy's acknowledgement is there."""

    def take(sock: socket.socket) -> None:
        log = MemoryLog(1 << 16, LAYOUT)
        log.prepare(capacity(count + 1, SIZE))
        _carry(follow(sock, log), sock, _idle(cores), lambda: False, cores[1])

    def give(sock: socket.socket) -> Outcome:
        source = serve(sock, sequencer(count + 1, SIZE).store)
        pace = StorePace(source, count, SIZE, gap_ns)
        _carry(source, sock, _idle(cores), lambda: pace.done, cores[0], pace)
        return _timed(pace, percent)

    return _ends(take, give)


def echoed(cores: tuple[int, int], count: int, gap_ns: int, percent: float) -> Outcome:
    """Time the same bytes until the other end says that it has read them."""

    def take(sock: socket.socket) -> None:
        sock.setblocking(False)
        with AgentRunner(TcpEcho(sock.fileno()), idle=_idle(cores), core=cores[1]) as runner:
            runner.join()

    def give(sock: socket.socket) -> Outcome:
        sock.setblocking(False)
        pace = TcpPace(sock.fileno(), count, SIZE, gap_ns)
        with AgentRunner(pace, idle=_idle(cores), core=cores[0]):
            while not pace.done:
                time.sleep(0.001)
        return _timed(pace, percent)

    return _ends(take, give)


def append(copies: int, count: int) -> float:
    """Return the median ns of a record's append, with so many copies following."""
    seq = sequencer(count, SIZE)
    pairs = [socket.socketpair() for _ in range(copies)]
    pid = os.fork() if copies else -1
    if pid == 0:
        status = 1
        try:
            with contextlib.ExitStack() as stack:
                ends = []
                for number, (theirs, sock) in enumerate(pairs):
                    theirs.close()
                    log = MemoryLog(1 << 16, LAYOUT)
                    log.prepare(capacity(count, SIZE))
                    consumer = follow(sock, log, f"copy-{number}")
                    sock.setblocking(False)
                    thread = link_thread(consumer, sock.fileno(), "backoff")
                    stack.enter_context(AgentRunner(thread, idle=thread.idle))
                    ends.append((consumer, thread))
                while not all(thread.broken for _, thread in ends):
                    for consumer, _ in ends:
                        consumer.work(monotonic_ns(), 0)
                        consumer.attend()
                    time.sleep(0.001)
                status = 0
        finally:
            os._exit(status)
    took = []
    with contextlib.ExitStack() as stack:
        sources = []
        for sock, theirs in pairs:
            theirs.close()
            stack.callback(sock.close)
            sources.append(serve(sock, seq.store))
            sock.setblocking(False)
            thread = link_thread(sources[-1], sock.fileno(), "backoff")
            stack.enter_context(AgentRunner(thread, idle=thread.idle))
        for datagram in datagrams(seq, count, SIZE, 4):
            begun = time.perf_counter_ns()
            seq.receive(datagram, 0, T0)
            took.append(time.perf_counter_ns() - begun)
            # Slower than the copies: what they cost the writer is asked, not who gets the cores.
            time.sleep(0.0002)
            for source in sources:
                source.work(monotonic_ns(), 0)
                source.attend()
        assert all(not source.closed for source in sources)
        for source in sources:
            source.close("done")
    if copies:
        assert os.waitpid(pid, 0)[1] == 0, "the other process failed"
    return statistics.median(took) / 4


def beside(cores: tuple[int, int], count: int, gap_ns: int | None) -> float:
    """Return the median ns of a record's append beside a reader that looks so often, or none."""
    store = sequencer(count, SIZE).store
    with contextlib.ExitStack() as stack:
        if gap_ns is not None:
            reader = BareReader(store, gap_ns)
            stack.enter_context(AgentRunner(reader, idle="spin", core=cores[1]))
        allowed = os.sched_getaffinity(0)
        stack.callback(os.sched_setaffinity, 0, allowed)
        os.sched_setaffinity(0, {cores[0]})
        took = append_times(store, count, SIZE, 4, APPEND_GAP_NS)
        if gap_ns is not None:
            while reader.count < count:
                time.sleep(0.001)
    return float(statistics.median(took.tolist())) / 4


def _write(directory: Path, records: int) -> None:
    # A store whose writer is killed.
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            log = StoreLog(directory, "bench", segment_bytes=capacity(records, SIZE), create=True)
            seq = registered(Store(log, "S"))
            for datagram in datagrams(seq, records, SIZE, 4):
                seq.receive(datagram, 0, T0)
            assert seq.verdicts[SequencerVerdict.ACCEPTED] == records + 1
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0, "the other process failed"


def restart(directory: Path, records: int) -> float:
    """Return ms per GiB of a segment until its writer, which was killed, writes again."""
    heard, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            begun = time.perf_counter_ns()
            log = StoreLog(directory, "bench", segment_bytes=capacity(records, SIZE))
            store = Store(log, "S")
            made = Sequencer(store, epoch_after(store.epoch, 1, promoted=False), 0, T0)
            took = time.perf_counter_ns() - begun
            assert (made.count, log.end_index >= records) == (1, True)
            os.write(told, repr(took / 1e6 / (log.end / (1 << 30))).encode())
            status = 0
        finally:
            os._exit(status)  # as kill -9 does: nothing is closed
    os.close(told)
    found = os.read(heard, 64)
    os.close(heard)
    assert os.waitpid(pid, 0)[1] == 0, "the other process failed"
    return float(found)


def order(count: int, batch: int) -> float:
    """Return ns per message that gets its place."""
    seq = sequencer(count, 32)
    sent = datagrams(seq, count, 32, batch)
    begun = time.perf_counter_ns()
    for datagram in sent:
        seq.receive(datagram, 0, T0)
    took = time.perf_counter_ns() - begun
    assert seq.verdicts[SequencerVerdict.ACCEPTED] == count + 1
    return took / count


def _latencies(settings: Settings) -> Iterator[Row]:
    for rate, percent, goals in RATES:
        count = (500 if settings.quick else 20_000) if rate == 0 else rate // (
            100 if settings.quick else 4)  # fmt: skip
        gap_ns = 0 if rate == 0 else 1_000_000_000 // rate
        trials = interleave(
            {
                "copy": partial(acknowledged, settings.cores, count, gap_ns, percent),
                TCP: partial(echoed, settings.cores, count, gap_ns, percent),
            },
            settings,
            label=f"{rate:,}/s",
        )
        yield from trials.rows(
            "bus",
            "ns",
            {"size": SIZE, "records/s": rate or "one at a time", "percentile": f"p{percent:g}"},
            base=TCP,
            goals=goals,
        )


def _appends(settings: Settings) -> Iterator[Row]:
    count = 1_000 if settings.quick else 20_000
    trials = interleave(
        {f"{copies} copies": partial(append, copies, count) for copies in (0, 1, 4, 8)},
        settings,
        label="append",
    )
    yield from trials.rows(
        "bus",
        "ns/record",
        {"size": SIZE, "records": count},
        base=ALONE,
        goals=APPEND_GOALS,
        verified="every copy's link was there at the end",
    )
    trials = interleave(
        {name: partial(beside, settings.cores, count, gap_ns) for name, gap_ns in READERS.items()},
        settings,
        label="append, bare readers",
    )
    yield from trials.rows(
        "bus",
        "ns/record",
        {"size": SIZE, "records": count},
        base="nobody reads",
        verified="all records were read",
    )


def _sent(settings: Settings, directory: Path, records: int) -> Iterator[Row]:
    size = 64 + SIZE
    for what, cpu in (("ns/record", False), ("ns of the sender's core/record", True)):
        for where, cold in (("in memory", False), ("on the disk", True)):
            trials = interleave(
                {
                    MAPPED: partial(sent, directory, records, size,
                                    by_file=False, cold=cold, cpu=cpu),
                    "sendfile": partial(sent, directory, records, size,
                                        by_file=True, cold=cold, cpu=cpu),
                },
                settings,
                label=f"far behind, {where}",
            )  # fmt: skip
            yield from trials.rows(
                "bus",
                what,
                {"size": SIZE, "records": records, "file": where},
                base=MAPPED,
                verified="all bytes were read",
            )


def _seen(settings: Settings) -> Iterator[Row]:
    count = 30 if settings.quick else 300
    with daemons() as hosts:
        trials = interleave(
            {
                "send to seen, the writer's host": partial(seen, hosts, "S", count),
                "send to seen, another host": partial(seen, hosts, "one", count),
            },
            settings,
            label="send to seen",
            two_cores=False,
        )
    yield from trials.rows("bus", "ns", {"size": 32, "messages": count}, goals=SEEN_GOALS)


def run(settings: Settings) -> Iterator[Row]:
    """Let copies and the floor take turns, then the sequencer."""
    records = 100_000 if settings.quick else 400_000
    store = filled(records)
    trials = interleave(
        {
            "copy": partial(copy, store, records),
            "copy, with a key": partial(copy, store, records, sealed=True),
            TCP: partial(raw, records),
        },
        settings,
        label=f"{SIZE} B",
    )
    yield from trials.rows(
        "bus",
        "ns/record",
        {"size": SIZE, "records": records},
        base=TCP,
        goals=COPY_GOALS,
        verified="the copy's last record is the source's",
    )
    yield from _latencies(settings)
    yield from _appends(settings)
    yield from _seen(settings)
    with tempfile.TemporaryDirectory() as place:
        _write(Path(place), records)
        yield from _sent(settings, Path(place), records)
        trials = interleave({"restart": partial(restart, Path(place), records)}, settings,
                            label="restart", two_cores=False)  # fmt: skip
    yield from trials.rows(
        "bus",
        "ms/GiB",
        {"size": SIZE, "records": records},
        goals=RESTART_GOALS,
        verified="all records were there",
    )
    trials = interleave(
        {
            "sequencer": partial(order, records, BATCH),
            "sequencer, one a datagram": partial(order, records, 1),
        },
        settings,
        label="32 B",
        two_cores=False,
    )
    yield from trials.rows(
        "bus",
        "ns/message",
        {"size": 32, "messages": records},
        goals=ORDER_GOALS,
        verified="every message was accepted",
    )


BENCHMARK = Benchmark(
    name="bus",
    question="What does a bus cost: a copy of a store over TCP, a message's place in the order?",
    topology="""
store --> source --TCP, another process--> consumer --> copy        (floor: the same bytes)
datagrams --> sequencer --> store                                    one core
""",
    run=run,
    seconds=60.0,
)
