"""AF_XDP over a veth pair: which frames it takes, counts and leaves alone, and its end."""

import json
import os
import random
import socket
import subprocess
import time

import pytest

from bench.namespaces import Wire, run, wire
from tests.net.ethernet import ethernet, ipv4, ipv6, udp
from tests.net.xdp_link import (
    GROUP,
    GROUP6,
    MODES,
    UNICAST,
    assert_works_for_others,
    attached_program,
    opened,
    receive,
    total,
    wait_for_frames,
)
from tests.shared import ROOT
from tests.waiting import wait_until
from udpfast.net.datagram import DatagramReceiver
from udpfast.net.line import LineAddress, ReceiveOptions
from udpfast.net.xdp import XdpDatagram, XdpReceiver
from udpfast.net.xdp_host import XdpLine, XdpOptions
from udpfast.net.xdp_program import STAMP_SIZE, STAMPED

NO_TIMESTAMP = 4


@pytest.mark.parametrize("mode", MODES)
def test_receive_brings_each_datagram_to_its_line(link: Wire, mode: str) -> None:
    with (
        opened(link, GROUP, UNICAST, GROUP6, mode=mode) as receiver,
        link.sender() as sender,
        link.sender(socket.AF_INET6) as sender6,
    ):
        assert [r.got for r in receiver.results if r.name == "XDP mode"] == [mode]
        for number in range(40):
            sender.sendto(b"group %d" % number, ("239.1.2.3", 9001))
            sender.sendto(b"unicast %d" % number, ("10.99.0.2", 9002))
            sender6.sendto(b"group6 %d" % number, ("ff15::7", 9003))
        received = receive(receiver, 120)
        for line, text in enumerate((b"group %d", b"unicast %d", b"group6 %d")):
            # One flow stays on one queue, so its order is kept.
            assert [d.payload for d in received if d.line == line] == [text % n for n in range(40)]
        assert [counts["frames"] for counts in receiver.read_counts()] == [40, 40, 40]
        assert total(receiver, "kernel_drops") == 0


@pytest.mark.parametrize("mode", MODES)
def test_each_of_many_addresses_is_told_by_its_place(link: Wire, mode: str) -> None:
    groups = [f"239.7.0.{n}" for n in range(48)]
    lines = [
        XdpLine(LineAddress(f"{group}:{9100 + n % 3}", "vb"), 0, n // 24, n % 24)
        for n, group in enumerate(groups)
    ]
    with link.inside(link.b):
        receiver = XdpReceiver(lines, XdpOptions(frames=1024, mode=mode))
    with receiver, link.sender() as sender:
        for n, group in enumerate(groups):
            sender.sendto(b"%d" % n, (group, 9100 + n % 3))
            sender.sendto(b"no line's", (group, 9100 + (n + 1) % 3))
        received = receive(receiver, 48)
        places = {int(d.payload): (d.line, d.address) for d in received}
        assert places == {n: (n // 24, n % 24) for n in range(48)}


@pytest.mark.parametrize("mode", MODES)
def test_receive_counts_every_refused_frame_at_its_line(link: Wire, mode: str) -> None:
    ends = ("10.99.0.1", "10.99.0.2")
    to_b = {"destination": hardware_address(link)}
    frames = [
        ethernet(ipv4(*ends, udp(*ends, b"right", 9002)), **to_b),
        ethernet(ipv4(*ends, udp(*ends, b"one tag", 9002)), tags=(0x8100,), **to_b),
        ethernet(ipv4(*ends, udp(*ends, b"two", 9002)), tags=(0x88A8, 0x8100), **to_b),
        ethernet(ipv4(*ends, udp(*ends, b"options", 9002), options=b"\1" * 8), **to_b),
        ethernet(ipv4(*ends, udp(*ends, b"wrong", 9002, checksum="wrong")), **to_b),
        ethernet(ipv4(*ends, udp(*ends, b"header", 9002), damage=1), **to_b),
        ethernet(ipv4(*ends, udp(*ends, b"part", 9002), fragment=0x2000), **to_b),
        ethernet(ipv4(*ends, udp(*ends, b"cut short", 9002))[:-4], **to_b),
    ]
    with opened(link, GROUP, UNICAST, mode=mode) as receiver, link.raw() as sender:
        for frame in frames:
            sender.send(frame)
        received = receive(receiver, 4)
        wait_for_frames(receiver, len(frames))
        assert {d.payload for d in received} == {b"right", b"one tag", b"two", b"options"}
        group, unicast = receiver.read_counts()
        assert unicast["frames"] == 7
        assert (unicast["frames_checksum"], unicast["frames_fragment"]) == (2, 1)
        # A malformed frame has no line: the interface's first line counts it.
        assert (group["frames"], group["frames_malformed"]) == (1, 1)


@pytest.mark.parametrize("mode", MODES)
def test_receive_of_mutated_frames_counts_each_once(
    link: Wire, rng: random.Random, mode: str
) -> None:
    ends, ends6 = ("10.99.0.1", "10.99.0.2"), ("fd99::1", "ff15::7")
    to_b = hardware_address(link)
    whole = [
        ethernet(ipv4(*ends, udp(*ends, bytes(40), 9002)), destination=to_b),
        ethernet(ipv4(*ends, udp(*ends, b"", 9002), options=b"\1" * 40), destination=to_b),
        ethernet(ipv4(*ends, udp(*ends, b"part", 9002), fragment=0x2000), destination=to_b),
        ethernet(ipv6(*ends6, udp(*ends6, bytes(40), 9003)), tags=(0x8100,)),
    ]
    received: list[XdpDatagram] = []
    with opened(link, UNICAST, GROUP6, mode=mode) as receiver, link.raw() as sender:
        for _ in range(2_000):
            frame = bytearray(rng.choice(whole))
            for _ in range(rng.randint(0, 3)):
                frame[rng.randrange(12, len(frame))] = rng.randrange(256)
            sender.send(frame[: rng.randint(14, len(frame))] if rng.random() < 0.2 else frame)
            received += receiver.receive()
        sender.send(ethernet(ipv4(*ends, udp(*ends, b"last", 9002)), destination=to_b))
        while not received or received[-1].payload != b"last":
            more = receive(receiver, 1)
            assert more
            received += more
        refused = ("fragment", "checksum", "malformed", "foreign")
        for line, counts in enumerate(receiver.read_counts()):
            taken = sum(d.line == line for d in received)
            assert taken > 50
            assert counts["frames"] == taken + sum(counts[f"frames_{name}"] for name in refused)
        for name in refused[:3]:
            assert total(receiver, f"frames_{name}") > 10


def test_receive_other_source_of_a_source_specific_group_is_foreign(link: Wire) -> None:
    line = LineAddress("239.1.2.9:9001", "vb", source="10.99.0.1")
    run("ip", "-n", link.a, "addr", "replace", "10.99.0.9/24", "dev", "va")
    with opened(link, line) as receiver, link.sender() as own, link.sender() as other:
        own.bind(("10.99.0.1", 0))
        other.bind(("10.99.0.9", 0))
        for _ in range(5):
            other.sendto(b"other", ("239.1.2.9", 9001))
            own.sendto(b"own", ("239.1.2.9", 9001))
        assert [d.payload for d in receive(receiver, 5)] == [b"own"] * 5
        wait_for_frames(receiver, 10)
        assert total(receiver, "frames_foreign") == 5


def test_receive_sender_off_the_list_is_flagged(link: Wire) -> None:
    with (
        opened(link, LineAddress("10.99.0.2:9002", senders=("10.99.0.77",))) as receiver,
        link.sender() as sender,
    ):
        sender.sendto(b"who", ("10.99.0.2", 9002))
        assert [d.flags for d in receive(receiver, 1)] == [2]


def test_receive_vlan_interface_is_received_below_it(link: Wire) -> None:
    add = [
        "ip",
        "-n",
        link.b,
        "link",
        "add",
        "link",
        "vb",
        "name",
        "vb.5",
        "type",
        "vlan",
        "id",
        "5",
    ]
    if subprocess.run(add, capture_output=True, check=False).returncode:
        pytest.skip("this kernel has no VLAN interfaces")
    try:
        run("ip", "-n", link.b, "addr", "add", "10.98.0.2/24", "dev", "vb.5")
        run("ip", "-n", link.b, "link", "set", "vb.5", "up")
        with opened(link, LineAddress("239.1.2.5:9001", "vb.5")) as receiver, link.raw() as sender:
            assert receiver.address == "vb (AF_XDP)"
            ends = ("10.98.0.1", "239.1.2.5")
            sender.send(ethernet(ipv4(*ends, udp(*ends, b"tagged", 9001)), tags=(0x8100,)))
            assert [d.payload for d in receive(receiver, 1)] == [b"tagged"]
    finally:
        run("ip", "-n", link.b, "link", "del", "vb.5")


@pytest.mark.parametrize("mode", MODES)
def test_receive_more_than_the_frames_is_lost_and_counted(link: Wire, mode: str) -> None:
    with opened(link, UNICAST, mode=mode, frames=64) as receiver, link.sender() as sender:
        for _ in range(500):
            sender.sendto(b"burst", ("10.99.0.2", 9002))
        wait_until(lambda: total(receiver, "kernel_drops") >= 500 - 64)
        assert len(receive(receiver, 64)) == 64
        assert receiver.receive() == []
        assert total(receiver, "kernel_drops") == 500 - 64
        for number in range(1000):  # frames are returned: the ring wraps many times
            sender.sendto(b"%d" % number, ("10.99.0.2", 9002))
            assert [d.payload for d in receive(receiver, 1)] == [b"%d" % number]


def test_receive_queue_left_out_passes_to_the_kernel_and_is_counted(link: Wire) -> None:
    with opened(link, UNICAST, queues=(0,)) as receiver:
        for _ in range(64):  # flows: the sender's hash puts each on one of the two queues
            with link.sender() as sender:
                sender.sendto(b"some flow", ("10.99.0.2", 9002))
        received: list[XdpDatagram] = []

        def complete() -> bool:
            received.extend(receiver.receive())
            return len(received) + total(receiver, "kernel_drops") >= 64

        wait_until(complete, "64 datagrams")
        assert len(received) + total(receiver, "kernel_drops") == 64
        assert 0 < len(received) < 64


def test_receive_frame_larger_than_its_place_is_lost_and_counted(link: Wire) -> None:
    for namespace, end in ((link.a, "va"), (link.b, "vb")):
        run("ip", "-n", namespace, "link", "set", end, "mtu", "3000")
    try:
        with opened(link, UNICAST, mode="generic") as receiver, link.sender() as sender:
            sender.sendto(bytes(1792 - 42), ("10.99.0.2", 9002))
            sender.sendto(bytes(1793 - 42), ("10.99.0.2", 9002))
            sender.sendto(b"small", ("10.99.0.2", 9002))
            assert [len(d.payload) for d in receive(receiver, 2)] == [1792 - 42, 5]
            assert total(receiver, "kernel_drops") == 1
    finally:
        for namespace, end in ((link.a, "va"), (link.b, "vb")):
            run("ip", "-n", namespace, "link", "set", end, "mtu", "1500")


def test_membership_is_held_while_open(link: Wire) -> None:
    def groups() -> str:
        return run("ip", "-n", link.b, "maddr", "show", "dev", "vb")

    with opened(link, GROUP, GROUP6):
        assert "239.1.2.3" in groups()
        assert "ff15::7" in groups()
    assert "239.1.2.3" not in groups()
    assert "ff15::7" not in groups()


@pytest.mark.parametrize("mode", MODES)
def test_other_traffic_passes(link: Wire, mode: str) -> None:
    with opened(link, UNICAST, GROUP, mode=mode):
        assert_works_for_others(link)


def test_same_datagrams_as_through_a_socket(link: Wire, rng: random.Random) -> None:
    sent = [rng.randbytes(size) for size in (0, 1, 16, 80, 528, 1472)]
    with link.sender() as sender:
        with opened(link, UNICAST) as receiver:
            for payload in sent:
                sender.sendto(payload, ("10.99.0.2", 9002))
            through_xdp = [d.payload for d in receive(receiver, len(sent))]
        with link.inside(link.b):
            plain = DatagramReceiver(UNICAST, ReceiveOptions())
        through_socket: list[bytes] = []
        with plain:
            for payload in sent:
                sender.sendto(payload, ("10.99.0.2", 9002))

            def complete() -> bool:
                through_socket.extend(d.payload for d in plain.receive())
                return len(through_socket) >= len(sent)

            wait_until(complete, "as many datagrams")
    assert through_xdp == through_socket == sent


def test_close_and_open_again_and_again(link: Wire) -> None:
    for _ in range(5):
        receiver = opened(link, UNICAST)
        receiver.close()
        receiver.close()
        assert not attached_program(link)
    with pytest.raises(ValueError, match="closed"):
        receiver.receive()


def test_forgotten_close_leaves_the_interface_all_the_same(link: Wire) -> None:
    receiver = opened(link, UNICAST)
    del receiver
    wait_until(lambda: not attached_program(link))
    opened(link, UNICAST).close()


def test_queue_is_free_when_only_a_forked_child_is_left(link: Wire) -> None:
    receiver = opened(link, UNICAST)
    wait, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(wait, 1)
        os._exit(0)
    try:
        receiver.close()
        wait_until(lambda: not attached_program(link))
        opened(link, UNICAST).close()
    finally:
        os.close(go)
        os.close(wait)
        os.waitpid(child, 0)


def test_loopback_is_received_generically(link: Wire) -> None:
    with opened(link, LineAddress("127.0.0.1:9002")) as receiver, link.inside(link.b):
        assert receiver.fallbacks == (
            "XDP mode is generic instead of native: lo, which is the loopback: it supports only "
            "generic mode",
            "frames are copied: generic mode has no zero copy",
        )
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"here", ("127.0.0.1", 9002))
        assert [d.payload for d in receive(receiver, 1)] == [b"here"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("stamps", [True, False])
def test_receive_of_a_stamped_frame_says_when_it_came(link: Wire, mode: str, stamps: bool) -> None:
    """More datagrams than frames: a reused frame does not keep its earlier stamp."""
    with opened(link, UNICAST, mode=mode, frames=64, stamps=stamps) as receiver:
        before_ns = time.monotonic_ns()
        for number in range(300):
            with link.sender() as sender:
                sender.sendto(b"%d" % number, ("10.99.0.2", 9002))
            (received,) = receive(receiver, 1)
            after_ns = time.monotonic_ns()
            if stamps:
                assert (received.flags, before_ns < received.monotonic_ns < after_ns) == (0, True)
            else:
                assert (received.flags, received.monotonic_ns) == (NO_TIMESTAMP, 0)
            before_ns = after_ns


def test_stamp_has_the_number_by_which_the_ring_knows_it() -> None:
    text = (ROOT / "udpfast/net/xdp_ring.pxd").read_text()
    assert f"UINT64_C(0x{STAMPED:X})" in text
    assert STAMP_SIZE == 16


def test_interface_down_is_counted_and_up_again_goes_on(link: Wire) -> None:
    with opened(link, UNICAST) as receiver, link.sender() as sender:
        run("ip", "-n", link.b, "link", "set", "vb", "down")
        assert total(receiver, "receive_errors") == 2  # one for each queue
        assert receiver.receive() == []
        run("ip", "-n", link.b, "link", "set", "vb", "up")
        run("ip", "-n", link.b, "route", "replace", "239.0.0.0/8", "dev", "vb")
        received: list[XdpDatagram] = []

        def back() -> list[XdpDatagram]:
            sender.sendto(b"back", ("10.99.0.2", 9002))
            received.extend(receiver.receive())
            return received

        wait_until(back, "a datagram")
        assert received[0].payload == b"back"


def test_interface_removed_is_an_error_that_stays() -> None:
    with wire() as own, opened(own, UNICAST) as receiver:
        run("ip", "-n", own.a, "link", "del", "va")
        wait_until(lambda: raises(receiver.read_counts))
        for _ in range(3):
            with pytest.raises(OSError, match="cannot receive: vb"):
                receiver.receive()


# --- shared by the tests --------------------------------------------------------------------------


def raises(call: object) -> bool:
    try:
        call()  # type: ignore[operator]
    except OSError:
        return True
    return False


def hardware_address(link: Wire) -> bytes:
    shown = json.loads(run("ip", "-n", link.b, "-j", "link", "show", "vb"))[0]
    return bytes.fromhex(shown["address"].replace(":", ""))
