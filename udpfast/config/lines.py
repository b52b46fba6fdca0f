"""Where datagrams come from and go to: lines, destinations, and how their frames are written."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from udpfast.config.checks import DESTINATION, DISTINCT, ENDPOINT, INTERFACE, SENDER, SOURCE
from udpfast.config.settings import Struct
from udpfast.config.types import Name

__all__ = ["ChannelConfig", "Destination", "LineConfig", "WireConfig"]

Revision = Literal["current", "legacy"]
ByteOrder = Literal["little", "big"]
EncodingName = Literal["native", "flatbuffers"]


class LineConfig(Struct, frozen=True):
    """One redundant copy of a channel: a socket."""

    name: Annotated[Name, Meta(description="how counters and records name this line")]
    address: Annotated[
        str,
        Meta(description="ip:port to bind; a multicast group is joined", extra=ENDPOINT.extra),
    ]
    interface: Annotated[
        str,
        Meta(
            description="name or address of the interface that the line comes by, a group or a "
            "unicast address; empty: the kernel's choice",
            extra=INTERFACE.extra,
        ),
    ] = ""
    source: Annotated[
        str,
        Meta(
            description="join this sender only (source-specific multicast); empty: any source",
            extra=SOURCE.extra,
        ),
    ] = ""
    senders: Annotated[
        tuple[Annotated[str, Meta(extra=SENDER.extra)], ...],
        Meta(max_length=64, description="allow-list of ip or ip:port; empty: everyone"),
    ] = ()


class ChannelConfig(Struct, frozen=True):
    """One of the two channels of a feed: its lines."""

    lines: Annotated[
        tuple[LineConfig, ...],
        Meta(max_length=8, description="the channel's redundant lines, fastest first"),
    ] = ()


class WireConfig(Struct, frozen=True):
    """How the publisher writes its frames (PROTOCOL 1)."""

    revision: Annotated[
        Revision, Meta(description="header revision; legacy has no snapshot bit")
    ] = "current"
    byteorder: Annotated[ByteOrder, Meta(description="little is what known publishers write")] = (
        "little"
    )
    encodings: Annotated[
        tuple[EncodingName, ...],
        Meta(
            min_length=1,
            description="payload encodings to accept; others are refused and counted",
            extra=DISTINCT.extra,
        ),
    ] = ("native", "flatbuffers")


class Destination(Struct, frozen=True):
    """One line that a publisher sends a channel to."""

    address: Annotated[str, Meta(description="ip:port to send to", extra=DESTINATION.extra)]
    interface: Annotated[
        str,
        Meta(
            description="name or address of the interface that the line leaves by, to a group or a "
            "unicast address; empty: the kernel's choice",
            extra=INTERFACE.extra,
        ),
    ] = ""
    ttl: Annotated[int, Meta(ge=0, le=255, description="multicast hops")] = 1
    loop: Annotated[bool, Meta(description="multicast is seen on this host too")] = True
