"""The feed's loop, its output for strategies, and how it is started and watched."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from udpfast.config.checks import GROUP, JOURNAL, POWER_OF_TWO
from udpfast.config.settings import Struct
from udpfast.config.types import (
    Core,
    Idle,
    RestartFirst,
    RestartLongest,
    RestartSteady,
    SegmentBytes,
    SyncInterval,
)

__all__ = ["AccessConfig", "AgentConfig", "FeedStoreConfig", "RingConfig", "RunConfig"]


class RingConfig(Struct, frozen=True):
    """The ring that strategies read."""

    capacity_bytes: Annotated[
        int,
        Meta(
            ge=1 << 22,  # a record of the largest message must fit
            le=1 << 40,
            description="size of the ring in bytes, a power of two, 4194304 (4 MiB) or more; how "
            "far a reader may fall behind before it is lapped",
            extra=POWER_OF_TWO.extra,
        ),
    ] = 1 << 26
    carry: Annotated[
        Literal["updates", "messages", "both"],
        Meta(description="what the ring carries: decoded updates, payloads as published, or both"),
    ] = "updates"
    names: Annotated[
        int, Meta(ge=16, le=1 << 22, description="number of different exchange and symbol names")
    ] = 65_536


class FeedStoreConfig(Struct, frozen=True):
    """The store that strategies read, with output = "store"; in a bus, bus.toml describes it."""

    directory: Annotated[
        str,
        Meta(
            description="directory of the store. Empty: the feed's name below $UDPFAST_JOURNALS "
            "(/var/lib/udpfast for root, else ~/.local/share/udpfast)",
            extra=JOURNAL.extra,
        ),
    ] = ""
    segment_bytes: SegmentBytes = 1 << 26
    sync_ms: SyncInterval = 100
    keep_segments: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 20,
            description="number of files to keep, the oldest are removed first; 0: all",
        ),
    ] = 0


class AgentConfig(Struct, frozen=True):
    """The thread that runs the loop."""

    core: Annotated[
        Core | None, Meta(description="core to pin the loop to; absent: not pinned")
    ] = None
    idle: Annotated[
        Idle,
        Meta(
            description="what the loop does when nothing arrives; spin is fastest and takes a "
            "whole core"
        ),
    ] = "backoff"
    fifo_priority: Annotated[
        int, Meta(ge=0, le=99, description="SCHED_FIFO priority; 0: ordinary scheduling")
    ] = 0
    lock_memory: Annotated[
        bool,
        Meta(description="lock all memory (mlockall), so that the loop never waits for a page"),
    ] = False
    huge_pages: Annotated[
        bool,
        Meta(
            description="put the ring, its names, the windows and the image on 2 MiB pages (needs "
            "Linux 6.1, no special rights)"
        ),
    ] = True
    strict: Annotated[
        bool,
        Meta(
            description="refuse to start if pinning, priority, memory locking or a socket "
            "option is denied; otherwise report it and continue"
        ),
    ] = False


class RunConfig(Struct, frozen=True):
    """How the feed and the agents beside it are started, watched and stopped."""

    processes: Annotated[
        Literal["one", "each"],
        Meta(
            description="one: all agents run as threads of the feed's process; each: every "
            "agent besides the feed runs in its own process, so that even its crash "
            "cannot harm the feed. A recorder and a relay always have their own"
        ),
    ] = "one"
    restart_first_ms: RestartFirst = 100
    restart_longest_ms: RestartLongest = 10_000
    restart_steady_ms: RestartSteady = 60_000
    feed_restarts: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="times in a row that `udpfast run` reopens the lines after a network "
            "error on all of them; 0: it ends at once",
        ),
    ] = 100
    drain_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=600_000,
            description="ms that agents may take to finish the records in the ring after the "
            "feed has ended",
        ),
    ] = 5_000


class AccessConfig(Struct, frozen=True):
    """Who may read an instance. Only its owner can write to it, whatever is set here."""

    group: Annotated[
        str,
        Meta(
            description="name or number of the group whose members may attach as readers; "
            "empty: only the owner",
            extra=GROUP.extra,
        ),
    ] = ""
