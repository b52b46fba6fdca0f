"""The bytes of the two protocols of the bus."""

import pytest

from udpfast.bus.wire import (
    LinkType,
    epoch_after,
    link_frame,
    link_parse,
    name_bytes,
    name_text,
    send_datagram,
    send_parse,
)


def test_frame_whole_comes_back() -> None:
    data = link_frame(LinkType.HELLO, 7, 9, b"hello")
    frame, size = link_parse(data + b"more")
    assert (frame.type, frame.position, frame.epoch) == (LinkType.HELLO, 7, 9)
    assert frame.body == b"hello\0\0\0"
    assert size == len(data) == 40
    assert all(link_parse(data[:cut]) is None for cut in range(len(data)))


def test_frame_any_bit_flipped_is_refused_or_waits() -> None:
    data = link_frame(LinkType.HEARTBEAT, 1, 2, bytes(40))
    for bit in range(8 * len(data)):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << bit % 8
        try:
            assert link_parse(bytes(bad)) is None  # its length grew
        except ValueError:
            continue


def test_datagram_of_messages_comes_back() -> None:
    sent = send_parse(send_datagram(1, 2, 3, 4, 5, 6, [(7, b"x"), (8, b"")]))
    assert (sent.store_key, sent.epoch, sent.sender, sent.incarnation) == (1, 2, 3, 4)
    assert (sent.first, sent.number, sent.messages) == (5, 6, [(7, b"x"), (8, b"")])


@pytest.mark.parametrize("size", [0, 47, 49, 51, 53])
def test_datagram_cut_is_refused(size: int) -> None:
    data = send_datagram(1, 2, 3, 4, 5, 6, [(7, b"xyz")])
    with pytest.raises(ValueError, match=r"datagram|messages"):
        send_parse(data[:size])


def test_epoch_of_promotion_beats_any_number_of_starts() -> None:
    promoted = epoch_after(0, 0, promoted=True)
    started = 0
    for _ in range(1000):
        started = epoch_after(started, 0xFFFFFF, promoted=False)
    assert started < promoted < epoch_after(promoted, 0, promoted=False)


@pytest.mark.parametrize("name", ["", "x" * 32, "é" * 16, "a\0b"])
def test_name_that_does_not_fit_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="1 to 31 bytes"):
        name_bytes(name)
    assert name_text(name_bytes("x" * 31)) == "x" * 31
