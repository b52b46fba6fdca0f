"""Streams: units of other framings than Roq, through windows of their own."""

import random
import struct

import numpy as np
import pytest

from lab.framings import Sent, build
from udpfast.core.counter import VERDICTS
from udpfast.core.layout import GAP, SESSION, GapReason, Kind, SessionReason, Stream
from udpfast.feed.pipeline import FeedMessage, FeedPipeline
from udpfast.wire.framing import FRAMINGS, Framing

NAMES = [name for name in FRAMINGS if not name.startswith("roq")]


class Feed:
    """A pipeline, and all that came out of it."""

    def __init__(self, framing: str, lines: int = 1, **settings: object) -> None:
        self.pipeline = FeedPipeline(
            framing=framing,
            lines_incremental=lines,
            lines_snapshot=0,
            **{"window": 256, "streams": 4, **settings},  # type: ignore[arg-type]
        )
        self.out: list[FeedMessage] = []
        self.now_ns = 0
        self.datagrams = 0

    def send(self, data: bytes, line: int = 0) -> str:
        """Bring a datagram; time goes on by 1 us."""
        self.now_ns += 1000
        verdict = self.pipeline.accept(0, line, data, self.now_ns, self.now_ns)
        self.out += self.pipeline.take()
        self.datagrams += 1
        self.check()
        return VERDICTS[verdict].name if verdict >= 0 else "none"

    def wait(self, ns: int) -> None:
        """Let time pass."""
        self.now_ns += ns
        self.pipeline.expire(self.now_ns)
        self.out += self.pipeline.take()

    def finish(self) -> None:
        """End the input."""
        self.pipeline.finish(self.now_ns)
        self.out += self.pipeline.take()
        self.check()

    def check(self) -> None:
        """Every unit, and every datagram without one, has exactly one verdict."""
        lines = [one for scope, one in self.pipeline.counters().items() if "." in scope]
        verdicts = sum(one[info.name] for one in lines for info in VERDICTS)
        assert verdicts == self.datagrams + sum(one["units_more"] for one in lines)

    def numbers(self, stream: int | None = None) -> list[int]:
        """Numbers of the messages."""
        return [
            one.number
            for one in self.out
            if one.kind is Kind.MESSAGE and stream in (None, one.stream)
        ]

    def gaps(self) -> list[tuple[int, int]]:
        """First and last number of each gap."""
        found = [bytes_ for kind, bytes_ in self.said() if kind is Kind.GAP]
        read = [struct.unpack_from("<QQ", one) for one in found]
        return [(first, last) for first, last in read]

    def sessions(self) -> list[SessionReason]:
        """Reasons of the sessions."""
        return [
            SessionReason(struct.unpack_from("<I", payload, 32)[0])
            for kind, payload in self.said()
            if kind is Kind.SESSION
        ]

    def said(self) -> list[tuple[Kind, bytes]]:
        """What the feed said itself."""
        return [(one.kind, one.payload) for one in self.out if one.kind is not Kind.MESSAGE]


def datagram(
    name: str,
    number: int,
    count: int = 1,
    *,
    sent_ns: int = 10**18,
    session: object = None,
    run: int = 7,
) -> bytes:
    """One of any framing with the same stream; its messages tell their numbers."""
    messages = tuple(struct.pack("<QQ", number + i, run) for i in range(count))
    if session is None:
        session = b"0000000001" if name.startswith("mold") else 1
    keys = {"iex_tp": (0x8004, 1), "eurex_eobi": (1, 2)}
    key = keys.get(name, (65,))
    return build(name, Sent(number, messages, key, session, sent_ns))  # type: ignore[arg-type]


def each(name: str) -> bool:
    """Whether numbers count messages."""
    return Framing(name).facts.numbers.value == "messages"


def whole(name: str) -> bool:
    """Whether a datagram of several messages is one unit with several numbers."""
    return each(name) and name not in ("miax_mach", "siac_opra")


@pytest.mark.parametrize("name", NAMES)
def test_numbers_in_order_are_delivered_once(name: str) -> None:
    feed = Feed(name)
    for number in range(5, 300):
        assert feed.send(datagram(name, number)) == "delivered"
    feed.finish()
    assert feed.numbers() == list(range(5, 300))
    assert feed.sessions() == [SessionReason.FIRST]
    assert not feed.gaps()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lines", [1, 2])
def test_reordered_and_lost_datagrams_are_put_in_order_and_reported(name: str, lines: int) -> None:
    rng = random.Random(f"{name} {lines}")
    step = 3 if whole(name) else 1
    order = [1 + step * i for i in range(400)]
    lost = set(rng.sample(order[1:-1], 20))
    feed = Feed(name, lines, window=4096)
    feed.send(datagram(name, 1, step))
    streams = []
    for _ in range(lines):
        late = sorted(order[1:], key=lambda number: number + rng.random() * 8 * step)
        streams.append(late)
    for numbers in zip(*streams, strict=True):
        for line, number in enumerate(numbers):
            if number not in lost:
                feed.send(datagram(name, number, step), line)
    feed.wait(10_000_000)
    feed.finish()
    expected = [n + i for n in order if n not in lost for i in range(step)]
    assert feed.numbers() == expected
    missing = sorted(n + i for n in lost for i in range(step))
    assert [n for first, last in feed.gaps() for n in range(first, last + 1)] == missing


@pytest.mark.parametrize("name", [name for name in NAMES if whole(name)])
def test_line_that_packs_otherwise_delivers_only_what_is_new(name: str) -> None:
    feed = Feed(name, 2)
    feed.send(datagram(name, 1, 4), 0)
    assert feed.send(datagram(name, 1, 3), 1) == "duplicate"
    assert feed.send(datagram(name, 4, 3), 1) == "delivered"  # 4 is known, 5 and 6 are not
    assert feed.send(datagram(name, 5, 4), 0) == "delivered"
    assert feed.send(datagram(name, 12, 2), 0) == "held"
    assert feed.send(datagram(name, 9, 6), 1) == "held"
    feed.finish()
    assert feed.numbers() == list(range(1, 15))
    counters = feed.pipeline.counters()["incremental"]
    assert counters["disagreements"] == 0


@pytest.mark.parametrize("name", [name for name in NAMES if whole(name)])
def test_unit_longer_than_the_window_is_delivered_whole(name: str) -> None:
    feed = Feed(name, window=16)
    feed.send(datagram(name, 1))
    assert feed.send(datagram(name, 4, 30)) == "held"
    feed.wait(10_000_000)
    feed.finish()
    assert feed.numbers() == [1, *range(4, 34)]
    assert feed.gaps() == [(2, 3)]


HEARTBEATS = [
    name for name in NAMES if each(name) and name not in ("siac_cta", "siac_opra", "miax_mach")
]


@pytest.mark.parametrize("name", HEARTBEATS)
def test_heartbeat_reveals_a_lost_tail_without_waiting_for_data(name: str) -> None:
    feed = Feed(name)
    feed.send(datagram(name, 1, 3))
    heartbeat = datagram(name, 8, 0)
    assert feed.send(heartbeat) == "heartbeat"
    feed.wait(4_000_000)
    assert not feed.gaps()
    feed.wait(2_000_000)
    assert feed.gaps() == [(4, 7)]
    feed.send(heartbeat)
    feed.wait(10_000_000)
    assert feed.send(datagram(name, 8)) == "delivered"
    assert feed.numbers() == [1, 2, 3, 8]
    assert feed.gaps() == [(4, 7)]


def test_heartbeat_of_miax_names_the_last_number() -> None:
    feed = Feed("miax_mach")
    feed.send(datagram("miax_mach", 1, 2))
    feed.send(datagram("miax_mach", 5, 0))  # 4 was the last one
    feed.wait(10_000_000)
    assert feed.gaps() == [(3, 4)]


@pytest.mark.parametrize("name", ["deribit_sbe", "cboe_pitch", "b3_umdf", "coinbase_derivatives"])
def test_streams_of_one_line_have_windows_of_their_own_and_a_limit(name: str) -> None:
    feed = Feed(name, streams=3)
    verdicts = []
    for number in (1, 2, 4, 3):
        for stream in (10, 11, 12, 13)[: 3 + (number > 1)]:
            data = build(name, Sent(number, (b"x" * 20,), (stream,), 1, 10**18))
            verdicts.append(feed.send(data))
    feed.finish()
    assert verdicts.count("stream_refused") == 3
    streams = sorted({one.stream for one in feed.out if one.kind is Kind.MESSAGE})
    assert streams == [2, 3, 4]
    assert all(feed.numbers(stream) == [1, 2, 3, 4] for stream in streams)
    assert feed.gaps() == [(2, 2), (3, 3)]  # of the stream that was refused
    keys = [
        struct.unpack_from("<I", said, 40)[0] for kind, said in feed.said() if kind is Kind.SESSION
    ]
    assert keys == [10, 11, 12]


@pytest.mark.parametrize("flood", [3, 90])
def test_what_streams_beyond_the_limit_bring_is_said_once_a_second(flood: int) -> None:
    feed = Feed("deribit_sbe", streams=2)
    for number in (1, 2, 3):
        for stream in (10, 11):
            feed.send(build("deribit_sbe", Sent(number, (b"x" * 20,), (stream,), 1, 10**18)))
    begun = len(feed.out)
    refused = 0
    came_ns = [0]
    for number in range(1, 251):  # 10 ms apart: 2.5 s
        key = 12 + number % flood
        data = build("deribit_sbe", Sent(number, (b"x" * 20,), (key,), 1, 10**18))
        refused += feed.send(data) == "stream_refused"
        came_ns.append(feed.now_ns)
        feed.wait(10_000_000)
    said = feed.out[begun:]
    assert refused == 250
    assert len(said) == 3
    feed.wait(1_000_000_000)  # the rest, though nothing more comes
    said = feed.out[begun:]
    gaps = [np.frombuffer(one.payload, GAP)[0] for one in said]
    assert {(one.kind, one.stream) for one in said} == {(Kind.GAP, Stream.NONE)}
    assert {one.session for one in said} == {max(one.session for one in feed.out[:begun])}
    assert {GapReason(gap["reason"]) for gap in gaps} == {GapReason.STREAM_REFUSED}
    assert [gap["count"] for gap in gaps] == [1, 99, 100, 50]
    assert [gap["last"] for gap in gaps] == [1, 100, 200, 250]
    assert [one.object for one in said] == [12 + n % flood for n in (1, 100, 200, 250)]
    assert [one.received_ns for one in said] == [came_ns[n] for n in (1, 100, 200, 250)]
    assert feed.pipeline.counters()["incremental"]["gaps"] == 0


@pytest.mark.parametrize("name", ["moldudp64", "moldudp64le", "memx_memoir", "ice_impact"])
def test_another_session_is_believed_when_its_line_brings_it_again(name: str) -> None:
    other = b"0000000002" if name.startswith("mold") else 2
    feed = Feed(name)
    for number in range(1, 20):
        feed.send(datagram(name, number))
    assert feed.send(datagram(name, 1, session=other)) == "session_pending"
    assert feed.numbers() == list(range(1, 20))
    feed.send(datagram(name, 2, session=other))
    feed.finish()
    assert feed.sessions() == [SessionReason.FIRST, SessionReason.NEW_ID]
    assert feed.numbers() == [*range(1, 20), 1, 2]


def test_iex_sender_that_began_anew_with_its_session_is_believed_at_its_second_unit() -> None:
    feed = Feed("iex_tp", 2)
    for number in range(1, 20):
        feed.send(datagram("iex_tp", number, sent_ns=10**18 + number))
    late = datagram("iex_tp", 19, sent_ns=10**18 + 19)
    again = datagram("iex_tp", 1, sent_ns=10**18 + 50, run=8)
    assert feed.send(again) == "session_pending"
    feed.send(datagram("iex_tp", 2, sent_ns=10**18 + 51, run=8))
    assert feed.send(late, 1) == "session_retired"
    feed.send(datagram("iex_tp", 3, sent_ns=10**18 + 52, run=8))
    assert feed.sessions() == [SessionReason.FIRST, SessionReason.SAME_ID]
    assert feed.numbers() == [*range(1, 20), 1, 2, 3]
    assert feed.send(again, 1) == "duplicate"


@pytest.mark.parametrize("before", [False, True], ids=["behind", "before"])
def test_iex_line_that_lost_the_new_beginning_still_brings_what_follows(before: bool) -> None:
    # Line 0 lost 1, and alone brings 3 to 5: behind what told of the new beginning, or before it.
    feed = Feed("iex_tp", 2)
    for number in range(1, 40):
        feed.send(datagram("iex_tp", number, sent_ns=10**18 + number), number % 2)
    told = datagram("iex_tp", 1, 2, sent_ns=10**18 + 52, run=8)
    others = [datagram("iex_tp", first, 2, sent_ns=10**18 + 50 + first, run=8) for first in (2, 4)]
    for data, line in [(told, 1), *((one, 0) for one in others)][:: -1 if before else 1]:
        feed.send(data, line)
    feed.send(datagram("iex_tp", 6, 2, sent_ns=10**18 + 57, run=8), 1)
    feed.finish()
    assert feed.sessions() == [SessionReason.FIRST, SessionReason.SAME_ID]
    assert feed.numbers() == [*range(1, 40), *range(1, 8)]
    assert feed.gaps() == []


def test_iex_line_that_sends_its_first_datagrams_later_is_no_new_beginning() -> None:
    feed = Feed("iex_tp", 2)
    for number in (1, 2, 3):
        feed.send(datagram("iex_tp", number, sent_ns=10**18 + number))
    feed.send(datagram("iex_tp", 1, 3, sent_ns=10**18 + 10), 1)
    feed.send(datagram("iex_tp", 4, 2, sent_ns=10**18 + 11), 1)
    feed.send(datagram("iex_tp", 6, sent_ns=10**18 + 12))
    assert feed.sessions() == [SessionReason.FIRST]
    assert feed.numbers() == list(range(1, 7))


def test_one_forged_restart_of_iex_changes_nothing() -> None:
    feed = Feed("iex_tp")
    for number in range(1, 20):
        feed.send(datagram("iex_tp", number, sent_ns=10**18 + number))
    feed.send(datagram("iex_tp", 1, sent_ns=10**18 + 50, run=8))
    for number in range(20, 100):
        feed.send(datagram("iex_tp", number, sent_ns=10**18 + 50 + number))
    feed.finish()
    assert feed.numbers() == list(range(1, 100))
    assert feed.sessions() == [SessionReason.FIRST]


@pytest.mark.parametrize("name", ["cboe_pitch", "b3_umdf"])
def test_unsequenced_messages_pass_without_a_number(name: str) -> None:
    feed = Feed(name)
    feed.send(datagram(name, 1))
    assert feed.send(datagram(name, 0)) == "unsequenced"
    feed.send(datagram(name, 2))
    assert feed.numbers() == [1, 0, 2]


@pytest.mark.parametrize("name", NAMES)
def test_numbers_go_on_beyond_their_wrap(name: str) -> None:
    facts = Framing(name).facts
    if facts.number_bits == 64:
        pytest.skip("64 bits do not wrap")
    feed = Feed(name)
    unsequenced = name == "b3_umdf"
    for number in range((1 << 32) - 5, (1 << 32) + 5):
        if not (unsequenced and number == 1 << 32):
            on_wire = number % (1 << 32) + (facts.skips_zero and number >= 1 << 32)
            feed.send(datagram(name, on_wire))
    feed.finish()
    passed = [n for n in range((1 << 32) - 5, (1 << 32) + 5) if not (unsequenced and n == 1 << 32)]
    assert feed.numbers() == passed
    assert unsequenced or feed.gaps() == []


@pytest.mark.parametrize("seed", range(2))
def test_pitch_counts_from_its_highest_number_to_1_wherever_datagrams_end(seed: int) -> None:
    highest = (1 << 32) - 1
    rng = random.Random(seed)
    for _ in range(50):
        feed = Feed("cboe_pitch", lines=2)
        at = first = highest - rng.randrange(1, 40)
        for _ in range(40):
            count = rng.randrange(1, 6)
            on_wire = (at - 1) % highest + 1
            data = datagram("cboe_pitch", on_wire, count=count)
            for line in rng.sample((0, 1), rng.choice((1, 2, 2))):
                feed.send(data, line)
            at += count
            if rng.random() < 0.2:
                feed.send(datagram("cboe_pitch", (at - 1) % highest + 1, count=0), 0)
        feed.finish()
        assert feed.numbers() == list(range(first, at))
        assert feed.gaps() == []
        assert feed.sessions() == [SessionReason.FIRST]


def test_pitch_tells_what_is_lost_across_its_highest_number() -> None:
    feed = Feed("cboe_pitch")
    for number in (4294967290, 4294967291, 3, 4):
        feed.send(datagram("cboe_pitch", number))
    feed.finish()
    assert feed.numbers() == [4294967290, 4294967291, 4294967298, 4294967299]
    assert feed.gaps() == [(4294967292, 4294967297)]


def test_layouts_here_are_those_of_the_records() -> None:
    assert [GAP.fields[name][1] for name in ("first", "last")] == [0, 8]
    assert [SESSION.fields[name][1] for name in ("reason", "stream")] == [32, 40]


@pytest.mark.parametrize("wide", [1, 3, 30])
def test_replay_of_an_ended_session_is_known_by_its_bytes(wide: int) -> None:
    # 90 of its last datagrams, any number of messages each, while the next session goes on.
    feed = Feed("moldudp64", window=8192)
    old = [datagram("moldudp64", 1 + n * wide, wide, session=b"OLD       ") for n in range(200)]
    for data in old:
        feed.send(data)
    new = (datagram("moldudp64", 1 + n * wide, wide, session=b"NEW       ") for n in range(200))
    for _ in range(20):
        feed.send(next(new))
    for place, data in enumerate(old[100:190]):
        feed.send(data)
        if place == 75:
            feed.send(next(new))
    feed.send(next(new))
    assert feed.sessions() == [SessionReason.FIRST, SessionReason.NEW_ID]


@pytest.mark.parametrize("edge", range(1, 9))
def test_restart_loses_nothing_of_a_datagram_that_fills_a_part_of_a_hole(edge: int) -> None:
    # The old numbering lacks a datagram, and waits for it; one of the new numbering fills that and
    # overlaps what lies behind it, or before it.
    feed = Feed("moldudp64", window=8192)
    for n in range(100):
        if n != 30:
            feed.send(datagram("moldudp64", 1 + n * 8, 8, run=1))
    assert feed.numbers()[-1] == 240
    first = 1
    while first < 1_000:
        count = edge if first == 1 else 8
        feed.send(datagram("moldudp64", first, count, run=2))
        first += count
    feed.finish()
    begun = max(at for at, one in enumerate(feed.out) if one.kind is Kind.SESSION)
    after = [one for one in feed.out[begun:] if one.kind is Kind.MESSAGE]
    assert [one.number for one in after] == list(range(1, first))
    assert {one.payload[-8:] for one in after} == {struct.pack("<Q", 2)}


@pytest.mark.parametrize("wide", [1, 5, 30])
def test_what_a_session_lacks_of_its_beginning_counts_in_datagrams(wide: int) -> None:
    for before, unseen in ((10, 10 * wide), (62, 62 * wide), (64, 0), (1_000, 0)):
        feed = Feed("moldudp64")
        feed.send(datagram("moldudp64", 1 + before * wide, wide))
        feed.send(datagram("moldudp64", 1 + (before + 1) * wide, wide))
        for n in range(3):
            data = datagram("moldudp64", 1 + (before + n) * wide, wide, session=b"NEXT      ")
            feed.send(data)
        said = [payload for kind, payload in feed.said() if kind is Kind.SESSION]
        assert [int(np.frombuffer(one, SESSION)[0]["unseen"]) for one in said] == [unseen, unseen]


FEW = 8  # words of the feed that may wait
MANY = 20  # streams


def many_streams(lines: int) -> Feed:
    """A feed of more streams than words may wait, each of which has begun."""
    feed = Feed(
        "iex_tp",
        lines,
        streams=MANY,
        inactivity_timeout_ns=1_000_000_000,
        doubt_when_silent=True,
        controls=FEW,
    )
    for number in (1, 2):
        tell_all(feed, number, 1, range(lines))
    return feed


def tell_all(feed: Feed, number: int, session: int, lines: range) -> None:
    """Bring the same of every stream."""
    for stream in range(MANY):
        sent = Sent(number, (b"told",), (0x8004, stream), session, 10**18 + session + number)
        for line in lines:
            feed.send(build("iex_tp", sent), line)


def test_silence_puts_more_streams_in_doubt_than_words_may_wait() -> None:
    feed = many_streams(1)
    feed.wait(2_000_000_000)
    gaps = [one for one in feed.out if one.kind is Kind.GAP]
    assert len({one.stream for one in gaps}) == len(gaps) == MANY
    assert {struct.unpack_from("<QQQ", one.payload) for one in gaps} == {(3, 2, 0)}
    feed.wait(1_000_000_000)
    assert len([one for one in feed.out if one.kind is Kind.GAP]) == MANY


@pytest.mark.parametrize("end", ["time", "input"])
def test_more_sessions_begin_at_once_than_words_may_wait(end: str) -> None:
    # Each waits for what its other line may bring of its beginning.
    feed = many_streams(2)
    for number in (5, 6):
        tell_all(feed, number, 2, range(1))
    assert len(feed.sessions()) == MANY
    if end == "time":
        feed.wait(20_000_000)
    else:
        feed.finish()
    assert feed.sessions()[MANY:] == [SessionReason.NEW_ID] * MANY
    assert sorted(feed.numbers()) == [1] * MANY + [2] * MANY + [5] * MANY + [6] * MANY
