"""A host accepts bytes only from hosts with the key, and only once and in order."""

import hmac
import struct

import pytest

from udpfast.bus.link_seal import LinkSeal
from udpfast.bus.seal import NONCE_SIZE, DatagramSeal, UnauthenticError

KEY, OLD, OTHER = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))
HERE, THERE = "10.0.0.1", "10.0.0.2"


def ends(first=(KEY,), second=(KEY,)) -> tuple[LinkSeal, LinkSeal]:
    """Both ends of a link after their greeting."""
    one = LinkSeal(first, b"a" * NONCE_SIZE, began=True)
    two = LinkSeal(second, b"b" * NONCE_SIZE, began=False)
    assert two.unwrap(one.wrap(b"")) == one.unwrap(two.wrap(b"")) == b""
    return one, two


def test_link_carries_bytes_both_ways_whatever_the_pieces() -> None:
    one, two = ends()
    said = bytes(range(256)) * 1000
    wire = one.wrap(said)
    assert b"".join(two.unwrap(wire[at : at + 999]) for at in range(0, len(wire), 999)) == said
    assert one.unwrap(two.wrap(b"back")) == b"back"
    assert two.unwrap(one.wrap(b"again")) == b"again"


def test_link_says_what_its_description_says() -> None:
    one, _ = ends()
    key = hmac.digest(KEY, b"udpfast bus link\1" + b"a" * 16 + b"b" * 16, "sha256")
    for number, said in enumerate((b"x", bytes(70_000))):
        pieces = [said[at : at + 65536] for at in range(0, len(said), 65536)]
        expected = b"".join(
            struct.pack("<I", len(piece))
            + hmac.digest(key, struct.pack("<Q", number + at) + piece, "sha256")[:16]
            + piece
            for at, piece in enumerate(pieces)
        )
        assert one.wrap(said) == expected


@pytest.mark.parametrize("length", [0, (1 << 16) + 1, 0xFFFFFFFF])
def test_link_refuses_a_piece_of_no_size_and_one_too_large(length: int) -> None:
    _, two = ends()
    with pytest.raises(UnauthenticError):
        two.unwrap(struct.pack("<I", length) + bytes(16))


@pytest.mark.parametrize("keys", [[], [KEY, OLD, OTHER]])
def test_link_of_no_key_or_three_is_refused(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="expected 1 to 2 keys"):
        LinkSeal(keys, bytes(NONCE_SIZE), began=True)


def test_link_keeps_what_is_said_before_the_greeting() -> None:
    one = LinkSeal([KEY], b"a" * NONCE_SIZE, began=True)
    two = LinkSeal([KEY], b"b" * NONCE_SIZE, began=False)
    early = one.wrap(b"hello")
    assert two.unwrap(early) == b""
    assert one.unwrap(two.wrap(b"")) == b""
    assert two.unwrap(one.wrap(b"")) == b"hello"


@pytest.mark.parametrize("bit", [0, 40, 170, 200])
def test_link_refuses_a_bit_that_was_turned(bit: int) -> None:
    one, two = ends()
    wire = bytearray(one.wrap(b"sixteen bytes or"))
    wire[bit // 8] ^= 1 << bit % 8
    with pytest.raises(UnauthenticError):
        two.unwrap(bytes(wire))
        two.unwrap(bytes(1 << 17))


def test_link_refuses_what_came_before_or_too_soon() -> None:
    one, two = ends()
    first, second = one.wrap(b"first"), one.wrap(b"second")
    two.unwrap(first)
    with pytest.raises(UnauthenticError):
        two.unwrap(first)
    one, two = ends()
    one.wrap(b"first")
    with pytest.raises(UnauthenticError):
        two.unwrap(one.wrap(b"second"))
    assert second


def test_link_refuses_pieces_of_another_link_and_its_own() -> None:
    one, two = ends()
    told = one.wrap(b"first")
    with pytest.raises(UnauthenticError):
        one.unwrap(told)
    again = LinkSeal([KEY], b"c" * NONCE_SIZE, began=False)
    again.unwrap(b"a" * NONCE_SIZE)
    with pytest.raises(UnauthenticError):
        again.unwrap(told)
    assert two.unwrap(told) == b"first"


@pytest.mark.parametrize(
    ("first", "second", "works"),
    [
        ((OLD, KEY), (OLD,), True),
        ((OLD,), (OLD, KEY), True),
        ((KEY, OLD), (OLD, KEY), True),
        ((KEY, OLD), (KEY,), True),
        ((OTHER,), (OLD, KEY), False),
        ((KEY, OLD), (OLD,), False),
    ],
)
def test_link_of_two_keys_goes_by_the_first_of_who_began(first, second, works: bool) -> None:
    one, two = ends(first, second)
    if works:
        assert two.unwrap(one.wrap(b"x")) == b"x"
        assert one.unwrap(two.wrap(b"y")) == b"y"
        return
    with pytest.raises(UnauthenticError):
        two.unwrap(one.wrap(b"x"))


def test_datagram_is_believed_once_and_in_any_order() -> None:
    one, two = DatagramSeal([KEY], 1), DatagramSeal([KEY], 1)
    sent = [one.wrap(b"%d" % i, THERE) for i in range(200)]
    for at in [3, 0, 1, 2, *range(199, 3, -1)]:
        assert two.unwrap(sent[at], HERE, THERE) == b"%d" % at
    for each in sent:
        with pytest.raises(UnauthenticError, match="arrived before"):
            two.unwrap(each, HERE, THERE)


def test_datagram_too_late_is_refused() -> None:
    one, two = DatagramSeal([KEY], 1), DatagramSeal([KEY], 1)
    first = one.wrap(b"0", THERE)
    for _ in range(4097):
        last = one.wrap(b"1", THERE)
    two.unwrap(last, HERE, THERE)
    with pytest.raises(UnauthenticError, match="too late"):
        two.unwrap(first, HERE, THERE)


def test_datagram_of_a_daemon_that_is_over_is_refused() -> None:
    two = DatagramSeal([KEY], 1)
    old, new = DatagramSeal([KEY], 1), DatagramSeal([KEY], 2)
    kept = old.wrap(b"old", THERE)
    assert two.unwrap(new.wrap(b"new", THERE), HERE, THERE) == b"new"
    with pytest.raises(UnauthenticError, match="has ended"):
        two.unwrap(kept, HERE, THERE)


@pytest.mark.parametrize("key", [[OTHER], [OLD, OTHER]])
def test_datagram_of_another_key_or_to_another_host_is_refused(key) -> None:
    two = DatagramSeal([KEY, OLD], 1)
    with pytest.raises(UnauthenticError):
        two.unwrap(DatagramSeal(key[::-1], 1).wrap(b"x", THERE), HERE, THERE)
    with pytest.raises(UnauthenticError):
        two.unwrap(DatagramSeal([KEY], 1).wrap(b"x", HERE), HERE, THERE)
    with pytest.raises(UnauthenticError, match="without a tag"):
        two.unwrap(b"short", HERE, THERE)
    assert two.unwrap(DatagramSeal([OLD], 1).wrap(b"x", THERE), HERE, THERE) == b"x"
