"""The TOML file of a feed or publisher: every key with its type, default, limits and reason.

A wrong key, type or value raises `ConfigError`, which names the file, the key, what was expected
and what was found. `describe` lists every key with its value and the reason for it.
"""

from udpfast.config.companions import (
    CompanionConfig,
    ImageConfig,
    RecordConfig,
    RelayConfig,
    RelayLine,
    ZmqConfig,
)
from udpfast.config.files import FeedConfig, PublishConfig
from udpfast.config.lines import (
    PAYLOADS,
    ChannelConfig,
    Destination,
    LineConfig,
    framing_name,
    payload_name,
)
from udpfast.config.loop import AccessConfig, FeedStoreConfig, RingConfig, RunConfig
from udpfast.config.parse import (
    as_written,
    check_relay,
    load_feed,
    load_publish,
    parse_feed,
    parse_publish,
    parse_relay,
)
from udpfast.config.servers import (
    Login,
    RetransmissionConfig,
    SnapshotServerConfig,
    Spoken,
    logins_of,
    read_login,
)
from udpfast.config.settings import Setting, describe

__all__ = [
    "PAYLOADS",
    "AccessConfig",
    "ChannelConfig",
    "CompanionConfig",
    "Destination",
    "FeedConfig",
    "FeedStoreConfig",
    "ImageConfig",
    "LineConfig",
    "Login",
    "PublishConfig",
    "RecordConfig",
    "RelayConfig",
    "RelayLine",
    "RetransmissionConfig",
    "RingConfig",
    "RunConfig",
    "Setting",
    "SnapshotServerConfig",
    "Spoken",
    "ZmqConfig",
    "as_written",
    "check_relay",
    "describe",
    "framing_name",
    "load_feed",
    "load_publish",
    "logins_of",
    "parse_feed",
    "parse_publish",
    "parse_relay",
    "payload_name",
    "read_login",
]
