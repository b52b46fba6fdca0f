"""A capture's framing is recognised by its content, with a reason; ambiguity is reported."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from lab.framings import Sent, build, draw
from udpfast.wire.facts import Numbers
from udpfast.wire.framing import FRAMINGS, Framing
from udpfast.wire.recognise import recognise


def sent(name: str, seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    # One numbering, one datagram after the other.
    rng = random.Random(seed)
    first = draw(name, rng)
    number = 1 + rng.getrandbits(20)
    each = Framing(name).facts.numbers is Numbers.MESSAGES
    for _ in range(count):
        now = replace(draw(name, rng), number=number, stream=first.stream, session=first.session)
        yield "flow", build(name, now)
        number += len(now.messages) if each else 1


@pytest.mark.parametrize("name", [name for name in FRAMINGS if "legacy" not in name])
def test_recognise_names_the_framing_of_a_run(name: str) -> None:
    for seed in range(5):
        found = recognise(sent(name, seed, 40))
        assert found.name == name, found
        assert "40 of 40 datagrams are valid" in found.why


def test_recognise_bears_damage_and_strangers() -> None:
    rng = random.Random(1)
    datagrams = list(sent("iex_tp", 1, 200))
    for place in range(0, 200, 11):
        datagrams[place] = ("flow", rng.randbytes(80))
    found = recognise(datagrams)
    assert found.name == "iex_tp"
    assert "181 of 200 datagrams are valid" in found.why


def test_recognise_of_noise_is_none() -> None:
    rng = random.Random(2)
    found = recognise(("flow", rng.randbytes(rng.randint(600, 1400))) for _ in range(50))
    assert (found.name, found.candidates) == (None, ())
    assert found.why == "no framing fits nine in ten of 50 datagrams"


def test_recognise_of_nothing_says_so() -> None:
    assert recognise([]).why == "there are no datagrams"


def test_recognise_of_what_two_framings_may_have_sent_names_both() -> None:
    # A heartbeat's number alone does not reveal its byte order.
    datagram = build("moldudp64", Sent(383265, (), (), b"000008367I"))
    found = recognise([("flow", datagram)])
    assert found.name is None
    assert found.why == "it may be moldudp64 or moldudp64le: 1 datagrams are not enough to tell"


def test_recognise_tells_byte_orders_by_numbers_that_follow() -> None:
    assert recognise(sent("roq", 3, 20)).name == "roq"
    assert recognise(sent("roq_big", 3, 20)).name == "roq_big"
