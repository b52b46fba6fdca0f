"""Refusals of AF_XDP with helpful messages: rights, drivers, queues, other programs."""

import ctypes
import errno
import mmap
import os
import shutil
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.namespaces import Wire, run
from tests.net.xdp_link import (
    GROUP,
    UNICAST,
    assert_works_for_others,
    attached_program,
    opened,
    receive,
)
from tests.shared import ROOT
from tests.waiting import wait_until
from udpfast.errors import ConfigError
from udpfast.net import xdp
from udpfast.net.line import LineAddress
from udpfast.net.xdp_bpf import load_program
from udpfast.net.xdp_host import XdpLine, XdpOptions, find_interface, group_lines
from udpfast.net.xdp_open import foresee, open_xdp_socket
from udpfast.net.xdp_program import EXIT, MOVE_VALUE, R0, XDP_PASS, Assembler


def test_second_program_is_refused_and_the_first_goes_on(link: Wire) -> None:
    for first, second in (("native", "auto"), ("generic", "native"), ("native", "generic")):
        with opened(link, UNICAST, mode=first) as receiver, link.sender() as sender:
            with pytest.raises(OSError, match=f"vb, which has another program attached .{first}"):
                opened(link, GROUP, mode=second)
            sender.sendto(b"still", ("10.99.0.2", 9002))
            assert [d.payload for d in receive(receiver, 1)] == [b"still"]


def test_refusals_say_what_lacks(link: Wire) -> None:
    loopback = LineAddress("127.0.0.1:9002")
    with pytest.raises(OSError, match=r"lo, .*loopback.* generic mode"):
        opened(link, loopback, mode="native")
    with pytest.raises(OSError, match="queue 0 of vb, whose driver has no zero copy"):
        opened(link, UNICAST, mode="native", zero_copy="on")
    with pytest.raises(OSError, match="queue 0 of vb: zero copy is native"):
        opened(link, UNICAST, mode="generic", zero_copy="on")
    with pytest.raises(ConfigError, match="expected queues 0 to 1 of vb, found 2"):
        opened(link, UNICAST, queues=(2,))
    with pytest.raises(ConfigError, match=r"interface .*'vx'"):
        opened(link, LineAddress("239.1.2.3:9001", "vx"))
    assert not attached_program(link)


@pytest.mark.parametrize(
    "options",
    [{}, {"queues": (2,)}, {"queues": (1,)}, {"mode": "native"}, {"zero_copy": "on"},
     {"mode": "native", "zero_copy": "on"}, {"mode": "generic", "zero_copy": "on"}],
)  # fmt: skip
@pytest.mark.parametrize("line", [UNICAST, LineAddress("127.0.0.1:9002")], ids=["veth", "lo"])
def test_foresee_says_what_opening_says(
    link: Wire, line: LineAddress, options: dict[str, object]
) -> None:
    said = []
    for way in (foreseen, lambda *asked, **wanted: opened(*asked, **wanted).close()):
        try:
            way(link, line, **options)
            said.append("")
        except (OSError, ConfigError) as error:
            said.append(str(error))
        assert not attached_program(link)
    assert said[0] == said[1]


def test_foresee_finds_another_s_program_and_leaves_it(link: Wire) -> None:
    with opened(link, UNICAST, mode="native") as receiver, link.sender() as sender:
        for mode in ("auto", "native", "generic"):
            with pytest.raises(OSError, match=r"vb, which has another program attached .native"):
                foreseen(link, GROUP, mode=mode)
        sender.sendto(b"still", ("10.99.0.2", 9002))
        assert [d.payload for d in receive(receiver, 1)] == [b"still"]


@pytest.mark.parametrize(
    "lacking", ["bpf,sys_admin", "net_admin,sys_admin", "net_raw", "every one"]
)
def test_rights_that_lack_are_named(link: Wire, lacking: str) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import encodings.ascii, os\n"
        "from udpfast.net.xdp import XdpReceiver\n"
        "from udpfast.net.xdp_host import XdpLine\n"
        "from udpfast.net.line import LineAddress\n"
        "if sys.argv[1] == 'every one':\n"
        "    os.setresuid(65534, 65534, 65534)\n"
        "try:\n"
        "    XdpReceiver([XdpLine(LineAddress('10.99.0.2:9002'), 0, 0)])\n"
        "except PermissionError as error:\n"
        "    print(error)\n"
    )
    prefix = []
    if lacking != "every one":
        if shutil.which("setpriv") is None:
            pytest.skip("dropping a single capability needs setpriv (util-linux)")
        prefix = ["setpriv", "--bounding-set", ",".join(f"-{name}" for name in lacking.split(","))]
    with link.inside(link.b):
        said = run(*prefix, sys.executable, "-c", script, lacking)
    assert "needs CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW" in said
    assert said.count("\n") == 1
    assert not attached_program(link)


def test_find_interface_wants_an_address_of_its_own(link: Wire) -> None:
    with link.inside(link.b):
        assert find_interface(UNICAST).queues == 2
        for line, why in (
            (LineAddress("0.0.0.0:9001", "vb"), "own address and port"),
            (LineAddress("10.99.0.2:0"), "own address and port"),
            (LineAddress("239.1.2.3:9001"), "needs an interface for group"),
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


@pytest.mark.parametrize("mode", ["auto", "native", "generic"])
def test_foreign_program_stays_where_it_is(link: Wire, mode: str) -> None:
    program = Assembler()
    program.emit(MOVE_VALUE, R0, value=XDP_PASS)
    program.emit(EXIT)
    descriptor = load_program(program.assembled())
    try:
        attach_the_old_way(link, descriptor)
        foreign = attached_program(link)
        assert foreign
        with pytest.raises(OSError, match="vb, which has another program attached"):
            opened(link, UNICAST, mode=mode)
        assert attached_program(link) == foreign
        assert_works_for_others(link)
    finally:
        os.close(descriptor)
        run("ip", "-n", link.b, "link", "set", "vb", "xdpgeneric", "off")
    opened(link, UNICAST, mode=mode).close()


def test_others_cannot_take_a_running_program_off(link: Wire) -> None:
    with opened(link, UNICAST, mode="generic") as receiver, link.sender() as sender:
        with pytest.raises(RuntimeError, match="BPF XDP link"):
            run("ip", "-n", link.b, "link", "set", "vb", "xdpgeneric", "off")
        sender.sendto(b"still", ("10.99.0.2", 9002))
        assert [d.payload for d in receive(receiver, 1)] == [b"still"]


def test_queue_of_another_socket_is_refused(link: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xdp, "BIND_PAUSE_S", 0.001)
    with bound_by_another(link, queue=1):
        with pytest.raises(OSError, match="queue 1 of vb, which another socket owns"):
            opened(link, UNICAST)
        assert not attached_program(link)
        monkeypatch.undo()
        with opened(link, UNICAST, queues=(0,)) as receiver:
            assert receiver.queues == (0,)
    opened(link, UNICAST).close()  # the kernel frees a queue a moment after close


@pytest.mark.parametrize("mode", ["auto", "native"])
def test_settings_that_the_driver_refuses_are_named(link: Wire, mode: str) -> None:
    run("ip", "-n", link.a, "link", "set", "va", "mtu", "9000")
    run("ip", "-n", link.b, "link", "set", "vb", "mtu", "9000")
    words = r"vb, whose driver refuses it with the present settings .MTU 9000"
    try:
        if mode == "native":
            with pytest.raises(OSError, match=words):
                opened(link, UNICAST, mode=mode)
        else:
            with opened(link, UNICAST, mode=mode) as receiver:
                assert receiver.fallbacks[0].startswith(
                    "XDP mode is generic instead of native: vb, whose driver"
                )
    finally:
        run("ip", "-n", link.a, "link", "set", "va", "mtu", "1500")
        run("ip", "-n", link.b, "link", "set", "vb", "mtu", "1500")


def test_kernel_without_af_xdp_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_family(*_: object) -> None:
        raise OSError(errno.EAFNOSUPPORT, "what a kernel says that has no such family")

    monkeypatch.setattr(socket, "socket", no_family)
    with pytest.raises(OSError, match=r"queue 0 of vb, .* CONFIG_XDP"):
        open_xdp_socket("queue 0 of vb")


def foreseen(link: Wire, line: LineAddress, **options: object) -> None:
    """Have a receiver of a line at the b side refused as `opened` is, without opening it."""
    wanted = XdpOptions(**{"frames": 1024, **options})  # type: ignore[arg-type]
    with link.inside(link.b):
        foresee(find_interface(line), [XdpLine(line, 0, 0)], wanted)


def attach_the_old_way(link: Wire, descriptor: int) -> None:
    """Attach a program by RTM_SETLINK, without a link: it stays when its process ends."""
    wanted = struct.pack("=HHiHHI", 8, 1, descriptor, 8, 3, 2)  # IFLA_XDP_FD, IFLA_XDP_FLAGS
    with link.inside(link.b):
        netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        index = socket.if_nametoindex("vb")
    with netlink:
        body = struct.pack("=BxHiII", 0, 0, index, 0, 0)
        body += struct.pack("=HH", 4 + len(wanted), 43 | 0x8000) + wanted  # IFLA_XDP, nested
        netlink.send(struct.pack("=IHHII", 16 + len(body), 19, 5, 1, 0) + body)
        assert struct.unpack_from("=i", netlink.recv(4096), 16)[0] == 0


@contextmanager
def bound_by_another(link: Wire, queue: int) -> Iterator[None]:
    """Hold an AF_XDP socket on a queue, without a program."""
    with link.inside(link.b):
        sock = socket.socket(44, socket.SOCK_RAW)
        index = socket.if_nametoindex("vb")
    with sock, mmap.mmap(-1, 64 * 2048) as frames:
        start = ctypes.addressof(ctypes.c_char.from_buffer(frames))
        sock.setsockopt(283, 4, struct.pack("=QQIIIxxxx", start, len(frames), 2048, 0, 0))
        for ring in (5, 6, 2):  # fill, completion, receive
            sock.setsockopt(283, ring, 64)
        address = struct.pack("=HHIII", 44, 0, index, queue, 0)
        bind = ctypes.CDLL(None).bind
        # The kernel frees the queues of the previous test's receiver in the background.
        wait_until(lambda: bind(sock.fileno(), address, len(address)) == 0)
        yield
