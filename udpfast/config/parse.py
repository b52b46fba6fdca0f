"""Read a file's tables into frozen structs, and check what no single key can tell."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from udpfast.config.files import FeedConfig, PublishConfig
from udpfast.config.lines import LineConfig
from udpfast.config.settings import convert, read_tables
from udpfast.core.endpoint import parse_endpoint
from udpfast.errors import ConfigError

__all__ = ["load_feed", "load_publish", "parse_feed", "parse_publish"]


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
            _check_source(where, f"{channel}.lines[{index}].source", line)
    if config.run.restart_first_ms > config.run.restart_longest_ms:
        raise ConfigError(
            f"{where}: run.restart_first_ms: expected at most run.restart_longest_ms "
            f"({config.run.restart_longest_ms}), found {config.run.restart_first_ms}"
        )
    _check_sockets(where, config)
    return config


def parse_publish(tables: Mapping[str, Any], where: str = "settings") -> PublishConfig:
    """Check the tables of a publisher's configuration; see `parse_feed`."""
    config: PublishConfig = convert(tables, PublishConfig, where)
    return config


def _check_source(where: str, key: str, line: LineConfig) -> None:
    if not line.source:
        return
    group = ipaddress.ip_address(parse_endpoint(line.address)[0])
    source = ipaddress.ip_address(line.source)
    if not group.is_multicast:
        raise ConfigError(
            f"{where}: {key}: expected a group as the line's address (of unicast, `senders` says "
            f"whom to believe), found {line.address!r}"
        )
    if source.version != group.version:
        raise ConfigError(
            f"{where}: {key}: expected IPv{group.version}, as the line's address {line.address!r} "
            f"is, found {line.source!r}"
        )


def _check_sockets(where: str, config: FeedConfig) -> None:
    # A group may be joined on several interfaces, and a port be bound to each of them.
    lines = [
        (f"{channel}.{line.name}", line)
        for channel in ("incremental", "snapshot")
        for line in getattr(config, channel).lines
    ]
    taken: dict[tuple[str, str, str], str] = {}
    for name, line in lines:
        host, port = parse_endpoint(line.address)
        # However it is spelled: [0::1] is [::1].
        key = (f"{ipaddress.ip_address(host)} {port}", line.interface, line.source)
        other = taken.setdefault(key, name)
        if other != name and port:
            raise ConfigError(
                f"{where}: {name}: expected an address of its own, found {line.address}, "
                f"which {other} has"
            )
