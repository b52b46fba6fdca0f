"""The writer appends every message once, in the order of its sender, with growing time stamps."""

import itertools
import random

import pytest

from tests.bus.drive import (
    IDENTITY,
    MS,
    T0,
    Copy,
    S,
    lead,
    numbers,
    records,
    register,
    send,
    sequencer,
    store,
)
from udpfast.bus.sequencer import Sequencer, SequencerVerdict
from udpfast.bus.wire import Refusal, epoch_after, send_datagram, send_parse


def adds_up(seq) -> bool:
    return sum(seq.verdicts.values()) + seq.held == seq.received


def test_message_next_lower_and_ahead_each_get_one_verdict() -> None:
    seq = sequencer()
    register(seq)
    send(seq, 1)
    send(seq, 1)
    send(seq, 3)
    assert seq.held == 1
    assert numbers(seq.store) == [1]
    send(seq, 2)
    assert numbers(seq.store) == [1, 2, 3]
    send(seq, 3 + 4096)  # 4,095 are missing before it: the last one that is held
    send(seq, 4 + 4096)
    assert seq.held == 1
    found = seq.verdicts
    assert found[SequencerVerdict.ACCEPTED] == 1 + 3
    assert found[SequencerVerdict.DUPLICATE] == 1
    assert found[SequencerVerdict.EARLY] == 1
    assert adds_up(seq)


def test_datagrams_shuffled_lost_and_doubled_become_one_order() -> None:
    rng = random.Random(1)
    seq = sequencer(capacity=1 << 14)
    register(seq)
    missing = list(range(1, 500, 5))
    while missing:
        batch = rng.choices(missing, k=40) + rng.sample(missing, len(missing))
        for first in batch:
            if rng.random() < 0.7:
                send(seq, first, 5)
        missing = [first for first in missing if first + 4 > len(numbers(seq.store))]
    assert numbers(seq.store) == list(range(1, 501))
    assert [payload for _, _, payload, _ in records(seq.store, 48)] == [
        b"%d" % n for n in range(1, 501)
    ]
    assert adds_up(seq)
    assert seq.held == 0


def test_sender_unknown_or_of_another_store_is_refused() -> None:
    seq = sequencer()
    send(seq, 1)
    register(seq)
    send(seq, 1, incarnation=2)
    send(seq, 1, sender=2)
    datagram = send_datagram(seq.store.key + 1, seq.store.epoch, 1, 1, 1, 1, [(0, b"")])
    seq.receive(datagram, 0, T0)
    assert seq.verdicts[SequencerVerdict.UNKNOWN] == 4
    assert numbers(seq.store) == []


@pytest.mark.parametrize("damage", [b"", b"x" * 10, b"\xff\xff\0\0", bytes(3)])
def test_datagram_malformed_is_counted_once(damage: bytes) -> None:
    seq = sequencer()
    register(seq)
    seq.receive(send_datagram(seq.store.key, seq.store.epoch, 1, 1, 1, 1, [(0, b"a")]) + damage, 0,
                T0)  # fmt: skip
    assert seq.verdicts[SequencerVerdict.MALFORMED] == (damage != b"")
    assert adds_up(seq)


def test_incarnation_and_epoch_that_are_over_are_told() -> None:
    seq = sequencer()
    register(seq, nonce=1)
    register(seq, nonce=2)
    assert send_parse(send(seq, 1)).first == Refusal.INCARNATION
    assert not send(seq, 1, incarnation=2)
    assert send_parse(send(seq, 2, incarnation=2, epoch=1)).first == Refusal.EPOCH
    assert numbers(seq.store) == [1]
    assert adds_up(seq)


def test_name_of_a_living_sender_on_another_host_is_refused() -> None:
    seq = sequencer()
    register(seq, host="h", nonce=1)
    assert send_parse(register(seq, host="g", nonce=2, now_ns=2 * S)).first == Refusal.NAME_IN_USE
    assert seq.refused_names == 1
    assert not register(seq, host="g", nonce=2, now_ns=4 * S)
    assert seq.known()["incarnation"].tolist() == [2]


def test_epoch_from_a_sender_fences_the_writer_for_good() -> None:
    seq = sequencer()
    register(seq)
    later = epoch_after(seq.store.epoch, 1, promoted=True)
    end = seq.store.end
    assert send_parse(send(seq, 1, epoch=later)).first == Refusal.EPOCH
    send(seq, 1)
    assert seq.store.end == end
    assert not seq.store.writer
    with pytest.raises(ValueError, match="expected an epoch"):
        Sequencer(seq.store, epoch_after(seq.store.epoch, 9, promoted=False), 0, T0)


@pytest.mark.parametrize("removed", [False, True])
def test_restart_refuses_what_it_had_even_without_old_segments(removed: bool) -> None:
    seq = sequencer(capacity=4096)
    register(seq, "a", nonce=1)
    register(seq, "b", nonce=2)
    for first in range(1, 200):
        send(seq, first, sender=1)
    send(seq, 1, 3, sender=2)
    kept = seq.store
    while removed and kept.log.remove_oldest():
        pass
    again = lead(kept)
    for first in range(1, 200):
        send(again, first, sender=1)
    send(again, 1, 4, sender=2)
    assert again.verdicts[SequencerVerdict.DUPLICATE] == 199 + 3
    assert again.known()["next"].tolist() == [200, 5]
    assert again.known()["nonce"].tolist() == [1, 2]


def test_stamps_grow_whatever_the_clock_does() -> None:
    seq = sequencer()
    register(seq)
    clock = T0
    for number, step in enumerate([0, 5, -10 * S, 1, 3600 * S, 1, -3600 * S, 0], 1):
        clock += step
        send(seq, number, now_ns=number * MS, unix_ns=clock)
    later = lead(seq.store, now_ns=0, unix_ns=T0 - 5 * S)  # a host whose clock is behind
    send(later, 9)
    stamps = [stamp for _, _, _, stamp in records(seq.store)]
    assert all(b > a for a, b in itertools.pairwise(stamps))
    assert seq.clock_steps == 3
    # If the clock returns from the future, stamps continue from the last one.
    assert stamps[-1] - T0 > 3589 * S


def test_segment_full_and_no_room_for_another_drops_and_says_so() -> None:
    seq = sequencer(capacity=4096)
    register(seq)
    seq.store.log.disk_full = True
    for first in range(1, 60):
        send(seq, first)
    refused = seq.verdicts[SequencerVerdict.FULL]
    assert refused > 0
    assert adds_up(seq)
    done = numbers(seq.store)
    seq.store.log.disk_full = False
    for first in range(1, 60):
        send(seq, first)
    assert numbers(seq.store) == list(range(1, 60))
    assert numbers(seq.store)[: len(done)] == done


def test_writer_that_begins_on_a_full_disk_says_so_before_its_first_message() -> None:
    kept = store("S", 4096, IDENTITY)
    first = lead(kept)
    register(first)
    number = 0
    while kept.end < 4096 - 500:  # room for one small message, not for many
        number += 1
        send(first, number)
    kept.log.disk_full = True
    later = lead(kept)
    send(later, number + 1)
    assert later.verdicts[SequencerVerdict.FULL] == 1
    kept.log.disk_full = False
    send(later, number + 1)
    found = records(kept)
    (begin,) = [
        at
        for at, (kind, _, payload, _) in enumerate(found)
        if kind == 9 and payload[:8] == kept.epoch.to_bytes(8, "little")
    ]
    assert [kind for kind, *_ in found[:begin]].count(48) == number
    assert numbers(kept) == list(range(1, number + 2))


def test_epoch_begins_with_where_the_one_before_ended() -> None:
    kept = store("S", identity=IDENTITY)
    lead(kept)
    old_end, last = kept.end, kept.log.last
    lead(kept)
    begin = records(kept, 9)[-1][2]
    assert int.from_bytes(begin[:8], "little") == kept.epoch
    assert int.from_bytes(begin[16:24], "little") == old_end
    assert int.from_bytes(begin[24:28], "little") == last[1]
    assert begin[32:33] == b"S"
    assert [start for _, start in kept.lineage.pairs] == [0, old_end]


def test_copy_promoted_goes_on_with_what_senders_sent() -> None:
    seq = sequencer()
    register(seq)
    send(seq, 1, 5)
    other = store("one")
    Copy(seq.store, other).pump()
    again = lead(other, promoted=True)
    send(again, 4, 3)
    assert numbers(other) == [1, 2, 3, 4, 5, 6]


def test_message_far_ahead_is_given_up_for_one_that_is_needed_sooner() -> None:
    seq = sequencer()
    for sender, name in enumerate("abc", 1):
        register(seq, name=name, nonce=sender)
    # Two senders fill the held messages with ones far ahead; then the third one sends.
    for sender in (1, 2):
        for first in range(2, 4097, 65):
            send(seq, first, 65, sender=sender)
    assert seq.held == 8190
    for number in range(5, 400):
        send(seq, number, sender=3)
    assert adds_up(seq)
    assert seq.held == 8192
    for first in range(1, 5):
        send(seq, first, sender=3)
    assert numbers(seq.store) == list(range(1, 400))
    assert seq.verdicts[SequencerVerdict.EARLY] == 395 - 2
    assert adds_up(seq)


def test_stamps_of_what_the_sequencer_says_itself_go_with_the_clock() -> None:
    seq = sequencer(capacity=1 << 14)
    register(seq, now_ns=5 * S)
    send(seq, 1, now_ns=9 * S)
    register(seq, name="b", nonce=2, now_ns=11 * S)
    stamps = [stamp - T0 for *_, stamp in records(seq.store)]
    assert stamps[-3:] == [5 * S, 9 * S, 11 * S]
