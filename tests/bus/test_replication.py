"""A copy is a prefix of its store at any moment, verified before readers can see it."""

import random

import pytest

from lab.bus_memory import MemoryLog
from tests.bus.drive import (
    IDENTITY,
    MS,
    T0,
    Copy,
    S,
    lead,
    numbers,
    register,
    send,
    sequencer,
    store,
)
from udpfast.bus.hello import Answer, RefuseReason
from udpfast.bus.link_sender import LinkSender
from udpfast.bus.log import Store
from udpfast.bus.promotion import Promotion, PromotionState
from udpfast.bus.sequencer import Sequencer
from udpfast.bus.wire import LinkType, epoch_after, link_frame, link_parse


def content(kept) -> bytes:
    return b"".join(kept.log.records(kept.log.first()[0], kept.end))


def filled(count=100, capacity=1 << 14, **options):
    seq = sequencer(capacity, **options)
    register(seq)
    for first in range(1, count + 1):
        send(seq, first)
    return seq


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_copy_is_the_same_bytes_in_the_same_segments(chunk: int) -> None:
    seq, other = filled(200), store("one")
    Copy(seq.store, other).pump(chunk)
    assert content(other) == content(seq.store)
    assert [s.header for s in other.log.segments] == [s.header for s in seq.store.log.segments]
    assert other.lineage.pairs == seq.store.lineage.pairs
    assert other.identity == IDENTITY


def test_link_cut_anywhere_goes_on_at_the_copys_own_end() -> None:
    rng = random.Random(1)
    seq, other = filled(50), store("one")
    for turn in range(300):
        link = Copy(seq.store, other)
        link.source.feed(link.receiver.output(), 0)
        data = link.source.output()
        link.receiver.feed(data[: rng.randrange(len(data) + 1)], 0)
        assert content(seq.store).startswith(content(other))
        link.source.close("cut")
        if turn % 3 == 0:
            send(seq, 51 + turn // 3)
    Copy(seq.store, other).pump()
    assert content(other) == content(seq.store)


def test_bit_flipped_in_records_is_never_visible() -> None:
    seq = filled(3)
    source = Copy(seq.store, store("one"))
    source.source.feed(source.receiver.output(), 0)
    data = source.source.output()
    sound = content(seq.store)
    for bit in range(8 * len(data)):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << bit % 8
        other = store("two")
        link = Copy(seq.store, other)
        link.receiver.feed(bytes(bad), 0)
        assert sound.startswith(content(other))
        assert link.receiver.closed or len(content(other)) < len(sound), bit


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Store(MemoryLog(1 << 14, 7, bytes(16)[:-1] + b"x"), "one"), "WRONG_STORE"),
        (lambda: Store(MemoryLog(1 << 14, 8), "one"), "LAYOUT"),
    ],
)
def test_copy_of_something_else_is_refused(make, reason: str) -> None:
    link = Copy(filled(3).store, make()).pump()
    assert link.receiver.refused.reason is RefuseReason[reason]
    assert link.receiver.store.end == 0


def test_empty_segment_that_was_ended_is_announced_once() -> None:
    seq, one, two = filled(3), store("one"), store("two")
    Copy(seq.store, one).pump().source.close("cut")
    one.log.roll()
    one.log.close()
    link = Copy(one, two, any_source=True).pump()
    assert content(two) == content(one)
    assert link.work(100 * MS).receiver.following
    assert [segment.position for segment in two.log.segments] == [0, two.end]


def test_second_segment_at_one_position_is_not_taken() -> None:
    seq, one = filled(3), store("one")
    Copy(seq.store, one).pump()
    first = one.log.segment_header(0)
    one.log.roll()
    with pytest.raises(ValueError, match="does not fit a copy"):
        one.log.roll(one.log.segment_header(one.end))
    assert len(one.log.segments) == 2
    assert one.log.segment_header(0) == first


def test_copy_that_needs_what_was_removed_is_told_what_is_kept() -> None:
    seq, other = filled(10, 4096), store("one")
    Copy(seq.store, other).pump().source.close("cut")
    for first in range(11, 200):
        send(seq, first)
    while seq.store.log.remove_oldest():
        pass
    before = content(other)
    link = Copy(seq.store, other).pump()
    assert link.receiver.refused.reason is RefuseReason.GONE
    assert link.receiver.refused.at == seq.store.log.first()[0]
    assert content(other) == before
    new = store("two")
    Copy(seq.store, new).pump()
    assert content(new) == content(seq.store)


def test_copy_beyond_a_promotion_is_told_the_exact_record() -> None:
    seq, one, two = filled(10), store("one"), store("two")
    Copy(seq.store, one).pump().source.close("cut")
    at = one.end
    send(seq, 11, 5)
    Copy(seq.store, two).pump()
    promoted = lead(one, promoted=True)
    send(promoted, 11, 2)
    link = Copy(one, two).pump()
    assert link.receiver.refused.reason is RefuseReason.DIVERGED
    assert link.receiver.refused.at == at
    assert link.receiver.refused.own == one.log.checksum_at(at) != two.log.checksum_at(at)
    assert two.cut(at) == 5
    Copy(one, two).pump()
    assert content(two) == content(one)
    assert len(two.log.aside) == 5


def test_two_promoted_at_one_position_are_told_apart() -> None:
    seq, one, two, three = filled(10), store("one"), store("two"), store("three")
    for other in (one, two):
        Copy(seq.store, other).pump().source.close("cut")
    at = one.end
    lead(one, promoted=True)
    two.begin(epoch_after(two.epoch, 77, promoted=True))
    two.log.roll()
    Copy(one, three).pump()
    low, high = sorted((one, two), key=lambda kept: kept.epoch)
    link = Copy(low, high).pump()
    assert link.receiver.refused.reason is RefuseReason.FENCED
    assert not low.writer
    assert three.end > at


def test_consumer_with_a_later_promise_fences_the_writer() -> None:
    seq, other = filled(5), store("one")
    Copy(seq.store, other).pump().source.close("cut")
    later = epoch_after(other.epoch, 1, promoted=True)
    assert other.fence(later)
    link = Copy(seq.store, other).pump()
    assert link.receiver.refused.reason is RefuseReason.FENCED
    assert link.receiver.refused.at == later == seq.store.promised
    end = seq.store.end
    send(seq, 6)
    assert seq.store.end == end


def test_promise_outlives_the_process() -> None:
    seq = filled(1)
    seq.store.fence(epoch_after(seq.store.epoch, 1, promoted=True))
    again = Store(seq.store.log, "S")
    assert again.promised == seq.store.promised > again.epoch
    assert not again.was_writer
    with pytest.raises(ValueError, match="expected an epoch"):
        again.begin(epoch_after(again.epoch, 1, promoted=False))


def test_second_link_of_a_living_host_is_refused_and_a_dead_one_is_replaced() -> None:
    seq = filled(5)
    first = Copy(seq.store, store("one")).pump()
    second = Copy(seq.store, store("one"), now_ns=500 * MS).pump()
    assert second.receiver.refused.reason is RefuseReason.NAME_IN_USE
    third = Copy(seq.store, store("one"), now_ns=2 * S).pump()
    assert third.receiver.following
    assert first.source.closed
    assert seq.store.links["one"] is third.source


def test_replica_serves_only_who_follows_it() -> None:
    seq, one = filled(5), store("one")
    Copy(seq.store, one).pump()
    assert Copy(one, store("two")).pump().receiver.refused.reason is RefuseReason.NOT_WRITER
    two = store("two")
    assert Copy(one, two, any_source=True).pump().receiver.following
    assert content(two) == content(seq.store)
    behind = store("three")
    assert Copy(behind, two, any_source=True).pump().receiver.refused.reason is RefuseReason.BEHIND


def test_copy_leaves_a_host_that_writes_no_more() -> None:
    # Its progress would count nowhere, so that no outbox would ever let messages go.
    seq, one, two = filled(5), store("one"), store("two")
    standby = Copy(seq.store, one).pump()
    relayed = Copy(seq.store, two, any_source=True).pump()
    seq.store.fence(epoch_after(seq.store.epoch, 1, promoted=True))
    standby.source.work(MS, T0)
    relayed.source.work(MS, T0)
    assert standby.source.closed == "another host writes the store"
    assert not relayed.source.closed


def fenced(promotion: Promotion, *others: Store) -> None:
    """Let other hosts answer both questions, and the one with the longest copy welcome a copy."""
    for _ in range(2):
        for kept in others:
            kept.fence(promotion.epoch)
            promotion.answered(
                kept.host,
                Answer(kept.promised, kept.epoch, kept.end, 0, 0, False, kept.host, kept.identity),
                0,
            )  # fmt: skip
        for kept in others:
            if promotion.state is PromotionState.COMPARING and promotion.source == kept.host:
                greet(promotion, kept)


def greet(promotion: Promotion, kept: Store) -> None:
    """Let a host answer the HELLO of a promotion, and nothing else."""
    source, consumer = LinkSender(kept, 1, 0), promotion.copy(kept.host, 2, 0)
    source.feed(consumer.output(), 0)
    data = source.output()
    consumer.feed(data[: link_parse(data)[1]], 0)
    promotion.work(MS, T0)
    source.close("greeted")


def test_promotion_does_not_wait_for_what_its_source_lost() -> None:
    kept, one = filled(5).store, store("one")
    promotion = Promotion(one, ("S",), 7, 0)
    fenced(promotion, kept)
    assert (promotion.state, promotion.source) == (PromotionState.COPYING, "S")
    kept.log.sync()
    position = list(kept.log.records(0, kept.end))[1]
    kept.log.lose_power(int.from_bytes(position[8:16], "little"))
    again = Store(kept.log, "S", standbys=("one",))
    source = LinkSender(again, 1, 0)
    consumer = promotion.copy("S", 2, 0)
    source.feed(consumer.output(), 0)
    consumer.feed(source.output(), 0)
    promotion.work(MS, T0)
    assert promotion.state is PromotionState.READY
    assert (one.end, one.epoch) == (again.end, again.epoch)


@pytest.mark.parametrize(("lives", "state"), [(False, "READY"), (True, "REFUSED")])
def test_promotion_waits_for_the_end_of_a_link_from_before(lives: bool, state: str) -> None:
    # The link may be of an earlier daemon of this host. It is closed once nothing arrives on it.
    kept, one = filled(5).store, store("one")
    before = Copy(kept, store("one")).pump()
    promotion = Promotion(one, ("S",), 7, 0)
    for ms in range(0, 5000, 100):
        if lives:
            before.source.feed(link_frame(LinkType.ACK, 0, kept.epoch, bytes(48)), ms * MS)
        kept.fence(promotion.epoch)
        answer = Answer(kept.promised, kept.epoch, kept.end, 0, 0, True, "S", kept.identity)
        promotion.answered("S", answer, ms * MS)
        if not promotion.links:
            continue
        source, consumer = LinkSender(kept, 1, ms * MS), promotion.copy("S", 2, ms * MS)
        source.feed(consumer.output(), ms * MS)
        consumer.feed(source.output(), ms * MS)
        promotion.work(ms * MS, T0)
        promotion.work(ms * MS, T0)
        source.close("over")
    assert promotion.state is PromotionState[state]


def test_promotion_leaves_a_source_that_lost_what_another_host_has() -> None:
    seq, two, one = filled(5), store("two"), store("one")
    Copy(seq.store, two).pump()
    promotion = Promotion(one, ("S", "two"), 7, 0)
    fenced(promotion, seq.store, two)
    assert promotion.source == "S"
    seq.store.log.sync()
    lost = list(seq.store.log.records(0, seq.store.end))[-2]
    seq.store.log.lose_power(int.from_bytes(lost[8:16], "little"))
    again = Store(seq.store.log, "S", standbys=("one", "two"))
    for kept, host in ((again, "S"), (two, "two")):
        assert (promotion.state, promotion.source) == (PromotionState.COPYING, host)
        source, consumer = LinkSender(kept, 1, 0), promotion.copy(host, 2, 0)
        source.feed(consumer.output(), 0)
        consumer.feed(source.output(), 0)
        promotion.work(MS, T0)
        promotion.work(2 * MS, T0)
    assert promotion.state is PromotionState.READY
    assert content(one) == content(two)


def test_host_that_had_no_room_to_write_follows_again() -> None:
    seq, other = sequencer(4096), store("one")
    register(seq)
    number = 0
    while seq.store.end < 4096 - 500:  # the next datagram may need a segment
        number += 1
        send(seq, number)
    Copy(seq.store, other).pump().source.close("cut")
    send(seq, number + 1)
    other.log.disk_full = True
    assert lead(other, promoted=True).full
    other.log.disk_full = False
    epoch = epoch_after(other.promised, 1, promoted=True)
    assert other.fence(epoch)
    send(Sequencer(seq.store, epoch, 0, T0), number + 2, 20)
    Copy(seq.store, other).pump()
    assert content(other) == content(seq.store)
    assert [s.header for s in other.log.segments] == [s.header for s in seq.store.log.segments]


def test_disk_full_stops_the_copy_and_nothing_else() -> None:
    seq, other = filled(5, 4096), store("one")
    link = Copy(seq.store, other).pump()
    other.log.disk_full = True
    for first in range(6, 150):
        send(seq, first)
    link.pump()
    assert link.receiver.stalled
    assert not link.source.closed
    end = other.end
    for _ in range(30):
        link.work(100 * MS)
    assert other.end == end
    assert not link.receiver.closed
    assert not link.source.closed
    other.log.disk_full = False
    link.work(100 * MS)
    assert content(other) == content(seq.store)


def test_end_that_says_nothing_for_a_second_is_dead() -> None:
    link = Copy(filled(1).store, store("one")).pump()
    for _ in range(50):
        link.work(50 * MS)
    assert not link.source.closed
    assert not link.receiver.closed
    link.source.work(link.now_ns + 1001 * MS, 0)
    link.receiver.work(link.now_ns + 1001 * MS, 0)
    assert link.source.closed == link.receiver.closed == "silent"


@pytest.mark.parametrize("bit", [12, 17])
@pytest.mark.parametrize("at", ["receiver", "source"])
def test_frame_whose_length_was_turned_is_not_waited_for(at: str, bit: int) -> None:
    # Beats still arrive, and must not be taken for the rest of the frame.
    link = Copy(filled(1).store, store("one")).pump()
    kind = LinkType.HEARTBEAT if at == "receiver" else LinkType.ACK
    frame = bytearray(link_frame(kind, 0, link.source.store.epoch, bytes(48)))
    frame[8 + bit // 8] ^= 1 << bit % 8
    getattr(link, at).feed(bytes(frame), link.now_ns)
    for _ in range(30):
        link.work(50 * MS)
    assert getattr(link, at).closed == "silent"


def test_gate_shows_what_so_many_copies_have() -> None:
    seq = filled(3, gate=1, standbys=("one", "two"))
    assert seq.store.released == 0
    one, two = store("one", gate=1, standbys=("S", "two")), store("two", gate=1, standbys=("S",))
    link = Copy(seq.store, one).pump()
    link.work(2 * MS)
    assert seq.store.released == seq.store.end
    assert seq.store.kept == 0
    link.work(2 * MS)
    assert one.released == one.end
    Copy(seq.store, two).pump().work(2 * MS)
    assert seq.store.kept == seq.store.end
    send(seq, 4)
    assert seq.store.released < seq.store.end


def test_stale_ack_of_more_than_there_is_ends_the_link() -> None:
    seq, other = filled(3), store("one")
    link = Copy(seq.store, other).pump()
    bigger = filled(10)
    Copy(bigger.store, ahead := store("one")).pump()
    link.source.feed(Copy(bigger.store, ahead).pump().work(2 * MS).receiver.output(), 0)
    assert numbers(other) == [1, 2, 3]


def test_follower_that_writes_now_keeps_nobody_waiting() -> None:
    kept = store("one", followers=("two",))
    filled_end = 4096
    kept.log.adopt(IDENTITY, filled_end, 10)
    assert kept.kept_below() == 0
    kept.learn_writer("two", 7)
    assert kept.kept_below() == filled_end


def test_follower_whose_epoch_is_over_may_have_lost_what_it_wrote() -> None:
    kept = store("one", followers=("two",))
    kept.log.adopt(IDENTITY, 4096, 10)
    kept.learn_writer("two", 7)
    kept.fence(8)
    assert kept.kept_below() == 0
    kept.learn_writer("S", 8)
    kept.learn_writer("two", 7)  # learnt again from its records
    assert (kept.writer_host, kept.kept_below()) == ("S", 0)


def test_copy_killed_behind_its_first_segments_header_has_that_segment_once() -> None:
    seq = filled(20)
    copy = store("one")
    copy.adopt(IDENTITY, 0, 0, [])
    assert copy.log.roll(seq.store.log.segment_header(0))
    Copy(seq.store, copy).pump()
    assert content(copy) == content(seq.store)
    assert [s.position for s in copy.log.segments] == [s.position for s in seq.store.log.segments]


def test_writer_that_has_less_than_was_kept_keeps_no_more_than_it_has() -> None:
    full = filled(10, standbys=("one",))
    short = store("one", standbys=("S",))
    Copy(filled(3).store, short).pump()
    # The source loses its power before it sends all of these.
    short.learn(0, full.store.end, full.store.end)
    later = lead(short)
    assert short.kept <= short.end
    begun = short.end
    for first in range(4, 20):
        send(later, first)
    assert short.end > begun
    assert short.kept <= begun, "what the other host cannot have yet"


def test_epoch_that_could_write_nothing_counts_for_nothing() -> None:
    writer = filled(5).store
    empty = store("two", capacity=4096)
    empty.adopt(IDENTITY, 0, 0, [])
    empty.log.disk_full = True
    empty.fence(writer.epoch)
    lead(empty)
    assert empty.epoch > writer.epoch
    promotion = Promotion(empty, ("S",), 1, 0)
    fenced(promotion, writer)
    assert empty.epoch == 0
    assert promotion.state is PromotionState.COPYING
    assert promotion.source == "S"


def test_copy_of_a_copy_learns_who_writes_as_soon_as_that_does() -> None:
    seq, one, two = filled(5), store("one"), store("two")
    Copy(seq.store, one).pump().source.close("over")
    one = Store(one.log, "one")  # a new daemon, which has learnt nothing yet
    relayed = Copy(one, two, any_source=True).pump()
    relayed.source.work(MS, T0)
    assert (two.writer_host, relayed.source.closed) == ("", "")
    Copy(seq.store, one).pump()
    relayed.source.work(2 * MS, T0)
    assert relayed.source.closed
    Copy(one, two, any_source=True).pump()
    assert two.writer_host == "S"
    Copy(Store(one.log, "one"), two, any_source=True).pump()
    assert two.writer_host == "S", "who knows less tells nothing"
