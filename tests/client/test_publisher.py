"""`udpfast.Publisher` over loopback sockets."""

import os
import select
import socket
import threading
import time

import numpy as np
import pytest

from tests.feed.frames_out import Parsed, messages, parse
from tests.waiting import PATIENCE_S, wait_until
from udpfast.client import published_book
from udpfast.client.publisher import Publisher
from udpfast.config import PublishConfig, parse_publish
from udpfast.payload.roq.event import event_to_dict


@pytest.fixture
def listeners():
    found = []
    for _ in range(3):
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(PATIENCE_S)
        found.append(listener)
    yield found
    for listener in found:
        listener.close()


def address(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def config(listeners, **settings) -> PublishConfig:
    return parse_publish(
        {
            "incremental": [{"address": address(listeners[0])}, {"address": address(listeners[1])}],
            "snapshot": [{"address": address(listeners[2])}],
            **settings,
        }
    )


def receive_message(listener: socket.socket) -> Parsed:
    datagrams = [listener.recv(2048)]
    while parse(datagrams[-1]).fragment < parse(datagrams[-1]).fragment_max:
        datagrams.append(listener.recv(2048))
    return messages(datagrams)[0]


def test_publisher_send_reaches_every_line_in_fragments(listeners):
    with Publisher(config(listeners, session_id=77)) as publisher:
        assert publisher.send(bytes(range(256)) * 5, object_type=1, object_id=42) == 1
        assert publisher.send(b"next", object_type=1, object_id=42, snapshot=True) == 2
        for listener in listeners[:2]:
            first, second = receive_message(listener), receive_message(listener)
            assert first.payload == bytes(range(256)) * 5
            assert (second.session_id, second.seqno, second.last_seqno) == (77, 2, 1)
            assert second.snapshot
        assert publisher.counts["incremental"]["datagrams"] == 4


def test_publisher_with_segment_hands_fragments_over_as_one_train(listeners):
    with Publisher(config(listeners, segment=True)) as publisher:
        payload = bytes(range(256)) * 5
        publisher.send(payload, object_type=1, object_id=42)
        assert [receive_message(listener).payload for listener in listeners[:2]] == [payload] * 2
        assert [sender.counts["trains"] for sender in publisher._senders] == [1, 1, 0]


def test_publisher_from_a_file(listeners, tmp_path):
    file = tmp_path / "publish.toml"
    file.write_text(f'first_seqno = 9\n[[incremental]]\naddress = "{address(listeners[0])}"\n')
    with Publisher(file) as publisher:
        assert publisher.send(b"x", 1, 1) == 9
        assert receive_message(listeners[0]).seqno == 9


def test_publisher_idle_sends_heartbeats_by_itself(listeners):
    with Publisher(config(listeners, heartbeat_interval_ms=5)):
        for listener in listeners:
            first, second = receive_message(listener), receive_message(listener)
            assert (first.seqno, second.seqno) == (1, 2)
            assert first.object_type == len(first.payload) == 0


def test_publisher_snapshot_is_repeated_with_its_own_last_seqno(listeners):
    with Publisher(config(listeners, snapshot_interval_ms=5)) as publisher:
        publisher.send(b"change", 1, 42)
        publisher.publish_snapshot(b"state", 1, 42)
        publisher.send(b"change", 1, 42)
        for seqno in (1, 2):
            message = receive_message(listeners[2])
            assert (message.seqno, message.payload, message.last_seqno, message.snapshot) == (
                seqno,
                b"state",
                1,
                True,
            )


def test_publisher_stamps_the_send_time(listeners):
    before = time.time_ns()
    with Publisher(config(listeners)) as publisher:
        publisher.send(bytes(24), 1, 1, stamp_offset=8)
        payload = receive_message(listeners[0]).payload
    assert before <= int.from_bytes(payload[8:16], "little") <= time.time_ns()
    assert payload[:8] == payload[16:] == bytes(8)


def silent(listener: socket.socket) -> bool:
    return not select.select([listener], [], [], 0)[0]


def test_publisher_send_without_flush_waits_for_it(listeners):
    with Publisher(config(listeners)) as publisher:
        with publisher._lock:  # of which the thread, which would flush, takes part
            publisher._transmitter.do_work = lambda now_ns: 0
        assert [publisher.send(b"%d" % i, 1, 1, flush=False) for i in range(3)] == [1, 2, 3]
        assert silent(listeners[0])
        publisher.flush()
        publisher.flush()
        for listener in listeners[:2]:
            payloads = [receive_message(listener).payload for _ in range(3)]
            assert payloads == [b"0", b"1", b"2"]
            assert silent(listener)


def test_publisher_send_that_flushes_takes_along_what_waits(listeners):
    with Publisher(config(listeners)) as publisher:
        with publisher._lock:
            publisher._transmitter.do_work = lambda now_ns: 0
        publisher.send(b"first", 1, 1, flush=False)
        publisher.send(b"second", 1, 1)
        assert [receive_message(listeners[0]).seqno for _ in range(2)] == [1, 2]


def test_publisher_without_flush_sends_when_64_datagrams_wait(listeners):
    with Publisher(config(listeners)) as publisher:
        with publisher._lock:
            publisher._transmitter.do_work = lambda now_ns: 0
        for _ in range(63):
            publisher.send(b"x", 1, 1, flush=False)
        assert silent(listeners[0])
        publisher.send(b"x", 1, 1, flush=False)
        assert [receive_message(listeners[0]).seqno for _ in range(64)] == list(range(1, 65))


def test_publisher_without_flush_is_flushed_by_its_thread_and_by_close(listeners):
    with Publisher(config(listeners)) as publisher:
        publisher.send(b"by the thread", 1, 1, flush=False)
        assert receive_message(listeners[0]).payload == b"by the thread"
        with publisher._lock:
            publisher._transmitter.do_work = lambda now_ns: 0
        publisher.send(b"by close", 1, 1, flush=False)
    assert receive_message(listeners[0]).payload == b"by close"
    with pytest.raises(ValueError, match="closed"):
        publisher.flush()


def test_publisher_takes_any_contiguous_bytes(listeners):
    with Publisher(config(listeners)) as publisher:
        for payload in (bytearray(b"abcd"), memoryview(b"abcd"), np.array([1, 2], "<u4")):
            publisher.send(payload, 1, 1)
            assert receive_message(listeners[0]).payload == bytes(payload)
        with pytest.raises((ValueError, BufferError), match="contiguous"):
            publisher.send(memoryview(b"abcd")[::2], 1, 1)
        with pytest.raises(ValueError, match=r"1..131072 bytes .* had 0"):
            publisher.send(b"", 1, 1)


def test_publisher_line_whose_queue_is_full_gives_up_and_counts(listeners):
    with Publisher(config(listeners)) as publisher:
        # A socket pair instead of a line: its queue fills up like that of a network card.
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with near, far:
            fd = publisher._senders[0].socket.fileno()
            saved = os.dup(fd)
            os.dup2(near.fileno(), fd)
            try:
                for _ in range(600):
                    publisher.send(b"x", 1, 1)
                unsent = publisher.counts["incremental"]["unsent"]
            finally:
                os.dup2(saved, fd)
                os.close(saved)
            received = 0
            while not silent(far):
                far.recv(2048)
                received += 1
    assert unsent > 0
    assert received + unsent == 600


def test_publisher_line_that_fails_is_counted_and_leaves_the_others_alone(listeners):
    with Publisher(config(listeners)) as publisher:
        publisher._senders[0].close()
        for seqno in range(1, 4):
            assert publisher.send(b"x", 1, 1) == seqno
        for _ in range(3):
            assert receive_message(listeners[1]).payload == b"x"
        assert publisher.counts["incremental"]["unsent"] == 3
        assert publisher.failures == {
            "incremental.0": "[Errno 9] cannot send: line 0: Bad file descriptor"
        }
        publisher._senders[1].close()
        with pytest.raises(OSError, match="cannot send: on any line"):
            publisher.send(b"x", 1, 1)


def test_publisher_closed_refuses_to_send(listeners):
    publisher = Publisher(config(listeners))
    publisher.close()
    publisher.close()
    with pytest.raises(ValueError, match="closed"):
        publisher.send(b"x", 1, 1)


def test_publisher_too_large_message_is_refused_and_the_next_goes_out(listeners):
    with Publisher(config(listeners)) as publisher:
        with pytest.raises(ValueError, match=r"1..131072 bytes .* had 131073"):
            publisher.send(bytes(131_073), 1, 1)
        assert publisher.send(b"x", 1, 1) == 1


def test_publisher_whose_thread_fails_says_so_and_goes_on(listeners):
    with Publisher(config(listeners, heartbeat_interval_ms=5)) as publisher:
        do_work = publisher._transmitter.do_work

        def fail(now_ns: int) -> None:
            do_work(now_ns)
            raise ValueError("no such round")

        with publisher._lock:
            publisher._transmitter.do_work = fail
        wait_until(lambda: publisher.failures)
        assert publisher.failures == {"thread": "ValueError: no such round"}
        before = publisher.counts["snapshot"]["heartbeats"]
        wait_until(lambda: publisher.counts["snapshot"]["heartbeats"] > before)
        assert publisher.send(b"x", 1, 1)


def test_publisher_refuses_a_snapshot_that_is_no_message_and_goes_on(listeners):
    with Publisher(config(listeners, snapshot_interval_ms=5)) as publisher:
        for payload in (b"", bytes(131_073)):
            with pytest.raises(ValueError, match=r"1..131072 bytes"):
                publisher.publish_snapshot(payload, 1, 1)
        with pytest.raises(ValueError, match="room for 8 bytes"):
            publisher.publish_snapshot(b"xxxx", 1, 1, stamp_offset=0)
        publisher.publish_snapshot(b"state", 1, 42)
        assert receive_message(listeners[2]).payload == b"state"
        assert publisher.send(b"x", 1, 1)


def test_publisher_removed_object_is_repeated_no_more(listeners):
    with Publisher(config(listeners, snapshot_interval_ms=5)) as publisher:
        publisher.publish_snapshot(b"expires", 1, 41)
        publisher.publish_snapshot(b"stays", 1, 42)
        assert receive_message(listeners[2]).payload == b"expires"
        assert publisher.remove(1, 41)
        assert not publisher.remove(1, 41)
        publisher.publish_snapshot(b"next round", 1, 43)
        payloads = []
        while payloads.count(b"next round") < 3:
            payloads.append(receive_message(listeners[2]).payload)
        since = payloads[payloads.index(b"next round") :]
        assert since == [b"next round", b"stays"] * 2 + [b"next round"]


def test_publisher_whose_lines_all_fail_says_so_once(listeners):
    said = []
    with Publisher(config(listeners, heartbeat_interval_ms=5), on_event=said.append) as publisher:
        assert publisher.silent == ()
        for sender in publisher._senders[:2]:
            sender.close()
        wait_until(lambda: publisher.silent == ("incremental",))
        wait_until(lambda: publisher.counts["snapshot"]["heartbeats"] > 3)
    assert len(said) == 1
    assert said[0].startswith("incremental: is not sent on any line: line 0: [Errno 9]")


def test_publisher_close_waits_for_a_send_of_another_thread(listeners):
    publisher = Publisher(config(listeners))
    closer = threading.Thread(target=publisher.close)
    publisher._closed.set()
    publisher._thread.join(PATIENCE_S)
    with publisher._lock:  # as `send` holds it
        closer.start()
        closer.join(0.05)
        assert all(sender.socket.fileno() >= 0 for sender in publisher._senders)
    closer.join(PATIENCE_S)
    assert all(sender.socket.fileno() < 0 for sender in publisher._senders)


def values(listener: socket.socket) -> dict[str, object]:
    return event_to_dict(receive_message(listener).payload)["value"]


def prices(value: dict[str, object], side: str) -> list[float]:
    return [level["price"] for level in value[side] or []]


def test_publisher_book_too_dense_is_published_as_far_as_a_message_carries_it(
    listeners, monkeypatch
):
    monkeypatch.setattr(published_book, "levels_that_fit", lambda exchange, symbol: 4)
    said = []
    with Publisher(config(listeners, snapshot_interval_ms=5), on_event=said.append) as publisher:
        book = publisher.open_book("v", "S", 41, 7, price_precision=2)
        assert book.update([(9, 1), (8, 1), (7, 1)], [(10, 1)], snapshot=True) == 1
        first = values(listeners[0])
        assert (prices(first, "bids"), prices(first, "asks")) == ([9, 8, 7], [10])
        assert book.update([(6, 1)]) is None
        assert book.update([(8, 0)]) == 2
        assert sorted(prices(values(listeners[0]), "bids")) == [6, 8]
        wait_until(lambda: prices(values(listeners[2]), "bids") == [9, 7, 6])
        assert book.left_out == (0, 1, 1)
        with pytest.raises(ValueError, match="finite"):
            book.update([(float("nan"), 1)])
        publisher.restart()
        book.update([(9, 5)])  # in a new session the whole book is sent
        assert prices(values(listeners[0]), "bids") == [9, 7, 6]
        book.close()
        book.close()
        assert not publisher.remove(41, 7)
        with pytest.raises(ValueError, match="closed"):
            book.update([(9, 1)])
    assert said == [
        "v:S: its book has 5 levels, but a message can carry only 4: the levels furthest from the "
        "best prices were left out"
    ]


def test_publisher_book_that_cannot_be_named_is_refused_at_once(listeners):
    with (
        Publisher(config(listeners)) as publisher,
        pytest.raises(ValueError, match=r"object_id must be 0..65535"),
    ):
        publisher.open_book("v", "S", 41, 70_000)
