"""Links that threads carry: the same bytes as by hand, and nothing once an end is over."""

import contextlib
import os
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from tests.bus.drive import LAYOUT, Copy, lead, register, send, sequencer, store
from tests.waiting import wait_until
from udpfast.agents.link_thread import ConsumerThread, SourceThread
from udpfast.bus.log import Store
from udpfast.bus.replication import Consumer, Source
from udpfast.bus.sequencer import Sequencer
from udpfast.bus.wire import LinkType, link_frame
from udpfast.core.agent import AgentRunner
from udpfast.core.clock import monotonic_ns
from udpfast.lab.bus_memory import MemoryLog

IDLE = ["spin", "yield", "backoff", "sleep"]


def content(kept: Store) -> bytes:
    return b"".join(kept.log.records(kept.log.first()[0], kept.end))


def filled(count: int, capacity: int = 1 << 18) -> Sequencer:
    seq = sequencer(capacity)
    register(seq)
    for first in range(1, count + 1, 8):
        send(seq, first, min(8, count + 1 - first))
    return seq


class Threads:
    """A link of two threads, and the loops that attend them."""

    def __init__(self, source: Store, copy: Store, idle: str = "backoff") -> None:
        now_ns = monotonic_ns()
        self.source, self.consumer = (
            Source(source, 1, now_ns),
            Consumer(copy, 2, now_ns, any_source=not source.writer),
        )
        self.source.feed(self.consumer.output(), now_ns)
        self.consumer.feed(self.source.output(1), now_ns)
        assert self.consumer.following
        self.sockets = socket.socketpair()
        for each in self.sockets:
            each.setblocking(False)
        self.source.carried = self.consumer.carried = True
        copy.intake = self.consumer
        self.sends = SourceThread(self.source, self.sockets[0].fileno(), idle)
        self.takes = ConsumerThread(self.consumer, self.sockets[1].fileno(), idle)

    @contextlib.contextmanager
    def running(self) -> Iterator["Threads"]:
        with (
            AgentRunner(self.sends, idle=self.sends.idle),
            AgentRunner(self.takes, idle=self.takes.idle),
        ):
            yield self
        for each in self.sockets:
            each.close()

    def attend(self) -> "Threads":
        now_ns = monotonic_ns()
        for end in (self.source, self.consumer):
            end.work(now_ns, time.time_ns())
            end.attend()
        odd = self.sends.odd()
        if odd:
            self.source.feed(odd, now_ns)
        return self

    def level(self) -> bool:
        """Whether the copy has all, and the source has heard so."""
        self.attend()
        return self.source.acked == self.source.store.end


@pytest.mark.parametrize("idle", IDLE)
def test_threads_copy_all_bytes_through_many_segments(idle: str) -> None:
    seq, other = filled(4_000, 1 << 14), store("one")
    with Threads(seq.store, other, idle).running() as link:
        wait_until(link.level, "the copy")
        send(seq, 4_001)
        wait_until(link.level, "what came later")
    assert content(other) == content(seq.store)
    assert [s.header for s in other.log.segments] == [s.header for s in seq.store.log.segments]
    assert other.lineage.pairs == seq.store.lineage.pairs


def test_records_of_another_epoch_come_with_it() -> None:
    seq, other = filled(10), store("one")
    with Threads(seq.store, other).running() as link:
        wait_until(link.level, "the copy")
        again = lead(seq.store)
        send(again, 11)
        wait_until(link.level, "the next epoch's records")
    assert other.lineage.pairs == seq.store.lineage.pairs
    assert other.epoch == again.store.epoch
    assert content(other) == content(seq.store)


def test_nothing_of_a_lower_epoch_is_taken_behind_a_promise() -> None:
    seq, other = filled(10), store("one")
    with Threads(seq.store, other).running() as link:
        wait_until(link.level, "the copy")
        other.fence(seq.store.epoch << 1)
        end = other.end
        send(seq, 11, 50)
        wait_until(lambda: link.attend().consumer.closed, "the end of the link")
    assert other.end == end
    assert link.consumer.closed in ("records of an epoch that is over", "an epoch that is over")


def test_a_copy_that_sets_records_aside_is_no_source_any_more() -> None:
    seq, middle, last = filled(100), store("one"), store("two")
    Copy(seq.store, middle).pump()
    at = middle.log.segments[0].position
    with Threads(middle, last).running() as link:
        wait_until(link.level, "the copy")
        middle.cut(at)
        wait_until(lambda: link.attend().source.closed, "the end of the link")
    assert link.source.closed == "records were set aside"
    assert content(last) == content(seq.store)


def test_damage_on_the_way_is_never_seen() -> None:
    seq, other = filled(100), store("one")
    link = Threads(seq.store, other)
    send(seq, 101, 20)
    frame = bytearray(link.source.output(1))
    frame[len(frame) // 2] ^= 4
    before = other.end
    link.sockets[0].send(frame)
    with AgentRunner(link.takes, idle=link.takes.idle):
        wait_until(lambda: link.attend().consumer.closed, "the end of the link")
    assert link.consumer.damaged
    assert content(seq.store).startswith(content(other))
    assert before <= other.end < seq.store.end


def test_what_is_no_ack_ends_a_source() -> None:
    seq, other = filled(10), store("one")
    link = Threads(seq.store, other)
    link.sockets[1].send(link_frame(LinkType.BYE, 0, 0))
    with AgentRunner(link.sends, idle=link.sends.idle):
        wait_until(lambda: link.attend().source.closed, "the end of the link")
    assert link.source.closed.startswith("not understood")


@pytest.mark.parametrize("more", [8, 1 << 40])
def test_an_ack_of_what_was_not_sent_ends_a_source(more: int) -> None:
    seq, other = filled(10), store("one")
    link = Threads(seq.store, other)
    body = struct.pack("<QQQQq", seq.store.end + more, 0, 0, 0, 0)
    link.sockets[1].send(link_frame(LinkType.ACK, 0, seq.store.epoch, body))
    with AgentRunner(link.sends, idle=link.sends.idle):
        wait_until(lambda: link.attend().source.closed, "the end of the link")
    assert "an ACK of" in link.source.closed
    assert seq.store.acks.get("one", (0, 0))[0] <= seq.store.end


def test_acks_wake_whoever_waits_for_them() -> None:
    seq, other = filled(10), store("one")
    link = Threads(seq.store, other)
    heard, bell = os.pipe()
    link.sends = SourceThread(link.source, link.sockets[0].fileno(), "backoff", acks=bell)
    send(seq, 11)
    with link.running():
        assert os.read(heard, 1), "blocks until an ACK was there"
        wait_until(link.level, "the copy")
    os.close(heard)
    os.close(bell)


def test_a_copy_without_room_waits_and_goes_on() -> None:
    seq = filled(2_000, 1 << 14)
    log = MemoryLog(1 << 14, LAYOUT)
    other = Store(log, "one")
    link = Threads(seq.store, other)
    log.disk_full = True
    with link.running():
        wait_until(lambda: link.attend().consumer.stalled, "the copy to stand still")
        end = other.end
        for _ in range(20):
            link.attend()
        assert other.end == end
        log.disk_full = False
        wait_until(link.level, "the copy")
    assert content(other) == content(seq.store)


@pytest.mark.parametrize("closed", [0, 1])
def test_an_end_that_is_gone_is_found(closed: int) -> None:
    seq, other = filled(10), store("one")
    link = Threads(seq.store, other)
    link.sockets[closed].close()
    left = (link.takes, link.sends)[closed]
    with AgentRunner(left, idle=left.idle):
        wait_until(lambda: left.broken, "the end of the link")


def test_a_reader_that_takes_a_byte_at_a_time_gets_whole_frames() -> None:
    seq, other = filled(300), store("one")
    link = Threads(seq.store, other)
    link.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    with AgentRunner(link.sends, idle=link.sends.idle):

        def level() -> bool:
            with contextlib.suppress(BlockingIOError):
                link.consumer.feed(link.sockets[1].recv(7), monotonic_ns())
            link.source.work(monotonic_ns(), time.time_ns())
            link.source.attend()
            return other.end == seq.store.end

        wait_until(level, "the copy")
    assert content(other) == content(seq.store)
