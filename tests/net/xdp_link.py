"""Helpers for tests of AF_XDP over a veth pair: opening, waiting, and checks of other traffic."""

import json
import os
import socket
import struct
import threading

from bench.namespaces import Wire, run
from tests.net.ethernet import sum16
from tests.waiting import PATIENCE_S, wait_until
from udpfast.net.line import LineAddress
from udpfast.net.xdp import XdpDatagram, XdpReceiver
from udpfast.net.xdp_host import XdpLine, XdpOptions

UNICAST = LineAddress("10.99.0.2:9002")
GROUP = LineAddress("239.1.2.3:9001", "vb")
GROUP6 = LineAddress("[ff15::7]:9003", "vb")
MODES = ("generic", "native")


def opened(link: Wire, *lines: LineAddress, **options: object) -> XdpReceiver:
    """Return a receiver of lines at the b side."""
    wanted = XdpOptions(**{"frames": 1024, **options})  # type: ignore[arg-type]
    with link.inside(link.b):
        return XdpReceiver([XdpLine(line, 0, index) for index, line in enumerate(lines)], wanted)


def receive(receiver: XdpReceiver, count: int) -> list[XdpDatagram]:
    """Return `count` datagrams."""
    received: list[XdpDatagram] = []

    def complete() -> bool:
        received.extend(receiver.receive())
        return len(received) >= count

    wait_until(complete, f"{count} datagrams")
    return received


def total(receiver: XdpReceiver, name: str) -> int:
    """Return a counter's sum over all lines."""
    return sum(line[name] for line in receiver.read_counts())


def wait_for_frames(receiver: XdpReceiver, count: int) -> None:
    """Wait until `count` frames are counted, while none of them is a datagram to read."""

    def counted() -> bool:
        assert receiver.receive() == []
        return total(receiver, "frames") == count

    wait_until(counted, f"{count} frames")


def attached_program(link: Wire) -> dict[str, object]:
    """Return how `ip` shows the program on the b side's interface; empty if there is none."""
    shown = json.loads(run("ip", "-n", link.b, "-j", "link", "show", "vb"))[0]
    found: dict[str, object] = shown.get("xdp", {})
    return found


def assert_works_for_others(link: Wire) -> None:
    """Resolve the neighbour anew, ping over both versions, UDP to other ports and groups, TCP."""
    run("ip", "-n", link.a, "neigh", "flush", "dev", "va")
    assert_pings(link, socket.AF_INET, "10.99.0.2")
    assert_pings(link, socket.AF_INET6, "fd99::2")
    with link.sender() as sender:
        # Another port of a line's address, and a line's port at another address.
        assert_udp_arrives(link, sender, "10.99.0.2", 0)
        assert_udp_arrives(link, sender, "239.1.2.77", 9001)
    with link.inside(link.b):
        server = socket.create_server(("10.99.0.2", 0))
    with server:
        echo = threading.Thread(target=_echo_once, args=(server,))
        echo.start()
        with link.inside(link.a):
            client = socket.create_connection(server.getsockname(), timeout=PATIENCE_S)
        with client:
            client.sendall(b"stream")
            assert client.recv(100) == b"stream"
        echo.join()


def assert_udp_arrives(link: Wire, sender: socket.socket, host: str, port: int) -> None:
    """Send a datagram to an ordinary socket at the b side."""
    with link.inside(link.b):
        plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with plain:
        plain.bind((host, port))
        plain.settimeout(PATIENCE_S)
        if host.startswith("239."):
            membership = socket.inet_aton(host) + socket.inet_aton("10.99.0.2")
            plain.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        sender.sendto(b"as ever", plain.getsockname())
        assert plain.recv(100) == b"as ever"


def assert_pings(link: Wire, family: int, host: str) -> None:
    """Send an echo request from the a side and wait for its reply."""
    v4 = family == socket.AF_INET
    protocol = socket.IPPROTO_ICMP if v4 else socket.IPPROTO_ICMPV6
    kind, reply = (8, 0) if v4 else (128, 129)
    rest = struct.pack(">HH", os.getpid() & 0xFFFF, 1) + b"ping"
    # The kernel computes the checksum of ICMPv6.
    checksum = sum16(struct.pack(">BBH", kind, 0, 0) + rest) ^ 0xFFFF if v4 else 0
    with link.inside(link.a):
        raw = socket.socket(family, socket.SOCK_RAW, protocol)
    with raw:
        raw.settimeout(PATIENCE_S)
        raw.sendto(struct.pack(">BBH", kind, 0, checksum) + rest, (host, 0))
        answer = b""
        while not answer or answer[0] != reply or answer[4:] != rest:
            answer = raw.recv(200)[20 if v4 else 0 :]


def _echo_once(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.sendall(connection.recv(100))
