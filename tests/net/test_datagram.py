"""Receiving on 127.0.0.1 and ::1: lengths, stamps, senders and drops of datagrams."""

import os
import select
import socket
import time

import pytest

from udpfast.errors import ConfigError
from udpfast.net.datagram import DatagramReceiver, ReceivedDatagram
from udpfast.net.line import LineAddress, ReceiveOptions
from udpfast.net.ports import free_port
from udpfast.net.sender import DatagramSender

TRUNCATED, SENDER_REFUSED, NO_TIMESTAMP = 1, 2, 4
PLAIN = ReceiveOptions(timestamps="none", rcvbuf_bytes=1 << 20)


def receiver(
    address: str = "127.0.0.1:0", options: ReceiveOptions = PLAIN, **line: object
) -> DatagramReceiver:
    return DatagramReceiver(LineAddress(address, **line), options)


def sender(to: DatagramReceiver, port: int = 0) -> socket.socket:
    family = to.socket.family
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", port))
    sock.connect(to.address)
    return sock


def drain(line: DatagramReceiver) -> list[ReceivedDatagram]:
    received: list[ReceivedDatagram] = []
    while more := line.receive():
        received += more
    return received


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0"])
@pytest.mark.parametrize("timestamps", ["none", "kernel", "auto"])
def test_receive_burst_comes_whole_and_in_order(address: str, timestamps: str) -> None:
    with receiver(address, ReceiveOptions(timestamps=timestamps)) as line, sender(line) as peer:
        sent = [bytes([index % 256]) * (index * 7 % 529) for index in range(300)]
        for payload in sent:
            peer.send(payload)
        assert [datagram.payload for datagram in drain(line)] == sent


def test_receive_quiet_line_asks_for_one_then_for_batches() -> None:
    with receiver() as line, sender(line) as peer:
        for index in range(100):
            peer.send(bytes([index]))
        assert [len(line.receive()) for _ in range(4)] == [1, 64, 35, 0]
        peer.send(b"x")
        assert len(line.receive()) == 1


def test_receive_capacity_bounds_a_batch() -> None:
    with (
        DatagramReceiver(LineAddress("127.0.0.1:0"), PLAIN, capacity=3) as line,
        sender(line) as peer,
    ):
        for _ in range(8):
            peer.send(b"x")
        assert [len(line.receive()) for _ in range(5)] == [1, 3, 3, 1, 0]


@pytest.mark.parametrize("options", [PLAIN, ReceiveOptions()])
@pytest.mark.parametrize("before", [0, 1])
def test_receive_too_long_datagram_is_cut_and_flagged(options: ReceiveOptions, before: int) -> None:
    with receiver(options=options) as line, sender(line) as peer:
        for size in [1] * before + [4160, 4161, 60_000, 528]:
            peer.send(b"z" * size)
        received = [
            (len(datagram.payload), datagram.flags & TRUNCATED) for datagram in drain(line)
        ][before:]
        assert received == [(4160, 0), (4160, TRUNCATED), (4160, TRUNCATED), (528, 0)]


def stamped(line: DatagramReceiver, peer: socket.socket) -> ReceivedDatagram:
    # The kernel turns stamping on in the background when the first socket requests it.
    for _ in range(1000):
        peer.send(b"x")
        datagram = line.receive()[0]
        if not datagram.flags & NO_TIMESTAMP:
            return datagram
        assert datagram.received_ns == 0
        drain(line)
    raise AssertionError("1,000 datagrams without a kernel time stamp")


@pytest.mark.parametrize("timestamps", ["kernel", "auto", "hardware"])
def test_receive_with_stamps_says_when_in_unix_ns(timestamps: str) -> None:
    options = ReceiveOptions(timestamps=timestamps)
    with receiver(options=options) as line, sender(line) as peer:
        stamped(line, peer)
        before = time.time_ns()
        datagram = stamped(line, peer)
        assert before <= datagram.received_ns <= time.time_ns()


def test_receive_without_stamps_flags_each_datagram() -> None:
    with receiver(options=ReceiveOptions(timestamps="none")) as line, sender(line) as peer:
        for _ in range(3):
            peer.send(b"x")
        assert {(datagram.flags, datagram.received_ns) for datagram in drain(line)} == {
            (NO_TIMESTAMP, 0)
        }


@pytest.mark.parametrize(
    ("address", "own", "other"),
    [
        ("127.0.0.1:0", "127.0.0.1", "127.0.0.2"),
        ("[::1]:0", "::1", "::2"),
    ],
)
def test_receive_sender_list_flags_everyone_else(address: str, own: str, other: str) -> None:
    for senders, refused in [((own,), 0), ((other,), SENDER_REFUSED), ((other, own), 0)]:
        with receiver(address, senders=senders) as line, sender(line) as peer:
            for _ in range(3):
                peer.send(b"x")
            assert [datagram.flags & SENDER_REFUSED for datagram in drain(line)] == [refused] * 3


@pytest.mark.parametrize(
    ("address", "text"), [("127.0.0.1:0", "127.0.0.1:{}"), ("[::1]:0", "[::1]:{}")]
)
def test_receive_sender_list_with_port_tells_senders_of_one_host_apart(
    address: str, text: str
) -> None:
    host = address.removesuffix(":0").strip("[]")
    with socket.socket(
        socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM
    ) as listed:
        listed.bind((host, 0))
        with (
            receiver(address, senders=(text.format(listed.getsockname()[1]),)) as line,
            sender(line) as unlisted,
        ):
            listed.connect(line.address)
            for _ in range(2):
                listed.send(b"listed")
                unlisted.send(b"other")
            assert [
                (datagram.payload, datagram.flags & SENDER_REFUSED) for datagram in drain(line)
            ] == [(b"listed", 0), (b"other", SENDER_REFUSED)] * 2


def test_sender_list_of_more_than_64_is_refused() -> None:
    with pytest.raises(ConfigError, match="at most 64 senders, has 65"):
        receiver(senders=tuple(f"10.0.0.{index}" for index in range(65)))


@pytest.mark.parametrize("timestamps", ["none", "auto"])
def test_overflow_counts_what_the_kernel_counts(timestamps: str) -> None:
    options = ReceiveOptions(rcvbuf_bytes=128 << 10, timestamps=timestamps)
    with receiver(options=options) as line, sender(line) as peer:
        for _ in range(2000):
            peer.send(bytes(500))
        received = len(drain(line))
        assert received < 2000
        peer.send(b"tells the drops before it")
        assert len(drain(line)) == 1
        # With stamps the last datagram has the count; without, the kernel must be asked.
        assert line.kernel_drops == (0 if timestamps == "none" else 2000 - received)
        assert line.read_kernel_drops() == 2000 - received


def test_overflow_at_the_end_of_a_burst_shows_when_asked_and_counts_once() -> None:
    options = ReceiveOptions(rcvbuf_bytes=128 << 10)
    with receiver(options=options) as line, sender(line) as peer:
        for _ in range(2):
            for _ in range(1000):
                peer.send(bytes(500))
            # Ask before reading the queue, because queued datagrams carry older counts.
            drops = line.read_kernel_drops()
            received = len(drain(line))
            assert line.kernel_drops == drops
        assert drops > 0
        assert received < 1000


def test_drops_of_a_replaced_socket_count_once() -> None:
    options = ReceiveOptions(rcvbuf_bytes=4096, timestamps="kernel")
    with receiver(options=options) as line:
        drops = 0
        for _ in range(2):
            assert line.replace_socket()
            with sender(line) as peer:
                for _ in range(100):
                    peer.send(bytes(500))
                received = len(drain(line))
                peer.send(b"tells the drops before it")
                assert len(drain(line)) == 1
            assert received < 100
            drops += 100 - received
            assert line.kernel_drops == drops
            assert line.read_kernel_drops() == drops


def test_receive_icmp_error_is_counted_and_reception_goes_on() -> None:
    with receiver() as line, sender(line) as peer:
        # A connected socket gets "port unreachable" for what it sent: no datagram, no end.
        line.socket.connect(("127.0.0.1", free_port()))
        line.socket.send(b"x")
        assert line.receive() == []
        assert line.counts["icmp_errors"] == 1
        line.socket.connect(peer.getsockname())
        peer.send(b"x")
        assert len(line.receive()) == 1


def test_receive_after_close_raises() -> None:
    line = receiver()
    line.close()
    line.close()
    with pytest.raises(ValueError, match="closed"):
        line.receive()
    assert line.fileno() == -1


def test_receive_from_a_dead_descriptor_raises() -> None:
    with receiver() as line:
        line.socket.close()
        with pytest.raises(OSError, match="cannot receive"):
            line.receive()


def test_receive_never_answers() -> None:
    with receiver() as line, sender(line) as peer:
        for size in (0, 1, 15, 16, 528, 529, 3000):
            peer.send(bytes(size))
        drain(line)
        assert select.select([peer], [], [], 0.05)[0] == []


def test_capacity_out_of_range_says_found() -> None:
    with pytest.raises(ValueError, match=r"capacity must be 1..64, was 65"):
        DatagramReceiver(LineAddress("127.0.0.1:0"), PLAIN, capacity=65)


def test_receive_trains_split_with_stamps_drops_and_senders() -> None:
    options = ReceiveOptions(timestamps="kernel", gro=True)
    with receiver(options=options, senders=("127.0.0.2",)) as line:
        # The segment size of a train is a control message, after stamp and drop count.
        refused = DatagramSender(f"127.0.0.1:{line.address[1]}", segment=True)
        with refused:
            refused.send([bytes([n]) * 528 for n in range(20)] + [b"tail"])
        received = drain(line)
    assert [datagram.payload for datagram in received] == [
        *(bytes([n]) * 528 for n in range(20)),
        b"tail",
    ]
    assert {datagram.flags for datagram in received} == {SENDER_REFUSED}
    assert len({datagram.received_ns for datagram in received}) == 1
    assert received[0].received_ns > 0


def test_receive_plain_datagrams_with_gro_come_as_they_are() -> None:
    with receiver(options=ReceiveOptions(gro=True)) as line, sender(line) as peer:
        sent = [bytes([index % 256]) * (index * 7 % 529) for index in range(300)]
        for payload in sent:
            peer.send(payload)
        assert [datagram.payload for datagram in drain(line)] == sent
        assert {result.name for result in line.results} >= {"UDP_GRO"}


def test_port_is_free_when_only_a_forked_child_is_left() -> None:
    line = receiver()
    address = "{}:{}".format(*line.address)
    here, there = socket.socketpair()
    child = os.fork()
    if child == 0:
        here.close()
        there.send(b"!")
        there.recv(1)
        os._exit(0)
    there.close()
    try:
        assert here.recv(1) == b"!"
        line.close()
        receiver(address).close()
    finally:
        here.close()
        os.waitpid(child, 0)
