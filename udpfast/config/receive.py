"""How datagrams are received: sockets, AF_XDP, or a stack in place of the kernel's."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from udpfast.config.checks import DISTINCT, POWER_OF_TWO
from udpfast.config.settings import Struct
from udpfast.config.types import FilePath

__all__ = ["BypassConfig", "BypassStack", "ReceiveConfig", "XdpConfig"]

BypassStack = Literal["none", "onload", "vma", "xlio"]


class ReceiveConfig(Struct, frozen=True):
    """Socket options of every line."""

    path: Annotated[
        Literal["socket", "xdp"],
        Meta(
            description="xdp: AF_XDP takes the lines' datagrams off below the network stack; "
            "each line then needs its interface, or an address of one"
        ),
    ] = "socket"
    rcvbuf_bytes: Annotated[
        int,
        Meta(
            ge=4096,
            le=(1 << 31) - 1,
            description="bytes of kernel buffer to ask for; bridges stalls of the loop",
        ),
    ] = 1 << 26
    busy_poll_us: Annotated[
        int, Meta(ge=0, le=100_000, description="us of SO_BUSY_POLL; 0: off")
    ] = 0
    prefer_busy_poll: Annotated[
        bool,
        Meta(
            description="SO_PREFER_BUSY_POLL: the NIC's interrupts stay off while the loop "
            "polls; of use with napi_defer_hard_irqs and gro_flush_timeout set"
        ),
    ] = False
    busy_poll_budget: Annotated[
        int,
        Meta(
            ge=0,
            le=65_535,
            description="SO_BUSY_POLL_BUDGET: frames that one busy poll may take from the NIC; "
            "0: the kernel's 8",
        ),
    ] = 0
    timestamps: Annotated[
        Literal["auto", "hardware", "kernel", "none"],
        Meta(description="receive stamps: auto takes the NIC's where offered, else the kernel's"),
    ] = "auto"
    batch: Annotated[
        int, Meta(ge=1, le=64, description="datagrams per receive call; measured best at 32 to 64")
    ] = 64
    gro: Annotated[
        bool,
        Meta(
            description="take trains of equal-sized datagrams in one piece (UDP_GRO); "
            "kernel_drops then counts trains"
        ),
    ] = False


class XdpConfig(Struct, frozen=True):
    """Reception past the kernel's network stack, with receive.path = "xdp"."""

    mode: Annotated[
        Literal["auto", "native", "generic"],
        Meta(
            description="where frames are taken off: native in the driver, generic behind it, "
            "on any interface; auto: native where the driver has it"
        ),
    ] = "auto"
    zero_copy: Annotated[
        Literal["auto", "on", "off"],
        Meta(description="the NIC writes into our frames; auto: where the driver has it"),
    ] = "auto"
    checksums: Annotated[
        Literal["auto", "on", "off"],
        Meta(
            description="on: IPv4 header and UDP checksum must be right; auto: a UDP checksum "
            "that a sender on a virtual link left to hardware will do; off: not looked at"
        ),
    ] = "auto"
    queues: Annotated[
        tuple[Annotated[int, Meta(ge=0, le=65_535)], ...],
        Meta(
            max_length=32,
            description="receive queues of the interface; empty: all of them",
            extra=DISTINCT.extra,
        ),
    ] = ()
    frames: Annotated[
        int,
        Meta(
            ge=64,
            le=1 << 20,
            description="frames of 2,048 bytes per queue, a power of two; bridge stalls of "
            "the loop as receive.rcvbuf_bytes does for a socket",
            extra=POWER_OF_TWO.extra,
        ),
    ] = 16_384
    huge_pages: Annotated[
        bool, Meta(description="put the frames on huge pages (vm.nr_hugepages)")
    ] = False


class BypassConfig(Struct, frozen=True):
    """A network stack to preload in place of the kernel's; `udpfast run` starts under it."""

    stack: Annotated[
        BypassStack,
        Meta(description="the network stack that receives the lines; none: the kernel's"),
    ] = "none"
    library: Annotated[
        FilePath, Meta(description="path of the stack's library; empty: looked for as ld.so does")
    ] = ""
    strict: Annotated[
        bool,
        Meta(
            description="refuse to run unless the stack really accelerates; agent.strict does too"
        ),
    ] = False
