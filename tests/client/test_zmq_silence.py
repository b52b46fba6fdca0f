"""A silent fan-out: when a reader reports it, by integers, and how, on a real socket."""

import asyncio

import pytest

from tests.agents.fanout import Turned
from tests.client.instance import Instance
from tests.client.test_dead_writer import BTC, STUCK_NS, live
from udpfast import Books, Kind, Reader, ReadRecord
from udpfast.client.zmq_silence import Silence
from udpfast.core.clock import monotonic_ns
from udpfast.core.layout import ConnectionStatus, Stream
from udpfast.errors import ConfigError

MS = 1_000_000
HEARTBEAT = 500 * MS


def test_four_missed_heartbeats_are_silence() -> None:
    silence = Silence()
    assert not silence.heard(1, HEARTBEAT)
    assert not silence.look(1 + 4 * HEARTBEAT - 1)
    assert not silence.look(1 + 4 * HEARTBEAT)  # once: the queue may only be empty yet
    assert not silence.look(1 + 4 * HEARTBEAT + 100 * MS - 1)
    assert silence.look(1 + 4 * HEARTBEAT + 100 * MS)
    assert silence.silent
    assert not silence.look(10**18)  # it is said once
    assert silence.heard(10**18, HEARTBEAT)
    assert not silence.silent
    assert not silence.heard(10**18 + 1, HEARTBEAT)


def test_reader_that_was_away_looks_twice() -> None:
    silence = Silence()
    silence.heard(1, HEARTBEAT)
    assert not silence.look(100 * HEARTBEAT)
    assert not silence.heard(100 * HEARTBEAT + MS, HEARTBEAT)  # what had waited for it
    assert not silence.look(104 * HEARTBEAT + MS)
    assert not silence.heard(104 * HEARTBEAT + 2 * MS, HEARTBEAT)


@pytest.mark.parametrize(("limit_ns", "heartbeat_ns"), [(0, HEARTBEAT), (None, 0)])
def test_no_silence_is_too_long_without_a_limit(limit_ns: int | None, heartbeat_ns: int) -> None:
    silence = Silence(limit_ns)
    silence.heard(1, heartbeat_ns)
    assert not silence.look(10**17)
    assert not silence.look(10**18)


def test_nothing_is_silent_that_never_spoke() -> None:
    silence = Silence(1)
    assert not silence.look(10**17)
    assert not silence.look(10**18)


def test_reader_may_ask_for_another_limit() -> None:
    silence = Silence(7 * MS)
    silence.heard(1, HEARTBEAT)
    assert not silence.look(1 + 7 * MS)
    assert silence.look(1 + 107 * MS)


def said(record: ReadRecord, status: ConnectionStatus) -> bool:
    """Return whether a record is the reader's own report about its fan-out."""
    return (
        record.kind is Kind.CONNECTION
        and record.stream == Stream.NONE
        and record.data["status"] == status
        and record.data["silent_ns"] >= MS
        and record.published_ns > 0
    )


def test_reader_says_that_its_fanout_fell_silent_and_speaks_again(instance: Instance) -> None:
    with (
        Turned(instance) as turned,
        turned.open("?silent_ms=1", kinds=Kind.TOP_OF_BOOK) as reader,
    ):
        instance.top(1, 2)
        turned.turn()
        assert next(one for one in reader if one.kind is Kind.TOP_OF_BOOK).index == 0
        assert said(next(reader), ConnectionStatus.DISCONNECTED)
        assert reader.index == 1
        assert len(reader.poll(timeout=0)) == 0  # said once
        instance.top(3, 4)
        turned.turn()
        assert said(ready := next(reader), ConnectionStatus.READY)
        record = next(reader)
        assert (ready.index, ready.position) == (record.index, record.position)
        assert record.index == 1
        assert reader.lapped == 0


def test_event_loop_hears_of_silence(instance: Instance) -> None:
    async def first(reader: Reader) -> ReadRecord:
        return await anext(aiter(reader))

    with Turned(instance) as turned, turned.open("?silent_ms=1") as reader:
        assert said(asyncio.run(first(reader)), ConnectionStatus.DISCONNECTED)


def test_fanout_tells_its_heartbeat(instance: Instance) -> None:
    with Turned(instance, heartbeat_ms=1) as turned, turned.open() as reader:
        assert said(next(reader), ConnectionStatus.DISCONNECTED)


def test_fanout_is_silent_while_its_feed_stands_still(instance: Instance) -> None:
    def messages_of_a_second(now_ns: int) -> int:
        before = turned.fanout.statistics()["messages"]
        for ms in range(0, 1000, 10):
            turned.fanout.work(now_ns + ms * MS)
        return turned.fanout.statistics()["messages"] - before

    with Turned(instance, heartbeat_ms=10) as turned, turned.open("?silent_ms=60000"):
        now_ns = monotonic_ns()
        instance.ring.note_current(now_ns)
        assert messages_of_a_second(now_ns) > 50
        assert messages_of_a_second(now_ns + 1000 * MS) == 0
        instance.ring.note_current(now_ns + 2000 * MS)
        assert messages_of_a_second(now_ns + 2000 * MS) > 50


@pytest.mark.parametrize("query", ["silent_ms=", "silent_ms=-1", "silent_ms=1s", "silent=1"])
def test_limit_that_is_none_is_refused(query: str) -> None:
    with pytest.raises(ConfigError, match="silent_ms=MS"):
        Reader(f"zmq:ipc:///nowhere?{query}")


@pytest.mark.parametrize("before", ["heard", "silent"])
def test_what_a_feed_catches_up_ends_no_doubt_before_it_has(
    instance: Instance, before: str
) -> None:
    query = "?silent_ms=1" if before == "silent" else ""
    with Turned(instance) as turned, turned.open(query) as reader:
        books = Books(reader)
        instance.ring.note_current(monotonic_ns())
        live(instance)
        turned.turn()
        while not books.poll(timeout=1).headers["kind"].tolist().count(Kind.BOOK):
            pass
        instance.ring.note_current(monotonic_ns() - STUCK_NS)
        if before == "silent":
            silent = next(reader)
            assert said(silent, ConnectionStatus.DISCONNECTED)
            books.apply(silent)
        for _ in range(2):
            instance.book([(12, 1)], [(13, 1)], stream=1)
            instance.ring.flush()
            turned.turn()
        found: list[int] = []
        while found.count(Kind.BOOK) < 2:
            found += books.poll(timeout=1).headers["kind"].tolist()
        assert found.count(Kind.CONNECTION) == (before == "heard")
        assert books[BTC].stale
        instance.ring.note_current(monotonic_ns())
        while not reader.wait(0.01):  # its chores, which look at the loop, come now and then
            turned.turn()
        ready = next(reader)
        assert said(ready, ConnectionStatus.READY)
        books.apply(ready)
        assert not books[BTC].stale
