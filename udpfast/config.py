"""One TOML file per feed or publisher, read into the frozen structs of `tables` and checked.

A wrong key, type or value raises `ConfigError` that names the file, the key, what was expected
and what was found. `describe` lists every key with its value and the reason for it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from udpfast.errors import ConfigError
from udpfast.settings import Setting, convert, describe, read_tables
from udpfast.tables import (
    AccessConfig,
    ChannelConfig,
    Destination,
    FeedConfig,
    ImageConfig,
    LineConfig,
    PublishConfig,
    RecordConfig,
    RunConfig,
    SideConfig,
    ZmqConfig,
)

__all__ = [
    "AccessConfig",
    "ChannelConfig",
    "Destination",
    "FeedConfig",
    "ImageConfig",
    "LineConfig",
    "PublishConfig",
    "RecordConfig",
    "RunConfig",
    "Setting",
    "SideConfig",
    "ZmqConfig",
    "describe",
    "load_feed",
    "load_publish",
    "parse_feed",
    "parse_publish",
]


def load_feed(path: str | Path) -> FeedConfig:
    """Read a feed's TOML file.

    Parameters
    ----------
    path : str or Path
        The file.

    Raises
    ------
    ConfigError
        The file is missing, is not TOML, or a key, type or value is wrong.
    """
    return parse_feed(read_tables(path), where=str(path))


def load_publish(path: str | Path) -> PublishConfig:
    """Read a publisher's TOML file; errors as in `load_feed`."""
    return parse_publish(read_tables(path), where=str(path))


def parse_feed(tables: Mapping[str, Any], where: str = "settings") -> FeedConfig:
    """Check the tables of a feed's configuration, as TOML or a program gives them.

    Parameters
    ----------
    tables : mapping
        Keys as in the TOML file.
    where : str
        Named in error messages.
    """
    config: FeedConfig = convert(tables, FeedConfig, where)
    _check_power_of_two(where, "window.size", config.window.size)
    _check_power_of_two(where, "ring.capacity_bytes", config.ring.capacity_bytes)
    _check_power_of_two(where, "xdp.frames", config.xdp.frames)
    _check_power_of_two(where, "record.capture_bytes", config.record.capture_bytes)
    if config.record.capture_bytes < 1 << 20 or config.record.segment_bytes % 4096:
        raise ConfigError(
            f"{where}: record: expected capture_bytes of at least 1048576 and segment_bytes that "
            f"are a multiple of 4096, found {config.record.capture_bytes} and "
            f"{config.record.segment_bytes}"
        )
    if config.ring.capacity_bytes < 1 << 22:
        raise ConfigError(
            f"{where}: ring.capacity_bytes: expected at least 4194304 (a record of "
            f"the largest message must fit), found {config.ring.capacity_bytes}"
        )
    if config.window.out_of_order_max_interval > config.window.size:
        raise ConfigError(
            f"{where}: window.out_of_order_max_interval: expected at most window.size "
            f"({config.window.size}), found {config.window.out_of_order_max_interval}"
        )
    if not config.incremental.lines:
        raise ConfigError(f"{where}: incremental.lines: expected at least one line, found none")
    for channel in ("incremental", "snapshot"):
        names = [line.name for line in getattr(config, channel).lines]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(
                f"{where}: {channel}.lines: expected distinct names, found {twice[0]!r} twice"
            )
        for index, line in enumerate(getattr(config, channel).lines):
            _check_address(where, f"{channel}.lines[{index}].address", line.address)
    _check_sockets(where, config)
    return config


def parse_publish(tables: Mapping[str, Any], where: str = "settings") -> PublishConfig:
    """Check the tables of a publisher's configuration; see `parse_feed`."""
    config: PublishConfig = convert(tables, PublishConfig, where)
    for channel in ("incremental", "snapshot"):
        for index, destination in enumerate(getattr(config, channel)):
            _check_address(where, f"{channel}[{index}].address", destination.address)
    return config


def _check_power_of_two(where: str, key: str, value: int) -> None:
    if value & (value - 1):
        raise ConfigError(f"{where}: {key}: expected a power of two, found {value}")


def _check_sockets(where: str, config: FeedConfig) -> None:
    # A group may be joined on several interfaces, and a port be bound to each of them.
    lines = [
        (f"{channel}.{line.name}", line)
        for channel in ("incremental", "snapshot")
        for line in getattr(config, channel).lines
    ]
    taken: dict[tuple[str, str, str], str] = {}
    for name, line in lines:
        port = line.address.rpartition(":")[2]
        key = (line.address, line.interface, line.source)
        other = taken.setdefault(key, name)
        if other != name and port != "0":
            raise ConfigError(
                f"{where}: {name}: expected an address of its own, found {line.address}, "
                f"which {other} has"
            )


def _check_address(where: str, key: str, value: str) -> None:
    host, _, port = value.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    valid = port.isascii() and port.isdigit() and int(port) <= 65_535
    try:
        version = ipaddress.ip_address(host[1:-1] if bracketed else host).version
        valid = valid and version == (6 if bracketed else 4)
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(f"{where}: {key}: expected ip:port or [ip6]:port, found {value!r}")
