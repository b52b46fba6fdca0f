"""Every table and key of the TOML files: its type, default and limits, and the reason for it.

How they are read, and what no single key can tell, is `config`'s business.
"""

from udpfast.tables.files import FeedConfig, PublishConfig
from udpfast.tables.lines import ChannelConfig, Destination, LineConfig, WireConfig
from udpfast.tables.loop import AccessConfig, AgentConfig, RingConfig, RunConfig
from udpfast.tables.receive import BypassConfig, BypassStack, ReceiveConfig, XdpConfig
from udpfast.tables.side import ImageConfig, RecordConfig, SideConfig, ZmqConfig
from udpfast.tables.stages import ObjectsConfig, SessionConfig, WindowConfig

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
    "RecordConfig",
    "RingConfig",
    "RunConfig",
    "SessionConfig",
    "SideConfig",
    "WindowConfig",
    "WireConfig",
    "XdpConfig",
    "ZmqConfig",
]
