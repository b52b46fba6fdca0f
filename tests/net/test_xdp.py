"""AF_XDP over a veth pair: what it takes, what it counts, what it leaves alone, and its end."""

import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from tests.net.ethernet import ethernet, ipv4, udp
from tests.shared import ROOT
from udpfast.errors import ConfigError
from udpfast.net.datagram import DatagramReceiver
from udpfast.net.line import LineAddress, ReceiveOptions
from udpfast.net.xdp import XdpDatagram, XdpReceiver
from udpfast.net.xdp_host import XdpLine, XdpOptions, find_interface, group_lines
from udpfast.testing.namespaces import Wire, WireUnavailableError, run, wire

UNICAST = LineAddress("10.99.0.2:9002")
GROUP = LineAddress("239.1.2.3:9001", "vb")
GROUP6 = LineAddress("[ff15::7]:9003", "vb")
MODES = ("generic", "native")


@pytest.fixture(scope="module")
def link() -> Iterator[Wire]:
    try:
        with wire(queues=2) as made:
            yield made
    except WireUnavailableError as reason:
        pytest.skip(str(reason))


def opened(link: Wire, *lines: LineAddress, **options: object) -> XdpReceiver:
    wanted = XdpOptions(**{"frames": 1024, **options})  # type: ignore[arg-type]
    with link.inside(link.b):
        return XdpReceiver([XdpLine(line, 0, index) for index, line in enumerate(lines)], wanted)


def receive(receiver: XdpReceiver, count: int) -> list[XdpDatagram]:
    """Return `count` datagrams; fewer only after 5 s."""
    received: list[XdpDatagram] = []
    deadline = time.monotonic() + 5
    while len(received) < count and time.monotonic() < deadline:
        received += receiver.receive()
    return received


def total(receiver: XdpReceiver, name: str) -> int:
    return sum(line[name] for line in receiver.read_counts())


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
        wait_until(lambda: total(receiver, "frames") == len(frames) or not receiver.receive())
        assert {d.payload for d in received} == {b"right", b"one tag", b"two", b"options"}
        group, unicast = receiver.read_counts()
        assert unicast["frames"] == 7
        assert (unicast["frames_checksum"], unicast["frames_fragment"]) == (2, 1)
        # What is malformed tells no line: the interface's first one counts it.
        assert (group["frames"], group["frames_malformed"]) == (1, 1)


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
        wait_until(lambda: total(receiver, "frames") == 10 or not receiver.receive())
        assert total(receiver, "frames_foreign") == 5


def test_receive_sender_off_the_list_is_flagged(link: Wire) -> None:
    with (
        opened(link, LineAddress("10.99.0.2:9002", senders=("10.99.0.77",))) as receiver,
        link.sender() as sender,
    ):
        sender.sendto(b"who", ("10.99.0.2", 9002))
        assert [d.flags for d in receive(receiver, 1)] == [2 | 4]


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
        for number in range(1000):  # frames come back: the ring goes round many times
            sender.sendto(b"%d" % number, ("10.99.0.2", 9002))
            assert [d.payload for d in receive(receiver, 1)] == [b"%d" % number]


def test_receive_queue_left_out_passes_to_the_kernel_and_is_counted(link: Wire) -> None:
    with opened(link, UNICAST, queues=(0,)) as receiver:
        for _ in range(64):  # flows: the sender's hash puts each on one of the two queues
            with link.sender() as sender:
                sender.sendto(b"some flow", ("10.99.0.2", 9002))
        received = 0
        deadline = time.monotonic() + 5
        while received + total(receiver, "kernel_drops") < 64 and time.monotonic() < deadline:
            received += len(receiver.receive())
        assert received + total(receiver, "kernel_drops") == 64
        assert 0 < received < 64


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
            deadline = time.monotonic() + 5
            while len(through_socket) < len(sent) and time.monotonic() < deadline:
                through_socket += [d.payload for d in plain.receive()]
    assert through_xdp == through_socket == sent


@pytest.mark.parametrize("mode", MODES)
def test_kill_leaves_the_interface_as_it_was(link: Wire, mode: str) -> None:
    script = (
        "import sys, time\n"
        "from udpfast.net.xdp import XdpReceiver\n"
        "from udpfast.net.xdp_host import XdpLine, XdpOptions\n"
        "from udpfast.net.line import LineAddress\n"
        "lines = [XdpLine(LineAddress('10.99.0.2:9002'), 0, 0)]\n"
        f"receiver = XdpReceiver(lines, XdpOptions(mode='{mode}', frames=1024))\n"
        "print('attached', flush=True)\n"
        "time.sleep(60)\n"
    )
    with link.inside(link.b):
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"attached\n"
        assert attached_program(link)
        assert_works_for_others(link)
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    wait_until(lambda: not attached_program(link))
    assert_works_for_others(link)
    with link.sender() as sender:
        with link.inside(link.b):
            plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with plain:  # the line's own port is the kernel's again
            plain.bind(("10.99.0.2", 9002))
            plain.settimeout(5)
            sender.sendto(b"to the kernel", ("10.99.0.2", 9002))
            assert plain.recv(100) == b"to the kernel"
        with opened(link, UNICAST, mode=mode) as receiver:
            sender.sendto(b"to the next one", ("10.99.0.2", 9002))
            assert [d.payload for d in receive(receiver, 1)] == [b"to the next one"]


def test_close_and_open_again_and_again(link: Wire) -> None:
    for _ in range(5):
        receiver = opened(link, UNICAST)
        receiver.close()
        receiver.close()
        assert not attached_program(link)
    with pytest.raises(ValueError, match="closed"):
        receiver.receive()


def test_second_program_is_refused_and_the_first_goes_on(link: Wire) -> None:
    for first, second in (("native", "auto"), ("generic", "native"), ("native", "generic")):
        with opened(link, UNICAST, mode=first) as receiver, link.sender() as sender:
            with pytest.raises(OSError, match=f"vb, which has another program attached .{first}"):
                opened(link, GROUP, mode=second)
            sender.sendto(b"still", ("10.99.0.2", 9002))
            assert [d.payload for d in receive(receiver, 1)] == [b"still"]


def test_refusals_say_what_lacks(link: Wire) -> None:
    loopback = LineAddress("127.0.0.1:9002")
    with pytest.raises(OSError, match="lo, which is the loopback: it has generic mode only"):
        opened(link, loopback, mode="native")
    with pytest.raises(OSError, match="queue 0 of vb, whose driver has no zero copy"):
        opened(link, UNICAST, mode="native", zero_copy="on")
    with pytest.raises(OSError, match="queue 0 of vb: zero copy is native"):
        opened(link, UNICAST, mode="generic", zero_copy="on")
    with pytest.raises(ConfigError, match="vb has queues 0 to 1, was 2"):
        opened(link, UNICAST, queues=(2,))
    with pytest.raises(ConfigError, match="'vx' is neither a name nor an address"):
        opened(link, LineAddress("239.1.2.3:9001", "vx"))
    assert not attached_program(link)


def test_loopback_is_received_generically(link: Wire) -> None:
    with opened(link, LineAddress("127.0.0.1:9002")) as receiver, link.inside(link.b):
        assert next(r.got for r in receiver.results) == "generic: lo has none of its own"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"here", ("127.0.0.1", 9002))
        assert [d.payload for d in receive(receiver, 1)] == [b"here"]


def test_interface_down_is_counted_and_up_again_goes_on(link: Wire) -> None:
    with opened(link, UNICAST) as receiver, link.sender() as sender:
        run("ip", "-n", link.b, "link", "set", "vb", "down")
        assert total(receiver, "receive_errors") == 2  # one for each queue
        assert receiver.receive() == []
        run("ip", "-n", link.b, "link", "set", "vb", "up")
        run("ip", "-n", link.b, "route", "replace", "239.0.0.0/8", "dev", "vb")
        deadline = time.monotonic() + 5
        received: list[XdpDatagram] = []
        while not received and time.monotonic() < deadline:
            sender.sendto(b"back", ("10.99.0.2", 9002))
            received = receiver.receive()
        assert received[0].payload == b"back"


def test_interface_removed_is_an_error_that_stays() -> None:
    with wire() as own, opened(own, UNICAST) as receiver:
        run("ip", "-n", own.a, "link", "del", "va")
        wait_until(lambda: raises(receiver.read_counts))
        for _ in range(3):
            with pytest.raises(OSError, match="cannot receive: vb"):
                receiver.receive()


def test_rights_that_lack_are_named(link: Wire) -> None:
    script = (
        "import encodings.ascii, os\n"
        "from udpfast.net.xdp import XdpReceiver\n"
        "from udpfast.net.xdp_host import XdpLine\n"
        "from udpfast.net.line import LineAddress\n"
        "os.setresuid(65534, 65534, 65534)\n"
        "try:\n"
        "    XdpReceiver([XdpLine(LineAddress('10.99.0.2:9002'), 0, 0)])\n"
        "except PermissionError as error:\n"
        "    print(error)\n"
    )
    with link.inside(link.b):
        said = run(sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{script}")
    assert "needs CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW" in said
    assert said.count("\n") == 1


def test_find_interface_wants_an_address_of_its_own(link: Wire) -> None:
    with link.inside(link.b):
        assert find_interface(UNICAST).queues == 2
        for line, why in (
            (LineAddress("0.0.0.0:9001", "vb"), "own address and port"),
            (LineAddress("10.99.0.2:0"), "own address and port"),
            (LineAddress("239.1.2.3:9001"), "needs the interface of group"),
        ):
            with pytest.raises(ConfigError, match=why):
                find_interface(line)


def test_group_lines_keeps_interfaces_apart_and_refuses_equal_lines(link: Wire) -> None:
    lines = [
        XdpLine(line, 0, index)
        for index, line in enumerate((UNICAST, LineAddress("127.0.0.1:9001"), GROUP))
    ]
    with link.inside(link.b):
        groups = group_lines(lines)
        assert [(interface.name, [line.index for line in own]) for interface, own in groups] == [
            ("vb", [0, 2]), ("lo", [1])]  # fmt: skip
        with pytest.raises(ConfigError, match="cannot belong to both"):
            group_lines([*lines, XdpLine(GROUP, 1, 0)])


@pytest.mark.parametrize(
    ("name", "value"),
    [("mode", "fast"), ("zero_copy", "yes"), ("checksums", ""), ("frames", 1000), ("frames", 32)],
)
def test_options_that_do_not_exist_are_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"xdp.{name} must be"):
        XdpOptions(**{name: value})  # type: ignore[arg-type]


# --- what the tests share -------------------------------------------------------------------------


def wait_until(condition: object) -> None:
    deadline = time.monotonic() + 5
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "waited 5 s"


def raises(call: object) -> bool:
    try:
        call()  # type: ignore[operator]
    except OSError:
        return True
    return False


def hardware_address(link: Wire) -> bytes:
    shown = json.loads(run("ip", "-n", link.b, "-j", "link", "show", "vb"))[0]
    return bytes.fromhex(shown["address"].replace(":", ""))


def attached_program(link: Wire) -> bool:
    return "xdp" in json.loads(run("ip", "-n", link.b, "-j", "link", "show", "vb"))[0]


def assert_works_for_others(link: Wire) -> None:
    """UDP to another port, and a TCP connection in both directions."""
    with link.inside(link.b):
        plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server = socket.create_server(("10.99.0.2", 0))
    with plain, server, link.sender() as sender:
        plain.bind(("10.99.0.2", 0))
        plain.settimeout(5)
        sender.sendto(b"other port", plain.getsockname())
        assert plain.recv(100) == b"other port"
        echo = threading.Thread(target=_echo_once, args=(server,))
        echo.start()
        with link.inside(link.a):
            client = socket.create_connection(server.getsockname(), timeout=5)
        with client:
            client.sendall(b"stream")
            assert client.recv(100) == b"stream"
        echo.join()


def _echo_once(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.sendall(connection.recv(100))
