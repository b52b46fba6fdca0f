"""What does a bus cost: a copy of a store over TCP, a message's place in the order?

    store --> Source --TCP on loopback, another process--> Consumer --> copy
    bytes -----------TCP on loopback, another process-------------------> nowhere     (the floor)

    datagrams of many messages --> sequencer --> store        one core
    records, one at a time ------> store                      one core, beside it

A copy has every record checked, placed and committed; the floor moves the same bytes, and looks at
none of them.

Run it with `udpfast bench run bus`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial

from udpfast.agents.link_thread import link_thread
from udpfast.bus.log import Store
from udpfast.bus.replication import Consumer, Source
from udpfast.bus.sequencer import Sequencer, SequencerVerdict
from udpfast.bus.wire import SendFlag, epoch_after, name_bytes, send_datagram
from udpfast.core.agent import AgentRunner
from udpfast.core.clock import monotonic_ns
from udpfast.lab.bus_memory import MemoryLog

from .result import Row
from .trials import Benchmark, Settings, interleave

__all__ = ["BENCHMARK"]

TCP = "TCP alone"
SIZE = 256
CHUNK = 1 << 18
#: Of a call of the floor: 64 records.
FLOOR_BYTES = 64 * (64 + SIZE)
LAYOUT = 1
T0 = 1_700_000_000_000_000_000
#: Messages of a datagram: as many of 32 bytes as fit.
BATCH = 38
COPY_GOALS = {"copy": "P26: <= 1.25"}
ORDER_GOALS = {"sequencer": "P27: <= 500 ns"}


def capacity(records: int, size: int) -> int:
    """Return bytes of one segment for so many records."""
    return records * (64 + size) + (1 << 20)


def sequencer(records: int, size: int) -> Sequencer:
    """Return the writer of an empty store, with one sender registered."""
    log = MemoryLog(capacity(records, size), LAYOUT, bytes(range(16)))
    made = Sequencer(Store(log, "S"), epoch_after(0, 1, promoted=True), 0, T0)
    body = (1).to_bytes(8, "little") + name_bytes("app") + name_bytes("host")
    made.receive(
        send_datagram(made.store.key, made.store.epoch, 0, 0, 0, 0, flags=SendFlag.REGISTER,
                      body=body), 0, T0)  # fmt: skip
    return made


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


def _to_child(
    child: Callable[[socket.socket], None], parent: Callable[[socket.socket], float]
) -> float:
    # What the parent returns, where both have an end of a connection.
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with socket.create_connection(server.getsockname()) as sock:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    child(sock)
                    status = 0
            finally:
                os._exit(status)
        sock, _ = server.accept()
        with sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            took = parent(sock)
        _, status = os.waitpid(pid, 0)
        assert status == 0, "the other process failed"
        return took


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

    return _to_child(take, give) / records


def _carry(end: Source | Consumer, sock: socket.socket, idle: str, done: Callable[[], bool]
           ) -> float:  # fmt: skip
    # As a daemon does: a thread for the bytes, and a loop for what it cannot do. How long it took.
    sock.setblocking(False)
    thread = link_thread(end, sock.fileno(), idle)
    begun = time.perf_counter_ns()
    with AgentRunner(thread, idle=thread.idle):
        while not (done() or thread.broken):
            assert not end.closed, end.closed
            end.work(monotonic_ns(), 0)
            end.attend()
            time.sleep(0.0002)
        took = time.perf_counter_ns() - begun
    sock.setblocking(True)
    return took


def follow(sock: socket.socket, log: MemoryLog) -> Consumer:
    """Return a copy that follows the store at the other end of a connection."""
    consumer = Consumer(Store(log, "one"), 2, monotonic_ns())
    sock.sendall(consumer.output())
    while not consumer.following:
        said = sock.recv(consumer.room)
        assert said, "the source is gone"
        consumer.feed(said, monotonic_ns())
        assert not consumer.closed, consumer.closed
    return consumer


def serve(sock: socket.socket, store: Store) -> Source:
    """Return the store's end of a connection on which a copy follows."""
    source = Source(store, 1, monotonic_ns())
    while not source.following:
        said = sock.recv(CHUNK)
        assert said, "the copy is gone"
        source.feed(said, monotonic_ns())
        assert not source.closed, source.closed
    sock.sendall(source.output(1))
    return source


def copy(store: Store, records: int) -> float:
    """Return ns per record of a copy, until the source has heard of the last."""

    def take(sock: socket.socket) -> None:
        log = MemoryLog(1 << 16, LAYOUT)
        log.prepare(capacity(records, SIZE))
        _carry(follow(sock, log), sock, "backoff", lambda: False)
        assert log.last == store.log.last

    def give(sock: socket.socket) -> float:
        source = serve(sock, store)
        took = _carry(source, sock, "backoff", lambda: source.acked == store.end)
        source.close("done")
        return took

    return _to_child(take, give) / records


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


def run(settings: Settings) -> Iterator[Row]:
    """Let copies and the floor take turns, then the sequencer."""
    records = 100_000 if settings.quick else 400_000
    store = filled(records)
    trials = interleave(
        {"copy": partial(copy, store, records), TCP: partial(raw, records)},
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
