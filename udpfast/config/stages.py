"""What the feed does with what it received: windows, sessions, objects."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from udpfast.config.checks import POWER_OF_TWO
from udpfast.config.settings import Struct

__all__ = ["ObjectsConfig", "SessionConfig", "WindowConfig"]


class WindowConfig(Struct, frozen=True):
    """Arbitration, reorder and gap detection of each stream (PROTOCOL 2)."""

    size: Annotated[
        int,
        Meta(
            ge=16,
            le=1 << 30,
            description="messages; 8192 holds a 5 ms skew between lines at 1 M messages/s",
            extra=POWER_OF_TWO.extra,
        ),
    ] = 8192
    out_of_order_max_interval: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 30,
            description="messages; an arrival further ahead than this declares the "
            "hole lost; 0: the window's size",
        ),
    ] = 0
    lost_packet_wait_us: Annotated[
        int, Meta(ge=1, le=60_000_000, description="us; a hole older than this is declared lost")
    ] = 5_000
    on_gap: Annotated[
        Literal["keep_all", "latest_run"],
        Meta(
            description="keep_all delivers everything received; latest_run only the newest "
            "contiguous run"
        ),
    ] = "keep_all"
    arbitration: Annotated[
        bool,
        Meta(
            description="receive all lines, and take what comes first; false: the first line of "
            "each role alone"
        ),
    ] = True
    line_dead_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=60_000,
            description="ms; a line silent for this long is not waited for by the count "
            "criterion; twice the largest skew between lines",
        ),
    ] = 100
    slab_cells: Annotated[
        int,
        Meta(
            ge=256,
            le=1 << 22,
            description="cells per channel for early and fragmented messages, of a datagram each; "
            "256 hold the largest message of roq; of other framings for all streams together",
        ),
    ] = 16_384


class SessionConfig(Struct, frozen=True):
    """When another session id is believed (PROTOCOL 3)."""

    adopt_datagrams: Annotated[
        int,
        Meta(
            ge=1,
            le=32,
            description="datagrams in a row on one line before a new id is believed; 1: at once",
        ),
    ] = 2
    stale_grace_s: Annotated[
        float, Meta(ge=0, le=86_400.0, description="s; how long an id that is over stays refused")
    ] = 7200.0
    restart_datagrams: Annotated[
        int,
        Meta(
            ge=0,
            le=256,
            description="backward datagrams in a row that prove a restart "
            "under the same id; 0: never",
        ),
    ] = 32
    inactivity_timeout_ms: Annotated[
        int,
        Meta(ge=1, le=86_400_000, description="ms; a channel silent for this long is DISCONNECTED"),
    ] = 10_000


class ObjectsConfig(Struct, frozen=True):
    """Snapshot and incremental synchronisation (PROTOCOL 4)."""

    max: Annotated[
        int,
        Meta(
            ge=16,
            le=1 << 24,
            description="objects of one session; further ones are counted, not served",
        ),
    ] = 65_536
    collect_messages: Annotated[
        int,
        Meta(
            ge=1,
            le=1 << 20,
            description="updates kept for one object while it waits for a snapshot",
        ),
    ] = 4096
    collect_bytes: Annotated[
        int, Meta(ge=1 << 16, le=1 << 34, description="bytes kept for all waiting objects together")
    ] = 1 << 26
    status_mask: Annotated[
        int,
        Meta(
            ge=0,
            le=(1 << 63) - 1,
            description="bits of GatewayStatus.supported that this feed really carries; "
            "255 is all market data",
        ),
    ] = 0xFF
