"""Lines whose interface is removed and made again, over a wire of our own."""

import socket
from collections import deque
from contextlib import ExitStack, closing
from errno import EMFILE
from pathlib import Path

import pytest

from bench.namespaces import Wire, run
from lab.frames import datagram
from tests.waiting import PATIENCE_S, wait_until
from udpfast.agents.feed.line_watch import LineWatch, WatchedLine
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.client.publisher import Publisher
from udpfast.config import parse_publish
from udpfast.errors import ConfigError
from udpfast.net.datagram import DatagramReceiver
from udpfast.net.line import LineAddress, ReceiveOptions
from udpfast.net.link_events import LinkEvents
from udpfast.net.sender import DatagramSender

pytestmark = pytest.mark.system

SMALL = ReceiveOptions(rcvbuf_bytes=1 << 16)
GROUPS = [
    LineAddress("239.1.2.3:9001", "vb"),
    LineAddress("239.1.2.3:9001"),  # by the route
    LineAddress("239.1.2.3:9001", "10.99.0.2", source="10.99.0.1"),
    LineAddress("[ff15::7]:9003", "vb"),
    LineAddress("[ff12::7]:9003", "vb"),  # bound to its interface
    LineAddress("10.99.0.2:9004", "vb"),  # so is this one
]


def send(link: Wire, address: str, payload: bytes) -> None:
    """Send once the wire carries: right after it was made there may be no address yet."""
    host, port = address.rpartition(":")[::2]
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET

    def sent() -> bool:
        try:
            with link.sender(family) as sender:
                return sender.sendto(payload, (host.strip("[]"), int(port))) > 0
        except OSError:
            return False

    wait_until(sent)


def hears(link: Wire, receiver: DatagramReceiver, address: str) -> None:
    def heard() -> bool:
        send(link, address, b"tick")
        return any(item.payload == b"tick" for item in receiver.receive())

    wait_until(heard)


@pytest.mark.parametrize("line", GROUPS, ids=lambda line: f"{line.address}%{line.interface}")
def test_line_hears_its_group_again_when_its_interface_was_made_again(
    link: Wire, line: LineAddress
) -> None:
    said: list[str] = []
    counted: list[int] = []
    with link.inside(link.b):
        receiver = DatagramReceiver(line, SMALL)
        watch = LineWatch(
            [WatchedLine("A", receiver, lambda: counted.append(1))],
            said,  # type: ignore[arg-type]
        )
    with receiver:
        try:
            hears(link, receiver, line.address)
            link.cut()
            link.join()
            hears(link, receiver, line.address)
        finally:
            watch.stop()
    assert counted == [1]
    assert said[0] == "A: its interface has disappeared"
    assert said[-1] == "A: is open again"


def test_line_hears_its_group_again_when_the_new_interface_has_the_old_number(link: Wire) -> None:
    # As one that visits another namespace: only the event tells.
    with link.inside(link.b):
        receiver = DatagramReceiver(GROUPS[0], SMALL)
        watch = LineWatch([WatchedLine("A", receiver, lambda: None)], [])  # type: ignore[arg-type]
    with receiver:
        try:
            number = receiver.tied_to
            away = f"{link.b}x"
            run("ip", "netns", "add", away)
            run("ip", "-n", link.b, "link", "set", "vb", "netns", away)
            run("ip", "-n", away, "link", "set", "vb", "netns", link.b)
            run("ip", "netns", "del", away)
            run("ip", "-n", link.b, "addr", "add", "10.99.0.2/24", "dev", "vb")
            run("ip", "-n", link.b, "link", "set", "vb", "up")
            hears(link, receiver, GROUPS[0].address)
            assert receiver.tied_to == number
        finally:
            watch.stop()
            link.cut()
            link.join()


def test_line_whose_route_does_not_tell_its_interface_is_not_opened_again_and_again(
    link: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A route comes back before the address that tells whose it is.
    def refuse(*_: object) -> None:
        raise ConfigError("the route has no address")

    counted: list[int] = []
    with link.inside(link.b), DatagramReceiver(GROUPS[1], SMALL) as receiver:
        tied_to = receiver.tied_to
        watch = LineWatch([], deque())  # without a thread
        watch._lines = [WatchedLine("A", receiver, lambda: counted.append(1))]
        with monkeypatch.context() as patch:
            patch.setattr("udpfast.net.multicast.routed_interface", refuse)
            receiver.replace_socket()
            watch.look(set())
            assert (receiver.tied_to, counted) == (0, [])
        watch.look(set())
        assert (receiver.tied_to, counted) == (tied_to, [])
        watch.look({tied_to})
        assert (receiver.tied_to, counted) == (tied_to, [1])
        watch._lines = []
        watch.stop()


def test_line_keeps_its_socket_when_its_interface_goes_down_and_up(link: Wire) -> None:
    with link.inside(link.b), closing(LinkEvents()) as events:
        receiver = DatagramReceiver(GROUPS[0], SMALL)
        with receiver:
            run("ip", "-n", link.b, "link", "set", "vb", "down")
            run("ip", "-n", link.b, "link", "set", "vb", "up")
            assert events.wait(20) == set()
            hears(link, receiver, GROUPS[0].address)


def test_watch_that_cannot_look_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def refuse() -> list[tuple[int, str]]:
        nonlocal looks
        looks += 1
        raise OSError(EMFILE, "too many open files")

    monkeypatch.setattr("udpfast.agents.feed.line_watch.LOOK_S", 0.001)
    with DatagramReceiver(LineAddress("239.1.2.9:0", "lo"), SMALL) as receiver:
        monkeypatch.setattr(socket, "if_nameindex", refuse)
        watch = LineWatch([WatchedLine("A", receiver, lambda: None)], deque())
        wait_until(lambda: looks >= 3)
        watch.stop()


def test_watch_whose_stop_is_interrupted_lets_go_of_its_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupted:
        def finish(self) -> None:
            raise KeyboardInterrupt

    watch = LineWatch([], deque())  # without a thread
    monkeypatch.setattr(watch, "_thread", Interrupted())
    opened = watch._events._socket
    with pytest.raises(KeyboardInterrupt):
        watch.stop()
    assert opened is not None and opened.fileno() == -1


def test_woken_once_it_sleeps_again() -> None:
    # A forked child shares what wakes it: one that tidies up must not keep its parent awake.
    with closing(LinkEvents()) as events:
        events.wake()
        events.wait(PATIENCE_S)
        assert events._poll.poll(0) == []


def test_drops_of_a_new_socket_are_added_to_those_of_the_old() -> None:
    with (
        DatagramReceiver(LineAddress("239.1.2.9:0", "lo"), ReceiveOptions(4096)) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        for _ in range(50):
            sender.sendto(bytes(500), ("239.1.2.9", receiver.address[1]))
        before = receiver.read_kernel_drops()
        assert before > 10
        assert receiver.replace_socket()
        for _ in range(30):
            sender.sendto(bytes(500), ("239.1.2.9", receiver.address[1]))
        received = 0
        while more := receiver.receive():
            received += len(more)
        assert receiver.read_kernel_drops() == before + 30 - received
        assert received < 30
    assert not receiver.replace_socket()


def test_feed_goes_on_and_counts_when_an_interface_is_made_again(
    link: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    lines = [
        {"name": "A", "address": "239.1.2.3:9001", "interface": "vb"},
        {"name": "B", "address": "0.0.0.0:9002"},
    ]
    tables = {
        "name": "remade",
        "ring": {"capacity_bytes": 1 << 22},
        "objects": {"collect_bytes": 1 << 20},
        "receive": {"rcvbuf_bytes": 1 << 16},
        "incremental": {"lines": lines},
    }
    with link.inside(link.b), ExitStack() as opened:
        subscriber = opened.enter_context(Subscriber(tables))
        running = opened.pop_all()
    with running:
        for seqno in (1, 2):
            seen = subscriber.counters()["incremental"]["messages"]

            def heard(seqno: int = seqno, seen: int = seen) -> bool:
                send(link, "239.1.2.3:9001", datagram(bytes(8), seqno=seqno, control=1))
                return subscriber.counters()["incremental"]["messages"] > seen

            wait_until(heard)
            if seqno == 1:
                link.cut()
                link.join()
        events: list[str] = []

        def said() -> bool:
            events.extend(subscriber.take_events())
            return events[-1:] == ["incremental.A: is open again"]

        wait_until(said)
        assert events[0] == "incremental.A: its interface has disappeared"
        counters = subscriber.counters()
        assert counters["incremental.A"]["reopened"] == 1
        assert counters["incremental.B"]["reopened"] == 0
        assert counters["incremental.A"]["receive_errors"] == 0


def test_sender_by_an_interface_has_a_source_that_reaches_its_destination(link: Wire) -> None:
    def source(destination: str) -> str:
        try:
            with DatagramSender(f"[{destination}]:9001", interface="va") as sender:
                return str(sender.socket.getsockname()[0])
        except OSError:
            return ""  # the kernel still asks whether its address is anybody else's

    with link.inside(link.a):
        wait_until(lambda: source("fe80::2"))
        assert source("fe80::2").startswith("fe80::")
        assert source("fd99::2") == "fd99::1"


@pytest.mark.parametrize("group", ["239.1.2.3:9001", "[ff15::7]:9003"])
def test_publisher_sends_again_when_its_interface_was_made_again(link: Wire, group: str) -> None:
    def heard() -> bool:
        try:
            publisher.send(b"tick", 1, 1)
        except OSError:
            return False  # the only line has nothing to send by
        return bool(receiver.receive())

    destination = {"address": group, "interface": "va"}
    with link.inside(link.a), ExitStack() as opened:
        found: list[Publisher] = []

        def opens() -> bool:
            try:
                found.append(Publisher(parse_publish({"incremental": [destination]})))
            except OSError:
                return False  # right after the wire was made there may be no route yet
            return True

        wait_until(opens)
        publisher = opened.enter_context(found[0])
        running = opened.pop_all()
    with running:
        for _ in range(2):
            with link.inside(link.b):
                receiver = DatagramReceiver(LineAddress(group, "vb"), SMALL)
            with receiver:
                wait_until(heard)
            link.cut()
            link.join()
        assert publisher.counts["incremental"]["reopened"] >= 1
