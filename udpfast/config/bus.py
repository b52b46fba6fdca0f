"""bus.toml: the hosts of a bus and the stores that they share. It is the same on every host."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from udpfast.config.loop import AccessConfig
from udpfast.config.settings import Struct, convert, read_tables
from udpfast.config.types import Core, HostAddress, HostName, Idle, Name, SyncInterval
from udpfast.errors import ConfigError

__all__ = ["BusConfig", "LinksConfig", "StoreConfig", "bus_keys", "load_bus", "parse_bus"]

#: Least length of a key, in bytes.
KEY_BYTES = 32


class StoreConfig(Struct, frozen=True):
    """One store: its writer, its copies and how they are kept."""

    sequencer: Annotated[HostName, Meta(description="host that writes the store, at first")]
    port: Annotated[
        int, Meta(ge=1, le=65_535, description="TCP port for copies, UDP port for messages")
    ]
    replicas: Annotated[
        tuple[HostName, ...], Meta(max_length=64, description="hosts that keep a copy")
    ] = ()
    feed: Annotated[
        str,
        Meta(
            max_length=4096,
            description="file of the feed that writes the store on the sequencer's host, "
            "instead of apps; empty: apps write it",
        ),
    ] = ""
    sources: Annotated[
        dict[HostName, HostName],
        Meta(
            max_length=64,
            description="replica -> another replica that it copies from, so that the writer has "
            "fewer links",
        ),
    ] = msgspec.field(default_factory=dict)
    gate: Annotated[
        int,
        Meta(
            ge=0,
            le=64,
            description="number of copies that must have a record before apps see it",
        ),
    ] = 0
    resend_ms: Annotated[
        int,
        Meta(
            ge=2,
            le=8_000,
            description="ms after which a message that is not in the stream is sent again; then "
            "twice that, and so on up to 8 s",
        ),
    ] = 500
    segment_bytes: Annotated[
        int, Meta(ge=1 << 18, le=1 << 30, description="bytes of records in one file")
    ] = 1 << 26
    sync_ms: SyncInterval = 100
    keep_segments: Annotated[
        int, Meta(ge=0, le=1 << 20, description="number of segments to keep; 0: all")
    ] = 0
    keep_for: Annotated[
        Annotated[tuple[HostName, ...], Meta(max_length=64)] | None,
        Meta(
            description="replicas for which segments are kept until they have copied them; "
            "others are told what was removed; unset: all"
        ),
    ] = None
    keep_most: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 20,
            description="number of segments above which the oldest are removed, even if a replica "
            "still lacks them; 0: no limit",
        ),
    ] = 0
    release: Annotated[
        Literal["disk", "all"] | Annotated[int, Meta(ge=1, le=64)],
        Meta(
            description="when outboxes let a message go. disk: the writer's disk and each replica "
            "in keep_for that is not away have it; all: each of these has it, away or not; a "
            "number: this many replicas have it"
        ),
    ] = "disk"
    away_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=3_600_000,
            description="ms after which a replica that lacks records is away, "
            "so that outboxes no longer wait for it (release = disk)",
        ),
    ] = 5_000
    quarantine: Annotated[
        bool,
        Meta(
            description="set aside (never delete) records that the writer does not have, and "
            "continue"
        ),
    ] = False

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hosts that have the store."""
        return (self.sequencer, *self.replicas)

    def source(self, host: str) -> str:
        """Return the host that a replica copies from; empty: the host that writes the store."""
        return self.sources.get(host, "")

    def standbys(self, host: str) -> tuple[str, ...]:
        """Return the hosts that copy from this one while it writes the store."""
        return tuple(
            other for other in self.hosts if other != host and self.source(other) in ("", host)
        )

    def followers(self, host: str) -> tuple[str, ...]:
        """Return the hosts that copy from this one even while it does not write the store."""
        return tuple(other for other in self.hosts if self.source(other) == host)


class CompositeConfig(Struct, frozen=True):
    """Several stores as one stream: who decides the order, and which hosts read it."""

    inputs: Annotated[
        tuple[Name, ...], Meta(min_length=1, max_length=16, description="stores to combine")
    ]
    host: Annotated[HostName, Meta(description="host that decides the order, at first")]
    port: Annotated[int, Meta(ge=1, le=65_535, description="TCP and UDP port of the order log")]
    replicas: Annotated[
        tuple[HostName, ...], Meta(max_length=64, description="other hosts that read the composite")
    ] = ()

    @property
    def store(self) -> StoreConfig:
        """The composite's order log, which is a store."""
        return StoreConfig(sequencer=self.host, port=self.port, replicas=self.replicas)


class LinksConfig(Struct, frozen=True):
    """The threads that carry the bytes of copies: one for each link, at both ends."""

    idle: Annotated[
        Idle,
        Meta(
            description="what the links' threads do when nothing arrives; spin is fastest and "
            "takes a core per thread"
        ),
    ] = "backoff"
    cores: Annotated[
        dict[HostName, tuple[Core, ...]],
        Meta(max_length=64, description="host -> cores to pin its threads to, in turn"),
    ] = msgspec.field(default_factory=dict)


class BusConfig(Struct, frozen=True):
    """The contents of bus.toml."""

    hosts: Annotated[
        dict[HostName, HostAddress],
        Meta(min_length=1, max_length=64, description="name -> IP address"),
    ]
    stores: Annotated[dict[Name, StoreConfig], Meta(min_length=1, max_length=64)]
    composites: Annotated[dict[Name, CompositeConfig], Meta(max_length=64)] = msgspec.field(
        default_factory=dict
    )
    access: AccessConfig = AccessConfig()
    links: LinksConfig = LinksConfig()
    key_file: Annotated[
        str,
        Meta(
            max_length=4096,
            description="file with one or two keys, the same on all hosts; empty: no keys",
        ),
    ] = ""

    @property
    def logs(self) -> dict[str, StoreConfig]:
        """The stores, and the order logs of composites, by name."""
        return {**self.stores, **{name: each.store for name, each in self.composites.items()}}


def load_bus(path: str | Path) -> BusConfig:
    """Read bus.toml.

    Raises
    ------
    ConfigError
        The file is wrong; the message says what was expected and what was found.
    """
    config = parse_bus(read_tables(path), str(path))
    if config.key_file:
        config = msgspec.structs.replace(
            config, key_file=os.fspath(Path(path).parent / config.key_file)
        )
    stores = {
        name: msgspec.structs.replace(store, feed=os.fspath(Path(path).parent / store.feed))
        if store.feed
        else store
        for name, store in config.stores.items()
    }
    return msgspec.structs.replace(config, stores=stores)


def bus_keys(config: BusConfig) -> list[bytes]:
    """Return the keys with which hosts authenticate each other; empty without a key file.

    Raises
    ------
    ConfigError
        The file cannot be read, can be read by others, or does not contain keys.
    """
    if not config.key_file:
        return []
    path = Path(config.key_file)
    try:
        mode = path.stat().st_mode & 0o777
        words = path.read_text().split()
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"key_file: expected a readable file, found: {problem}") from None
    if mode & 0o077:
        raise ConfigError(
            f"key_file: expected a file that only its owner can read (chmod 600), found {path} "
            f"with mode {mode:o}"
        )
    try:
        keys = [bytes.fromhex(word) for word in words]
    except ValueError:
        keys = []
    if not 1 <= len(keys) <= 2 or any(len(key) < KEY_BYTES for key in keys):
        raise ConfigError(
            f"key_file: expected one or two lines of at least {2 * KEY_BYTES} hexadecimal digits "
            f"in {path}, found {', '.join(str(len(word)) for word in words) or 'none'}"
        )
    return keys


def parse_bus(tables: Mapping[str, Any], where: str = "settings") -> BusConfig:
    """Return the settings in tables, as `load_bus` does for a file.

    Raises
    ------
    ConfigError
        The message names `where`, the key, what was expected and what was found.
    """
    stores = tables.get("stores")
    for name, store in stores.items() if isinstance(stores, Mapping) else ():
        if isinstance(store, Mapping) and isinstance(store.get("sequencer"), list):
            raise ConfigError(
                f"{where}: stores.{name}.sequencer: expected one host, found {store['sequencer']}"
            )
    config: BusConfig = convert(tables, BusConfig, where)
    # Addresses in the form that sockets return, however they are spelled.
    hosts = {host: str(ipaddress.ip_address(address)) for host, address in config.hosts.items()}
    config = msgspec.structs.replace(config, hosts=hosts)
    for host in config.links.cores:
        if host not in config.hosts:
            raise ConfigError(
                f"{where}: links.cores: expected hosts of this file ({', '.join(config.hosts)}), "
                f"found {host!r}"
            )
    ports: dict[int, str] = {}
    for name, composite in config.composites.items():
        _check_composite(f"{where}: composites.{name}", config, name, composite)
    for name, store in config.logs.items():
        kind = "stores" if name in config.stores else "composites"
        _check_store(f"{where}: {kind}.{name}", config, store)
        other = ports.setdefault(store.port, name)
        if other != name:
            raise ConfigError(
                f"{where}: {kind}.{name}.port: expected a port that nothing else in this file "
                f"uses, found {store.port}, which {other} has"
            )
    return config


def _check_composite(where: str, config: BusConfig, name: str, composite: CompositeConfig) -> None:
    if name in config.stores:
        raise ConfigError(f"{where}: expected a name that no store has; rename the composite")
    if len(set(composite.inputs)) != len(composite.inputs):
        raise ConfigError(f"{where}.inputs: expected each store once, found {composite.inputs}")
    for each in composite.inputs:
        if each not in config.stores:
            raise ConfigError(
                f"{where}.inputs: expected stores of this file ({', '.join(config.stores)}), "
                f"found {each!r}"
            )
        for host in composite.store.hosts:
            if host in config.hosts and host not in config.stores[each].hosts:
                raise ConfigError(
                    f"{where}: expected hosts that have a copy of {each}, found {host!r}: add it "
                    "to that store's replicas"
                )


def _check_store(where: str, config: BusConfig, store: StoreConfig) -> None:
    _check_hosts(where, config, store)
    _check_addresses(where, config, store)
    _check_sources(where, store)
    for host in store.keep_for or ():
        if host not in store.hosts:
            raise ConfigError(
                f"{where}.keep_for: expected hosts of this store ({', '.join(store.hosts)}), "
                f"found {host!r}"
            )
    if store.keep_most and not 0 < store.keep_segments <= store.keep_most:
        raise ConfigError(
            f"{where}.keep_most: expected 0, or at least keep_segments (which must not be 0 "
            f"then), found {store.keep_most} with keep_segments = {store.keep_segments}"
        )
    least = min(len(store.standbys(host)) for host in store.hosts)
    if store.gate > least:
        raise ConfigError(
            f"{where}.gate: expected at most {least}, the number of hosts that copy directly from "
            f"any writer, found {store.gate}"
        )
    if isinstance(store.release, int) and store.release > least:
        raise ConfigError(
            f"{where}.release: expected disk, all, or at most {least}, the number of hosts that "
            f"copy directly from any writer, found {store.release}"
        )


def _check_hosts(where: str, config: BusConfig, store: StoreConfig) -> None:
    first = "host" if ": composites." in where else "sequencer"
    for key, names in ((first, (store.sequencer,)), ("replicas", store.replicas)):
        for host in names:
            if host not in config.hosts:
                raise ConfigError(
                    f"{where}.{key}: expected a host of this file ({', '.join(config.hosts)}), "
                    f"found {host!r}"
                )
    if len(set(store.hosts)) != len(store.hosts):
        raise ConfigError(f"{where}.replicas: expected each host once, found {store.hosts}")


def _check_addresses(where: str, config: BusConfig, store: StoreConfig) -> None:
    at: dict[str, str] = {}
    for host in store.hosts:
        other = at.setdefault(config.hosts[host], host)
        if other != host:
            raise ConfigError(
                f"{where}: expected each host to have its own address, found {config.hosts[host]} "
                f"for {other} and {host}"
            )
    if len({":" in address for address in at}) > 1:
        raise ConfigError(
            f"{where}: expected addresses of one kind, all IPv4 or all IPv6, found {', '.join(at)}"
        )


def _check_sources(where: str, store: StoreConfig) -> None:
    for host, source in store.sources.items():
        if host not in store.replicas or source not in store.replicas:
            raise ConfigError(
                f"{where}.sources: expected two different replicas, found {host!r} copying from "
                f"{source!r}"
            )
        way = [host, source]
        while way[-1] in store.sources:
            way.append(store.sources[way[-1]])
            if way[-1] in way[:-1]:
                raise ConfigError(
                    f"{where}.sources: expected that every path leads to the writer, found a "
                    f"loop: {' from '.join(way)}"
                )
