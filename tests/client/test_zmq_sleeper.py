"""The descriptor of a ZeroMQ socket that an event loop watches."""

import os
import select
from collections.abc import Iterator

import pytest
import zmq

from udpfast.client.zmq_sleeper import SocketSleeper


@pytest.fixture
def sockets() -> Iterator[tuple[zmq.Socket[bytes], zmq.Socket[bytes]]]:
    """Return both ends of a pair."""
    with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as two:
        port = one.bind_to_random_port("tcp://127.0.0.1")
        two.connect(f"tcp://127.0.0.1:{port}")
        yield one, two


def readable(sleeper: SocketSleeper, timeout: float) -> bool:
    """Return whether an event loop would be woken."""
    return bool(select.select([sleeper.fileno()], [], [], timeout)[0])


def test_message_makes_the_descriptor_readable_until_it_is_drained(
    sockets: tuple[zmq.Socket[bytes], zmq.Socket[bytes]],
) -> None:
    sender, socket = sockets
    sleeper = SocketSleeper(socket)
    for number in range(10):
        sender.send(b"%d" % number)
        message = None
        while message is None:
            assert readable(sleeper, 10.0)
            sleeper.drain()
            if socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                message = socket.recv(zmq.NOBLOCK)
        assert message == b"%d" % number
        with pytest.raises(zmq.Again):
            socket.recv(zmq.NOBLOCK)
        sleeper.drain()
        assert not readable(sleeper, 0.0)
    sleeper.close()


def test_closed_socket_leaves_the_descriptor_to_its_sleeper(
    sockets: tuple[zmq.Socket[bytes], zmq.Socket[bytes]],
) -> None:
    _, socket = sockets
    sleeper = SocketSleeper(socket)
    socket.close()
    sleeper.drain()
    readable(sleeper, 0.0)  # still a descriptor
    sleeper.close()
    sleeper.close()
    assert sleeper.fileno() == -1


def test_dropped_sleeper_closes_its_descriptor(
    sockets: tuple[zmq.Socket[bytes], zmq.Socket[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []
    close = os.close

    def note(fd: int) -> None:
        closed.append(fd)
        close(fd)

    monkeypatch.setattr(os, "close", note)
    fd = SocketSleeper(sockets[1]).fileno()
    assert closed == [fd]
