"""How the feed processes what it received: windows, sessions, objects, books."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from udpfast.config.checks import POWER_OF_TWO
from udpfast.config.settings import Struct

__all__ = ["BooksConfig", "ObjectsConfig", "SessionConfig", "WindowConfig"]


class WindowConfig(Struct, frozen=True):
    """Arbitration, reorder and gap detection of each stream (docs/protocol.md)."""

    size: Annotated[
        int,
        Meta(
            ge=16,
            le=1 << 30,
            description="size in messages; 8192 holds 5 ms of skew between lines at 1 M messages/s",
            extra=POWER_OF_TWO.extra,
        ),
    ] = 8192
    out_of_order_max_interval: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 30,
            description="messages; a hole is declared lost once a message arrives further ahead "
            "of it than this; 0: the window's size",
        ),
    ] = 0
    lost_packet_wait_us: Annotated[
        Literal["auto"] | Annotated[int, Meta(ge=1, le=60_000_000)],
        Meta(
            description="us; a hole older than this is declared lost. auto: a quarter longer than "
            "the slowest line has recently been behind, from 5000 to 250000"
        ),
    ] = 5_000
    parity: Annotated[
        bool,
        Meta(
            description="rebuild what a line lost from the parity of a relay (`relay.lines.parity` "
            "there); false: parity is counted as datagrams that are refused"
        ),
    ] = False
    on_gap: Annotated[
        Literal["keep_all", "latest_run"],
        Meta(
            description="after a gap: keep_all delivers everything received, latest_run only "
            "the newest run without a hole"
        ),
    ] = "keep_all"
    arbitration: Annotated[
        bool,
        Meta(
            description="receive all lines and use the first copy of each message; false: "
            "receive only the first line of each role"
        ),
    ] = True
    line_dead_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=60_000,
            description="ms; a line without which the stream goes on for this long is dead: "
            "gaps do not wait for it; use twice the largest skew between lines",
        ),
    ] = 100
    slab_cells: Annotated[
        int,
        Meta(
            ge=256,
            le=1 << 22,
            description="number of cells (one datagram each) per channel for early and "
            "fragmented messages; 256 hold the largest message of roq; with other "
            "framings all streams share them, and no more are made than their windows can use",
        ),
    ] = 16_384


class SessionConfig(Struct, frozen=True):
    """When another session id is accepted (docs/protocol.md)."""

    adopt_datagrams: Annotated[
        int,
        Meta(
            ge=1,
            le=32,
            description="datagrams in a row with a new session id, on one line, that confirm a "
            "new session; 1: the first one does",
        ),
    ] = 2
    stale_grace_s: Annotated[
        float,
        Meta(ge=0, le=86_400.0, description="s for which the id of an ended session is refused"),
    ] = 7200.0
    restart_datagrams: Annotated[
        int,
        Meta(
            ge=0,
            le=256,
            description="datagrams in a row with older numbers that prove a restart under the "
            "same id; 0: never, except for numbers that go on at a gap or where a restart stopped",
        ),
    ] = 32
    inactivity_timeout_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=86_400_000,
            description="ms; an address, a line or a channel that is silent for this long is "
            "DISCONNECTED; a message whose rest does not come is given up",
        ),
    ] = 10_000
    doubt_when_silent: Annotated[
        bool,
        Meta(
            description="when the incremental channel is DISCONNECTED, all objects are in doubt "
            "(GAP of no number) until something about them arrives; for a publisher that sends "
            "heartbeats, as a relay does"
        ),
    ] = False


class ObjectsConfig(Struct, frozen=True):
    """Synchronisation of snapshots and incremental updates, with framing roq (docs/protocol.md)."""

    max: Annotated[
        int,
        Meta(
            ge=16,
            le=1 << 24,
            description="number of objects of one session; messages of further ones are counted "
            "but not delivered",
        ),
    ] = 65_536
    collect_messages: Annotated[
        int,
        Meta(
            ge=1,
            le=1 << 20,
            description="updates to keep for one object while it waits for a snapshot",
        ),
    ] = 4096
    collect_bytes: Annotated[
        int,
        Meta(ge=1 << 16, le=1 << 34, description="bytes to keep for all waiting objects together"),
    ] = 1 << 26
    status_mask: Annotated[
        int,
        Meta(
            ge=0,
            le=(1 << 63) - 1,
            description="bits of GatewayStatus.supported that this feed really carries; 255: "
            "all market data",
        ),
    ] = 0xFF


class BooksConfig(Struct, frozen=True):
    """Books that the feed makes from a venue's messages, and what it publishes of them."""

    levels: Annotated[
        bool,
        Meta(description="publish books of price levels (BOOK), if the venue's messages have them"),
    ] = True
    orders: Annotated[
        bool,
        Meta(description="publish every single order (ORDERS), if the venue's messages have them"),
    ] = False
    top: Annotated[
        bool,
        Meta(
            description="publish the best prices (TOP_OF_BOOK) when an event that changed them ends"
        ),
    ] = True
    depth: Annotated[
        int,
        Meta(
            ge=0,
            le=256,
            description="best levels of each side to publish; 0: all",
        ),
    ] = 0
    places: Annotated[
        int,
        Meta(
            ge=0,
            le=254,
            description="depth of each side of a book by place (CME) that no definition "
            "describes; 0: such a book waits for its definition",
        ),
    ] = 0
    places_implied: Annotated[
        int,
        Meta(
            ge=0,
            le=254,
            description="the same for implied books; used where `places` is",
        ),
    ] = 2
    orders_max: Annotated[
        int,
        Meta(
            ge=1_000,
            le=50_000_000,
            description="resting orders to keep, 64 bytes and two levels each; further ones are "
            "counted, and their books are in doubt",
        ),
    ] = 1_000_000
