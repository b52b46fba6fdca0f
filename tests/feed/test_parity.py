"""Parity: what is rebuilt, what is not, and what must never be believed."""

import random
import struct

import pytest

from tests.cases import nightly
from udpfast.feed.repair import ParityReceiver, ParitySender


def datagram(number: int, size: int = 100, session: int = 7, fragment: int = 0) -> bytes:
    head = struct.pack("<BBBBHHII", 2, fragment, max(fragment, 0), 3, 1, session, number, 0)
    return head + random.Random(number * 300 + fragment).randbytes(size)


def mixed(sender: ParitySender, datagrams: list[bytes]) -> list[tuple[bool, bytes]]:
    """Return what leaves: whether it is parity, and its bytes."""
    found = []
    for each in datagrams:
        found.append((False, each))
        parity = sender.add(each)
        if parity is not None:
            found.append((True, parity))
    return [*found, *((True, each) for each in sender.rest())]


def received(receiver: ParityReceiver, arriving: list[bytes]) -> list[bytes]:
    return [rebuilt for each in arriving for rebuilt in receiver.take(each)]


@pytest.mark.parametrize("depth", [1, 3, 8, 32])
@pytest.mark.parametrize("members", [2, 8, 32])
def test_any_burst_as_long_as_the_depth_is_rebuilt(members: int, depth: int) -> None:
    datagrams = [datagram(number, 1 + number * 37 % 512) for number in range(3 * members * depth)]
    sent = mixed(ParitySender(members, depth), datagrams)
    rng = random.Random(1)
    for _ in range(20):
        first = rng.randrange(len(sent))
        lost = sent[first : first + depth]
        receiver = ParityReceiver()
        kept = [each for at, (_, each) in enumerate(sent) if not first <= at < first + depth]
        rebuilt = received(receiver, kept)
        assert sorted(rebuilt) == sorted(each for parity, each in lost if not parity)
        assert receiver.refused == 0


def test_what_one_line_lost_and_another_brings_late_lets_the_rest_be_rebuilt() -> None:
    datagrams = [datagram(number) for number in range(8)]
    sent = [each for _, each in mixed(ParitySender(8, 1), datagrams)]
    receiver = ParityReceiver()
    assert received(receiver, sent[2:]) == []
    assert received(receiver, [datagrams[1]]) == [datagrams[0]]
    assert received(receiver, [datagrams[0]]) == []


def test_fragments_and_a_wrap_and_a_new_session_are_covered() -> None:
    datagrams = [datagram((1 << 32) - 2 + at if at < 2 else at - 2, 512, 7, at % 3)
                 for at in range(9)]  # fmt: skip
    datagrams += [datagram(at, 20, 8) for at in range(9)]
    sent = mixed(ParitySender(4, 2), datagrams)
    for lost in datagrams:
        receiver = ParityReceiver()
        rebuilt = received(receiver, [each for _, each in sent if each != lost])
        assert rebuilt == [lost]


def test_few_datagrams_share_one_parity_when_no_more_come() -> None:
    sender = ParitySender(8, 8)
    datagrams = [datagram(number) for number in range(5)]
    assert [sender.add(each) for each in datagrams] == [None] * 5
    (parity,) = sender.rest()
    assert sender.rest() == []
    receiver = ParityReceiver()
    assert received(receiver, [*datagrams[:2], *datagrams[3:], parity]) == [datagrams[2]]


def test_what_contradicts_its_parity_is_refused() -> None:
    datagrams = [datagram(number) for number in range(4)]
    *_, parity = (each for _, each in mixed(ParitySender(4, 1), datagrams))
    forged = datagrams[1][:-1] + bytes([datagrams[1][-1] ^ 1])
    receiver = ParityReceiver()
    # One that is not what was sent would make another one wrong as well.
    assert received(receiver, [datagrams[0], forged, datagrams[2], parity]) == []
    assert receiver.refused == 1
    # All have come, and one of them is another one.
    receiver = ParityReceiver()
    assert received(receiver, [datagrams[0], forged, *datagrams[2:], parity]) == []
    assert receiver.refused == 1


@pytest.mark.parametrize("seed", [*range(50), *nightly(*range(50, 200))])
def test_damaged_parity_rebuilds_nothing_wrong(seed: int) -> None:
    rng = random.Random(seed)
    datagrams = [datagram(number, rng.randrange(1, 512)) for number in range(4)]
    *_, parity = (each for _, each in mixed(ParitySender(4, 1), datagrams))
    damaged = bytearray(parity)
    for _ in range(rng.randrange(1, 4)):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    cut = bytes(damaged[: rng.choice((len(damaged), rng.randrange(1, len(damaged))))])
    receiver = ParityReceiver()
    rebuilt = received(receiver, [*datagrams[:3], cut])
    assert rebuilt in ([], [datagrams[3]])


def test_parity_with_any_bytes_harms_nothing() -> None:
    rng = random.Random(1)
    receiver = ParityReceiver()
    for _ in range(20_000):
        header = struct.pack(
            "<BBBBHHIIQHH", 15, 0, 0, 1, rng.randrange(40), 7, rng.randrange(4),
            rng.randrange(600), 0, rng.randrange(1 << 16), 0,
        )  # fmt: skip
        assert receiver.take(header + rng.randbytes(rng.randrange(640))) == []
        assert receiver.take(datagram(rng.randrange(9), rng.randrange(512))) == []


@pytest.mark.parametrize(("members", "depth"), [(1, 8), (33, 8), (8, 0), (8, 33)])
def test_wrong_numbers_are_told_in_a_sentence(members: int, depth: int) -> None:
    with pytest.raises(ValueError, match="expected 2 to 32 members and a depth of 1 to 32"):
        ParitySender(members, depth)
