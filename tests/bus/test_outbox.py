"""A message on its way to the stream: accepted, sent until it is seen, let go once it is safe."""

import os

import pytest

from tests.bus.drive import (
    MS,
    T0,
    Copy,
    S,
    lead,
    numbers,
    outbox,
    outbox_sender,
    register,
    send,
    sequencer,
    store,
)
from udpfast.bus.outbox import OUTBOX_HEADER, Outbox, OutboxState, outbox_facts
from udpfast.bus.wire import SENT_SIZE_LIMIT, send_parse
from udpfast.errors import OutboxFullError, OutboxLostError, SupersededError


def deliver(seq, datagrams, now_ns=0):
    for datagram in datagrams:
        seq.receive(datagram, now_ns, T0 + now_ns)


def registered(seq, box, **options):
    carried, watch = outbox_sender(seq, box, **options)
    deliver(seq, carried.work(0, True))
    watch.work()
    assert box.state is OutboxState.REGISTERED
    return carried, watch


def five_seen(seq, box):
    """Send five messages into the stream; return the position before them."""
    carried, watch = registered(seq, box)
    at = seq.store.end
    for _ in range(5):
        box.send(b"x")
    deliver(seq, carried.work(MS, True))
    watch.work()
    assert box.counts()["seen"] == 5
    return carried, watch, at


def test_messages_accepted_come_into_the_stream_in_order() -> None:
    seq, box = sequencer(), outbox()
    carried, watch = registered(seq, box)
    assert [box.send(b"%d" % n, 7) for n in range(1, 4)] == [1, 2, 3]
    [datagram] = carried.work(MS, True)
    assert send_parse(datagram).messages == [(7, b"1"), (7, b"2"), (7, b"3")]
    deliver(seq, [datagram])
    watch.work()
    seq.store.log.sync()
    assert carried.work(2 * MS, True) == []
    assert numbers(seq.store) == [1, 2, 3]
    assert box.counts() == {"accepted": 3, "seen": 3, "freed": 3, "datagrams": 2, "resent": 0}


def test_message_too_large_is_refused_with_both_sizes() -> None:
    box = outbox()
    with pytest.raises(ValueError, match=f"at most {SENT_SIZE_LIMIT} bytes, has 1389"):
        box.send(bytes(1389))
    assert box.send(bytes(1388)) == 1


@pytest.mark.parametrize("wrong", [1.5, 1.0, "1", None])
def test_type_that_is_no_integer_is_refused(wrong) -> None:
    box = outbox()
    with pytest.raises(TypeError):
        box.send(b"x", wrong)
    assert box.counts()["accepted"] == 0


def test_outbox_full_raises_and_goes_on_when_messages_are_safe() -> None:
    seq, box = sequencer(), outbox(slots=4)
    carried, watch = registered(seq, box)
    for n in range(4):
        box.send(b"%d" % n)
    with pytest.raises(OutboxFullError, match="4 messages"):
        box.send(b"x")
    deliver(seq, carried.work(MS, True))
    watch.work()
    carried.work(2 * MS, True)
    with pytest.raises(OutboxFullError):  # seen, and not yet on the disk
        box.send(b"x")
    seq.store.log.sync()
    carried.work(3 * MS, True)
    assert box.send(b"x") == 5


def test_payloads_around_the_end_of_the_memory_stay_whole() -> None:
    seq, box = sequencer(), outbox(slots=8, capacity=3000)
    carried, watch = registered(seq, box)
    for n in range(200):
        box.send(bytes([n]) * (n * 37 % 1000))
        for datagram in carried.work(n * MS, True):
            [(_, payload)] = send_parse(datagram).messages
            assert payload == bytes([n]) * (n * 37 % 1000)
            deliver(seq, [datagram])
        watch.work()
        seq.store.log.sync()
    assert len(numbers(seq.store)) == 200


def test_message_not_seen_is_sent_again_after_doubling_times() -> None:
    seq, box = sequencer(), outbox()
    carried, _watch = registered(seq, box)
    box.send(b"x")
    carried.work(0, True)
    times = []
    for ms in range(0, 40_000, 10):
        if any(send_parse(datagram).messages for datagram in carried.work(ms * MS, True)):
            times.append(ms)
    assert times == [500, 1500, 3500, 7500, 15500, 23500, 31500, 39500]
    assert box.counts()["resent"] == 8


def test_clock_of_resends_stands_still_while_the_stream_does_not_come() -> None:
    seq, box = sequencer(), outbox()
    carried, _watch = registered(seq, box)
    box.send(b"x")
    assert carried.work(0, True)
    quiet = [
        send_parse(datagram).messages
        for ms in range(0, 20_000, 100)
        for datagram in carried.work(ms * MS, False)
    ]
    assert not any(quiet)
    carried.work(20_100 * MS, True)
    assert any(send_parse(d).messages for d in carried.work(20_600 * MS, True))


def test_resends_of_a_late_stream_are_one_per_message_and_step() -> None:
    seq, box = sequencer(), outbox()
    carried, watch = registered(seq, box)
    for _ in range(10):
        box.send(b"x")
    for ms in range(0, 10_000, 5):
        deliver(seq, carried.work(ms * MS, True))
    watch.work()  # the stream is 10 s behind
    assert numbers(seq.store) == list(range(1, 11))
    assert box.counts()["resent"] == 4 * 10
    assert box.counts()["seen"] == 10


def test_daemon_killed_between_accept_and_send_sends_in_order() -> None:
    seq, box = sequencer(), outbox()
    carried, watch = registered(seq, box)
    box.send(b"1")
    deliver(seq, carried.work(MS, True))
    box.send(b"2")
    carried, watch = outbox_sender(seq, box)
    box.send(b"3")
    deliver(seq, carried.work(MS, True))
    watch.work()
    assert numbers(seq.store) == [1, 2, 3]
    assert box.counts()["seen"] == 3


def test_second_outbox_of_a_name_ends_the_first_and_says_what_is_lost() -> None:
    seq, box = sequencer(), outbox(nonce=1)
    _carried, watch = registered(seq, box)
    box.send(b"1")
    box.send(b"2")
    register(seq, nonce=9)
    watch.work()
    assert box.state is OutboxState.SUPERSEDED
    with pytest.raises(SupersededError, match="2 accepted messages are not in the stream"):
        box.send(b"3")
    assert any("2 accepted messages" in said for said in seq.store.said)


def test_name_in_use_elsewhere_is_told_and_tried_again() -> None:
    seq, box = sequencer(), outbox(host="g", nonce=2)
    register(seq, host="h", nonce=1)
    carried, watch = outbox_sender(seq, box)
    [datagram] = carried.work(0, True)
    carried.told(seq.receive(datagram, 0, T0))
    assert box.state is OutboxState.NAME_IN_USE
    for ms in range(0, 20_000, 100):
        deliver(seq, carried.work(ms * MS, True), ms * MS)
    watch.work()
    assert box.state is OutboxState.REGISTERED
    assert box.sender == (1, 2)


def test_records_taken_back_are_sent_again_under_their_numbers() -> None:
    seq, box = sequencer(), outbox()
    carried, watch, at = five_seen(seq, box)
    seq.store.cut(at)
    watch.work()
    assert box.counts()["seen"] == 0
    [datagram] = carried.work(2 * MS, True)
    assert (send_parse(datagram).first, len(send_parse(datagram).messages)) == (1, 5)


@pytest.mark.parametrize("grown", [False, True])
def test_records_taken_back_by_a_daemon_that_was_killed_then_are_sent_again(grown: bool) -> None:
    seq, box = sequencer(), outbox()
    _, _, at = five_seen(seq, box)
    seq.store.cut(at)  # the host dies before its watch learns of it
    if grown:
        later = lead(seq.store)
        register(later, "other", nonce=9)
        for number in range(1, 50):
            send(later, number, sender=2)
    seq.store.log.sync()
    carried, watch = outbox_sender(seq, box)
    watch.work()
    carried.work(2 * MS, True)
    assert box.counts()["seen"] == box.counts()["freed"] == 0


def test_messages_let_go_that_are_gone_are_said() -> None:
    seq, box = sequencer(), outbox()
    carried, watch = registered(seq, box)
    for _ in range(5):
        box.send(b"x")
    deliver(seq, carried.work(MS, True))
    watch.work()
    seq.store.log.sync()
    carried.work(2 * MS, True)
    assert box.counts()["freed"] == 5
    at = seq.store.log.first()[0]
    for record in seq.store.log.records(at, seq.store.end):
        at = int.from_bytes(record[8:16], "little")  # of the fifth message
    seq.store.cut(at)  # as if all hosts had lost their power
    lead(seq.store)
    watch.work()
    assert box.state is OutboxState.LOST
    with pytest.raises(OutboxLostError, match="5 messages of a"):
        box.send(b"x")
    assert any(
        "5 messages were in the stream, but now only 4 are" in said for said in seq.store.said
    )


def test_records_that_are_copied_again_lose_no_messages() -> None:
    seq, box = sequencer(1 << 12), outbox(slots=512)
    carried, watch = registered(seq, box)
    copy = store("one")
    for at in range(100):
        box.send(b"x" * 100)
        deliver(seq, carried.work(at * MS, True))
        watch.work()
    seq.store.log.sync()
    carried.work(S, True)
    assert box.counts()["freed"] == 100
    Copy(seq.store, copy).pump().source.close("over")
    begin = seq.store.log.segments[1].position
    assert begin < seq.store.end // 2, "a segment begins with what was known of senders then"
    seq.store.cut(begin)  # its files were damaged, and set aside
    watch.work()
    link = Copy(copy, seq.store, any_source=True, drain=True)
    for _ in range(100):
        link.pump(chunk=4096, turns=1)
        watch.work()
    assert seq.store.end == copy.end
    register(lead(seq.store))
    watch.work()
    assert box.state is OutboxState.REGISTERED
    assert box.counts()["seen"] == 100
    assert box.send(b"y") == 101


@pytest.mark.parametrize("state", [OutboxState.SUPERSEDED, OutboxState.LOST])
def test_outbox_that_is_over_has_no_part_in_who_gets_its_number_next(state: OutboxState) -> None:
    seq, box = sequencer(), outbox()
    at = seq.store.end
    carried, watch, _ = five_seen(seq, box)
    if state is OutboxState.SUPERSEDED:
        register(seq, nonce=9)
    else:
        seq.store.log.sync()
        carried.work(2 * MS, True)
        box.send(b"y")
        seq.store.cut(at)
    watch.work()
    if state is OutboxState.LOST:
        register(seq := lead(seq.store), nonce=1)
        watch.work()
    assert box.state is state
    before = box.counts()
    seq.store.cut(at)
    later = lead(seq.store)
    register(later, "other", nonce=8)
    for number in range(1, 40):
        send(later, number)
    seq.store.log.sync()
    watch.work()
    carried.work(3 * MS, True)
    assert numbers(seq.store) == list(range(1, 40))
    assert box.counts()["seen"] == box.counts()["freed"] == before["freed"]


def test_refusal_that_is_damaged_changes_nothing() -> None:
    seq, box = sequencer(), outbox()
    carried, _ = registered(seq, box)
    before = box.state
    for data in (b"", b"USND", bytes(48), bytes(200)):
        carried.told(data)
    assert box.state == before


def test_send_rings_while_the_daemon_sleeps_and_only_then() -> None:
    seq = sequencer()
    box = outbox()
    _, watch = outbox_sender(seq, box)
    heard, box.bell = os.pipe()
    os.set_blocking(heard, False)
    try:
        box.send(b"awake")
        assert watch.begin_sleep(), "something is to be sent: it must not sleep"
        box.send(b"asleep")
        assert len(os.read(heard, 9)) == 1
        watch.wake()
        box.send(b"awake again")
        with pytest.raises(BlockingIOError):
            os.read(heard, 9)
    finally:
        os.close(heard)
        os.close(box.bell)


def test_a_bell_that_is_full_refuses_no_message() -> None:
    seq = sequencer()
    box = outbox()
    _, watch = outbox_sender(seq, box)
    heard, box.bell = os.pipe2(os.O_NONBLOCK)
    try:
        with pytest.raises(BlockingIOError):
            while True:
                os.write(box.bell, bytes(4096))
        assert not watch.begin_sleep()
        assert box.send(b"asleep") == 1
    finally:
        os.close(heard)
        os.close(box.bell)


def test_first_bytes_of_an_outbox_tell_all_but_its_messages() -> None:
    seq, size = sequencer(), Outbox.size_bytes(4, 1 << 16)
    memory = bytearray(size)
    box = Outbox.create(memory, "algo", "S", 1, 4, 1 << 16)
    carried, watch = registered(seq, box)
    box.send(b"seen")
    deliver(seq, carried.work(MS, True))
    watch.work()
    box.send(b"on its way")
    facts = outbox_facts(bytes(memory[:OUTBOX_HEADER]), size)
    assert facts.items() >= box.counts().items()
    assert (facts["sender"], facts["state"]) == ("algo", "registered")
    assert facts["waiting"] == facts["accepted"] - facts["freed"]
    assert (facts["slots"], facts["capacity_bytes"]) == (4, 1 << 16)
    assert facts["waiting_bytes"] >= len(b"on its way")


@pytest.mark.parametrize("cut", [0, 1, OUTBOX_HEADER - 1])
def test_bytes_that_are_no_outbox_are_refused(cut: int) -> None:
    memory = bytearray(Outbox.size_bytes(4, 1 << 16))
    Outbox.create(memory, "algo", "S", 1, 4, 1 << 16)
    header = bytes(memory[:OUTBOX_HEADER])
    with pytest.raises(ValueError, match="expected an outbox"):
        outbox_facts(header[:cut], len(memory))
    for size_bytes in (0, len(memory) - 1, len(memory) + 1):
        with pytest.raises(ValueError, match="expected an outbox"):
            outbox_facts(header, size_bytes)
    with pytest.raises(ValueError, match="expected an outbox"):
        outbox_facts(bytes(OUTBOX_HEADER), len(memory))
