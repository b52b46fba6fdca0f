"""Where datagrams come from and go to: lines, destinations, and the wire format."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from msgspec import Meta

from udpfast.config.checks import (
    DESTINATION,
    DISTINCT,
    ENDPOINT_OR_NONE,
    ENDPOINT_RANGE,
    FRAMING,
    INTERFACE,
    SENDER,
    SOURCE,
)
from udpfast.config.settings import Struct
from udpfast.config.types import Name
from udpfast.core.endpoint import expand_endpoints

__all__ = [
    "PAYLOADS",
    "PAYLOADS_OF",
    "ChannelConfig",
    "Destination",
    "LineConfig",
    "LoopConfig",
    "WireConfig",
    "framing_name",
    "payload_name",
]

Revision = Literal["current", "legacy"]
ByteOrder = Literal["little", "big"]
Payload = Literal[
    "auto",
    "none",
    "roq",
    "iex_tops",
    "iex_deep",
    "itch",
    "pitch",
    "cme",
    "deribit",
    "csm",
    "ice",
    "miax",
    "iex_deep_plus",
    "nyse_integrated",
    "nyse_imbalances",
    "memx",
    "coinbase",
    "eobi",
    "b3",
]
EncodingName = Literal["native", "flatbuffers"]

#: In the order of the numbers in payload.traits.
PAYLOADS = get_args(Payload)[1:]

#: The payloads that a framing can carry. Framings that are not listed carry only "none".
PAYLOADS_OF = {
    "roq": ("roq",),
    "iex_tp": ("none", "iex_tops", "iex_deep", "iex_deep_plus"),
    "moldudp64": ("none", "itch"),
    "cboe_pitch": ("none", "pitch"),
    "cme_mdp3": ("none", "cme"),
    "deribit_sbe": ("none", "deribit"),
    "cboe_csm": ("none", "csm"),
    "ice_impact": ("none", "ice"),
    "miax_mach": ("none", "miax"),
    "nyse_xdp": ("none", "nyse_integrated", "nyse_imbalances"),
    "memx_memoir": ("none", "memx"),
    "coinbase_derivatives": ("none", "coinbase"),
    "eurex_eobi": ("none", "eobi"),
    "b3_umdf": ("none", "b3"),
}


class LineConfig(Struct, frozen=True):
    """One redundant copy of a channel, with a socket for each of its addresses."""

    name: Annotated[Name, Meta(description="name of this line in counters and records")]
    address: Annotated[
        str,
        Meta(
            description="ip:port to bind to; a multicast group is joined; or `addresses` instead",
            extra=ENDPOINT_OR_NONE.extra,
        ),
    ] = ""
    addresses: Annotated[
        tuple[Annotated[str, Meta(extra=ENDPOINT_RANGE.extra)], ...],
        Meta(
            max_length=128,
            description="of a line that is published as many groups: ip:port of each, or a "
            "range of one number (239.1.1.1-8:5000, 239.1.1.1:5000-5007)",
        ),
    ] = ()
    interface: Annotated[
        str,
        Meta(
            description="name or address of the interface that receives the line, for a group "
            "or a unicast address; empty: the kernel decides",
            extra=INTERFACE.extra,
        ),
    ] = ""
    source: Annotated[
        str,
        Meta(
            description="join the group for this sender only (source-specific multicast); "
            "empty: any sender",
            extra=SOURCE.extra,
        ),
    ] = ""
    senders: Annotated[
        tuple[Annotated[str, Meta(extra=SENDER.extra)], ...],
        Meta(max_length=64, description="senders to accept, each ip or ip:port; empty: all"),
    ] = ()

    @property
    def every_address(self) -> tuple[str, ...]:
        """All addresses of the line as ip:port, in the order of the list."""
        return tuple(expand_endpoints(self.addresses)) if self.addresses else (self.address,)


class ChannelConfig(Struct, frozen=True):
    """One role of a feed's streams: the lines that carry them, and how long holes wait."""

    lines: Annotated[
        tuple[LineConfig, ...],
        Meta(
            max_length=8, description="redundant lines that carry the same streams, fastest first"
        ),
    ] = ()
    use: Annotated[
        tuple[Name, ...],
        Meta(
            max_length=8,
            description="names of the lines to receive; empty: all",
            extra=DISTINCT.extra,
        ),
    ] = ()
    out_of_order_max_interval: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 30,
            description="as in [window], for these streams; 0: the value in [window]",
        ),
    ] = 0
    lost_packet_wait_us: Annotated[
        Literal["auto"] | Annotated[int, Meta(ge=0, le=60_000_000)],
        Meta(description="us; as in [window], for these streams; 0: the value in [window]"),
    ] = 0


class LoopConfig(Struct, frozen=True):
    """One role of lines that repeat the same contents in loops, whose order does not matter."""

    lines: Annotated[
        tuple[LineConfig, ...],
        Meta(max_length=8, description="lines of this role; each may be another loop, or a copy"),
    ] = ()
    use: Annotated[
        tuple[Name, ...],
        Meta(
            max_length=8,
            description="names of the lines to receive; empty: all",
            extra=DISTINCT.extra,
        ),
    ] = ()


class WireConfig(Struct, frozen=True):
    """The wire format: the framing and payload, and with Roq its form."""

    framing: Annotated[
        str,
        Meta(
            description="datagram format of the publisher or venue; docs/framings.md lists them",
            extra=FRAMING.extra,
        ),
    ] = "roq"
    payload: Annotated[
        Payload,
        Meta(
            description="whose messages are decoded to updates (books, trades, ...); none, which "
            'framing roq refuses (set ring.carry = "messages" there): all are passed on as '
            "published; auto: roq with framing roq, else none"
        ),
    ] = "auto"
    streams_max: Annotated[
        int,
        Meta(
            ge=1,
            le=4096,
            description="streams to follow, with framings other than roq; each loop of snapshots "
            "or definitions has its own; datagrams of further streams are counted and refused",
        ),
    ] = 64
    revision: Annotated[
        Revision, Meta(description="header revision; legacy has no snapshot bit")
    ] = "current"
    byteorder: Annotated[
        ByteOrder, Meta(description="byte order of the header; all known publishers use little")
    ] = "little"
    encodings: Annotated[
        tuple[EncodingName, ...],
        Meta(
            min_length=1,
            description="payload encodings to accept; others are refused and counted",
            extra=DISTINCT.extra,
        ),
    ] = ("native", "flatbuffers")


class Destination(Struct, frozen=True):
    """One line to which a publisher sends a channel."""

    address: Annotated[str, Meta(description="ip:port to send to", extra=DESTINATION.extra)]
    interface: Annotated[
        str,
        Meta(
            description="name or address of the interface that sends the line, to a group or a "
            "unicast address; empty: the kernel decides",
            extra=INTERFACE.extra,
        ),
    ] = ""
    ttl: Annotated[int, Meta(ge=0, le=255, description="multicast hops")] = 1
    loop: Annotated[bool, Meta(description="let this host receive its own multicast, too")] = True


def payload_name(wire: WireConfig) -> str:
    """Return the payload's name, one of `PAYLOADS`."""
    if wire.payload == "auto":
        return "roq" if wire.framing == "roq" else "none"
    return wire.payload


def framing_name(wire: WireConfig) -> str:
    """Return the framing's name, as in `wire.framing.FRAMINGS`."""
    if wire.framing != "roq":
        return wire.framing
    revision = "_legacy" if wire.revision == "legacy" else ""
    return f"roq{revision}{'_big' if wire.byteorder == 'big' else ''}"
