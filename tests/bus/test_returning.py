"""A former writer asks the others first, and continues only if nobody has written since."""

import pytest

from tests.bus.drive import IDENTITY, MS, S, lead
from tests.bus.test_creation import NOTHING, OTHER, Host
from udpfast.bus.hello import Answer
from udpfast.bus.returning import Return, Returning
from udpfast.bus.wire import epoch_after


class Led(Host):
    """A host that wrote the store and is started again."""

    def __init__(self, peers=("one", "two"), **options):
        super().__init__(peers, **options)
        self.log.create()
        lead(self.node.store)
        self.epoch, self.end = self.node.store.epoch, self.node.store.end
        self.before = self.log.end
        self.start()

    @property
    def said(self):
        return self.node.store.said


def test_host_without_others_writes_on_at_once():
    assert Led(()).writes


def test_host_writes_on_when_all_others_say_that_nobody_wrote_since():
    host = Led()
    host.has.update(one=IDENTITY)
    assert not host.work(MS).writes
    assert host.log.end == host.before, "nothing was written yet"
    host.has.update(two=IDENTITY)
    assert host.work(100 * MS).writes
    assert (host.node.why_not_writing, host.said) == ("", [])
    assert host.log.end > host.before


def test_host_does_not_wait_long_for_others_that_are_down_and_says_so():
    host = Led()
    host.has.update(one=IDENTITY)
    for _ in range(19):
        assert not host.work(100 * MS).writes
    host.work(100 * MS)
    host.work(100 * MS)
    assert host.writes
    assert len(host.said) == 1
    assert host.said[0].startswith("continues to write without an answer from two: ")


@pytest.mark.parametrize("two", [None, IDENTITY, NOTHING])
def test_host_whose_place_was_taken_writes_nothing_and_follows(two):
    host = Led()
    host.has.update(one=IDENTITY, two=two)
    host.epoch = epoch_after(host.epoch, 1, promoted=True)
    for _ in range(40):
        host.work(100 * MS)
    assert not host.writes
    assert host.log.end == host.before
    assert not host.node.store.was_writer
    assert host.node.store.promised == host.epoch
    assert host.said == ["one knows of a later epoch, so this host does not continue to write"]
    host.start()
    for _ in range(40):
        host.work(100 * MS)
    assert not host.writes, "nor when it is started again"


def test_host_that_lost_what_another_has_waits_for_promote_whenever_it_is_started():
    host = Led()
    host.has.update(one=IDENTITY, two=IDENTITY)
    host.end += 64
    host.work(100 * MS)
    assert not host.writes
    assert "has records that this host lost" in host.node.why_not_writing
    assert "bus promote" in host.node.why_not_writing
    assert not host.node.intact, "which whoever starts it next shall know"


def test_host_that_lost_something_asks_nobody_and_waits_for_promote():
    host = Led(intact=False)
    host.has.update(one=IDENTITY, two=IDENTITY)
    for _ in range(40):
        host.work(100 * MS)
    assert not host.writes
    assert host.log.end == host.before
    assert "bus promote" in host.node.why_not_writing
    assert host.said == [host.node.why_not_writing]


def test_host_with_another_store_of_the_name_has_no_say():
    host = Led(("one",))
    host.has.update(one=OTHER)
    host.epoch = epoch_after(host.epoch, 1, promoted=True)
    assert host.work(100 * MS).writes


def test_host_that_is_promoted_meanwhile_does_not_write_on_twice():
    host = Led()
    host.has.update(one=IDENTITY)
    host.work(MS)
    host.node.promote(host.now_ns)
    for _ in range(60):
        host.work(100 * MS)
    assert host.writes
    assert host.node.asking is None
    assert len({epoch for epoch, _ in host.node.store.lineage.pairs}) == 2


def test_answer_that_is_as_far_is_no_reason_to_wait():
    host = Led()
    store = host.node.store
    returning = Returning(store, ["one"], 0)
    assert returning.decide(0) is Return.WAIT
    answer = Answer(store.promised, store.epoch, store.end, 0, 0, False, "one", IDENTITY)
    returning.answered("one", answer, MS)
    assert returning.decide(MS) is Return.WRITE
    assert returning.decide(10 * S) is Return.WRITE
