"""How datagrams are received: by sockets, by AF_XDP, or by a stack that replaces the kernel's."""

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
            description="xdp: AF_XDP takes the lines' datagrams below the network stack; each "
            "line then needs `interface`, or an address of one"
        ),
    ] = "socket"
    rcvbuf_bytes: Annotated[
        int,
        Meta(
            ge=4096,
            le=(1 << 31) - 1,
            description="size of the socket's receive buffer in bytes; it holds what arrives "
            "while the loop stalls",
        ),
    ] = 1 << 26
    busy_poll_us: Annotated[
        int, Meta(ge=0, le=100_000, description="us of busy polling (SO_BUSY_POLL); 0: off")
    ] = 0
    prefer_busy_poll: Annotated[
        bool,
        Meta(
            description="keep the NIC's interrupts off while the loop polls "
            "(SO_PREFER_BUSY_POLL); works with napi_defer_hard_irqs and "
            "gro_flush_timeout set"
        ),
    ] = False
    busy_poll_budget: Annotated[
        int,
        Meta(
            ge=0,
            le=65_535,
            description="frames that one busy poll may take from the NIC (SO_BUSY_POLL_BUDGET); "
            "0: the kernel's default, 8",
        ),
    ] = 0
    timestamps: Annotated[
        Literal["auto", "hardware", "kernel", "none"],
        Meta(
            description="source of receive time stamps; auto: the NIC if it offers them, else "
            "the kernel"
        ),
    ] = "auto"
    batch: Annotated[
        int, Meta(ge=1, le=64, description="datagrams per receive call; 32 to 64 measured best")
    ] = 64
    gro: Annotated[
        bool,
        Meta(
            description="receive runs of equal-sized datagrams in one piece (UDP_GRO); "
            "kernel_drops then counts runs"
        ),
    ] = False


class XdpConfig(Struct, frozen=True):
    """Reception that bypasses the kernel's network stack, with receive.path = "xdp"."""

    mode: Annotated[
        Literal["auto", "native", "generic"],
        Meta(
            description="where frames are taken: native in the driver; generic after it, on any "
            "interface; auto: native if the driver supports it"
        ),
    ] = "auto"
    zero_copy: Annotated[
        Literal["auto", "on", "off"],
        Meta(
            description="let the NIC write directly into udpfast's frames; auto: if the driver "
            "supports it"
        ),
    ] = "auto"
    checksums: Annotated[
        Literal["auto", "on", "off"],
        Meta(
            description="on: the IPv4 header checksum and the UDP checksum must be right; auto: "
            "also accept a UDP checksum that a sender on a virtual link left to the "
            "hardware; off: not checked"
        ),
    ] = "auto"
    queues: Annotated[
        tuple[Annotated[int, Meta(ge=0, le=65_535)], ...],
        Meta(
            max_length=32,
            description="receive queues of the interface to use; empty: all",
            extra=DISTINCT.extra,
        ),
    ] = ()
    frames: Annotated[
        int,
        Meta(
            ge=64,
            le=1 << 20,
            description="frames of 2,048 bytes per queue, a power of two; they hold what "
            "arrives while the loop stalls, as receive.rcvbuf_bytes does for a "
            "socket",
            extra=POWER_OF_TWO.extra,
        ),
    ] = 16_384
    huge_pages: Annotated[
        bool, Meta(description="put the frames on huge pages (needs vm.nr_hugepages)")
    ] = False


class BypassConfig(Struct, frozen=True):
    """A preloaded network stack that replaces the kernel's; `udpfast run` starts under it."""

    stack: Annotated[
        BypassStack,
        Meta(description="network stack that receives the lines; none: the kernel's"),
    ] = "none"
    library: Annotated[
        FilePath,
        Meta(
            description="path of the stack's library; empty: searched for like any shared library"
        ),
    ] = ""
    strict: Annotated[
        bool,
        Meta(
            description="refuse to run unless the stack really accelerates; agent.strict "
            "implies this"
        ),
    ] = False
