"""Lines, snapshot round and impairment of a transmitter, on lists and integers."""

from errno import EBADF

import pytest

from tests.feed.frames_out import messages, parse
from tests.feed.list_line import ListLine
from udpfast.feed.snapshot_cycle import SnapshotState
from udpfast.feed.transmitter import Transmitter

MS = 1_000_000


class LoseAndDelay:
    """Line 0 loses every second datagram; line 1 brings all of them 5 us later, and one twice."""

    def pass_through(self, channel, line, datagrams, now_ns):
        if line == 0:
            return [(now_ns, datagram) for datagram in datagrams[::2]]
        return [(now_ns + 5000, datagram) for datagram in [*datagrams, datagrams[-1]]]


def test_flush_sends_the_same_datagrams_on_every_line():
    lines = [ListLine(), ListLine(), ListLine()]
    transmitter = Transmitter(lines[:2], lines[2:], session_id=1)
    transmitter.send(bytes(1200), 1, 1, now_ns=0)
    assert lines[0].datagrams == []
    transmitter.flush(0)
    assert len(lines[0].datagrams) == 3
    assert lines[0].datagrams == lines[1].datagrams
    assert lines[2].datagrams == []


def test_send_flushes_by_itself_when_a_batch_is_full():
    line = ListLine()
    transmitter = Transmitter([line], session_id=1)
    for _ in range(64):
        transmitter.send(b"x", 1, 1, now_ns=0)
    assert len(line.datagrams) == 64


def test_send_largest_messages_never_fill_the_send_queue():
    line = ListLine()
    transmitter = Transmitter([line], session_id=1)
    for _ in range(63):
        transmitter.send(b"x", 1, 1, now_ns=0)
    for _ in range(5):
        transmitter.send(bytes(131_072), 1, 1, now_ns=0)
    assert len(messages(line.datagrams)) == 68


def test_flush_full_queue_is_asked_again_and_then_given_up():
    slow, stuck = ListLine(takes=1), ListLine(takes=0)
    transmitter = Transmitter([slow, stuck], session_id=1)
    transmitter.send(bytes(1200), 1, 1, now_ns=0)
    transmitter.flush(0)
    assert len(slow.datagrams) == 3
    assert transmitter.unsent == ([0, 3], [])


class BrokenLine(ListLine):
    """A line that takes two datagrams and then fails."""

    def send(self, views):
        if self.carried == 2:
            raise OSError(EBADF, "bad descriptor")
        return super().send((views[0], views[1][:1], views[2][:1]))


def test_line_that_fails_is_counted_and_leaves_the_others_alone():
    whole, snapshot = ListLine(), ListLine()
    transmitter = Transmitter([BrokenLine(), whole], [BrokenLine(), snapshot], session_id=1)
    for seqno in range(3):
        transmitter.send(bytes(1200), 1, 1, now_ns=seqno)
        transmitter.flush(seqno)
    for now_ns in (0, 2000 * MS, 4000 * MS, 6000 * MS):
        transmitter.do_work(now_ns)  # heartbeats on both channels
    assert len(whole.datagrams) == 9 + 3
    assert len(snapshot.datagrams) == 3
    assert transmitter.unsent == ([7 + 3, 0], [1, 0])
    assert {place: error.errno for place, error in transmitter.failures.items()} == {
        (0, 0): EBADF,
        (1, 0): EBADF,
    }


def test_do_work_sends_heartbeats_on_idle_channels():
    incremental, snapshot = ListLine(), ListLine()
    transmitter = Transmitter(
        [incremental], [snapshot], session_id=1, heartbeat_interval_ns=1000 * MS
    )
    for now_ns in range(0, 3001 * MS, 100 * MS):
        transmitter.do_work(now_ns)
    assert [m.seqno for m in messages(incremental.datagrams)] == [1, 2, 3]
    assert [m.seqno for m in messages(snapshot.datagrams)] == [1, 2, 3]


def test_snapshot_round_carries_each_object_once_per_interval():
    incremental, snapshot = ListLine(), ListLine()
    transmitter = Transmitter(
        [incremental], [snapshot], session_id=1, snapshot_interval_ns=100 * MS
    )
    transmitter.send(b"a", 1, 7, now_ns=0)
    transmitter.put_snapshot(b"A", 1, 7)
    transmitter.put_snapshot(b"B", 1, 8)
    for now_ns in range(0, 300 * MS, MS):
        transmitter.do_work(now_ns)
    found = [(m.object_id, m.last_seqno, m.payload) for m in messages(snapshot.datagrams)]
    assert found == 3 * [(7, 1, b"A"), (8, 0, b"B")]
    assert all(parse(datagram).snapshot for datagram in snapshot.datagrams)


def test_snapshot_last_seqno_is_that_of_the_state_not_of_the_moment():
    incremental, snapshot = ListLine(), ListLine()
    transmitter = Transmitter([incremental], [snapshot], session_id=1)
    transmitter.send(b"1", 1, 7, now_ns=0)
    transmitter.put_snapshot(b"after 1", 1, 7)
    transmitter.send(b"2", 1, 7, now_ns=0)
    transmitter.do_work(MS)
    (message,) = messages(snapshot.datagrams)
    assert (message.payload, message.last_seqno) == (b"after 1", 1)


def test_snapshot_rate_spreads_a_large_message_over_time():
    snapshot = ListLine()
    transmitter = Transmitter(
        [ListLine()],
        [snapshot],
        session_id=1,
        snapshot_rate_per_s=10_000,
        snapshot_interval_ns=1000 * MS,
    )
    states = {7: 0}
    transmitter.put_snapshot_source(
        1, 7, lambda: SnapshotState(states[7].to_bytes(1, "little") * 131_072, states[7])
    )
    counts = []
    for now_ns in range(0, 1000 * MS, MS):
        states[7] = now_ns // MS % 200
        transmitter.do_work(now_ns)
        counts.append(len(snapshot.datagrams))
    assert max(after - before for before, after in zip([0, *counts], counts, strict=False)) == 64
    assert counts[10] == 64 + 100  # the burst, then 10 each millisecond
    (message,) = messages(snapshot.datagrams)
    assert message.payload == bytes(131_072)  # as it was when the message began


def test_snapshot_source_without_state_is_passed_over():
    snapshot = ListLine()
    transmitter = Transmitter([ListLine()], [snapshot], session_id=1)
    transmitter.put_snapshot_source(1, 7, lambda: None)
    transmitter.put_snapshot(b"B", 1, 8)
    transmitter.do_work(0)
    transmitter.do_work(MS)
    assert [m.object_id for m in messages(snapshot.datagrams)] == [8]


@pytest.mark.parametrize(
    "state",
    [
        SnapshotState(b"", 0),
        SnapshotState(bytes(131_073), 0),
        SnapshotState(b"x", -1),
        SnapshotState(b"x", 1 << 32),
        SnapshotState(b"xxxx", 0, stamp_offset=0),
        b"no state",
        OSError("the books are elsewhere"),
    ],
    ids=repr,
)
def test_snapshot_that_cannot_go_out_is_counted_and_leaves_the_others_alone(state):
    def source():
        if isinstance(state, Exception):
            raise state
        return state

    snapshot = ListLine()
    transmitter = Transmitter([ListLine()], [snapshot], session_id=1, snapshot_interval_ns=10 * MS)
    transmitter.put_snapshot(b"A", 1, 6)
    transmitter.put_snapshot_source(1, 7, source)
    transmitter.put_snapshot(b"B", 1, 8)
    for now_ns in range(0, 30 * MS, MS):
        transmitter.do_work(now_ns)
    assert [m.object_id for m in messages(snapshot.datagrams)] == [6, 8] * 3
    assert [m.seqno for m in messages(snapshot.datagrams)] == [1, 2, 3, 4, 5, 6]
    assert transmitter.cycle.refused == 3
    assert list(transmitter.cycle.failures) == [(1, 7)]
    (event,) = transmitter.events  # once, not in each round
    assert event.startswith("snapshot of object 1/7 was not sent: ")
    transmitter.put_snapshot_source(1, 7, lambda: SnapshotState(b"sound", 0))
    for now_ns in range(30 * MS, 50 * MS, MS):
        transmitter.do_work(now_ns)
    assert b"sound" in {m.payload for m in messages(snapshot.datagrams)}
    assert transmitter.cycle.failures == {}


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((b"", 1, 1), {}, r"1..131072 bytes .* had 0"),
        ((bytes(131_073), 1, 1), {}, r"had 131073"),
        ((b"x", 300, 1), {}, r"object_type must be 0..255, was 300"),
        ((b"x", 1, 70_000), {}, r"object_id must be 0..65535, was 70000"),
        ((b"x", 1, 1 << 70), {}, r"object_id must be 0..65535"),
        ((b"xxxx", 1, 1), {"stamp_offset": 0}, r"room for 8 bytes"),
    ],
)
def test_put_snapshot_is_checked_in_the_call(arguments, settings, message):
    transmitter = Transmitter([ListLine()], [ListLine()], session_id=1)
    with pytest.raises(ValueError, match=message):
        transmitter.put_snapshot(*arguments, **settings)
    with pytest.raises(TypeError):
        transmitter.put_snapshot(5, 1, 1)
    assert transmitter.do_work(0) == 0


def test_snapshot_removed_leaves_the_round_and_is_sent_to_its_end():
    snapshot = ListLine()
    transmitter = Transmitter([ListLine()], [snapshot], session_id=1, snapshot_interval_ns=10 * MS)
    transmitter.put_snapshot(bytes(65 * 512), 1, 7)  # a datagram more than leaves at once
    transmitter.put_snapshot(b"B", 1, 8)
    transmitter.do_work(0)
    assert transmitter.remove_snapshot(1, 7)
    assert not transmitter.remove_snapshot(1, 7)
    for now_ns in range(MS, 30 * MS, MS):
        transmitter.do_work(now_ns)
    assert [m.object_id for m in messages(snapshot.datagrams)] == [7, 8, 8, 8]


def test_channel_that_no_line_carries_is_said_once_and_once_when_it_is_carried_again():
    lines = [ListLine(), ListLine(), ListLine()]
    transmitter = Transmitter(lines[:2], lines[2:], session_id=1)

    def send(now_ns):
        transmitter.send(b"x", 1, 1, now_ns=now_ns)
        transmitter.do_work(now_ns)
        return transmitter.silent

    assert send(0) == ()
    lines[0].down = True
    assert send(1) == ()
    lines[1].down = True
    assert [send(2), send(3)] == [("incremental",)] * 2
    assert list(transmitter.events) == [
        "incremental: is not sent on any line: line 0: no way; line 1: no way"
    ]
    transmitter.do_work(4)  # nothing to carry is no news
    assert transmitter.silent
    lines[1].down = False
    assert [send(5), send(6)] == [(), ()]
    assert list(transmitter.events)[1:] == ["incremental: is sent again"]


def test_restart_draws_another_session_and_forgets_the_round():
    incremental, snapshot = ListLine(), ListLine()
    transmitter = Transmitter([incremental], [snapshot], session_id=1)
    transmitter.send(b"x", 1, 7, now_ns=0)
    transmitter.put_snapshot(b"X", 1, 7)
    session_id = transmitter.restart()
    transmitter.send(b"y", 1, 7, now_ns=0)
    transmitter.do_work(0)
    assert session_id != 1
    assert transmitter.sessions == [1, session_id]
    assert [(m.session_id, m.seqno, m.last_seqno) for m in messages(incremental.datagrams)] == [
        (1, 1, 0),
        (session_id, 1, 0),
    ]
    assert snapshot.datagrams == []


def test_impairment_decides_per_line_what_arrives_when():
    lines = [ListLine(), ListLine()]
    transmitter = Transmitter(lines, session_id=1, impair=LoseAndDelay())
    for payload in (b"a", b"b", b"c"):
        transmitter.send(payload, 1, 1, now_ns=0)
    transmitter.flush(0)
    assert [m.payload for m in messages(lines[0].datagrams)] == [b"a", b"c"]
    assert lines[1].datagrams == []
    assert transmitter.delayed() == 4
    transmitter.do_work(4999)
    assert lines[1].datagrams == []
    transmitter.do_work(5000)
    assert [m.payload for m in messages(lines[1].datagrams)] == [b"a", b"b", b"c", b"c"]


def test_impairment_taken_away_keeps_delayed_datagrams_in_order():
    lines = [ListLine(), ListLine()]
    transmitter = Transmitter(lines, session_id=1, impair=LoseAndDelay())
    transmitter.send(b"a", 1, 1, now_ns=0)
    transmitter.flush(0)
    transmitter.impair = None
    transmitter.send(b"b", 1, 1, now_ns=6000)
    transmitter.do_work(6000)
    assert [m.payload for m in messages(lines[1].datagrams)] == [b"a", b"a", b"b"]
    assert transmitter.delayed() == 0


def test_send_stamp_is_unix_time():
    line = ListLine()
    transmitter = Transmitter([line], session_id=1, utc_offset_ns=1_000_000)
    transmitter.send(bytes(16), 1, 1, now_ns=23, stamp_offset=8)
    transmitter.flush(23)
    assert line.datagrams[0][24:] == (1_000_023).to_bytes(8, "little")


@pytest.mark.parametrize("settings", [{"snapshot_interval_ns": 0}, {"snapshot_rate_per_s": 0}])
def test_transmitter_impossible_pace_is_refused(settings):
    with pytest.raises(ValueError, match="must be at least 1"):
        Transmitter([ListLine()], **settings)
