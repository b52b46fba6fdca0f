"""What proves another numbering, and what does not, in the framings of venues."""

import struct

import numpy as np
import pytest
from udpfast_lab.framings import Sent, build
from udpfast_lab.proof_rows import PROVEN, proofs

from tests.cases import nightly
from udpfast.core.layout import SESSION, Kind, SessionReason
from udpfast.feed.pipeline import FeedMessage, FeedPipeline

MS = 1_000_000
SECOND = 1_000_000_000


class Feed:
    """A pipeline of one framing, and what came out of it."""

    def __init__(self, framing: str, lines: int = 1) -> None:
        self.framing = framing
        self.pipeline = FeedPipeline(
            framing=framing, streams=4, lines_incremental=lines, lines_snapshot=0
        )
        self.out: list[FeedMessage] = []
        self.now_ns = 0

    def send(self, sent: Sent, line: int = 0, wait_ns: int = MS) -> None:
        """Bring one datagram, some time behind the one before."""
        self.bring(build(self.framing, sent), line, wait_ns)

    def bring(self, data: bytes, line: int = 0, wait_ns: int = MS) -> None:
        """The same, of bytes."""
        self.now_ns += wait_ns
        self.pipeline.expire(self.now_ns)
        self.out += self.pipeline.take()
        self.pipeline.accept(0, line, data, self.now_ns, self.now_ns)
        self.out += self.pipeline.take()

    def said(self, kind: Kind) -> list[FeedMessage]:
        """What came out of one kind."""
        return [message for message in self.out if message.kind is kind]

    def reasons(self) -> list[int]:
        """Why each session began."""
        return [
            int(np.frombuffer(message.payload, SESSION, 1)[0]["reason"])
            for message in self.said(Kind.SESSION)
        ]


@pytest.mark.parametrize(("framing", "what"), PROVEN)
@pytest.mark.parametrize("seed", [0, *nightly(1, 2)])
def test_proofs_count_datagrams(framing: str, what: str, seed: int) -> None:
    proofs(seed, 4_000, framing, what)


@pytest.mark.parametrize("lines", [1, 2])
def test_new_session_of_one_datagram_is_proven_by_its_heartbeats(lines: int) -> None:
    feed = Feed("moldudp64", lines)
    for number in range(1, 50):
        for line in range(lines):
            feed.send(Sent(number, (b"old",), session=b"OLD       "), line)
    feed.send(Sent(1, (b"new",), session=b"NEW       "), wait_ns=SECOND)
    for _ in range(2):
        feed.send(Sent(2, (), session=b"NEW       "), wait_ns=SECOND)
    assert feed.reasons() == [SessionReason.FIRST, SessionReason.NEW_ID]
    assert bytes(feed.out[-1].payload).endswith(b"new")


def test_announced_restart_of_one_datagram_is_proven_by_its_heartbeats() -> None:
    feed = Feed("iex_tp")
    for number in range(1, 50):
        feed.send(Sent(number, (b"old",), (0x8004, 1), 7, SECOND + number))
    feed.send(Sent(1, (b"new",), (0x8004, 1), 7, 2 * SECOND))
    for _ in range(2):
        feed.send(Sent(2, (), (0x8004, 1), 7, 3 * SECOND), wait_ns=SECOND)
    assert feed.reasons() == [SessionReason.FIRST, SessionReason.SAME_ID]


def reset(number: int, count: int, sent_ns: int) -> bytes:
    """A reset of CTA's numbers, of so many messages."""
    messages = b"".join(struct.pack(">H2s", 9, b"CL") + b"reset" for _ in range(count))
    seconds, ns = divmod(sent_ns, SECOND)
    size = 20 + len(messages)
    fields = (2, size + size % 2, 65, ord("O"), number, count, seconds, ns, 0)
    return struct.pack(">BHBBIBIIH", *fields) + messages + bytes(size % 2)


@pytest.mark.parametrize("lines", [1, 2])
def test_second_reset_with_the_same_bytes_is_told_by_its_sending_time(lines: int) -> None:
    feed = Feed("siac_cta", lines)
    for number in range(1, 50):
        feed.send(Sent(number, (b"old",), (65,), 0, SECOND + number * MS))
    for turn in range(2, 4):
        feed.bring(reset(1, 1, turn * SECOND))
        for number in range(2, 21):
            feed.send(Sent(number, (b"%d %d" % (turn, number),), (65,), 0, turn * SECOND + number))
    assert feed.reasons() == [SessionReason.FIRST, *[SessionReason.SAME_ID] * 2]
    assert len(feed.said(Kind.MESSAGE)) == 49 + 20 + 20


def test_copy_of_a_reset_by_a_slower_line_is_no_other_one() -> None:
    feed = Feed("siac_cta", 2)
    for number in range(1, 50):
        for line in range(2):
            feed.send(Sent(number, (b"old",), (65,), 0, SECOND + number * MS), line)
    for line in range(2):
        feed.bring(reset(1, 1, 2 * SECOND + line), line)
        for number in range(2, 21):
            sent_ns = 2 * SECOND + number * 10 + line
            feed.send(Sent(number, (b"new %d" % number,), (65,), 0, sent_ns), line)
    assert feed.reasons() == [SessionReason.FIRST, SessionReason.SAME_ID]


def opra(number: int, count: int, data: bytes, line_ns: int = 0) -> bytes:
    """A block of OPRA, whose messages only their types tell apart."""
    size = 21 + len(data)
    fields = (2, size, ord("O"), ord(" "), 1, number, count, 1, line_ns, 0)
    return struct.pack(">BHBBBIBIIH", *fields) + data


@pytest.mark.parametrize("first", ["one line", "other line"])
def test_block_that_cannot_be_cut_is_taken_whole_or_becomes_a_gap(first: str) -> None:
    feed = Feed("siac_opra", 2)
    for line in range(2):
        feed.bring(opra(99, 1, b"99"), line)
    blocks = [(0, opra(100, 5, b"100 to 104")), (1, opra(102, 5, b"102 to 106"))]
    if first == "other line":
        feed.bring(opra(100, 2, b"100 101"), 1)
        blocks.reverse()
    for line, block in blocks:
        feed.bring(block, line)
    feed.bring(opra(107, 1, b"107"), 0)
    feed.bring(opra(108, 1, b"108"), 0, 10 * MS)
    assert not feed.said(Kind.DISAGREEMENT)
    gaps = [struct.unpack_from("<QQ", gap.payload) for gap in feed.said(Kind.GAP)]
    assert gaps == ([(105, 106)] if first == "one line" else [])
    whole = [bytes(m.payload) for m in feed.said(Kind.MESSAGE) if m.payload]
    assert (b"102 to 106" in whole) == (first == "other line")


def test_block_that_cannot_be_cut_is_not_taken_though_it_begins_with_one_that_came() -> None:
    feed = Feed("siac_opra", 2)
    feed.bring(opra(99, 1, b"99"))
    feed.bring(opra(100, 3, b"100 to 102"))
    feed.bring(opra(100, 5, b"100 to 104"), 1)
    feed.bring(opra(105, 1, b"105"))
    feed.bring(opra(106, 1, b"106"), 0, 10 * MS)
    gaps = [struct.unpack_from("<QQ", gap.payload) for gap in feed.said(Kind.GAP)]
    assert gaps == [(103, 104)]
    assert not feed.said(Kind.DISAGREEMENT)


def test_block_of_the_same_numbers_and_other_bytes_disagrees() -> None:
    feed = Feed("siac_opra", 2)
    feed.bring(opra(99, 1, b"99"))
    feed.bring(opra(100, 5, b"100 to 104"))
    feed.bring(opra(105, 1, b"105"))
    feed.bring(opra(100, 5, b"forged 104"), 1)
    assert len(feed.said(Kind.DISAGREEMENT)) == 1


def test_message_sent_behind_what_its_line_brought_fills_no_hole() -> None:
    feed = Feed("cme_mdp3")
    for number in range(1, 201):
        if number != 4:
            feed.send(Sent(number, (b"old",), sent_ns=SECOND + number * 20_000), wait_ns=20_000)
    for number in range(1, 300):
        sent_ns = 2 * SECOND + number * 20_000
        feed.send(Sent(number, (b"new %d" % number,), sent_ns=sent_ns), wait_ns=20_000)
    assert feed.reasons() == [SessionReason.FIRST, SessionReason.SAME_ID]
    begun = feed.out.index(feed.said(Kind.SESSION)[1])
    assert not any(b"new" in bytes(message.payload) for message in feed.out[:begun])
    assert sum(b"new" in bytes(message.payload) for message in feed.out[begun:]) == 299


@pytest.mark.parametrize(("other", "delivered"), [(b"new", 10), (b"old", 12)])
def test_datagram_of_which_a_message_contradicts_what_was_accepted_fills_no_hole(
    other: bytes, delivered: int
) -> None:
    feed = Feed("moldudp64")
    for number in (*range(1, 11), 12):
        feed.send(Sent(number, (b"old",), session=b"OLD       "))
    feed.send(Sent(10, (other, b"11"), session=b"OLD       "))
    assert len([one for one in feed.said(Kind.MESSAGE) if one.payload]) == delivered


def test_what_was_sent_before_the_first_of_its_numbering_is_of_it_where_none_was_before() -> None:
    feed = Feed("iex_tp")
    for number, sent_ns in ((1, 2 * SECOND), (3, SECOND + MS), (2, SECOND)):
        feed.send(Sent(number, (b"%d" % number,), (0x8004, 1), 7, sent_ns))
    assert [bytes(one.payload)[-1:] for one in feed.said(Kind.MESSAGE)] == [b"1", b"2", b"3"]


def test_heartbeat_that_names_less_than_one_before_takes_nothing_back() -> None:
    feed = Feed("moldudp64")
    mold = b"OLD       "
    for number in range(1, 5):
        feed.send(Sent(number, (b"old",), session=mold), wait_ns=1_000)
    for number in (10, 8):
        feed.send(Sent(number, (), session=mold), wait_ns=1_000)
    for number in range(5, 8):
        feed.send(Sent(number, (b"old",), session=mold), wait_ns=1_000)
    feed.pipeline.expire(feed.now_ns + 10 * MS)
    gaps = [one for one in feed.pipeline.take() if one.kind is Kind.GAP]
    assert [struct.unpack_from("<QQ", gap.payload) for gap in gaps] == [(8, 9)]
