"""VLAN tags that cards remove: how AF_XDP sees a frame whose tag is beside it.

A program at the sending end gives each frame a tag the way a network card does on arrival: as a
number beside the frame, not in it. A veth pair passes it on like that.
"""

import ctypes
import os
import platform
import socket
import struct
from collections.abc import Iterator

import pytest

from bench.namespaces import Wire, run
from tests.links import linked
from tests.net.xdp_link import MODES, UNICAST, opened, receive, total
from tests.waiting import PATIENCE_S
from udpfast.net.xdp_program import CALL, EXIT, MOVE_VALUE, R0, R2, R3, Assembler

VLAN = 77
_SYS_BPF = {"x86_64": 321, "aarch64": 280}
_PROG_LOAD, _LINK_CREATE = 5, 28  # linux/bpf.h
_PROG_TYPE_SCHED_CLS, _TCX_EGRESS, _FUNC_SKB_VLAN_PUSH = 3, 47, 18
_SOL_PACKET, _PACKET_AUXDATA, _STATUS_VLAN_VALID = 263, 8, 1 << 4


@pytest.fixture(scope="module")
def link() -> Iterator[Wire]:
    for made in linked(queues=2):
        try:
            tagging = tag_what_leaves(made)
        except OSError as error:
            pytest.skip(f"this kernel runs no program at the end of a queue: {error}")
        yield made
        os.close(tagging)


def test_tag_travels_beside_the_frame(link: Wire) -> None:
    # Otherwise the tests below would prove nothing.
    with link.inside(link.b):
        every = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    with every, link.sender() as sender:
        every.bind(("vb", 3))
        every.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        every.settimeout(PATIENCE_S)
        send(link, sender, b"seen by all", 9999)
        frame = b""
        while b"seen by all" not in frame:
            frame, ancillary, _, _ = every.recvmsg(2048, 256)
        assert frame[12:14] == b"\x08\x00"
        status, *_, tag, _ = struct.unpack("=IIIHHHH", ancillary[0][2])
        assert status & _STATUS_VLAN_VALID
        assert tag & 0xFFF == VLAN


@pytest.mark.parametrize("mode", MODES)
def test_frame_without_its_tag_is_received_whatever_the_vlan(link: Wire, mode: str) -> None:
    with opened(link, UNICAST, mode=mode) as receiver, link.sender() as sender:
        send(link, sender, b"of some VLAN", 9002)
        assert [d.payload for d in receive(receiver, 1)] == [b"of some VLAN"]
        assert total(receiver, "frames") == 1


def send(link: Wire, sender: socket.socket, payload: bytes, port: int) -> None:
    """Send to the b side, whose answers to ARP would not arrive."""
    with link.inside(link.b):
        shown = run("ip", "-br", "link", "show", "vb").split()
    run("ip", "-n", link.a, "neigh", "replace", "10.99.0.2", "lladdr", shown[2], "dev", "va")
    sender.sendto(payload, ("10.99.0.2", port))


def tag_what_leaves(link: Wire) -> int:
    """Tag all frames that leave the a side, until the returned descriptor is closed."""
    program = Assembler()  # the frame is the first argument already
    program.emit(MOVE_VALUE, R2, value=socket.htons(0x8100))
    program.emit(MOVE_VALUE, R3, value=VLAN)
    program.emit(CALL, value=_FUNC_SKB_VLAN_PUSH)
    program.emit(MOVE_VALUE, R0, value=0)
    program.emit(EXIT)
    code = program.assembled()
    instructions = ctypes.create_string_buffer(code)
    license_ = ctypes.create_string_buffer(b"Dual BSD/GPL")
    loaded = bpf(
        _PROG_LOAD,
        struct.pack(
            "=IIQQ",
            _PROG_TYPE_SCHED_CLS,
            len(code) // 8,
            ctypes.addressof(instructions),
            ctypes.addressof(license_),
        ),
    )
    try:
        with link.inside(link.a):
            index = socket.if_nametoindex("va")
            return bpf(_LINK_CREATE, struct.pack("=IIII", loaded, index, _TCX_EGRESS, 0))
    finally:
        os.close(loaded)


def bpf(command: int, attributes: bytes) -> int:
    """Call bpf(2)."""
    if platform.machine() not in _SYS_BPF:
        pytest.skip(f"the number of bpf(2) on {platform.machine()} is not known here")
    buffer = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    libc = ctypes.CDLL(None, use_errno=True)
    result: int = libc.syscall(_SYS_BPF[platform.machine()], command, buffer, 128)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
