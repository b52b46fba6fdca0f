"""The agents beside the feed: image keeper, ZeroMQ fan-out, recorder, relay."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from udpfast.config.checks import (
    DESTINATION,
    DESTINATION_OR_NONE,
    DISK_LIMIT,
    DISTINCT,
    INTERFACE,
    JOURNAL,
    PARITY,
    POWER_OF_TWO,
    ZMQ_ADDRESS,
)
from udpfast.config.settings import Struct
from udpfast.config.types import (
    Core,
    FilePath,
    Idle,
    Name,
    SegmentBytes,
    SnapshotInterval,
    SnapshotRate,
)

__all__ = [
    "CompanionConfig",
    "ImageConfig",
    "RecordConfig",
    "RelayConfig",
    "RelayLine",
    "ZmqConfig",
]


class CompanionConfig(Struct, frozen=True):
    """Settings of every agent beside the feed: whether it runs, and how its thread does."""

    enabled: Annotated[bool, Meta(description="run this agent with the feed")] = False
    core: Annotated[
        Core | None, Meta(description="core to pin its thread to; absent: not pinned")
    ] = None
    idle: Annotated[Idle, Meta(description="what it does when nothing arrives")] = "backoff"


class ImageConfig(CompanionConfig, frozen=True):
    """The last value of every object, for readers that join late."""

    idle: Annotated[Idle, Meta(description="what it does when nothing arrives")] = "sleep"
    capacity_bytes: Annotated[
        int,
        Meta(
            ge=1 << 16,
            le=1 << 40,
            description="bytes for all objects; each takes twice its size, rounded up to a "
            "power of two",
        ),
    ] = 1 << 26
    objects: Annotated[
        int,
        Meta(
            ge=16,
            le=1 << 23,
            description="number of objects of one session to keep; further ones are left out",
        ),
    ] = 65_536
    depth: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 20,
            description="book levels to keep per side; 0: all. With a limit, a book that begins "
            "with the image lacks the levels that later move up into it",
        ),
    ] = 0
    interval_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=60_000,
            description="ms between two updates of the image, at least; longer if writing takes "
            "more than a tenth of the time. A reader that joins gets later changes "
            "from the ring",
        ),
    ] = 10


class ZmqConfig(CompanionConfig, frozen=True):
    """The fan-out by ZeroMQ, for strategies and tools on other hosts (docs/zmq.md)."""

    addresses: Annotated[
        tuple[Annotated[str, Meta(extra=ZMQ_ADDRESS.extra)], ...],
        Meta(
            min_length=1,
            max_length=8,
            description="where subscribers connect: ipc://path or tcp://ip:port; ipc alone: a "
            'socket in the instance\'s directory, for Reader("zmq:NAME")',
            extra=DISTINCT.extra,
        ),
    ] = ("ipc",)
    batch_records: Annotated[
        int,
        Meta(
            ge=1, le=65_536, description="records per message, at most; 1: one record per message"
        ),
    ] = 1024
    batch_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            le=1 << 20,
            description="bytes of records per message; a larger record gets a message of its own",
        ),
    ] = 1 << 14
    linger_us: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="us to wait for more records before sending a message; 0: send what is "
            "there at once (messages grow by themselves under load)",
        ),
    ] = 0
    queue_bytes: Annotated[
        int,
        Meta(
            ge=1 << 16,
            le=1 << 34,
            description="bytes to queue for a subscriber that does not read; after that it "
            "misses records and is told how many (LAPPED)",
        ),
    ] = 1 << 28
    last_values: Annotated[
        bool,
        Meta(description="keep the last value of every object for new subscribers"),
    ] = True
    heartbeat_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=60_000,
            description="ms of silence after which a stream reports its position; a reader that "
            "hears nothing for four times as long reports it (CONNECTION)",
        ),
    ] = 200
    curve_key: Annotated[
        FilePath,
        Meta(
            description="file with the fan-out's secret key (zmq.auth.create_certificates), "
            "which turns on CURVE encryption for tcp; empty: tcp is open to everyone"
        ),
    ] = ""
    curve_clients: Annotated[
        FilePath,
        Meta(
            description="directory with the public keys of allowed clients, read at every "
            "connect; empty: everyone who knows the fan-out's public key"
        ),
    ] = ""


class RecordConfig(CompanionConfig, frozen=True):
    """What is kept on disk: the records, and the datagrams before any verdict."""

    what: Annotated[
        Literal["records", "raw", "both"],
        Meta(
            description="records: what strategies read; raw: every datagram of every line with "
            "its time stamps, before arbitration, and no records: replay (but --raw), export "
            '(but races) and Reader("journal:") have nothing of such a run; both. With raw or '
            "both the feed's loop also copies each datagram into the ring `capture`"
        ),
    ] = "records"
    directory: Annotated[
        str,
        Meta(
            description="directory of the journal; raw capture goes to raw/ below it. Empty: "
            "the feed's name below $UDPFAST_JOURNALS (/var/lib/udpfast for root, "
            "else ~/.local/share/udpfast)",
            extra=JOURNAL.extra,
        ),
    ] = ""
    segment_bytes: SegmentBytes = 1 << 27
    segment_s: Annotated[
        int,
        Meta(
            ge=0,
            le=31_536_000,
            description="s after which a new file begins even if the current one is not full; "
            "0: only when full",
        ),
    ] = 3600
    sync: Annotated[
        Literal["none", "interval", "batch"],
        Meta(
            description="what a power cut may cost. none: what the kernel has not written yet "
            "(30 s or more); interval: the last record.sync_ms; batch: the last "
            "batch (every batch waits for the disk). Killing the process costs "
            "nothing in any case"
        ),
    ] = "interval"
    sync_ms: Annotated[
        int, Meta(ge=1, le=3_600_000, description='ms between two syncs, with sync = "interval"')
    ] = 100
    full: Annotated[
        Literal["stop", "oldest", "drop"],
        Meta(
            description="what to do when the disk is full. stop: end the recorder (it is "
            "restarted, and the feed continues); oldest: remove the oldest files; "
            "drop: drop records and count them until there is room"
        ),
    ] = "stop"
    keep_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 60,
            description="disk space for records and raw together, in bytes, including tables of "
            "names and prepared segments; beyond it the oldest segments are removed, also at a "
            "start with a lower limit than before; at least 64 MiB, or 0: no limit",
            extra=DISK_LIMIT.extra,
        ),
    ] = 0
    capture_bytes: Annotated[
        int,
        Meta(
            ge=1 << 20,
            le=1 << 40,
            description="size of the ring `capture` in bytes, a power of two: how far raw "
            "capture may fall behind",
            extra=POWER_OF_TWO.extra,
        ),
    ] = 1 << 26


class RelayLine(Struct, frozen=True):
    """One line to another host: two addresses there, one per channel."""

    name: Annotated[Name, Meta(description="name of this line in counters and messages")]
    incremental: Annotated[
        str,
        Meta(
            description="ip:port to send the incremental channel to; a host or a multicast group",
            extra=DESTINATION.extra,
        ),
    ]
    snapshot: Annotated[
        str,
        Meta(
            description="ip:port to send the snapshot channel to; empty: the next port",
            extra=DESTINATION_OR_NONE.extra,
        ),
    ] = ""
    interface: Annotated[
        str,
        Meta(
            description="name or address of the interface that sends the line; empty: the kernel "
            "decides",
            extra=INTERFACE.extra,
        ),
    ] = ""
    ttl: Annotated[int, Meta(ge=0, le=255, description="multicast hops")] = 1
    loop: Annotated[bool, Meta(description="let this host receive its own multicast, too")] = True
    bits_per_s: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000_000_000,
            description="what the line may carry, in bits per second, with the headers of UDP, IP "
            "and Ethernet; 0: no limit",
        ),
    ] = 0
    burst_bytes: Annotated[
        int,
        Meta(
            ge=2_048,
            le=1 << 24,
            description="with bits_per_s: bytes that may leave at once after a silence",
        ),
    ] = 16_384
    short: Annotated[
        Literal["conflate", "leave_out"],
        Meta(
            description="what to do when bits_per_s is too little. conflate: all lines send only "
            "the newest state of each level and top of book; leave_out: this line leaves "
            "messages out, levels first, and the other lines carry them"
        ),
    ] = "conflate"
    parity: Annotated[
        int,
        Meta(
            description="datagrams of the incremental channel for each parity datagram; a far end "
            "with window.parity rebuilds lost datagrams from it; 0: no parity",
            extra=PARITY.extra,
        ),
    ] = 0
    parity_depth: Annotated[
        int,
        Meta(
            ge=1,
            le=32,
            description="with parity: how many datagrams in a row may be lost; a lost one is "
            "rebuilt about this many times `parity` datagrams later",
        ),
    ] = 8


class RelayConfig(CompanionConfig, frozen=True):
    """The relay, which sends to other hosts as a Roq publisher does (docs/relay.md)."""

    lines: Annotated[
        tuple[RelayLine, ...],
        Meta(max_length=8, description="lines to the far end; each carries the same datagrams"),
    ] = ()
    heartbeat_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=60_000,
            description="ms of silence after which a heartbeat is sent: it shows the far end what "
            "was lost last",
        ),
    ] = 100
    snapshot_interval_ms: SnapshotInterval = 1_000
    snapshot_rate_per_s: SnapshotRate = 20_000
    objects: Annotated[
        int,
        Meta(
            ge=16,
            le=1 << 23,
            description="number of objects of one session to carry; further ones are left out",
        ),
    ] = 262_144
    parity_wait_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000,
            description="ms after which parity is sent for fewer datagrams than the lines' "
            "`parity`",
        ),
    ] = 2
    late_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=3_600_000,
            description="ms that an object may wait for a line with bits_per_s; then the far end "
            "is told that it is in doubt",
        ),
    ] = 1_000
