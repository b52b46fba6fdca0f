"""The agents beside the feed: image keeper, ZeroMQ fan-out, recorder."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from udpfast.config.checks import DISTINCT, JOURNAL, PAGES, POWER_OF_TWO, ZMQ_ADDRESS
from udpfast.config.settings import Struct
from udpfast.config.types import Core, FilePath, Idle

__all__ = ["ImageConfig", "RecordConfig", "SideConfig", "ZmqConfig"]


class SideConfig(Struct, frozen=True):
    """What every agent beside the feed has: whether it runs, and how its thread does."""

    enabled: Annotated[bool, Meta(description="run it beside the feed")] = False
    core: Annotated[
        Core | None, Meta(description="processor to pin its thread to; absent: unpinned")
    ] = None
    idle: Annotated[Idle, Meta(description="what it does when nothing came")] = "backoff"


class ImageConfig(SideConfig, frozen=True):
    """The last value of every object, for readers that come late."""

    idle: Annotated[Idle, Meta(description="what it does when nothing came")] = "sleep"
    capacity_bytes: Annotated[
        int,
        Meta(
            ge=1 << 16,
            le=1 << 40,
            description="bytes for all objects together; each takes twice its size, rounded up "
            "to a power of two",
        ),
    ] = 1 << 26
    objects: Annotated[
        int,
        Meta(ge=16, le=1 << 23, description="objects of one session; further ones are not kept"),
    ] = 65_536
    depth: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 20,
            description="book levels per side; 0: all. With fewer, a book that begins with the "
            "image has a hole where levels from behind move up",
        ),
    ] = 0
    interval_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=60_000,
            description="ms between two times that what changed is written, at least; longer "
            "if the writing takes more than a tenth of it. A reader that joins reads what lies "
            "between in the ring",
        ),
    ] = 10


class ZmqConfig(SideConfig, frozen=True):
    """What leaves by ZeroMQ, for strategies and tools on other hosts (docs/zmq.md)."""

    addresses: Annotated[
        tuple[Annotated[str, Meta(extra=ZMQ_ADDRESS.extra)], ...],
        Meta(
            min_length=1,
            max_length=8,
            description="where subscribers connect, ipc://path or tcp://ip:port; ipc alone: a "
            'socket in the instance\'s directory, for Reader("zmq:NAME")',
            extra=DISTINCT.extra,
        ),
    ] = ("ipc",)
    batch_records: Annotated[
        int,
        Meta(ge=1, le=65_536, description="records per message at most; 1: each one alone"),
    ] = 1024
    batch_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            le=1 << 20,
            description="bytes of records per message; a larger record travels alone",
        ),
    ] = 1 << 14
    linger_us: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="us to wait for more records before a message is sent; 0: what is "
            "there goes at once, and more of it together the busier the feed is",
        ),
    ] = 0
    queue_bytes: Annotated[
        int,
        Meta(
            ge=1 << 16,
            le=1 << 34,
            description="bytes that may wait for one subscriber that does not read; then it "
            "misses records, and is told how many (LAPPED)",
        ),
    ] = 1 << 28
    last_values: Annotated[
        bool,
        Meta(description="keep the last value of every object, for new subscribers"),
    ] = True
    heartbeat_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=60_000,
            description="ms of silence after which a stream says how far the ring is; a reader "
            "that hears nothing for four of them says so (CONNECTION)",
        ),
    ] = 200
    curve_key: Annotated[
        FilePath,
        Meta(
            description="file with our secret key (zmq.auth.create_certificates): tcp is then "
            "encrypted by CURVE; empty: tcp is open to everyone"
        ),
    ] = ""
    curve_clients: Annotated[
        FilePath,
        Meta(
            description="directory of the public keys of clients that may connect, read "
            "whenever one does; empty: everyone who knows our public key"
        ),
    ] = ""


class RecordConfig(SideConfig, frozen=True):
    """What is kept on the disk: the ring, and the datagrams before anything judged them."""

    what: Annotated[
        Literal["records", "raw", "both"],
        Meta(
            description="records: what strategies read; raw: every datagram of every line with its "
            "receive stamps, before arbitration (raw and both: the feed's loop also copies each "
            "datagram into the ring `capture`)"
        ),
    ] = "records"
    directory: Annotated[
        str,
        Meta(
            description="where the journal goes; raw into raw/ below. Empty: the feed's name below "
            "$UDPFAST_JOURNALS (/var/lib/udpfast for root, else ~/.local/share/udpfast)",
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
    ] = 1 << 27
    segment_s: Annotated[
        int,
        Meta(
            ge=0,
            le=31_536_000,
            description="s after which a new file begins, full or not; 0: when full",
        ),
    ] = 3600
    sync: Annotated[
        Literal["none", "interval", "batch"],
        Meta(
            description="what a power cut may cost: none: what the kernel has not written (30 s "
            "or more); interval: the last record.sync_ms; batch: the last batch (each waits for "
            "the disk). Killing the process costs nothing with any of them"
        ),
    ] = "interval"
    sync_ms: Annotated[
        int, Meta(ge=1, le=3_600_000, description="ms between two syncs, with sync = interval")
    ] = 100
    full: Annotated[
        Literal["stop", "oldest", "drop"],
        Meta(
            description="when the disk takes no more: stop the recorder (the feed goes on, and it "
            "is started again); remove the oldest files; drop records and count them until there "
            "is room"
        ),
    ] = "stop"
    keep_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 60,
            description="bytes of disk for records and raw together, of which the oldest files "
            "make room; 0: no limit",
        ),
    ] = 0
    capture_bytes: Annotated[
        int,
        Meta(
            ge=1 << 20,
            le=1 << 40,
            description="bytes of the ring `capture`, a power of two: raw capture's backlog",
            extra=POWER_OF_TWO.extra,
        ),
    ] = 1 << 26
