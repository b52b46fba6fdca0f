"""Unicast lines with an interface each, over a wire of our own: what comes and goes by which."""

import pytest

from bench.namespaces import Wire, run
from tests.waiting import wait_until
from udpfast.config import FeedConfig, parse_feed
from udpfast.errors import ConfigError
from udpfast.net.datagram import DatagramReceiver
from udpfast.net.line import LineAddress, ReceiveOptions
from udpfast.net.sender import DatagramSender

pytestmark = pytest.mark.system

SMALL = ReceiveOptions(rcvbuf_bytes=1 << 16)
FAMILIES = [
    ("0.0.0.0:9001", "10.99.0.2:9001", "127.0.0.1:9001"),
    ("[::]:9001", "[fd99::2]:9001", "[::1]:9001"),
]


def arrives(sender: DatagramSender, receiver: DatagramReceiver, payload: bytes) -> None:
    def arrived() -> bool:
        sender.send([payload])
        return payload in {item.payload for item in receiver.receive()}

    wait_until(arrived)


@pytest.mark.parametrize(("anywhere", "address", "loopback"), FAMILIES)
def test_unicast_line_hears_its_own_interface_alone(
    link: Wire, anywhere: str, address: str, loopback: str
) -> None:
    with link.inside(link.b):
        wired = DatagramReceiver(LineAddress(anywhere, "vb"), SMALL)
        local = DatagramReceiver(LineAddress(anywhere, "lo"), SMALL)  # the same port
        near = DatagramSender(loopback)
    with link.inside(link.a):
        far = DatagramSender(address)
    with wired, local, near, far:
        arrives(far, wired, b"by the wire")
        arrives(near, local, b"by the loopback")
        assert {item.payload for item in wired.receive()} <= {b"by the wire"}
        assert {item.payload for item in local.receive()} <= {b"by the loopback"}


def test_unicast_destination_leaves_by_its_interface_whatever_the_route_says(link: Wire) -> None:
    with link.inside(link.b):
        receiver = DatagramReceiver(LineAddress("10.99.0.2:9001"), SMALL)
    run("ip", "-n", link.a, "link", "add", "other", "type", "veth", "peer", "nobody")
    run("ip", "-n", link.a, "link", "set", "nobody", "up")
    run("ip", "-n", link.a, "addr", "add", "10.98.0.1/24", "dev", "other")
    run("ip", "-n", link.a, "link", "set", "other", "up")
    run("ip", "-n", link.a, "route", "add", "10.99.0.2/32", "dev", "other")
    try:
        with link.inside(link.a):
            wired = DatagramSender("10.99.0.2:9001", interface="va")
            astray = DatagramSender("10.99.0.2:9001", interface="other")
        with receiver, wired, astray:
            assert wired.socket.getsockname()[0] == "10.99.0.1"
            assert astray.socket.getsockname()[0] == "10.98.0.1"
            astray.send([b"astray"])
            arrives(wired, receiver, b"by the wire")
            assert b"astray" not in {item.payload for item in receiver.receive()}
            assert wired.tied_to
    finally:
        run("ip", "-n", link.a, "link", "del", "other")


def test_unicast_line_is_tied_to_its_interface(link: Wire) -> None:
    with link.inside(link.b):
        with DatagramReceiver(LineAddress("0.0.0.0:9001", "vb"), SMALL) as tied:
            assert tied.tied_to
        with DatagramReceiver(LineAddress("0.0.0.0:9001"), SMALL) as free:
            assert not free.tied_to


@pytest.mark.parametrize("opens", [DatagramReceiver, DatagramSender])
def test_loopback_by_another_interface_is_refused(link: Wire, opens: type) -> None:
    message = r"'vb' cannot carry 127.0.0.1, which is this host's loopback"
    with link.inside(link.b), pytest.raises(ConfigError, match=message):
        if opens is DatagramReceiver:
            DatagramReceiver(LineAddress("127.0.0.1:9001", "vb"), SMALL)
        else:
            DatagramSender("127.0.0.1:9001", interface="vb")


def test_lines_of_one_address_need_an_interface_each() -> None:
    def parse(*interfaces: str) -> FeedConfig:
        lines = [
            {"name": name, "address": "0.0.0.0:9001", "interface": interface}
            for name, interface in zip("AB", interfaces, strict=True)
        ]
        return parse_feed({"name": "x", "incremental": {"lines": lines}})

    assert len(parse("eth0", "eth1").incremental.lines) == 2
    with pytest.raises(ConfigError, match=r"found 0.0.0.0:9001, which incremental.A has"):
        parse("eth0", "eth0")
