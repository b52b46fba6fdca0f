"""Restarts, and streams that anybody names, where datagrams have several messages."""

import struct

import pytest

from lab.framings import Sent, build
from tests.feed.test_streams import Feed, datagram
from udpfast.core.layout import Kind, SessionReason


def restart_behind_uneven(feed: Feed, lost: int | None = None) -> None:
    """Send datagrams of 30 messages and of 2, without one of them, and then a restart."""
    first = 1
    for n in range(120):
        count = 30 if n % 8 == 0 else 2
        if n != lost:
            feed.send(datagram("cboe_pitch", first, count))
        first += count
    feed.wait(20_000_000)
    for n in range(40):
        feed.send(datagram("cboe_pitch", 3 + 2 * n, 2, run=8))


def test_restart_of_a_numbering_of_uneven_datagrams_is_no_resumption() -> None:
    # 120 datagrams, a few of them wide: what came long ago does not lie within the latest ones,
    # though the widest 64 would reach back to the beginning. The first of the new ones is lost.
    feed = Feed("cboe_pitch", window=8192)
    restart_behind_uneven(feed)
    assert feed.sessions() == [SessionReason.FIRST, SessionReason.SAME_ID]


def test_restart_behind_a_hole_that_uneven_datagrams_follow_is_no_resumption() -> None:
    # As before, but the third datagram is lost, and the others wait.
    feed = Feed("cboe_pitch", window=8192, lost_packet_wait_ns=1_000_000_000)
    restart_behind_uneven(feed, lost=2)
    assert feed.sessions() == [SessionReason.FIRST, SessionReason.SAME_ID]
    assert feed.numbers() == [*range(1, 33), *range(3, 83)]


@pytest.mark.parametrize("behind", [0, 1, 3])
def test_datagram_that_contradicts_the_numbering_fills_no_hole_of_it(behind: int) -> None:
    # A restart among open holes: what fills one comes with messages that are known otherwise,
    # before it or behind it.
    feed = Feed("cboe_pitch", window=8192)
    for number in range(1, 250):
        if number != 11:
            feed.send(datagram("cboe_pitch", number))
    first = 1
    while first < 100:
        count = 5 if first == 11 - behind else 1
        feed.send(datagram("cboe_pitch", first, count, run=8))
        first += count
    feed.finish()
    assert feed.sessions() == [SessionReason.FIRST, SessionReason.SAME_ID]
    begun = max(at for at, one in enumerate(feed.out) if one.kind is Kind.SESSION)
    runs = [
        {one.payload[-8:] for one in part if one.kind is Kind.MESSAGE}
        for part in (feed.out[:begun], feed.out[begun:])
    ]
    assert runs == [{struct.pack("<Q", 7)}, {struct.pack("<Q", 8)}]
    assert feed.numbers()[-(first - 1) :] == list(range(1, first))


def test_hole_is_not_filled_by_a_run_that_contradicts_the_numbering() -> None:
    # As before, but what fills the hole comes alone.
    feed = Feed("cboe_pitch", window=8192)
    for number in range(1, 250):
        if number != 11:
            feed.send(datagram("cboe_pitch", number))
    for number in range(1, 20):
        feed.send(datagram("cboe_pitch", number, run=8))
    assert feed.numbers() == list(range(1, 11))
    for number in range(20, 100):
        feed.send(datagram("cboe_pitch", number, run=8))
    feed.finish()
    assert feed.sessions() == [SessionReason.FIRST, SessionReason.SAME_ID]
    assert feed.numbers() == [*range(1, 11), *range(1, 100)]


def test_hole_is_not_filled_by_a_run_that_filled_one_before_it_contradicted() -> None:
    # The first hole is filled when too few had contradicted, and refutes the run; these count on.
    feed = Feed("cboe_pitch", window=8192)
    for number in range(1, 250):
        if number not in (4, 7):
            feed.send(datagram("cboe_pitch", number))
    for number in range(1, 20):
        feed.send(datagram("cboe_pitch", number, run=8))
    assert feed.numbers() == list(range(1, 7))
    for number in range(20, 100):
        feed.send(datagram("cboe_pitch", number, run=8))
    feed.finish()
    assert feed.sessions() == [SessionReason.FIRST, SessionReason.SAME_ID]
    assert feed.numbers() == [*range(1, 7), *range(1, 100)]


def test_restart_that_outruns_the_window_is_not_taken_for_the_numbering_before() -> None:
    # Behind a hole come more messages than the window has room for, up to where the old numbers
    # ended: what was accepted reaches up to there.
    feed = Feed("cboe_pitch", window=256)
    for number in range(1, 401):
        feed.send(datagram("cboe_pitch", number))
    feed.wait(20_000_000)
    new = [number for number in range(1, 500) if number != 45]
    for number in new:
        feed.send(datagram("cboe_pitch", number, run=8))
    feed.finish()
    assert feed.sessions() == [SessionReason.FIRST, SessionReason.SAME_ID]
    assert feed.numbers()[400:] == new


def test_feed_behind_a_wide_datagram_forged_far_ahead_is_denied_nothing() -> None:
    # Four of its numbers are forged, and 80 messages that lie far ahead of it in one datagram.
    feed = Feed("cboe_pitch", window=8192, lost_packet_wait_ns=1_000_000_000)
    for number in range(1, 110):
        feed.send(datagram("cboe_pitch", number))
    for number in (113, 114, 115, 116):
        feed.send(datagram("cboe_pitch", number, run=8))
    feed.send(datagram("cboe_pitch", 400, 80, run=8))
    for number in range(110, 400):
        feed.send(datagram("cboe_pitch", number))
    assert feed.numbers() == list(range(1, 480))


@pytest.mark.parametrize(("waiting", "delivered"), [(64, 110), (65, 109)])
def test_hole_before_65_datagrams_of_messages_is_not_filled_by_a_run_that_contradicts(
    waiting: int, delivered: int
) -> None:
    feed = Feed("cboe_pitch", window=8192, lost_packet_wait_ns=1_000_000_000)
    for number in range(1, 110):
        feed.send(datagram("cboe_pitch", number))
    for number in range(113, 113 + 3 * waiting, 3):
        feed.send(datagram("cboe_pitch", number, 3))
    for number in range(105, 111):
        feed.send(datagram("cboe_pitch", number, run=8))
    assert feed.numbers() == list(range(1, delivered + 1))


def test_streams_named_by_single_datagrams_give_way_to_those_that_go_on() -> None:
    def of(stream: int, number: int) -> bytes:
        return build("cboe_pitch", Sent(number, (b"x" * 20,), (stream,), 1, 10**18))

    feed = Feed("cboe_pitch", streams=16)
    for number in (1, 2):
        feed.send(of(1, number))
    for stream in range(100, 190):
        feed.send(of(stream, 5))
    for number in range(1, 101):
        for stream in (1, 2, 3):
            feed.send(of(stream, number + 2 * (stream == 1)))
        feed.send(of(100 + number, 5))
    feed.finish()
    assert feed.gaps() == []
    by_key: dict[int, list[int]] = {}
    key_of: dict[int, int] = {}
    for one in feed.out:
        if one.kind is Kind.SESSION:
            key_of[one.stream] = struct.unpack_from("<I", one.payload, 40)[0]
        elif one.kind is Kind.MESSAGE:
            by_key.setdefault(key_of[one.stream], []).append(one.number)
    assert by_key[1] == list(range(1, 103))
    assert by_key[2] == by_key[3] == list(range(1, 101))


def test_miax_session_that_starts_again_behind_its_end_is_believed_at_its_second_datagram() -> None:
    def said(number: int, kind: int) -> bytes:
        return struct.pack("<QHBB", number, 12, kind, 1)

    def sent(number: int, run: bytes) -> bytes:
        return struct.pack("<QHBB", number, 20, 3, 1) + run * 8

    feed = Feed("miax_mach")
    for number in range(1, 20):
        feed.send(sent(number, b"a"))
    feed.send(said(0, 1))
    feed.send(sent(1, b"b"))
    assert feed.sessions() == [SessionReason.FIRST]  # it has not ended
    for number in (20, 21):
        feed.send(sent(number, b"a"))
    feed.send(said(21, 2))
    feed.send(said(0, 1))
    for number in (1, 2, 3):
        feed.send(sent(number, b"b"))
    assert feed.sessions() == [SessionReason.FIRST, SessionReason.SAME_ID]
    assert feed.numbers() == [*range(1, 22), 1, 2, 3]


def test_datagrams_are_as_wide_as_the_widest_of_late_right_behind_the_8_that_were_measured() -> (
    None
):
    # Beyond the window, but within 16 datagrams of the furthest: the window is too small.
    feed = Feed("cboe_pitch", window=256)
    for n in range(8):
        feed.send(datagram("cboe_pitch", 1 + 32 * n, 32))
    feed.send(datagram("cboe_pitch", 257))
    feed.send(datagram("cboe_pitch", 257 + 512))
    feed.finish()
    assert feed.numbers() == [*range(1, 258), 257 + 512]


@pytest.mark.parametrize(("count", "verdict"), [(2, "held"), (3, "replay")])
def test_what_is_sent_again_is_taken_up_to_the_end_of_the_window(count: int, verdict: str) -> None:
    feed = Feed("nyse_xdp", window=256)
    for number in (1, *range(3, 256)):
        feed.send(datagram("nyse_xdp", number))
    data = datagram("nyse_xdp", 256, count)
    assert feed.send(data[:2] + b"\r" + data[3:]) == verdict  # retransmission


@pytest.mark.parametrize("framing", ["cboe_pitch", "cme_mdp3", "memx_memoir"])
def test_copies_of_a_slower_line_are_no_part_of_a_restart(framing: str) -> None:
    # The fast line lost the first datagram, so the slow one begins a run with it, which its copies
    # go on with while the fast one is quiet. What then begins anew has nothing to do with them.
    feed = Feed(framing, lines=2, window=8192, lost_packet_wait_ns=40_000_000)
    for number in range(2, 101):
        feed.send(datagram(framing, number), 1)
    feed.wait(10_000_000)
    for number in range(1, 101):
        feed.send(datagram(framing, number), 0)
    feed.wait(60_000_000)
    for line in (1, 0):
        for number in range(1, 61):
            feed.send(datagram(framing, number, run=8), line)
        feed.wait(10_000_000)
    feed.finish()
    assert feed.sessions() == [SessionReason.FIRST, SessionReason.SAME_ID]
    assert feed.numbers() == [*range(2, 101), *range(1, 61)]
