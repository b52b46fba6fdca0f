"""Links that keep ending for one reason are reported, and tried less and less often."""

import itertools

from tests.bus.drive import MS, T0, S, lead, register, send, store
from tests.bus.test_creation import OTHER
from udpfast.bus.failures import FAILURES_SAID, Failures
from udpfast.bus.following import RETRY_MAX_NS
from udpfast.bus.link_sender import LinkSender
from udpfast.bus.node import Node
from udpfast.bus.sequencer import Sequencer
from udpfast.bus.wire import LinkType, link_frame, link_parse


def test_reason_is_said_once_and_over_with_the_next_record() -> None:
    failures = Failures()
    said = [failures.ended("no room", "S", 100) for _ in range(20)]
    assert said.count(True) == 1
    assert said.index(True) == FAILURES_SAID - 1
    assert "from S since position 100: no room" in failures.reason
    assert not failures.follows(100, 5 * S)
    assert failures.follows(164, 5 * S)
    assert failures.reason == ""


def test_links_that_end_for_several_reasons_are_accidents() -> None:
    failures = Failures()
    assert not any(failures.ended("this", "S", end) for end in range(50))
    assert not any(failures.ended(why, "S", 50) for why in ("this", "that") * 50)
    failures.broke()
    assert failures.reason == ""


def test_link_that_lives_is_sound_without_a_record() -> None:
    failures = Failures()
    for _ in range(9):
        failures.ended("this", "S", 1)
    assert not failures.follows(1, 0)
    assert not failures.follows(1, S)
    assert failures.follows(1, 2 * S)


def flip_records(data: bytes) -> bytes:
    """Return frames in which the last byte of each run of records is changed."""
    flipped = b""
    while data:
        frame, size = link_parse(data)
        body = frame.body
        if frame.type == LinkType.DATA:
            body = body[:-1] + bytes([body[-1] ^ 1])
        flipped += link_frame(frame.type, frame.position, frame.epoch, body)
        data = data[size:]
    return flipped


class Pair:
    """A node that copies, and its source, over a link without delay."""

    def __init__(self, writer: Sequencer) -> None:
        self.source: LinkSender | None = None
        self.writer = writer
        self.links = 0
        self.tell = lambda data: data  # changes the bytes of the source
        self.began: list[int] = []
        self.now_ns = 0
        self.node = Node(store("one"), ["S"], self, iter(range(1, 1 << 20)).__next__)
        self.node.start(0, T0, named=False, intact=True)

    def connect(self, host: str) -> int:
        self.links += 1
        self.source = LinkSender(self.writer.store, self.links, self.now_ns)
        self.began.append(self.now_ns)
        return self.links

    def send(self, link: int, data: bytes) -> None:
        if link == self.links and self.source is not None:
            self.source.feed(data, self.now_ns)

    def room(self, link: int) -> int:
        return 1 << 18

    def close(self, link: int) -> None:
        if self.source is not None:
            self.source.close("closed")
            self.source = None

    def datagram(self, host: str, data: bytes) -> None:
        raise AssertionError("nobody sends")

    def carry(self, link: int, end: object) -> bool:
        return False

    def run(self, until_ns: int) -> None:
        while self.now_ns < until_ns:
            self.now_ns += 5 * MS
            self.node.work(self.now_ns, T0 + self.now_ns)
            link, source = self.links, self.source
            if source is None:
                continue
            if self.node.copying.receiver is None:
                self.node.opened(link, self.now_ns)
            source.work(self.now_ns, T0 + self.now_ns)
            data = self.tell(source.output())
            if data and self.source is source:
                self.node.received(link, data, self.now_ns)


def test_copy_that_cannot_copy_says_why_tries_seldom_and_goes_on_when_it_can() -> None:
    seq = lead(store("S", identity=OTHER))
    register(seq)
    pair = Pair(seq)
    pair.run(S)
    assert pair.node.store.end == seq.store.end
    send(seq, 1)
    pair.tell = flip_records
    pair.run(61 * S)
    tried = [began for began in pair.began if began > S]
    assert len(tried) < 2 * 60 + 10, "a few at once, then one or two a second"
    assert all(later - sooner <= 2 * RETRY_MAX_NS for sooner, later in itertools.pairwise(tried))
    reason = pair.node.copying.failures.reason
    assert "a record that differs from what was written" in reason
    assert pair.node.store.said.count(reason) == 1
    pair.tell = lambda data: data
    pair.run(65 * S)
    assert pair.node.store.end == seq.store.end
    assert pair.node.copying.failures.reason == ""
    assert pair.node.store.said[-1] == "copies again from S"
