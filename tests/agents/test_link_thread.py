"""Threads carry the same bytes over a link as a loop does, and none once an end is closed."""

import contextlib
import os
import random
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from lab.bus_memory import MemoryLog
from tests.bus.drive import LAYOUT, Copy, lead, register, send, sequencer, store
from tests.waiting import PATIENCE_S, wait_until
from udpfast.agents.bus.link_thread import ReceiverThread, SenderThread
from udpfast.bus.link_receiver import LinkReceiver
from udpfast.bus.link_seal import LinkSeal
from udpfast.bus.link_sender import LinkSender
from udpfast.bus.log import Store
from udpfast.bus.seal import NONCE_SIZE
from udpfast.bus.sequencer import Sequencer
from udpfast.bus.wire import LinkType, link_frame
from udpfast.core.agent import AgentRunner
from udpfast.core.clock import monotonic_ns
from udpfast.shm.wake import Sleeper, WakeRegion

IDLE = ["spin", "yield", "backoff", "sleep"]
KEY, OLD, OTHER = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))


def content(kept: Store) -> bytes:
    return b"".join(kept.log.records(kept.log.first()[0], kept.end))


def filled(count: int, capacity: int = 1 << 18) -> Sequencer:
    seq = sequencer(capacity)
    register(seq)
    for first in range(1, count + 1, 8):
        send(seq, first, min(8, count + 1 - first))
    return seq


def seals(sources: Sequence[bytes], copies: Sequence[bytes]) -> tuple[LinkSeal, LinkSeal]:
    """Seals of a source and of its copy with their keys, after the greeting."""
    ours, theirs = (LinkSeal(keys, os.urandom(NONCE_SIZE), began=began)
                    for keys, began in ((sources, False), (copies, True)))  # fmt: skip
    theirs.unwrap(ours.wrap(b""))
    assert ours.unwrap(theirs.wrap(b"") + theirs.wrap(b"hello")) == b"hello"
    return ours, theirs


class Threads:
    """A link with two threads, and the loops that supervise them.

    `sockets` are the ends of source and copy; `keyed` are their seals.
    """

    def __init__(
        self, source: Store, copy: Store, idle: str = "backoff", *,
        keyed: tuple[LinkSeal, LinkSeal] | None = None,
        sockets: tuple[socket.socket, socket.socket] | None = None,
    ) -> None:  # fmt: skip
        now_ns = monotonic_ns()
        self.source, self.receiver = (
            LinkSender(source, 1, now_ns),
            LinkReceiver(copy, 2, now_ns, any_source=not source.writer),
        )
        self.source.feed(self.receiver.output(), now_ns)
        self.receiver.feed(self.source.output(1), now_ns)
        assert self.receiver.following
        self.sockets = sockets or socket.socketpair()
        for each in self.sockets:
            each.setblocking(False)
        self.source.carried = self.receiver.carried = True
        copy.intake = self.receiver
        sends, takes = keyed or (None, None)
        self.sends = SenderThread(self.source, self.sockets[0].fileno(), idle, seal=sends)
        self.takes = ReceiverThread(self.receiver, self.sockets[1].fileno(), idle, seal=takes)

    @contextlib.contextmanager
    def running(self) -> Iterator["Threads"]:
        with (
            AgentRunner(self.sends, idle=self.sends.idle),
            AgentRunner(self.takes, idle=self.takes.idle),
        ):
            yield self
        self.close()

    def close(self) -> None:
        for each in self.sockets:
            each.close()

    def attend(self) -> "Threads":
        now_ns = monotonic_ns()
        for end in (self.source, self.receiver):
            end.work(now_ns, time.time_ns())
            end.attend()
        odd = self.sends.odd()
        if odd:
            self.source.feed(odd, now_ns)
        return self

    def level(self) -> bool:
        """Whether the copy is complete, and the source knows it."""
        self.attend()
        return self.source.acked == self.source.store.end


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("idle", IDLE)
def test_threads_copy_all_bytes_through_many_segments(idle: str, sealed: bool) -> None:
    seq, other = filled(4_000, 1 << 14), store("one")
    keyed = seals([KEY], [KEY]) if sealed else None
    with Threads(seq.store, other, idle, keyed=keyed).running() as link:
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
        wait_until(lambda: link.attend().receiver.closed, "the end of the link")
    assert other.end == end
    assert link.receiver.closed in ("records of an epoch that has ended", "an epoch that has ended")


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
        wait_until(lambda: link.attend().receiver.closed, "the end of the link")
    link.close()
    assert link.receiver.damaged
    assert content(seq.store).startswith(content(other))
    assert before <= other.end < seq.store.end


def test_what_is_no_ack_ends_a_source() -> None:
    seq, other = filled(10), store("one")
    link = Threads(seq.store, other)
    link.sockets[1].send(link_frame(LinkType.BYE, 0, 0))
    with AgentRunner(link.sends, idle=link.sends.idle):
        wait_until(lambda: link.attend().source.closed, "the end of the link")
    link.close()
    assert link.source.closed.startswith("not understood")


@pytest.mark.parametrize("more", [8, 1 << 40])
def test_an_ack_of_what_was_not_sent_ends_a_source(more: int) -> None:
    seq, other = filled(10), store("one")
    link = Threads(seq.store, other)
    body = struct.pack("<QQQQq", seq.store.end + more, 0, 0, 0, 0)
    link.sockets[1].send(link_frame(LinkType.ACK, 0, seq.store.epoch, body))
    with AgentRunner(link.sends, idle=link.sends.idle):
        wait_until(lambda: link.attend().source.closed, "the end of the link")
    link.close()
    assert "an ACK of" in link.source.closed
    assert seq.store.acks.get("one", (0, 0))[0] <= seq.store.end


def test_acks_wake_whoever_waits_for_them() -> None:
    seq, other = filled(10), store("one")
    link = Threads(seq.store, other)
    heard, bell = os.pipe()
    link.sends = SenderThread(link.source, link.sockets[0].fileno(), "backoff", acks=bell)
    send(seq, 11)
    with link.running():
        assert os.read(heard, 1), "blocks until an ACK was there"
        wait_until(link.level, "the copy")
    os.close(heard)
    os.close(bell)


def test_a_reader_of_the_copy_that_sleeps_is_woken_by_its_thread(tmp_path: Path) -> None:
    seq, other = filled(10), store("one")
    link = Threads(seq.store, other)
    wake = WakeRegion.create(tmp_path)
    sleeper = Sleeper.attach(tmp_path)
    link.takes = ReceiverThread(link.receiver, link.sockets[1].fileno(), "backoff", wake=wake)
    with link.running():
        wait_until(link.level, "the copy")
        for number in range(11, 15):
            sleeper.arm()
            send(seq, number)
            assert select.select([sleeper.fileno()], [], [], PATIENCE_S)[0], f"a wake, {number}"
            os.read(sleeper.fileno(), 4096)
    sleeper.close()
    wake.close()


def test_a_copy_without_room_waits_and_goes_on() -> None:
    seq = filled(2_000, 1 << 14)
    log = MemoryLog(1 << 14, LAYOUT)
    other = Store(log, "one")
    link = Threads(seq.store, other)
    log.disk_full = True
    with link.running():
        wait_until(lambda: link.attend().receiver.stalled, "the copy to stand still")
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
    link.close()


@pytest.mark.parametrize("sealed", [False, True])
def test_a_reader_that_takes_a_byte_at_a_time_gets_whole_frames(sealed: bool) -> None:
    seq, other = filled(300), store("one")
    keyed = seals([KEY], [KEY]) if sealed else None
    theirs = keyed[1] if keyed else None
    link = Threads(seq.store, other, keyed=keyed)
    link.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    with AgentRunner(link.sends, idle=link.sends.idle):

        def level() -> bool:
            with contextlib.suppress(BlockingIOError):
                said = link.sockets[1].recv(7)
                link.receiver.feed(said if theirs is None else theirs.unwrap(said), monotonic_ns())
            link.source.work(monotonic_ns(), time.time_ns())
            link.source.attend()
            return other.end == seq.store.end

        wait_until(level, "the copy")
    link.close()
    assert content(other) == content(seq.store)


def test_seals_that_a_loop_began_go_on_in_a_thread() -> None:
    seq, other = filled(10), store("one")
    keyed = ours, theirs = seals([KEY], [KEY])
    link = Threads(seq.store, other, keyed=keyed)
    send(seq, 11, 300)
    wire = ours.wrap(link.source.output(1))
    # The loop read the first part of a piece; the thread receives the rest.
    assert theirs.unwrap(wire[:100]) == b""
    link.sockets[0].sendall(wire[100:])
    with link.running():
        wait_until(link.level, "the copy")
    assert content(other) == content(seq.store)


@pytest.mark.parametrize(
    ("sources", "copies"), [((OLD,), (OLD, KEY)), ((OLD, KEY), (KEY, OLD)), ((KEY, OLD), (KEY,))]
)
def test_keys_are_exchanged_step_by_step(sources: list[bytes], copies: list[bytes]) -> None:
    seq, other = filled(2_000, 1 << 14), store("one")
    with Threads(seq.store, other, keyed=seals(sources, copies)).running() as link:
        wait_until(link.level, "the copy")
    assert content(other) == content(seq.store)


class Between:
    """Stands between both ends of a sealed link, and may change the pieces of one direction."""

    def __init__(self, to_copy: bool, change: Callable[[int, bytes], list[bytes]]) -> None:
        (first, self.near), (self.far, last) = socket.socketpair(), socket.socketpair()
        self.ends = first, last
        self._change = change
        self._ways = [
            [self.near, self.far, to_copy, b"", b"", 0],
            [self.far, self.near, not to_copy, b"", b"", 0],
        ]
        for each in (self.near, self.far):
            each.setblocking(False)

    def carry(self) -> None:
        """Carry all bytes that have arrived."""
        for way in self._ways:
            source, target, changes, held, out, number = way
            with contextlib.suppress(BlockingIOError, ConnectionError):
                held += source.recv(1 << 20)
            while len(held) >= 20 and len(held) >= (end := 20 + int.from_bytes(held[:4], "little")):
                out += b"".join(self._change(number, held[:end]) if changes else [held[:end]])
                held, number = held[end:], number + 1
            with contextlib.suppress(BlockingIOError, ConnectionError):
                out = out[target.send(out) :] if out else out
            way[3:] = held, out, number

    def close(self) -> None:
        self.near.close()
        self.far.close()


class Attack:
    """Changes the pieces of a link in one way, at a place that the seed chooses."""

    def __init__(self, name: str, rng: random.Random, foreign: LinkSeal) -> None:
        self.name, self._rng, self._foreign = name, rng, foreign
        self._at = rng.randrange(1, 6)
        self._before: list[bytes] = []
        self.done = False

    def __call__(self, number: int, piece: bytes) -> list[bytes]:
        self._before.append(piece)
        if number != self._at:
            return [piece]
        self.done = True
        match self.name:
            case "bit":
                bit = self._rng.randrange(32, 8 * len(piece))
                return [(int.from_bytes(piece, "little") ^ 1 << bit).to_bytes(len(piece), "little")]
            case "replay":
                return [piece, self._rng.choice(self._before)]
            case "lose":
                return []
            case "reorder":
                self._at, self.name = number + 1, "and the one before"
                return []
            case "and the one before":
                return [piece, self._before[number - 1]]
            case _:  # the same piece, sealed for another link or by another key
                for _ in range(number):
                    self._foreign.wrap(b"any")
                return [self._foreign.wrap(piece[20:])]


@pytest.mark.parametrize("to_copy", [True, False])
@pytest.mark.parametrize("name", ["bit", "replay", "lose", "reorder", "other link", "other key"])
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_believed_that_was_not_sealed_so(name: str, to_copy: bool, seed: int) -> None:
    key = OTHER if name == "other key" else KEY
    attack = Attack(name, random.Random(seed), seals([key], [key])[not to_copy])
    between = Between(to_copy, attack)
    seq, other = filled(10), store("one")
    link = Threads(seq.store, other, keyed=seals([KEY], [KEY]), sockets=between.ends)
    number = 11
    with link.running():

        def found() -> bool:
            nonlocal number
            if seq.store.end == other.end:  # pieces pass one by one until the change is found
                send(seq, number, 3)
                number += 3
            between.carry()
            link.attend()
            return bool(link.takes.broken or link.sends.broken or link.receiver.closed)

        wait_until(found, "the end of the link")
        assert attack.done
        assert (link.takes if to_copy else link.sends).forged
        between.carry()
    between.close()
    assert content(seq.store).startswith(content(other))
    assert seq.store.acks.get("one", (0, 0))[0] <= other.end
