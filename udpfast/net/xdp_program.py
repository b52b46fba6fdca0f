"""The XDP program that redirects a feed's datagrams to AF_XDP sockets, assembled by hand.

No compiler is needed where udpfast runs: the program is about a hundred eBPF instructions, written
here one by one and checked by the kernel's verifier when it is loaded. Its decision for a frame:

    Ethernet, up to two VLAN tags
      IPv4, any header size      UDP and (address, port) of a line,        -> ring
      IPv6                       whole or the first fragment of an IP datagram
    everything else                                                        -> kernel

A line's datagram goes to the AF_XDP socket of the queue that it came in on, with a time stamp
before it; if that queue has no socket, it goes to the kernel. The first fragment of a fragmented
datagram goes to the ring to be counted; it is not reassembled. VLAN ids are not compared, because
network cards and drivers remove tags.

The format: https://www.kernel.org/doc/html/latest/bpf/standardization/instruction-set.html
"""

import ipaddress
import struct
import sys
from collections.abc import Iterable
from typing import NamedTuple

__all__ = [
    "STAMPED",
    "STAMP_SIZE",
    "XDP_DROP",
    "XDP_PASS",
    "Assembler",
    "Endpoint",
    "assemble",
    "endpoint_of",
]

# Results of a program (linux/bpf.h, enum xdp_action).
XDP_DROP = 1
XDP_PASS = 2

#: A stamped frame is preceded by its time (CLOCK_MONOTONIC), then this number, which tells a stamp
#: from bytes that an earlier frame left there (XDP_STAMPED of xdp_ring.pxd).
STAMPED = 0x5D3C_9E41_7A60_B2F7
STAMP_SIZE = 16

# Registers: a call's result, its arguments 1 to 3, a scratch register, and those kept by a call.
R0, R1, R2, R3, R4 = range(5)
CONTEXT, DATA, END, HEADER = 6, 7, 8, 9

# Opcodes: class | size or operation | mode or source.
LOAD_8 = 0x71  # dst = *(u8 *)(src + offset)
LOAD_16 = 0x69
LOAD_32 = 0x61
LOAD_MAP = 0x18  # dst = the map of this descriptor, or a 64-bit value; takes two instructions
STORE_64 = 0x7B  # *(u64 *)(dst + offset) = src
MOVE = 0xBF  # 64 bits, from a register
MOVE_VALUE = 0xB7
ADD = 0x0F
ADD_VALUE = 0x07
AND_VALUE = 0x57
SHIFT_LEFT_VALUE = 0x67
JUMP = 0x05
JUMP_EQUAL = 0x15  # 64-bit comparison with a value
JUMP_UNEQUAL = 0x55
JUMP_UNEQUAL_32 = 0x56  # 32-bit: does not sign-extend addresses above 127.255.255.255
JUMP_GREATER = 0x2D  # unsigned, with a register
JUMP_LESS = 0xA5  # unsigned, with a value
CALL = 0x85
EXIT = 0x95

_PSEUDO_MAP_FD = 1
# linux/bpf.h: BPF_FUNC_ktime_get_ns (CLOCK_MONOTONIC), _redirect_map, _xdp_adjust_meta.
_FUNC_TIME, _FUNC_REDIRECT_MAP, _FUNC_ADJUST_META = 5, 51, 54

_INSTRUCTION = struct.Struct("<BBhi")


class Endpoint(NamedTuple):
    """The destination of a line's datagrams: 4 or 16 address bytes, and a port."""

    address: bytes
    port: int


class Assembler:
    """Instructions and labels; jumps are resolved at the end."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, int, int, int, int, str]] = []
        self._labels: dict[str, int] = {}

    def emit(
        self, opcode: int, target: int = 0, source: int = 0, offset: int = 0, value: int = 0
    ) -> None:
        """Append one instruction; `value` is taken modulo 2^32."""
        self._lines.append((opcode, target, source, offset, value, ""))

    def jump(self, label: str, opcode: int = JUMP, left: int = 0, right: int = 0) -> None:
        """Append a jump to a label; `right` is a register or a value, as the opcode says."""
        register = right if opcode == JUMP_GREATER else 0
        value = 0 if opcode == JUMP_GREATER else right
        self._lines.append((opcode, left, register, 0, value, label))

    def label(self, name: str) -> None:
        """Name the next instruction."""
        if name in self._labels:
            raise ValueError(f"label {name!r} is set twice")
        self._labels[name] = len(self._lines)

    def load_64(self, target: int, value: int) -> None:
        """Append the two instructions that load a value of 64 bits."""
        self.emit(LOAD_MAP, target, 0, 0, value & 0xFFFFFFFF)
        self.emit(0, value=value >> 32)

    def load_map(self, target: int, descriptor: int) -> None:
        """Append the two instructions that load a map."""
        self.emit(LOAD_MAP, target, _PSEUDO_MAP_FD, 0, descriptor)
        self.emit(0)

    def assembled(self) -> bytes:
        """Return the program; a jump to an undefined label raises KeyError."""
        program = bytearray()
        for index, (opcode, target, source, place, value, label) in enumerate(self._lines):
            offset = self._labels[label] - index - 1 if label else place
            signed = (value & 0xFFFFFFFF) - ((value & 0x80000000) << 1)
            program += _INSTRUCTION.pack(opcode, source << 4 | target, offset, signed)
        return bytes(program)


def assemble(
    endpoints: Iterable[Endpoint], map_fd: int, otherwise: int = XDP_PASS, *, stamps: bool = True
) -> bytes:
    """Return the program of an interface.

    Parameters
    ----------
    endpoints : iterable of Endpoint
        Destinations of all lines on this interface.
    map_fd : int
        Descriptor of the XSKMAP, which has one socket per queue.
    otherwise : int
        Result (XDP_PASS, XDP_DROP) for a line's datagram on a queue without a socket.
    stamps : bool
        Write a time stamp before each frame that goes to a socket: see `STAMPED`.

    Raises
    ------
    NotImplementedError
        The machine is big-endian, where instructions have another layout.
    """
    if sys.byteorder != "little":
        raise NotImplementedError("the XDP program is written for little-endian machines")
    ordered = sorted(set(endpoints))
    program = Assembler()
    _find_network_header(program)
    _match_ipv4(program, [endpoint for endpoint in ordered if len(endpoint.address) == 4])
    _match_ipv6(program, [endpoint for endpoint in ordered if len(endpoint.address) == 16])
    program.label("ring")
    if stamps:
        _stamp(program)
    program.emit(LOAD_32, R2, CONTEXT, 16)  # xdp_md.rx_queue_index
    program.load_map(R1, map_fd)
    program.emit(MOVE_VALUE, R3, value=otherwise)
    program.emit(CALL, value=_FUNC_REDIRECT_MAP)
    program.emit(EXIT)
    program.label("pass")
    program.emit(MOVE_VALUE, R0, value=XDP_PASS)
    program.emit(EXIT)
    return program.assembled()


def _stamp(program: Assembler) -> None:
    # The kernel copies the bytes before a frame ("metadata") with it. If a driver has no room for
    # metadata, the call fails and the frame has no stamp. R7 and R8 are not needed any more.
    program.emit(MOVE, R1, CONTEXT)
    program.emit(MOVE_VALUE, R2, value=-STAMP_SIZE)
    program.emit(CALL, value=_FUNC_ADJUST_META)
    program.jump("stamped", JUMP_UNEQUAL, R0, 0)
    program.emit(CALL, value=_FUNC_TIME)
    program.emit(LOAD_32, R1, CONTEXT, 8)  # xdp_md.data_meta
    program.emit(LOAD_32, R2, CONTEXT, 0)  # xdp_md.data
    program.emit(MOVE, R3, R1)
    program.emit(ADD_VALUE, R3, value=STAMP_SIZE)
    program.jump("stamped", JUMP_GREATER, R3, R2)  # never taken, but the verifier requires it
    program.emit(STORE_64, R1, R0, 0)
    program.load_64(R2, STAMPED)
    program.emit(STORE_64, R1, R2, 8)
    program.label("stamped")


def endpoint_of(host: str, port: int) -> Endpoint:
    """Return the endpoint of an IP address as text."""
    return Endpoint(ipaddress.ip_address(host).packed, port)


def _network(value: int) -> int:
    # Return what a 16-bit load yields for a number that is in network byte order in memory.
    return int.from_bytes(value.to_bytes(2, "big"), "little")


def _need(program: Assembler, base: int, size: int) -> None:
    # The verifier allows reads only of bytes that the program has compared with the end before.
    program.emit(MOVE, R2, base)
    program.emit(ADD_VALUE, R2, value=size)
    program.jump("pass", JUMP_GREATER, R2, END)


def _find_network_header(program: Assembler) -> None:
    program.emit(MOVE, CONTEXT, R1)
    program.emit(LOAD_32, DATA, R1, 0)  # xdp_md.data
    program.emit(LOAD_32, END, R1, 4)  # xdp_md.data_end
    _need(program, DATA, 14)
    program.emit(LOAD_16, R3, DATA, 12)
    program.emit(MOVE, HEADER, DATA)
    program.emit(ADD_VALUE, HEADER, value=14)
    for depth in range(2):
        for ethertype in (0x8100, 0x88A8, 0x9100):
            program.jump(f"tag{depth}", JUMP_EQUAL, R3, _network(ethertype))
        program.jump("network")
        program.label(f"tag{depth}")
        _need(program, HEADER, 4)
        program.emit(LOAD_16, R3, HEADER, 2)
        program.emit(ADD_VALUE, HEADER, value=4)
    program.label("network")
    program.jump("ipv4", JUMP_EQUAL, R3, _network(0x0800))
    program.jump("ipv6", JUMP_EQUAL, R3, _network(0x86DD))
    program.jump("pass")


def _match_ipv4(program: Assembler, endpoints: list[Endpoint]) -> None:
    program.label("ipv4")
    _need(program, HEADER, 20)
    program.emit(LOAD_8, R3, HEADER, 9)
    program.jump("pass", JUMP_UNEQUAL, R3, 17)
    program.emit(LOAD_16, R3, HEADER, 6)
    program.emit(AND_VALUE, R3, value=_network(0x1FFF))
    program.jump("pass", JUMP_UNEQUAL, R3, 0)  # a later fragment: it has no ports
    program.emit(LOAD_32, R4, HEADER, 16)
    program.emit(LOAD_8, R3, HEADER, 0)
    program.emit(AND_VALUE, R3, value=15)
    program.emit(SHIFT_LEFT_VALUE, R3, value=2)
    program.jump("pass", JUMP_LESS, R3, 20)
    program.emit(ADD, HEADER, R3)
    _need(program, HEADER, 8)
    program.emit(LOAD_16, R3, HEADER, 2)
    for index, endpoint in enumerate(endpoints):
        after = f"ipv4 {index}"
        program.jump(after, JUMP_UNEQUAL, R3, _network(endpoint.port))
        program.jump(after, JUMP_UNEQUAL_32, R4, int.from_bytes(endpoint.address, "little"))
        program.jump("ring")
        program.label(after)
    program.jump("pass")


def _match_ipv6(program: Assembler, endpoints: list[Endpoint]) -> None:
    # DATA is set to the UDP header; HEADER is kept, for the four words of the destination.
    program.label("ipv6")
    _need(program, HEADER, 48)
    program.emit(MOVE, DATA, HEADER)
    program.emit(ADD_VALUE, DATA, value=40)
    program.emit(LOAD_8, R3, HEADER, 6)
    program.jump("ipv6 ports", JUMP_EQUAL, R3, 17)
    program.jump("pass", JUMP_UNEQUAL, R3, 44)  # other extension headers
    program.emit(LOAD_8, R3, DATA, 0)
    program.jump("pass", JUMP_UNEQUAL, R3, 17)
    program.emit(LOAD_16, R3, DATA, 2)
    program.emit(AND_VALUE, R3, value=_network(0xFFF8))
    program.jump("pass", JUMP_UNEQUAL, R3, 0)
    program.emit(ADD_VALUE, DATA, value=8)
    _need(program, DATA, 8)
    program.label("ipv6 ports")
    program.emit(LOAD_16, R3, DATA, 2)
    for index, endpoint in enumerate(endpoints):
        after = f"ipv6 {index}"
        program.jump(after, JUMP_UNEQUAL, R3, _network(endpoint.port))
        for word in range(4):
            value = int.from_bytes(endpoint.address[4 * word : 4 * word + 4], "little")
            program.emit(LOAD_32, R4, HEADER, 24 + 4 * word)
            program.jump(after, JUMP_UNEQUAL_32, R4, value)
        program.jump("ring")
        program.label(after)
    program.jump("pass")
