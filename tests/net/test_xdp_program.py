"""The XDP program: its bytes, and its results for frames in the kernel's interpreter."""

import contextlib
import os
import random
import struct
from collections.abc import Callable, Iterator

import pytest

from tests.net.ethernet import FRAGMENT_HEADER, TCP, ethernet, ipv4, ipv6, udp
from udpfast.net.xdp_bpf import create_xskmap, load_program, run_program
from udpfast.net.xdp_program import (
    JUMP_UNEQUAL,
    XDP_DROP,
    XDP_PASS,
    Assembler,
    assemble,
    endpoint_of,
)

V4 = ("10.0.0.1", "239.1.2.3")
V6 = ("fd99::1", "ff15::7")
ENDPOINTS = [
    endpoint_of("239.1.2.3", 9001),
    endpoint_of("10.0.0.2", 9002),
    endpoint_of("ff15::7", 9003),
]


def test_assembler_lays_instructions_out_as_linux_does() -> None:
    program = Assembler()
    program.emit(0xB7, 3, value=2)  # r3 = 2
    program.emit(0x61, 2, 6, 16)  # r2 = *(u32 *)(r6 + 16)
    program.load_map(1, 7)
    program.emit(0x56, 4, value=0xEF010203)  # values of 32 bits are signed in the encoding
    assert program.assembled() == bytes.fromhex(
        "b703000002000000" "6162100000000000" "1811000007000000" "0000000000000000"
        "56040000030201ef"
    )  # fmt: skip


def test_assembler_jumps_count_from_the_next_instruction() -> None:
    program = Assembler()
    program.jump("end", JUMP_UNEQUAL, 3, 5)
    program.emit(0xB7, 0, value=1)
    program.label("end")
    program.emit(0x95)
    assert struct.unpack_from("<h", program.assembled(), 2) == (1,)


def test_assembler_labels_are_set_once_and_must_be_there() -> None:
    program = Assembler()
    program.label("here")
    with pytest.raises(ValueError, match="here"):
        program.label("here")
    program.jump("nowhere")
    with pytest.raises(KeyError, match="nowhere"):
        program.assembled()


def test_assemble_equal_endpoints_are_compared_once() -> None:
    assert assemble(ENDPOINTS * 3, 5) == assemble(reversed(ENDPOINTS), 5)


@pytest.fixture(scope="module")
def verdict() -> Iterator[Callable[[bytes], int]]:
    """Return a function that runs the program on a frame; it drops frames of lines."""
    if os.geteuid() != 0:
        pytest.skip("loading an XDP program needs root")
    with contextlib.ExitStack() as stack:
        map_fd = create_xskmap(1)
        stack.callback(os.close, map_fd)
        program_fd = load_program(assemble(ENDPOINTS, map_fd, XDP_DROP))
        stack.callback(os.close, program_fd)
        yield lambda frame: run_program(program_fd, frame)


def v4(port: int, destination: str = V4[1], **how: object) -> bytes:
    body = udp(V4[0], destination, b"payload", port)
    return ipv4(V4[0], destination, body, **how)  # type: ignore[arg-type]


def v6(port: int, destination: str = V6[1], **how: object) -> bytes:
    body = udp(V6[0], destination, b"payload", port)
    return ipv6(V6[0], destination, body, **how)  # type: ignore[arg-type]


def fragment_header(offset: int, following: int = 17) -> bytes:
    return struct.pack(">BBHI", following, 0, offset << 3 | 1, 9)


@pytest.mark.parametrize(
    "frame",
    [
        ethernet(v4(9001)),
        ethernet(v4(9002, "10.0.0.2")),
        ethernet(v4(9001), tags=(0x8100,)),
        ethernet(v4(9001), tags=(0x88A8, 0x8100)),
        ethernet(v4(9001), tags=(0x9100,)),
        ethernet(v4(9001, options=b"\1" * 40)),
        ethernet(v4(9001, fragment=0x2000)),
        ethernet(v6(9003)),
        ethernet(v6(9003), tags=(0x8100, 0x8100)),
        ethernet(v6(9003, protocol=FRAGMENT_HEADER, extension=fragment_header(0))),
    ],
)
def test_program_takes_what_belongs_to_a_line(
    verdict: Callable[[bytes], int], frame: bytes
) -> None:
    assert verdict(frame) == XDP_DROP


@pytest.mark.parametrize(
    "frame",
    [
        ethernet(v4(9002)),  # the port of another line's address
        ethernet(v4(9001, "239.1.2.4")),
        ethernet(v4(9003)),
        ethernet(v4(9001), tags=(0x8100, 0x8100, 0x8100)),
        ethernet(v4(9001, protocol=TCP)),
        ethernet(v4(9001, fragment=1)),
        ethernet(v6(9001)),
        ethernet(v6(9003, "ff15::8")),
        ethernet(v6(9003, "fe15::7")),
        ethernet(v6(9003, protocol=FRAGMENT_HEADER, extension=fragment_header(1))),
        ethernet(v6(9003, protocol=FRAGMENT_HEADER, extension=fragment_header(0, TCP))),
        ethernet(v6(9003, protocol=TCP)),
        ethernet(v6(9003, protocol=0, extension=struct.pack(">BB", 17, 0) + bytes(6))),
        b"\xff" * 12 + b"\x08\x06" + bytes(28),
        bytes(14),
        ethernet(v4(9001))[:40],
        ethernet(v6(9003))[:60],
    ],
)
def test_program_leaves_the_rest_to_the_kernel(
    verdict: Callable[[bytes], int], frame: bytes
) -> None:
    assert verdict(frame) == XDP_PASS


def test_program_of_mutated_frames_passes_or_takes(
    verdict: Callable[[bytes], int], rng: random.Random
) -> None:
    seen = set()
    for _ in range(3_000):
        frame = bytearray(ethernet(rng.choice([v4(9001), v6(9003), v4(9001, options=bytes(8))])))
        frame[rng.randrange(12, len(frame))] = rng.randrange(256)
        seen.add(verdict(bytes(frame)))
    assert seen == {XDP_DROP, XDP_PASS}


def test_load_program_verifier_is_quoted() -> None:
    if os.geteuid() != 0:
        pytest.skip("loading an XDP program needs root")
    program = Assembler()
    program.emit(0x61, 0, 1, 4)  # r0 = data_end
    program.emit(0x71, 0, 0, 0)  # read at the end
    program.emit(0x95)
    with pytest.raises(OSError, match="cannot load the XDP program: R0 invalid mem access"):
        load_program(program.assembled())
