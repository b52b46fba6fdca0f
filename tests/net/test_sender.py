"""Sending: order, batches, a full queue and a missing destination."""

import os
import socket

import numpy as np
import pytest

from udpfast.net.datagram import DatagramReceiver
from udpfast.net.line import LineAddress, ReceiveOptions
from udpfast.net.ports import free_port
from udpfast.net.sender import DatagramSender


@pytest.fixture
def line() -> DatagramReceiver:
    with DatagramReceiver(
        LineAddress("127.0.0.1:0"), ReceiveOptions(timestamps="none")
    ) as receiver:
        yield receiver


def to(line: DatagramReceiver) -> DatagramSender:
    return DatagramSender(f"127.0.0.1:{line.address[1]}")


def drain(line: DatagramReceiver) -> list[bytes]:
    received: list[bytes] = []
    while more := line.receive():
        received += [datagram.payload for datagram in more]
    return received


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 300])
def test_send_list_arrives_whole_and_in_order(line: DatagramReceiver, count: int) -> None:
    sent = [bytes([index % 256]) * (index % 529) for index in range(count)]
    with to(line) as sender:
        assert sender.send(sent) == count
        assert sender.counts["datagrams"] == count
        assert sender.counts["bytes"] == sum(map(len, sent))
        assert sender.counts["calls"] == -(-count // 64)
    assert drain(line) == sent


def test_send_slices_of_one_buffer(line: DatagramReceiver) -> None:
    buffer = bytes(range(256))
    offsets = np.arange(0, 200, 2)
    sizes = np.arange(100) % 50
    with to(line) as sender:
        assert sender.send((buffer, offsets, sizes)) == 100
    assert drain(line) == [
        buffer[start : start + size] for start, size in zip(offsets, sizes, strict=True)
    ]


@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (0, 11), (10, 1), (5, -1), (11, 0)])
def test_send_slice_outside_the_buffer_is_refused(
    line: DatagramReceiver, offset: int, size: int
) -> None:
    with to(line) as sender:
        with pytest.raises(ValueError, match=r"datagram 1: .* buffer of 10 bytes"):
            sender.send((bytes(10), np.array([0, offset]), np.array([1, size])))
        assert sender.counts["calls"] == 0


def test_send_too_long_raises_and_the_next_leaves(line: DatagramReceiver) -> None:
    with to(line) as sender:
        with pytest.raises(OSError, match="cannot send"):
            sender.send([bytes(70_000)])
        assert sender.send([b"next"]) == 1
    assert drain(line) == [b"next"]


def test_send_too_long_after_others_is_met_by_the_next_call(line: DatagramReceiver) -> None:
    with to(line) as sender:
        assert sender.send([b"first", bytes(70_000), b"third"]) == 1
        with pytest.raises(OSError, match="cannot send"):
            sender.send([bytes(70_000), b"third"])
    assert drain(line) == [b"first"]


def test_send_icmp_error_is_counted_and_everything_is_sent() -> None:
    with DatagramSender(f"127.0.0.1:{free_port()}") as sender:
        assert sender.send([b"x"] * 10) == 10
        assert sender.counts["datagrams"] == 10
        sender.send([b"x"])
        assert sender.counts["icmp_errors"] >= 1


def test_send_does_not_block_when_the_queue_is_full() -> None:
    # Only a UNIX socket pair can be given a full queue on purpose, because its receiver's
    # backlog counts against the sender.
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with near, far, DatagramSender("127.0.0.1:9") as sender:
        near.setblocking(False)
        os.dup2(near.fileno(), sender.socket.fileno())
        sent = sender.send([bytes(500)] * 5000)
        assert 0 < sent < 5000
        assert sender.counts["would_block"] == 1
        for _ in range(sent):
            assert far.recv(600) == bytes(500)
        assert sender.send([b"rest"]) == 1
        assert far.recv(600) == b"rest"


def test_send_after_close_raises(line: DatagramReceiver) -> None:
    sender = to(line)
    sender.close()
    with pytest.raises(OSError, match="cannot send"):
        sender.send([b"x"])


def test_send_of_something_else_than_bytes_leaves_nothing_behind(line: DatagramReceiver) -> None:
    with to(line) as sender:
        with pytest.raises((TypeError, BufferError)):
            sender.send([b"refused with it", "text"])
        assert sender.send([b"next"]) == 1
    assert drain(line) == [b"next"]


def cut_by_kernel(sizes: list[int]) -> list[bytes]:
    return [bytes([index % 256]) * size for index, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "trains"),
    [
        ([528] * 64, 1),
        ([528] * 10 + [100], 1),
        ([100, 528, 528, 100, 100], 1),  # a longer one cannot follow in the same train
        ([528, 0, 528, 528], 1),  # an empty one travels alone
        ([1200] * 64, 2),  # a train has 65,000 bytes at most
        ([300, 200, 100], 1),  # only the last of a train may be shorter: 300 200 | 100
        ([64], 0),
    ],
)
@pytest.mark.parametrize("gro", [False, True])
def test_send_trains_arrive_as_the_datagrams_they_were(
    sizes: list[int], trains: int, gro: bool
) -> None:
    sent = cut_by_kernel(sizes)
    options = ReceiveOptions(timestamps="none", gro=gro)
    with (
        DatagramReceiver(LineAddress("127.0.0.1:0"), options) as receiver,
        DatagramSender(f"127.0.0.1:{receiver.address[1]}", segment=True) as sender,
    ):
        assert sender.send(sent) == len(sent)
        assert sender.counts["datagrams"] == len(sent)
        assert sender.counts["bytes"] == sum(sizes)
        assert sender.counts["trains"] == trains
        assert sender.counts["trains_refused"] == 0
        assert drain(receiver) == sent


def test_send_trains_beyond_the_mtu_go_one_by_one_and_are_counted() -> None:
    # A train's datagrams must fit the MTU; IP fragments single ones.
    sent = cut_by_kernel([2000, 2000])
    with (
        DatagramReceiver(LineAddress("127.0.0.1:0"), ReceiveOptions(gro=True)) as receiver,
        DatagramSender(f"127.0.0.1:{receiver.address[1]}", segment=True) as sender,
    ):
        sender.socket.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER: use the route's
        mtu = sender.socket.getsockopt(socket.IPPROTO_IP, 14)
        big = cut_by_kernel([mtu, mtu])
        with pytest.raises(OSError, match="send"):
            sender.send(big)  # not even one of them fits
        assert sender.counts["trains_refused"] == 1
        assert sender.send(sent) == 2
        assert sender.counts["trains"] == 0
        assert drain(receiver) == sent
