"""The contents of one file: all tables of a feed, or of a publisher."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from udpfast.config.companions import ImageConfig, RecordConfig, RelayConfig, ZmqConfig
from udpfast.config.lines import ChannelConfig, Destination, LoopConfig, WireConfig
from udpfast.config.loop import AccessConfig, AgentConfig, FeedStoreConfig, RingConfig, RunConfig
from udpfast.config.receive import BypassConfig, ReceiveConfig, XdpConfig
from udpfast.config.servers import RetransmissionConfig, SnapshotServerConfig, line_names
from udpfast.config.settings import Struct
from udpfast.config.stages import BooksConfig, ObjectsConfig, SessionConfig, WindowConfig
from udpfast.config.types import Name, SnapshotInterval, SnapshotRate

__all__ = ["FeedConfig", "PublishConfig"]


class FeedConfig(Struct, frozen=True):
    """Everything a `Subscriber` needs to know about one feed."""

    name: Annotated[Name, Meta(description='the instance\'s name: Reader("ring:NAME")')]
    output: Annotated[
        Literal["ring", "store"],
        Meta(
            description="where records go: a ring in memory, or a store on disk, which a bus "
            'can copy to other hosts (docs/bus.md): Reader("store:NAME")'
        ),
    ] = "ring"
    incremental: ChannelConfig = ChannelConfig()
    snapshot: ChannelConfig = ChannelConfig()
    #: The lines of framings other than roq; reading the file makes them `incremental`.
    streams: ChannelConfig = ChannelConfig()
    #: Their loops of snapshots and of instrument definitions. Reading the file makes them
    #: `snapshot`, with names that begin with their role: "recovery.A".
    recovery: LoopConfig = LoopConfig()
    definitions: LoopConfig = LoopConfig()
    wire: WireConfig = WireConfig()
    retransmission: RetransmissionConfig = RetransmissionConfig()
    snapshot_server: SnapshotServerConfig = SnapshotServerConfig()
    window: WindowConfig = WindowConfig()
    session: SessionConfig = SessionConfig()
    objects: ObjectsConfig = ObjectsConfig()
    books: BooksConfig = BooksConfig()
    receive: ReceiveConfig = ReceiveConfig()
    xdp: XdpConfig = XdpConfig()
    ring: RingConfig = RingConfig()
    store: FeedStoreConfig = FeedStoreConfig()
    agent: AgentConfig = AgentConfig()
    bypass: BypassConfig = BypassConfig()
    run: RunConfig = RunConfig()
    access: AccessConfig = AccessConfig()
    image: ImageConfig = ImageConfig()
    zmq: ZmqConfig = ZmqConfig()
    record: RecordConfig = RecordConfig()
    relay: RelayConfig = RelayConfig()

    @property
    def line_names(self) -> tuple[list[str], list[str]]:
        """Names of the lines of both channels; a server's answers count as one line, the last."""
        return line_names(
            self.incremental, self.snapshot, self.retransmission, self.snapshot_server
        )

    @property
    def has_definitions(self) -> bool:
        """Whether some lines carry only instrument definitions."""
        return any(line.name.startswith("definitions.") for line in self.snapshot.lines)

    @property
    def has_loops(self) -> bool:
        """Whether some lines carry only snapshots."""
        return any(not line.name.startswith("definitions.") for line in self.snapshot.lines)


class PublishConfig(Struct, frozen=True):
    """Everything a `Publisher` needs to know (docs/protocol.md)."""

    incremental: Annotated[
        tuple[Destination, ...],
        Meta(
            min_length=1,
            max_length=8,
            description="addresses that the incremental channel is sent to",
        ),
    ]
    snapshot: Annotated[
        tuple[Destination, ...],
        Meta(max_length=8, description="addresses that the snapshot channel is sent to"),
    ] = ()
    session_id: Annotated[
        int, Meta(ge=-1, le=65_535, description="-1: drawn at random at start")
    ] = -1
    first_seqno: Annotated[
        int, Meta(ge=0, lt=1 << 32, description="first seqno of both channels")
    ] = 1
    heartbeat_interval_ms: Annotated[
        int, Meta(ge=1, le=3_600_000, description="ms of silence after which a heartbeat is sent")
    ] = 1_000
    snapshot_interval_ms: SnapshotInterval = 1_000
    snapshot_rate_per_s: SnapshotRate = 50_000
    segment: Annotated[
        bool,
        Meta(
            description="pass fragments and bursts of equal size to the kernel as one large "
            "send (UDP_SEGMENT); one by one where the route cannot split them"
        ),
    ] = False
    wire: WireConfig = WireConfig()
