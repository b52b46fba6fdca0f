"""A store begins only once, whatever the host that may begin it has lost."""

import itertools

import pytest

from lab.bus_memory import MemoryLog
from tests.bus.drive import IDENTITY, LAYOUT, MS, T0, S, lead
from udpfast.bus.creation import Decision, StoreCreation
from udpfast.bus.hello import Answer
from udpfast.bus.link_sender import LinkSender
from udpfast.bus.log import Store
from udpfast.bus.node import Node
from udpfast.bus.wire import LinkType, link_frame, link_parse

OTHER = bytes(range(16, 32))
NOTHING = bytes(16)


class Host:
    """One host, with the answers of the others. It is the `Carrier` of its node."""

    def __init__(self, peers=("one", "two"), *, identity=None, **options):
        self.log = MemoryLog(1 << 18, LAYOUT, identity, fresh=IDENTITY)
        self.links = {}
        self.sent = {}
        self.now_ns = 0
        self._peers = peers
        self._options = options
        self.has = dict.fromkeys(peers)  # host -> identity of its store; None: no answer
        self.epoch = self.end = 0  # of their stores
        self.start()

    def start(self):
        """Start the daemon, after an earlier one has ended."""
        self.links.clear()
        self.node = Node(Store(self.log, "S"), self._peers, self, itertools.count(1).__next__)
        self.node.start(self.now_ns, T0, **{"named": True, "intact": True, **self._options})

    def connect(self, host):
        key = len(self.sent) + 1
        self.links[key], self.sent[key] = host, []
        return key

    def send(self, link, data):
        self.sent[link].append(data)

    def room(self, _):
        return 1 << 18

    def close(self, link):
        self.links.pop(link, None)

    def datagram(self, host, data):
        raise AssertionError("nobody sends")

    def work(self, by_ns=0):
        """Let time pass; hosts that run answer questions."""
        self.now_ns += by_ns
        for _ in range(3):
            self._turn()
        return self

    def _turn(self):
        self.node.work(self.now_ns, T0 + self.now_ns)
        for link, host in list(self.links.items()):
            if self.has[host] is None:
                self.links.pop(link, None)
                self.node.broken(link, self.now_ns)
                continue
            if not self.sent[link]:
                self.node.opened(link, self.now_ns)
            if self.sent[link] and link_parse(self.sent[link][0])[0].type == LinkType.ASK:
                asked = link_parse(self.sent[link][0])[0].epoch
                answer = Answer(max(asked, self.epoch), self.epoch, self.end, 0, 0, False, host,
                                self.has[host])  # fmt: skip
                self.node.received(link, link_frame(LinkType.ANSWER, 0, 0, answer.pack()),
                                   self.now_ns)  # fmt: skip
        self.node.work(self.now_ns, T0 + self.now_ns)

    @property
    def writes(self):
        return self.node.store.writer or self.node.written_by_feed


def test_host_without_others_begins_at_once():
    assert Host(()).writes


def test_host_begins_when_all_others_say_that_they_have_nothing():
    host = Host()
    assert not host.writes
    host.has.update(one=NOTHING, two=NOTHING)
    assert host.work(MS).writes
    assert host.node.store.identity == IDENTITY
    assert (host.node.why_not_writing, host.node.store.said) == ("", ["begins a new store"])


@pytest.mark.parametrize("two", [None, NOTHING, OTHER])
def test_host_that_lost_its_disk_follows_whoever_has_the_store(two):
    host = Host()
    host.has.update(one=OTHER, two=two)
    for _ in range(100):
        host.work(100 * MS)
    assert not host.writes
    assert host.node.store.identity == NOTHING
    assert "this host has nothing, and copies the store from" in host.node.why_not_writing
    assert "bus promote" in host.node.why_not_writing


def test_host_waits_for_one_that_is_down_and_says_for_whom():
    host = Host()
    host.has.update(one=NOTHING)
    for _ in range(4000):
        host.work(S)
    assert not host.writes
    assert "still waiting for two" in host.node.why_not_writing
    assert host.node.store.said == [host.node.why_not_writing], "it is said once"
    host.has.update(two=NOTHING)
    for _ in range(3):
        host.work(S)
    assert host.writes
    assert host.node.why_not_writing == ""


def test_host_does_not_wait_where_it_is_told_so():
    host = Host(insist=True)
    host.has.update(one=NOTHING)
    assert not host.work(MS).writes
    for _ in range(3):
        host.work(S)
    assert host.writes


def test_host_that_is_told_not_to_wait_begins_no_second_store():
    host = Host(insist=True)
    host.has.update(one=OTHER)
    for _ in range(10):
        host.work(S)
    assert not host.writes
    assert host.node.store.identity == NOTHING


def test_what_a_host_said_long_ago_does_not_count():
    beginning = StoreCreation(["one", "two"], 0)
    assert beginning.due(0) == ["one", "two"]
    beginning.answered("one", has=False, now_ns=0)
    beginning.answered("two", has=False, now_ns=3 * S)
    assert beginning.decide(3 * S, 0) is Decision.WAIT
    assert beginning.due(3 * S) == ["one"]
    beginning.answered("one", has=True, now_ns=3 * S)
    assert beginning.decide(3 * S, 0) is Decision.FOLLOW


def test_store_that_goes_from_one_host_to_another_meanwhile_is_not_begun_again():
    beginning = StoreCreation(["one", "two"], 0)
    beginning.due(0)
    beginning.answered("one", has=False, now_ns=0)
    # Host one copies from two and does not run; then two loses its disk.
    beginning.answered("two", has=False, now_ns=S)
    assert beginning.decide(S, 0) is Decision.WAIT
    assert beginning.due(S) == ["one", "two"]
    beginning.answered("two", has=False, now_ns=S + MS)
    for now_ns in range(S, 20 * S, 100 * MS):
        assert beginning.decide(now_ns, 0) is Decision.WAIT
    beginning.answered("one", has=True, now_ns=20 * S)
    assert beginning.decide(20 * S, 0) is Decision.FOLLOW


def test_answer_to_the_first_question_is_none_to_the_second():
    beginning = StoreCreation(["one"], 0)
    beginning.due(0)
    beginning.answered("one", has=False, now_ns=MS)
    assert beginning.decide(MS, 0) is Decision.WAIT
    assert beginning.missing(MS) == ["one"]
    beginning.due(MS)
    assert beginning.decide(MS, 0) is Decision.WAIT
    beginning.answered("one", has=False, now_ns=2 * MS)
    assert beginning.decide(2 * MS, 0) is Decision.BEGIN


def test_host_that_promised_an_epoch_begins_no_store_by_itself():
    host = Host()
    host.has.update(one=NOTHING, two=NOTHING)
    host.node.store.fence(5 << 40)
    for _ in range(40):
        host.work(300 * MS)
    assert not host.writes
    assert "no host has the store, although one of them wrote it" in host.node.why_not_writing
    assert host.node.store.said == [host.node.why_not_writing], "it is said once"
    host = Host(insist=True)
    host.node.store.fence(5 << 40)
    for _ in range(3):
        host.work(S)
    assert host.writes


def test_host_on_a_slow_path_is_waited_for():
    beginning = StoreCreation(["one"], 0)
    asked, over = [], None
    for now_ns in range(0, 20 * S, 10 * MS):
        if beginning.decide(now_ns, 0) is Decision.BEGIN:
            over = now_ns
            break
        if asked and now_ns - asked[-1] >= 900 * MS:  # of the last question; others have ended
            beginning.answered("one", has=False, now_ns=now_ns)
            asked.clear()
        if beginning.due(now_ns):
            asked.append(now_ns)
    assert over is not None
    assert over < 5 * S


def test_host_that_is_down_is_asked_less_and_less_often():
    beginning = StoreCreation(["one"], 0)
    asked = [now_ns for now_ns in range(0, 10 * S, 10 * MS) if beginning.due(now_ns)]
    assert asked[:4] == [0, 50 * MS, 150 * MS, 350 * MS]
    assert asked[-1] - asked[-2] == S


def test_daemon_killed_before_the_first_record_asks_again():
    host = Host()
    host.log.create()  # and nothing else
    host.start()
    assert not host.writes
    host.has.update(one=NOTHING, two=NOTHING)
    assert host.work(MS).writes
    assert host.node.store.identity == IDENTITY


def test_feed_begins_no_second_store():
    host = Host(feeds=True)
    host.has.update(one=OTHER, two=NOTHING)
    for _ in range(10):
        host.work(S)
    assert not host.writes
    begins = Host(feeds=True)
    begins.has.update(one=NOTHING, two=NOTHING)
    assert begins.work(MS).node.written_by_feed
    assert begins.node.sequencer is None


def test_nothing_is_promoted_where_nobody_has_the_store():
    host = Host()
    host.has.update(one=NOTHING)
    host.node.promote(0)
    for _ in range(5):
        host.work(S)
    assert not host.writes
    assert "not promoted: no host that could be reached has the store" in host.node.store.said
    assert host.node.store.promised == 0, "it fenced nobody"
    host.has.update(two=NOTHING)
    for _ in range(3):
        host.work(S)
    assert host.writes, "it still begins it when all others have nothing"


def test_host_with_another_store_of_the_name_is_said_and_ends_nobody():
    host = Host(("one",))
    host.has.update(one=NOTHING)
    assert host.work(MS).writes
    host.has.update(one=OTHER)
    host.epoch = host.node.store.epoch << 8
    for _ in range(5):
        host.work(2 * S)
    assert host.writes
    said = [line for line in host.node.store.said if "another store of the same name" in line]
    assert len(said) == 1
    assert OTHER.hex() in said[0]


def test_fence_of_another_store_is_no_promise():
    kept = Store(MemoryLog(1 << 18, LAYOUT, IDENTITY), "S")
    writer = lead(kept)
    for identity, ends in ((OTHER, False), (IDENTITY, True)):
        source = LinkSender(kept, 1, 0)
        source.feed(link_frame(LinkType.ASK, 0, 1 << 62, identity), 0)
        answer = Answer.unpack(link_parse(source.output())[0].body)
        assert answer.identity == IDENTITY
        assert (writer.store.writer, answer.promised == 1 << 62) == (not ends, ends)
