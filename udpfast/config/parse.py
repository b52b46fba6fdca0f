"""Read a file's tables into frozen structs, and check the rules that span several keys."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, replace

from udpfast.config.checks import check_restarts
from udpfast.config.companions import RelayConfig, RelayLine
from udpfast.config.files import FeedConfig, PublishConfig
from udpfast.config.lines import (
    PAYLOADS_OF,
    ChannelConfig,
    LineConfig,
    LoopConfig,
    WireConfig,
    framing_name,
    payload_name,
)
from udpfast.config.servers import check_servers, resolve_login
from udpfast.config.settings import convert, read_tables
from udpfast.core.endpoint import endpoint_text, parse_endpoint
from udpfast.errors import ConfigError
from udpfast.wire.facts import FACTS

__all__ = [
    "as_written",
    "check_relay",
    "load_feed",
    "load_publish",
    "parse_feed",
    "parse_publish",
    "parse_relay",
]

_FACTS = {facts.name: facts for facts in FACTS}
_PORT_MAX = 65_535
#: Most addresses of one line, each with a socket: the options tape has 96. ADDRESSES_MAX of
#: core/layout.pxd.
ADDRESSES_MAX = 128
#: Most sockets of one loop: BATCHES_MAX of agents/feed/feed_loop.pyx, XDP_PORTS_MAX of
#: net/xdp_ring.
SOCKETS_MAX = 512
#: Most lines of one channel: LINES_MAX of core/layout.pxd.
LOOPS_MAX = 8


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
    config = parse_feed(read_tables(path), where=str(path))
    folder = Path(path).parent
    return replace(
        config,
        retransmission=resolve_login(config.retransmission, folder),
        snapshot_server=resolve_login(config.snapshot_server, folder),
    )


def load_publish(path: str | Path) -> PublishConfig:
    """Read a publisher's TOML file. Errors are those of `load_feed`."""
    return parse_publish(read_tables(path), where=str(path))


def parse_feed(tables: Mapping[str, Any], where: str = "settings") -> FeedConfig:
    """Check the tables of a feed's configuration, from TOML or from a program.

    Parameters
    ----------
    tables : mapping
        Keys as in the TOML file.
    where : str
        Name of the file, for error messages.

    Raises
    ------
    ConfigError
        The message names `where`, the key, what was expected and what was found.
    """
    written: FeedConfig = convert(tables, FeedConfig, where)
    streams = "streams" if written.streams.lines else "incremental"
    config = _by_role(where, written, streams)
    fitting = PAYLOADS_OF.get(config.wire.framing, ("none",))
    if payload_name(config.wire) not in fitting:
        raise ConfigError(
            f"{where}: wire.payload: expected {' or '.join(fitting)} with wire.framing = "
            f'"{config.wire.framing}", found {config.wire.payload!r}'
        )
    if config.window.parity and (config.wire.framing, config.wire.byteorder) != ("roq", "little"):
        raise ConfigError(
            f'{where}: window.parity: expected wire.framing = "roq" with little-endian integers, '
            "which a relay sends"
        )
    intervals = {
        "window": config.window.out_of_order_max_interval,
        streams: config.incremental.out_of_order_max_interval,
        "snapshot": config.snapshot.out_of_order_max_interval,
    }
    for table, interval in intervals.items():
        if interval > config.window.size:
            raise ConfigError(
                f"{where}: {table}.out_of_order_max_interval: expected at most window.size "
                f"({config.window.size}), found {interval}"
            )
    lines = _keyed_lines(config, streams)
    keys = [key for key, _ in lines]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        role, _, name = twice[0].partition(".")
        raise ConfigError(f"{where}: {role}.lines: expected distinct names, found {name!r} twice")
    for key, line in lines:
        _check_addresses(where, key, line, config.wire)
        _check_source(where, f"{key}: source", line)
    check_restarts(config.run.restart_first_ms, config.run.restart_longest_ms, where, "run.")
    check_servers(
        where,
        config.wire,
        (config.incremental, config.snapshot),
        config.retransmission,
        config.snapshot_server,
    )
    _check_output(where, config)
    _check_sockets(where, lines)
    _check_lists(where, config, lines)
    config = replace(config, relay=check_relay(where, config.relay))
    _check_relayed(where, config.relay, lines)
    return config


def as_written(config: FeedConfig) -> FeedConfig:
    """Return a feed's settings with its lines in the tables that a file has for its framing."""
    if config.wire.framing == "roq":
        return config
    loops: dict[str, list[LineConfig]] = {"recovery": [], "definitions": []}
    for line in config.snapshot.lines:
        role, _, name = line.name.partition(".")
        loops[role].append(replace(line, name=name))
    return replace(
        config,
        incremental=ChannelConfig(),
        snapshot=ChannelConfig(),
        streams=config.incremental,
        **{role: LoopConfig(lines=tuple(lines)) for role, lines in loops.items()},
    )


def _keyed_lines(config: FeedConfig, streams: str) -> list[tuple[str, LineConfig]]:
    # The lines that are received, with their names in the file. Those of loops have their role's.
    loops = "snapshot." if config.wire.framing == "roq" else ""
    return [
        *((f"{streams}.{line.name}", line) for line in config.incremental.lines),
        *((f"{loops}{line.name}", line) for line in config.snapshot.lines),
    ]


def parse_relay(tables: Mapping[str, Any], where: str = "settings") -> RelayConfig:
    """Check the table of a relay by itself; see `parse_feed`."""
    config: RelayConfig = convert(tables, RelayConfig, where)
    return check_relay(where, config)


def check_relay(where: str, relay: RelayConfig) -> RelayConfig:
    """Return a relay's settings with both addresses of every line filled in.

    Raises
    ------
    ConfigError
        The relay is enabled without a line, a name or an address occurs twice, no port follows, or
        every line may leave messages out.
    """
    if relay.enabled and not relay.lines:
        raise ConfigError(f"{where}: relay.lines: expected at least one line, found none")
    lines: list[RelayLine] = []
    taken: dict[tuple[str, str], str] = {}
    for line in relay.lines:
        if line.name in [other.name for other in lines]:
            raise ConfigError(
                f"{where}: relay.lines: expected distinct names, found {line.name!r} twice"
            )
        host, port = parse_endpoint(line.incremental)
        if not line.snapshot and port == _PORT_MAX:
            raise ConfigError(
                f"{where}: relay.lines: expected `snapshot` of line {line.name!r}, because no "
                f"port follows {port}"
            )
        snapshot = line.snapshot or endpoint_text(host, port + 1)
        for channel, address in (("incremental", line.incremental), ("snapshot", snapshot)):
            key = (address, line.interface)
            if key in taken:
                raise ConfigError(
                    f"{where}: relay.lines: expected an address of its own for {line.name}."
                    f"{channel}, found {address}, which {taken[key]} has"
                )
            taken[key] = f"{line.name}.{channel}"
        lines.append(replace(line, snapshot=snapshot))
    if lines and all(line.bits_per_s and line.short == "leave_out" for line in lines):
        raise ConfigError(
            f'{where}: relay.lines: expected a line without bits_per_s, or with short = "conflate",'
            " because what a line leaves out another one has to carry"
        )
    return replace(relay, lines=tuple(lines))


def _check_relayed(where: str, relay: RelayConfig, lines: Sequence[tuple[str, LineConfig]]) -> None:
    # A relay that sends to its own feed feeds itself: each round is a publisher of its own.
    received = {
        _place(address): (key, line.interface)
        for key, line in lines
        for address in line.every_address
    }
    for line in relay.lines:
        for channel, address in (("incremental", line.incremental), ("snapshot", line.snapshot)):
            own, interface = received.get(_place(address), ("", ""))
            is_group = ipaddress.ip_address(parse_endpoint(address)[0]).is_multicast
            apart = is_group and (
                not line.loop or (interface and line.interface and interface != line.interface)
            )
            if own and not apart:
                raise ConfigError(
                    f"{where}: relay.lines: expected an address that this feed does not receive "
                    f"for {line.name}.{channel}, found {address}, which {own} has"
                )


def _place(address: str) -> tuple[str, int]:
    # However it is spelled: [0::1] is [::1].
    host, port = parse_endpoint(address)
    return str(ipaddress.ip_address(host)), port


def _check_output(where: str, config: FeedConfig) -> None:
    # A raw capture reads a ring of its own, so a store may have one.
    if config.output == "store" and config.record.enabled and config.record.what != "raw":
        raise ConfigError(
            f'{where}: record.what: expected "raw" with output = "store" (a store is already the '
            f"record of what strategies read), found {config.record.what!r}"
        )


def _by_role(where: str, config: FeedConfig, streams: str) -> FeedConfig:
    # Sort the lines that are received by role. With framings other than roq, `streams` becomes
    # `incremental`, and the loops become `snapshot`.
    roq = config.wire.framing == "roq"
    others = ["incremental" if streams == "streams" else "streams", *([] if roq else ["snapshot"])]
    unused = {name: getattr(config, name) for name in others}
    if roq:
        for name in ("streams", "recovery", "definitions"):
            table = getattr(config, name)
            if table.lines:
                raise ConfigError(
                    f'{where}: {name}.lines: expected none with wire.framing = "roq", which has '
                    f"incremental.lines and snapshot.lines, found {len(table.lines)}"
                )
            _check_use(where, name, table)
        snapshot = _received(where, "snapshot", config.snapshot, config.window.arbitration)
    else:
        config = _with_streams(where, config)
        snapshot = _loops(where, config)
    if not config.incremental.lines:
        name = "incremental" if roq else "streams"
        raise ConfigError(f"{where}: {name}.lines: expected at least one line, found none")
    for name, table in unused.items():
        _check_unused(where, name, table)
    return replace(
        config,
        incremental=_received(where, streams, config.incremental, config.window.arbitration),
        snapshot=snapshot,
        recovery=LoopConfig(),
        definitions=LoopConfig(),
    )


def _with_streams(where: str, config: FeedConfig) -> FeedConfig:
    streams = config.streams.lines
    if config.snapshot.lines:
        raise ConfigError(
            f'{where}: snapshot.lines: expected none with wire.framing = "{config.wire.framing}", '
            "which has recovery.lines (loops of snapshots) and definitions.lines, found "
            f"{len(config.snapshot.lines)}"
        )
    if streams and config.incremental.lines:
        raise ConfigError(
            f"{where}: incremental.lines: expected no lines there, because streams.lines has "
            f"some, found {len(config.incremental.lines)}"
        )
    if streams:
        return replace(config, incremental=config.streams, streams=ChannelConfig())
    return config


def _loops(where: str, config: FeedConfig) -> ChannelConfig:
    lines: list[LineConfig] = []
    for role in ("definitions", "recovery"):
        table: LoopConfig = getattr(config, role)
        # Keep all lines even without arbitration: each may carry another loop.
        chosen = _received(where, role, ChannelConfig(lines=table.lines, use=table.use), True)
        lines += [replace(line, name=f"{role}.{line.name}") for line in chosen.lines]
    if len(lines) > LOOPS_MAX:
        raise ConfigError(
            f"{where}: recovery.lines: expected at most {LOOPS_MAX} lines of definitions and "
            f"recovery together (a line may have several `addresses`), found {len(lines)}"
        )
    return ChannelConfig(lines=tuple(lines))


def _check_use(where: str, role: str, config: ChannelConfig | LoopConfig) -> None:
    names = [line.name for line in config.lines]
    unknown = [name for name in config.use if name not in names]
    if unknown:
        raise ConfigError(
            f"{where}: {role}.use: expected names of its lines ({', '.join(names) or 'none'}), "
            f"found {unknown[0]!r}"
        )


def _check_unused(where: str, role: str, config: ChannelConfig) -> None:
    # Keys of a table that has no lines would be without effect.
    for key, value in asdict(config).items():
        if value != getattr(ChannelConfig(), key):
            raise ConfigError(
                f"{where}: {role}.{key}: expected no such key, as {role}.lines has no lines, "
                f"found {value!r}"
            )


def _received(where: str, role: str, config: ChannelConfig, arbitration: bool) -> ChannelConfig:
    _check_use(where, role, config)
    lines = tuple(line for line in config.lines if not config.use or line.name in config.use)
    return replace(config, lines=lines if arbitration else lines[:1], use=())


def parse_publish(tables: Mapping[str, Any], where: str = "settings") -> PublishConfig:
    """Check the tables of a publisher's configuration; see `parse_feed`."""
    config: PublishConfig = convert(tables, PublishConfig, where)
    return config


def _check_addresses(where: str, key: str, line: LineConfig, wire: WireConfig) -> None:
    if bool(line.address) == bool(line.addresses):
        found = "both" if line.address else "neither"
        raise ConfigError(f"{where}: {key}: expected `address` or `addresses`, found {found}")
    if not line.addresses:
        return
    if wire.framing == "roq":
        raise ConfigError(
            f'{where}: {key}: addresses: expected `address` with wire.framing = "roq", whose lines '
            f"have one each, found {len(line.every_address)}"
        )
    if len(line.every_address) > ADDRESSES_MAX:
        raise ConfigError(
            f"{where}: {key}: addresses: expected at most {ADDRESSES_MAX} addresses of one line, "
            f"found {len(line.every_address)}"
        )


def _check_lists(where: str, config: FeedConfig, lines: Sequence[tuple[str, LineConfig]]) -> None:
    # If only an address's index in its list tells its stream, all lists must have the same length.
    if _FACTS[framing_name(config.wire)].address_shift < 0:
        return
    first = config.incremental.lines[0]
    for key, line in lines:
        if key.startswith("definitions."):
            continue  # they belong to no stream
        if len(line.every_address) != len(first.every_address):
            raise ConfigError(
                f"{where}: {key}: expected {len(first.every_address)} addresses, as {first.name} "
                f'has, because with wire.framing = "{config.wire.framing}" the same place of each '
                f"list is the same stream, found {len(line.every_address)}"
            )


def _check_source(where: str, key: str, line: LineConfig) -> None:
    if not line.source:
        return
    source = ipaddress.ip_address(line.source)
    for address in line.every_address:
        group = ipaddress.ip_address(parse_endpoint(address)[0])
        if not group.is_multicast:
            raise ConfigError(
                f"{where}: {key}: expected a multicast group as the line's address (for unicast "
                f"use `senders`), found {address!r}"
            )
        if source.version != group.version:
            raise ConfigError(
                f"{where}: {key}: expected an IPv{group.version} address, like the line's "
                f"{address!r}, found {line.source!r}"
            )


def _check_sockets(where: str, lines: Sequence[tuple[str, LineConfig]]) -> None:
    # A group may be joined on several interfaces, and a port may be bound on each of them.
    taken: dict[tuple[str, str, str], str] = {}
    for key, line in lines:
        for address in line.every_address:
            host, port = _place(address)
            socket = (f"{host} {port}", line.interface, line.source)
            other = taken.get(socket)
            if other is not None and port:
                whose = f"{other} has" if other != key else "it has twice"
                raise ConfigError(
                    f"{where}: {key}: expected an address of its own, found {address}, which "
                    f"{whose}"
                )
            taken[socket] = key
    if sum(len(line.every_address) for _, line in lines) > SOCKETS_MAX:
        raise ConfigError(
            f"{where}: expected at most {SOCKETS_MAX} addresses of all lines together, found "
            f"{sum(len(line.every_address) for _, line in lines)}"
        )
