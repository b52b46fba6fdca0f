"""Every table and key of the TOML files: its type, default and limits, and the reason for it.

How they are read, and what no single key can tell, is `config`'s business.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from udpfast.settings import Struct

__all__ = [
    "AccessConfig",
    "AgentConfig",
    "BypassConfig",
    "BypassStack",
    "ChannelConfig",
    "Destination",
    "FeedConfig",
    "ImageConfig",
    "LineConfig",
    "ObjectsConfig",
    "PublishConfig",
    "ReceiveConfig",
    "RingConfig",
    "RunConfig",
    "SessionConfig",
    "SideConfig",
    "WindowConfig",
    "WireConfig",
    "XdpConfig",
    "ZmqConfig",
]

Revision = Literal["current", "legacy"]
ByteOrder = Literal["little", "big"]
EncodingName = Literal["native", "flatbuffers"]
Idle = Literal["spin", "yield", "backoff", "sleep"]
BypassStack = Literal["none", "onload", "vma", "xlio"]
Core = Annotated[int, Meta(ge=0)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,32}$")]
PowerOfTwo = Annotated[int, Meta(ge=16, le=1 << 40)]


class LineConfig(Struct, frozen=True):
    """One redundant copy of a channel: a socket."""

    name: Annotated[Name, Meta(description="how counters and records name this line")]
    address: Annotated[str, Meta(description="ip:port to bind; a multicast group is joined")]
    interface: Annotated[
        str,
        Meta(
            description="name or address of the interface for a multicast join; "
            "empty: the kernel's choice"
        ),
    ] = ""
    source: Annotated[
        str,
        Meta(description="join this sender only (source-specific multicast); empty: any source"),
    ] = ""
    senders: Annotated[
        tuple[str, ...], Meta(description="allow-list of ip or ip:port; empty: everyone")
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
        ),
    ] = ("native", "flatbuffers")


class WindowConfig(Struct, frozen=True):
    """Arbitration, reorder and gap detection of each channel (PROTOCOL 2)."""

    size: Annotated[
        PowerOfTwo,
        Meta(description="messages; 8192 holds a 5 ms skew between lines at 1 M messages/s"),
    ] = 8192
    out_of_order_max_interval: Annotated[
        int,
        Meta(
            ge=0,
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
            description="datagram-sized cells per channel for early and fragmented "
            "messages; 256 hold the largest message",
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
            le=1 << 31,
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
        tuple[Annotated[int, Meta(ge=0)], ...],
        Meta(max_length=32, description="receive queues of the interface; empty: all of them"),
    ] = ()
    frames: Annotated[
        int,
        Meta(
            ge=64,
            le=1 << 20,
            description="frames of 2,048 bytes per queue, a power of two; bridge stalls of "
            "the loop as receive.rcvbuf_bytes does for a socket",
        ),
    ] = 16_384
    huge_pages: Annotated[
        bool, Meta(description="put the frames on huge pages (vm.nr_hugepages)")
    ] = False


class RingConfig(Struct, frozen=True):
    """What strategies read."""

    capacity_bytes: Annotated[
        PowerOfTwo,
        Meta(
            description="bytes, a power of two; how far a reader may fall behind "
            "before it is lapped"
        ),
    ] = 1 << 26
    carry: Annotated[
        Literal["updates", "messages", "both"],
        Meta(description="decoded updates, payloads as published, or both"),
    ] = "updates"
    names: Annotated[
        int, Meta(ge=16, le=1 << 22, description="distinct exchange and symbol names")
    ] = 65_536


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


class BypassConfig(Struct, frozen=True):
    """A network stack to preload in place of the kernel's; `udpfast run` starts under it."""

    stack: Annotated[
        BypassStack,
        Meta(description="the stack that lines shall be received with; none: the kernel's"),
    ] = "none"
    library: Annotated[
        str, Meta(description="path of the stack's library; empty: looked for as ld.so does")
    ] = ""
    strict: Annotated[
        bool,
        Meta(
            description="refuse to run unless the stack really accelerates; agent.strict does too"
        ),
    ] = False


class SideConfig(Struct, frozen=True):
    """What every agent beside the feed has: whether it runs, and how its thread does."""

    enabled: Annotated[bool, Meta(description="run it beside the feed")] = False
    core: Annotated[
        Core | None, Meta(description="processor to pin its thread to; absent: unpinned")
    ] = None
    idle: Annotated[Idle, Meta(description="what it does when nothing came")] = "backoff"


class RunConfig(Struct, frozen=True):
    """How the feed and the agents beside it are started, watched and ended."""

    processes: Annotated[
        Literal["one", "each"],
        Meta(
            description="one: all agents are threads of the feed's process; each: every agent "
            "beside the feed has a process of its own, so that not even a crash reaches the feed"
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
        tuple[Annotated[str, Meta(pattern=r"^(ipc|ipc://.+|tcp://.+:([0-9]+|\*))$")], ...],
        Meta(
            min_length=1,
            max_length=8,
            description="where subscribers connect, ipc://path or tcp://ip:port; ipc alone: a "
            'socket in the instance\'s directory, for Reader("zmq:NAME")',
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
            description="ms of silence after which a stream says how far the ring is",
        ),
    ] = 500
    curve_key: Annotated[
        str,
        Meta(
            description="file with our secret key (zmq.auth.create_certificates): tcp is then "
            "encrypted by CURVE; empty: tcp is open to everyone"
        ),
    ] = ""
    curve_clients: Annotated[
        str,
        Meta(
            description="directory of the public keys of clients that may connect; empty: "
            "everyone who knows our public key"
        ),
    ] = ""


class RecordConfig(SideConfig, frozen=True):
    """What is kept on the disk: the ring, and the datagrams before anything judged them."""

    what: Annotated[
        Literal["records", "raw", "both"],
        Meta(
            description="records: what strategies read; raw: every datagram of every line with its "
            "receive stamps, before arbitration (with raw and both the feed's loop copies each "
            "datagram once more, into the ring `capture`)"
        ),
    ] = "records"
    directory: Annotated[
        str,
        Meta(
            description="where the journal goes; raw into raw/ below. Empty: the feed's name below "
            "$UDPFAST_JOURNALS (/var/lib/udpfast for root, else ~/.local/share/udpfast)"
        ),
    ] = ""
    segment_bytes: Annotated[
        int,
        Meta(
            ge=1 << 18,
            le=1 << 30,
            description="bytes of records in one file, a multiple of 4096, taken from the disk "
            "before they are needed",
        ),
    ] = 1 << 27
    segment_s: Annotated[
        int, Meta(ge=0, description="s after which a new file begins, full or not; 0: when full")
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
        Meta(ge=0, description="bytes of disk, of which the oldest files make room; 0: no limit"),
    ] = 0
    capture_bytes: Annotated[
        PowerOfTwo,
        Meta(description="bytes of the ring `capture`, a power of two: raw capture's backlog"),
    ] = 1 << 26


class AccessConfig(Struct, frozen=True):
    """Who may read an instance. Nobody but its owner can write to it, whatever stands here."""

    group: Annotated[
        str,
        Meta(
            description="name or number of the group whose members may read, and register as "
            "readers; empty: the owner alone"
        ),
    ] = ""


class FeedConfig(Struct, frozen=True):
    """Everything a `Subscriber` needs to know about one feed."""

    name: Annotated[Name, Meta(description='the instance\'s name: Reader("ring:NAME")')]
    incremental: ChannelConfig
    snapshot: ChannelConfig = ChannelConfig()
    wire: WireConfig = WireConfig()
    window: WindowConfig = WindowConfig()
    session: SessionConfig = SessionConfig()
    objects: ObjectsConfig = ObjectsConfig()
    receive: ReceiveConfig = ReceiveConfig()
    xdp: XdpConfig = XdpConfig()
    ring: RingConfig = RingConfig()
    agent: AgentConfig = AgentConfig()
    bypass: BypassConfig = BypassConfig()
    run: RunConfig = RunConfig()
    access: AccessConfig = AccessConfig()
    image: ImageConfig = ImageConfig()
    zmq: ZmqConfig = ZmqConfig()
    record: RecordConfig = RecordConfig()


class Destination(Struct, frozen=True):
    """One line that a publisher sends a channel to."""

    address: Annotated[str, Meta(description="ip:port to send to")]
    interface: Annotated[
        str, Meta(description="interface for multicast; empty: the kernel's choice")
    ] = ""
    ttl: Annotated[int, Meta(ge=0, le=255, description="multicast hops")] = 1
    loop: Annotated[bool, Meta(description="multicast is seen on this host too")] = True


class PublishConfig(Struct, frozen=True):
    """Everything a `Publisher` needs to know (PROTOCOL 5)."""

    incremental: Annotated[
        tuple[Destination, ...],
        Meta(min_length=1, max_length=8, description="destinations of the incremental channel"),
    ]
    snapshot: Annotated[
        tuple[Destination, ...],
        Meta(max_length=8, description="destinations of the snapshot channel"),
    ] = ()
    session_id: Annotated[
        int, Meta(ge=-1, le=65_535, description="-1: drawn at random at start")
    ] = -1
    first_seqno: Annotated[
        int, Meta(ge=0, lt=1 << 32, description="the first number of both channels")
    ] = 1
    heartbeat_interval_ms: Annotated[
        int, Meta(ge=1, le=3_600_000, description="ms of silence after which a heartbeat is sent")
    ] = 1_000
    snapshot_interval_ms: Annotated[
        int,
        Meta(ge=1, le=3_600_000, description="ms between the beginnings of two snapshot cycles"),
    ] = 1_000
    snapshot_rate_per_s: Annotated[
        int,
        Meta(ge=1, description="datagrams per second of the snapshot channel at most"),
    ] = 50_000
    segment: Annotated[
        bool,
        Meta(
            description="hand fragments and bursts of equal size to the kernel as one train "
            "(UDP_SEGMENT); back to one by one where the route cannot cut them"
        ),
    ] = False
    wire: WireConfig = WireConfig()
