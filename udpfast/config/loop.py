"""The feed's loop, what it leaves for strategies, and how it is started and watched."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from udpfast.config.checks import GROUP, JOURNAL, PAGES, POWER_OF_TWO
from udpfast.config.settings import Struct
from udpfast.config.types import Core, Idle

__all__ = ["AccessConfig", "AgentConfig", "FeedStoreConfig", "RingConfig", "RunConfig"]


class RingConfig(Struct, frozen=True):
    """What strategies read."""

    capacity_bytes: Annotated[
        int,
        Meta(
            ge=1 << 22,  # a record of the largest message must fit
            le=1 << 40,
            description="bytes, a power of two; how far a reader may fall behind "
            "before it is lapped",
            extra=POWER_OF_TWO.extra,
        ),
    ] = 1 << 26
    carry: Annotated[
        Literal["updates", "messages", "both"],
        Meta(description="decoded updates, payloads as published, or both"),
    ] = "updates"
    names: Annotated[
        int, Meta(ge=16, le=1 << 22, description="distinct exchange and symbol names")
    ] = 65_536


class FeedStoreConfig(Struct, frozen=True):
    """The store that strategies read, with output = "store"; where a bus has it, bus.toml says."""

    directory: Annotated[
        str,
        Meta(
            description="where it lies. Empty: the feed's name below $UDPFAST_JOURNALS "
            "(/var/lib/udpfast for root, else ~/.local/share/udpfast)",
            extra=JOURNAL.extra,
        ),
    ] = ""
    segment_bytes: Annotated[
        int,
        Meta(
            ge=1 << 18,
            le=1 << 30,
            description="bytes of records in one file, a multiple of 4096, taken from the disk "
            "before they are needed",
            extra=PAGES.extra,
        ),
    ] = 1 << 26
    sync_ms: Annotated[
        int, Meta(ge=1, le=3_600_000, description="ms between two syncs to the disk")
    ] = 100
    keep_segments: Annotated[
        int,
        Meta(ge=0, le=1 << 20, description="files that are kept, the oldest go first; 0: all"),
    ] = 0


class AgentConfig(Struct, frozen=True):
    """The thread that runs the loop."""

    core: Annotated[
        Core | None, Meta(description="processor to pin the loop to; absent: unpinned")
    ] = None
    idle: Annotated[
        Idle,
        Meta(
            description="what the loop does when nothing came; spin is fastest and takes "
            "a whole core"
        ),
    ] = "backoff"
    fifo_priority: Annotated[
        int, Meta(ge=0, le=99, description="SCHED_FIFO priority; 0: ordinary scheduling")
    ] = 0
    lock_memory: Annotated[
        bool, Meta(description="mlockall, so that the loop never waits for a page")
    ] = False
    huge_pages: Annotated[
        bool, Meta(description="put ring and windows on pages of 2 MiB (Linux 6.1; no rights)")
    ] = True
    strict: Annotated[
        bool,
        Meta(
            description="refuse to start when pinning, priority, locking or a socket "
            "option is denied, instead of saying so and going on"
        ),
    ] = False


class RunConfig(Struct, frozen=True):
    """How the feed and the agents beside it are started, watched and ended."""

    processes: Annotated[
        Literal["one", "each"],
        Meta(
            description="one: all agents are threads of the feed's process; each: every agent "
            "beside the feed has a process of its own, so that not even a crash reaches the feed. "
            "A recorder always has one"
        ),
    ] = "one"
    restart_first_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=60_000,
            description="ms until what ended with an error is started again; each further end "
            "doubles it",
        ),
    ] = 100
    restart_longest_ms: Annotated[
        int, Meta(ge=1, le=3_600_000, description="ms that it is never longer than")
    ] = 10_000
    restart_steady_ms: Annotated[
        int,
        Meta(ge=1, le=86_400_000, description="ms of running after which it begins anew"),
    ] = 60_000
    feed_restarts: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="times in a row that `udpfast run` opens the lines again after a network "
            "error on all of them; 0: it ends at once",
        ),
    ] = 100
    drain_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=600_000,
            description="ms that agents have for what is left in the ring when the feed has ended",
        ),
    ] = 5_000


class AccessConfig(Struct, frozen=True):
    """Who may read an instance. Only its owner can write to it, no matter what is set here."""

    group: Annotated[
        str,
        Meta(
            description="name or number of the group whose members may read, and register as "
            "readers; empty: the owner alone",
            extra=GROUP.extra,
        ),
    ] = ""
