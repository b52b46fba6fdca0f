"""The fan-out as a plain SUB socket sees it: real sockets, messages taken apart."""

import socket
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zmq

from tests.agents.fanout import Subscriber, Turned, caught_up, running
from tests.client.instance import Instance, small_image
from tests.waiting import PATIENCE_S, wait_until
from udpfast.agents.feed.image_keeper import ImageKeeper
from udpfast.agents.feed.ring_names import RingNames
from udpfast.agents.zmq.zmq_fanout import ZmqFanout
from udpfast.agents.zmq.zmq_sockets import Outlets
from udpfast.config import ZmqConfig
from udpfast.core.agent import AgentRunner
from udpfast.core.layout import OBJECT_STATE, SESSION, Kind, RecordFlag
from udpfast.errors import ConfigError
from udpfast.log.readers import list_readers
from udpfast.market.state_bytes import ENTRY_HASH
from udpfast.net.envelope import TOPIC_SIZE_MAX, EnvelopeType, unpack_names
from udpfast.shm.image import Image, ImageView


def ring_bytes(instance: Instance) -> bytes:
    return bytes(instance.ring.region.view()[4096 : 4096 + instance.ring.position])


@pytest.mark.parametrize("socket", [0, 1])
def test_records_come_as_they_lie_in_the_ring(instance: Instance, socket: int) -> None:
    with running(instance.directory) as fanout, Subscriber(fanout.addresses[socket], b"") as sub:
        sub.until(EnvelopeType.BEGIN)
        for i in range(1000):
            instance.top(i, i + 1)
        bodies = b""
        count = 0
        while count < 1000:
            message = sub.until(EnvelopeType.RECORDS)[-1]
            assert message.envelope["sequence"] == count
            assert message.envelope["index"] == count + message.envelope["count"]
            count += message.envelope["count"]
            bodies += message.body
        assert bodies == ring_bytes(instance)


def test_a_topic_gets_its_records_and_all_doubt(instance: Instance) -> None:
    with (
        running(instance.directory, addresses=("ipc",)) as fanout,
        Subscriber(fanout.addresses[0], b"TOP_OF_BOOK/binance-usdm/ETH") as sub,
    ):
        sub.until(EnvelopeType.BEGIN)
        instance.top(1, 2, symbol="BTCUSDT")
        instance.append(Kind.GAP, bytes(24))
        instance.book([(1, 1)], [], symbol="ETHUSDT")
        instance.top(1, 2, symbol="ETHUSDT")
        instance.append(Kind.MESSAGE, b"opaque")
        instance.append(Kind.STALE, bytes(24))
        kinds = []
        while len(kinds) < 3:
            body = sub.until(EnvelopeType.RECORDS)[-1].body
            while body:
                kinds.append(int.from_bytes(body[4:6], "little"))
                body = body[(int.from_bytes(body[:4], "little") + 7) & ~7 :]
        assert kinds == [Kind.GAP, Kind.TOP_OF_BOOK, Kind.STALE]


def test_names_come_before_the_records_that_carry_them(instance: Instance) -> None:
    instance.names.intern("early")
    with (
        running(instance.directory, addresses=("ipc",)) as fanout,
        Subscriber(fanout.addresses[0], b"") as sub,
    ):
        first = sub.take()
        assert first.answer
        assert first.envelope["type"] == EnvelopeType.NAMES
        assert unpack_names(first.body, 1) == (1, [b"early"])
        sub.until(EnvelopeType.BEGIN)
        instance.top(1, 2, symbol="LATE")
        *_, names, records = sub.until(EnvelopeType.RECORDS)
        assert unpack_names(names.body, 2) == (2, [b"binance-usdm", b"LATE"])
        assert records.envelope["names"] == 3


def test_many_names_come_in_messages_of_a_bearable_size(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "feed")
    names = [f"{i:0100d}" for i in range(60)]
    for name in names:
        instance.names.intern(name)
    with (
        running(instance.directory, addresses=("ipc",)) as fanout,
        Subscriber(fanout.addresses[0], b"", b"@names/11") as sub,
    ):
        asked = sub.take()
        while asked.topic != b"@names/11":
            asked = sub.take()
        assert unpack_names(asked.body, 50) == (11, [name.encode() for name in names[10:]])
    instance.close()


@pytest.mark.parametrize("topic", [b"rubbish", b"@names/", b"@names/x", b"BOOK/\x7f"])
def test_what_is_no_topic_is_refused_with_a_reason(instance: Instance, topic: bytes) -> None:
    with (
        running(instance.directory, addresses=("ipc",)) as fanout,
        Subscriber(fanout.addresses[0], topic) as sub,
    ):
        message = sub.take()
        assert message.topic == topic
        assert message.envelope["type"] == EnvelopeType.REFUSED
        assert message.body
        assert fanout.statistics()["streams"] == 0


def test_the_longest_topic_is_served_and_a_longer_one_is_refused(instance: Instance) -> None:
    longest = b"BOOK/".ljust(TOPIC_SIZE_MAX, b"x")
    with (
        running(instance.directory, addresses=("ipc",)) as fanout,
        Subscriber(fanout.addresses[0], longest) as sub,
    ):
        assert sub.until(EnvelopeType.BEGIN)[-1].topic == longest
        sub.socket.subscribe(longest + b"x")
        wait_until(lambda: fanout.statistics()["refused"] == 1)
        assert fanout.statistics()["streams"] == 1


def test_topics_beyond_the_limit_are_refused(instance: Instance) -> None:
    topics = [b"BOOK/x/%d" % i for i in range(65)]
    with (
        running(instance.directory, addresses=("ipc",)) as fanout,
        Subscriber(fanout.addresses[0], *topics) as sub,
    ):
        refused = sub.until(EnvelopeType.REFUSED)[-1]
        assert refused.topic == topics[-1]
        assert b"64 different topics" in refused.body
        sub.socket.unsubscribe(topics[0])
        wait_until(lambda: fanout.statistics()["streams"] == 63)
        sub.socket.subscribe(b"TRADES/")
        assert sub.until(EnvelopeType.BEGIN)[-1].topic == b"TRADES/"


def test_a_stream_ends_with_its_last_subscriber(instance: Instance) -> None:
    with running(instance.directory, addresses=("ipc",)) as fanout:
        with (
            Subscriber(fanout.addresses[0], b"") as one,
            Subscriber(fanout.addresses[0], b"") as two,
        ):
            one.until(EnvelopeType.BEGIN)
            two.until(EnvelopeType.BEGIN)
            wait_until(lambda: fanout.statistics()["subscribers"] == 2)
            assert fanout.statistics()["streams"] == 1
        wait_until(lambda: fanout.statistics()["streams"] == 0)
        messages = fanout.statistics()["messages"]
        instance.top(1, 2)
        caught_up(fanout, instance)
        assert fanout.statistics()["messages"] == messages


def test_an_answer_goes_to_one_subscriber_only(instance: Instance) -> None:
    with (
        running(instance.directory, addresses=("ipc",), heartbeat_ms=10) as fanout,
        Subscriber(fanout.addresses[0], b"") as one,
    ):
        one.until(EnvelopeType.BEGIN)
        with Subscriber(fanout.addresses[0], b"") as two:
            two.until(EnvelopeType.BEGIN)
        assert not any(message.answer for message in one.until(EnvelopeType.ALIVE))


def test_subscriber_is_served_whoever_leaves_while_it_is_answered(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library forgets whose request it handed out when it hears that a connection has gone."""
    with Turned(instance, addresses=("ipc",)) as turned:
        fanout = turned.fanout
        leaving = Subscriber(fanout.addresses[0], b"")
        turn_until(fanout, lambda: fanout.statistics()["subscribers"] == 1)
        leaving.close()
        learn = RingNames.learn

        def learn_late(names: RingNames, now_ns: int) -> bool:
            time.sleep(0.1)  # between request and answer: the last word of the one that leaves
            return learn(names, now_ns)

        with Subscriber(fanout.addresses[0], b"") as staying:
            time.sleep(0.1)  # so that both are heard of in one turn
            monkeypatch.setattr(RingNames, "learn", learn_late)
            turn_until(fanout, lambda: fanout.statistics()["requests"] == 2)
            monkeypatch.setattr(RingNames, "learn", learn)
            instance.top(1, 2)
            turn_until(fanout, lambda: fanout.statistics()["records"] == 1)
            staying.until(EnvelopeType.RECORDS)


def turn_until(fanout: ZmqFanout, done: Callable[[], bool]) -> None:
    """Let the fan-out take turns until something is true."""
    wait_until(lambda: fanout.work(time.monotonic_ns()) < 0 or done())


def test_batch_records_of_one_sends_each_alone(instance: Instance) -> None:
    with (
        running(instance.directory, addresses=("ipc",), batch_records=1) as fanout,
        Subscriber(fanout.addresses[0], b"") as sub,
    ):
        sub.until(EnvelopeType.BEGIN)
        for i in range(20):
            instance.top(i, i + 1)
        assert [sub.until(EnvelopeType.RECORDS)[-1].envelope["count"] for _ in range(20)] == 20 * [
            1
        ]


def test_linger_gathers_records(instance: Instance) -> None:
    with (
        running(instance.directory, addresses=("ipc",), linger_us=1_000_000) as fanout,
        Subscriber(fanout.addresses[0], b"") as sub,
    ):
        sub.until(EnvelopeType.BEGIN)
        for i in range(20):
            instance.top(i, i + 1)
        assert sub.until(EnvelopeType.RECORDS)[-1].envelope["count"] == 20


def test_batch_bytes_bounds_a_message(instance: Instance) -> None:
    with (
        running(
            instance.directory, addresses=("ipc",), batch_bytes=1024, linger_us=100_000
        ) as fanout,
        Subscriber(fanout.addresses[0], b"") as sub,
    ):
        sub.until(EnvelopeType.BEGIN)
        instance.append(Kind.MESSAGE, bytes(5000))
        for i in range(20):
            instance.top(i, i + 1)
        sizes: list[int] = []
        count = 0
        while count < 21:
            message = sub.until(EnvelopeType.RECORDS)[-1]
            count += message.envelope["count"]
            sizes.append(len(message.body))
        assert sizes[0] == 64 + 5000
        assert max(sizes[1:]) <= 1024


def test_hostile_subscribers_disturb_nobody(instance: Instance) -> None:
    with (
        running(instance.directory) as fanout,
        Subscriber(fanout.addresses[1], b"BOOK/") as sub,
    ):
        sub.until(EnvelopeType.BEGIN)
        hostile = zmq.Context()
        socket = hostile.socket(zmq.XSUB)
        socket.connect(fanout.addresses[1])
        rubbish = [b"", b"\2", b"\0", b"\0BOOK/", b"\1\xff\xff", b"\1" + 1000 * b"x", 900 * b"\7"]
        rubbish += [b"\1@names/99999999999999999999", b"\1@names/-1", b"\1~~", b"\1|||"]
        for _ in range(50):
            for one in rubbish:
                socket.send(one)
                socket.send_multipart([b"\1TRADES/", one])
        socket.send(b"\1" + 100_000 * b"x")  # the connection ends
        instance.book([(1, 2)], [])
        caught_up(fanout, instance)
        assert sub.until(EnvelopeType.RECORDS)[-1].envelope["count"] == 1
        socket.close(linger=0)
        hostile.term()
        with Subscriber(fanout.addresses[1], b"TOP_OF_BOOK/") as late:
            late.until(EnvelopeType.BEGIN)
            instance.top(1, 2)
            assert late.until(EnvelopeType.RECORDS)[-1].topic == b"TOP_OF_BOOK/"


class Bare:
    """A subscriber that speaks ZMTP 3.0 itself, and says what no library would say."""

    def __init__(self, address: str) -> None:
        host, port = address.removeprefix("tcp://").split(":")
        self.socket = socket.create_connection((host, int(port)))
        mechanism = b"NULL".ljust(20, b"\0")
        self.socket.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + mechanism + bytes(32))
        self.socket.recv(64, socket.MSG_WAITALL)
        ready = b"\x05READY\x0bSocket-Type" + (3).to_bytes(4, "big") + b"SUB"
        self.socket.sendall(bytes([4, len(ready)]) + ready)

    def say(self, *requests: bytes) -> None:
        for request in requests:
            self.socket.sendall(bytes([0, len(request)]) + request)


def test_nobody_ends_what_others_subscribe_to(instance: Instance) -> None:
    with (
        running(instance.directory) as fanout,
        Subscriber(fanout.addresses[1], b"BOOK/") as sub,
    ):
        sub.until(EnvelopeType.BEGIN)
        bare = Bare(fanout.addresses[1])
        bare.say(b"\0BOOK/", b"\1TRADES/", b"\0TRADES/", b"\0TRADES/", b"\0BOOK/")
        bare.say(b"\1BOOK/", b"\1BOOK/", b"\0BOOK/", b"\0BOOK/", b"\1@names/1")
        wait_until(lambda: fanout.statistics()["requests"] == 5)
        wait_until(lambda: fanout.statistics()["streams"] == 1)
        assert fanout.statistics()["subscribers"] == 1
        instance.book([(1, 2)], [])
        assert sub.until(EnvelopeType.RECORDS)[-1].envelope["count"] == 1
        bare.say(b"\1BOOK/", b"\1BOOK/", b"\1@names/1")
        wait_until(lambda: fanout.statistics()["requests"] == 8)
        assert fanout.statistics()["subscribers"] == 2
        bare.socket.close()
        wait_until(lambda: fanout.statistics()["subscribers"] == 1)
        again = Bare(fanout.addresses[1])  # by the number of the one before, as a rule
        again.say(b"\0BOOK/", b"\1BOOK/", b"\0BOOK/", b"\1@names/1")
        wait_until(lambda: fanout.statistics()["requests"] == 10)
        assert fanout.statistics()["subscribers"] == 1
        again.socket.close()


def test_the_end_of_the_ring_ends_agent_and_streams(instance: Instance) -> None:
    fanout = ZmqFanout(ZmqConfig(), instance.directory)
    runner = AgentRunner(fanout)
    runner.start()
    with Subscriber(fanout.addresses[0], b"") as sub:
        sub.until(EnvelopeType.BEGIN)
        instance.top(1, 2)
        instance.ring.close()
        end = sub.until(EnvelopeType.END)[-1]
        assert end.envelope["sequence"] == 1
        assert runner.join(PATIENCE_S)


def test_a_fanout_before_its_ring_waits_for_it(tmp_path: Path) -> None:
    (tmp_path / "feed").mkdir(mode=0o700)
    with (
        running(tmp_path / "feed", addresses=("ipc",)) as fanout,
        Subscriber(fanout.addresses[0], b"") as sub,
    ):
        assert sub.until(EnvelopeType.BEGIN)[-1].envelope["ring"] == 0
        instance = Instance(tmp_path / "feed")
        instance.top(1, 2)
        message = sub.until(EnvelopeType.RECORDS)[-1]
        assert message.envelope["ring"] != 0
        assert message.envelope["sequence"] == 0
        instance.close()


def test_tools_see_the_fanout_among_the_readers(instance: Instance) -> None:
    with running(instance.directory, addresses=("ipc",)) as fanout:
        instance.top(1, 2)
        caught_up(fanout, instance)
        wait_until(lambda: [r.index for r in list_readers(instance.directory)] == [1])
        assert [r.name for r in list_readers(instance.directory)] == ["zmq"]


def test_a_socket_is_its_owners_alone_and_gone_at_the_end(instance: Instance) -> None:
    path = instance.directory / "zmq"
    with running(instance.directory, addresses=("ipc",)):
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()


def test_a_socket_in_an_instance_for_a_group_is_the_groups_too(instance: Instance) -> None:
    instance.directory.chmod(0o2750)
    with running(instance.directory, addresses=("ipc",)):
        assert (instance.directory / "zmq").stat().st_mode & 0o777 == 0o660


def test_an_address_that_cannot_be_bound_is_refused(instance: Instance) -> None:
    with (
        pytest.raises(ConfigError, match=r"zmq\.addresses.*'ipc:///nowhere/at/all'"),
        running(instance.directory, addresses=("ipc:///nowhere/at/all",)),
    ):
        pass


def test_fanout_that_ends_late_leaves_its_successors_socket(tmp_path: Path) -> None:
    config = ZmqConfig(addresses=("ipc",))
    orphan = Outlets(config, tmp_path)
    successor = Outlets(config, tmp_path)
    orphan.close()
    assert (tmp_path / "zmq").is_socket()
    successor.close()
    assert not (tmp_path / "zmq").exists()


def test_subscriber_who_joins_while_an_image_is_ahead_gets_no_update_twice(tmp_path: Path) -> None:
    # The keeper goes on while the fan-out reads what it keeps: the mark is of before, and an object
    # contains already what follows.
    instance = Instance(tmp_path / "feed")
    session = np.zeros((), SESSION)
    session["new_id"] = 1
    instance.append(Kind.SESSION, session.tobytes(), session=1)
    state = np.zeros((), OBJECT_STATE)
    instance.append(Kind.RECOVERED, state.tobytes(), object_type=3, object_id=7, session=1)
    instance.book([(10.0, 1.0)], [(11.0, 1.0)], snapshot=True, stream=1)
    keeper = ImageKeeper(small_image(objects=8), instance.directory)
    keeper.on_start()
    for i in range(12_000):  # the writer's beginning is overwritten
        instance.append(Kind.MESSAGE, bytes(64), RecordFlag.UNGATED, session=1)
        if i % 1_000 == 0:
            keeper.work(1 << 62)
    instance.ring.flush()
    while keeper.work(1 << 62):
        pass
    with ImageView.attach(instance.directory, ENTRY_HASH) as view:
        mark = view.entry(0)
    before = instance.number
    instance.book([(10.0, 2.0)], [], follows=before)
    instance.ring.flush()
    while keeper.work(1 << 62):
        pass
    keeper.publish()
    with ImageView.attach(instance.directory, ENTRY_HASH) as view:
        ahead = [view.entry(1 + i) for i in range(2)]
    keeper.on_stop()
    with Image.create(instance.directory, 9, 1 << 20, ENTRY_HASH) as image:
        assert image.put(0, mark)
        assert all(image.put(1 + i, entry) for i, entry in enumerate(ahead) if entry)
        with Turned(instance) as turned:
            reader = turned.open(image=True, pause_s=0.1)
            instance.book([(8.0, 4.0)], [], follows=before + 1)
            turned.end()
            records = list(reader)
            reader.close()
    books = [record for record in records if record.kind is Kind.BOOK]
    assert [record.number for record in books if not record.flags & RecordFlag.SNAPSHOT] == [
        before + 2
    ]
    assert books[0].bids["quantity"].tolist() == [2.0]
    instance.names_region.close()
