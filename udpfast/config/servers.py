"""A venue's servers, which are asked for what the lines did not deliver."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

from msgspec import Meta
from msgspec.structs import replace

from udpfast.config.checks import DESTINATION, DESTINATION_OR_NONE, INTERFACE, POWER_OF_TWO
from udpfast.config.lines import ChannelConfig, WireConfig, payload_name
from udpfast.config.settings import Struct, read_tables
from udpfast.config.types import Core, FilePath, Idle
from udpfast.errors import ConfigError
from udpfast.wire.facts import FACTS

__all__ = [
    "REQUESTS",
    "SERVED_LINES",
    "SNAPSHOTS",
    "Login",
    "RetransmissionConfig",
    "SnapshotServerConfig",
    "Spoken",
    "UnitServer",
    "check_servers",
    "line_names",
    "logins_of",
    "read_login",
    "resolve_login",
]


class Spoken(NamedTuple):
    """The protocol of a server.

    Attributes
    ----------
    name : str
    login : dict
        Keys of its login file, with the largest number of characters each. Empty: it needs no
        login.
    """

    name: str
    login: dict[str, int]


_CBOE_LOGIN = {"session": 4, "user": 4, "password": 10}
#: Retransmission protocol by framing. Other framings have no server to ask.
REQUESTS = {
    "moldudp64": Spoken("MoldUDP64", {}),
    "cboe_pitch": Spoken("GRP", _CBOE_LOGIN),
    "iex_tp": Spoken("IEX-TP", {}),
}
_TOLD_BY_PLACE = {facts.name for facts in FACTS if facts.address_shift >= 0}
#: Protocol of the snapshot server by payload.
SNAPSHOTS = {
    "itch": Spoken("GLIMPSE", {"user": 6, "password": 10}),
    "pitch": Spoken("spin", _CBOE_LOGIN),
    "iex_deep_plus": Spoken("SNAP", {"token": 40}),
}
#: Names of the lines, one per channel, as which a server's answers count. No line of a file can
#: have such a name.
SERVED_LINES = ("@retransmission", "@snapshot_server")


class ServerConfig(Struct, frozen=True):
    """Settings of every agent that asks a server. It runs if a server is named."""

    server: Annotated[
        str,
        Meta(
            description="ip:port of the venue's server; empty: none is asked",
            extra=DESTINATION_OR_NONE.extra,
        ),
    ] = ""
    interface: Annotated[
        str,
        Meta(
            description="name or address of the interface that requests leave by; empty: the "
            "kernel decides",
            extra=INTERFACE.extra,
        ),
    ] = ""
    login: Annotated[
        FilePath,
        Meta(
            description="TOML file with the login (its keys: docs/venues.md), readable only by its "
            "owner; relative to this file. Empty: the server needs no login"
        ),
    ] = ""
    requests_per_day: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000_000,
            description="limit of the venue on requests, in any 24 hours; 0: none",
        ),
    ] = 0
    core: Annotated[
        Core | None, Meta(description="core to pin the agent's thread to; absent: not pinned")
    ] = None

    @property
    def enabled(self) -> bool:
        """Whether the agent runs beside the feed."""
        return bool(self.server)


_Table = TypeVar("_Table", "RetransmissionConfig", "SnapshotServerConfig")


class RetransmissionConfig(ServerConfig, frozen=True):
    """A server that retransmits messages by number."""

    wait_us: Annotated[
        int,
        Meta(
            ge=100,
            le=60_000_000,
            description="us; a hole is asked for once it is as old as lost_packet_wait_us, and "
            "declared lost this much later",
        ),
    ] = 2_000
    retry_us: Annotated[
        int,
        Meta(
            ge=100,
            le=60_000_000,
            description="us after which a request is repeated",
        ),
    ] = 1_000
    answers: Annotated[
        str,
        Meta(
            description="ip:port of the group where answers come, if the venue sends them by "
            "multicast (Cboe); empty: they come to the requester",
            extra=DESTINATION_OR_NONE.extra,
        ),
    ] = ""
    tcp: Annotated[
        bool,
        Meta(description="ask over TCP a server that can also be asked by UDP (IEX)"),
    ] = False
    requests_per_s: Annotated[
        int,
        Meta(ge=1, le=1_000_000, description="limit of the venue on requests, in any second"),
    ] = 320
    requests_per_min: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000_000,
            description="limit of the venue on requests, in any minute; 0: none",
        ),
    ] = 0
    messages_max: Annotated[
        int,
        Meta(ge=1, le=65_534, description="limit of the venue on the messages of one request"),
    ] = 1_000
    idle: Annotated[Idle, Meta(description="what the agent does when nothing is missing")] = (
        "backoff"
    )


class UnitServer(Struct, frozen=True):
    """The server of one unit, for venues where each unit has its own."""

    unit: Annotated[
        int, Meta(ge=0, le=255, description="number of a unit (Cboe) that has a server of its own")
    ]
    server: Annotated[
        str,
        Meta(
            description="ip:port of it; `snapshot_server.server` is asked for all other units",
            extra=DESTINATION.extra,
        ),
    ]


class SnapshotServerConfig(ServerConfig, frozen=True):
    """A server that sends a snapshot of all books over TCP."""

    units: Annotated[
        tuple[UnitServer, ...],
        Meta(
            max_length=255,
            description="servers of single units (Cboe); `server` is asked for all other units",
        ),
    ] = ()
    pause_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=3_600_000,
            description="ms from one attempt to the next, at least: some venues limit them",
        ),
    ] = 5_000
    timeout_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=600_000,
            description="ms without a byte from the server after which it is given up",
        ),
    ] = 10_000
    orders_max: Annotated[
        int,
        Meta(
            ge=1,
            le=1 << 28,
            description="orders of one snapshot; a larger one is given up",
        ),
    ] = 10_000_000
    held_changes: Annotated[
        int,
        Meta(
            ge=1 << 16,
            le=1 << 26,
            description="changes of all books to keep while a snapshot is under way, a power of "
            "two; each takes 80 bytes",
            extra=POWER_OF_TWO.extra,
        ),
    ] = 1 << 20
    idle: Annotated[Idle, Meta(description="what the agent does when nothing arrives")] = "sleep"

    @property
    def enabled(self) -> bool:
        """Whether the agent runs beside the feed."""
        return bool(self.server or self.units)

    def server_of(self, unit: int) -> str:
        """Return the address of a unit's server; empty: there is none to ask."""
        return next((one.server for one in self.units if one.unit == unit), self.server)


class Login:
    """The values of a login file, by key."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def field(self, key: str, size: int) -> bytes:
        """Return a value padded with blanks to `size` bytes; all blanks without a login."""
        return self._values.get(key, "").encode("ascii").ljust(size)

    def __repr__(self) -> str:
        """Return the keys only, so that no value is ever shown."""
        return f"Login({', '.join(self._values)})"


def line_names(
    incremental: ChannelConfig,
    snapshot: ChannelConfig,
    retransmission: RetransmissionConfig,
    snapshot_server: SnapshotServerConfig,
) -> tuple[list[str], list[str]]:
    """Return the names of both channels' lines; a server's answers count as the last line."""
    names = ([line.name for line in incremental.lines], [line.name for line in snapshot.lines])
    for channel, table in enumerate((retransmission, snapshot_server)):
        if table.enabled:
            names[channel].append(SERVED_LINES[channel])
    return names


def check_servers(
    where: str,
    wire: WireConfig,
    channels: tuple[ChannelConfig, ChannelConfig],
    retransmission: RetransmissionConfig,
    snapshot_server: SnapshotServerConfig,
) -> None:
    """Refuse servers without a known protocol, and more lines than there is room for."""
    if retransmission.enabled and wire.framing not in REQUESTS:
        raise ConfigError(
            f"{where}: retransmission.server: expected wire.framing to be one that is asked for "
            f'({", ".join(REQUESTS)}), found "{wire.framing}"'
        )
    if retransmission.enabled and (wire.framing == "cboe_pitch") != bool(retransmission.answers):
        raise ConfigError(
            f"{where}: retransmission.answers: expected the group where answers come with "
            f'wire.framing = "cboe_pitch", and nothing with another, found '
            f'{retransmission.answers or "nothing"} with "{wire.framing}"'
        )
    if retransmission.tcp and wire.framing != "iex_tp":
        raise ConfigError(
            f'{where}: retransmission.tcp: expected wire.framing = "iex_tp", whose servers are '
            f'asked either way, found "{wire.framing}"'
        )
    if snapshot_server.enabled and channels[1].lines:
        raise ConfigError(
            f"{where}: snapshot_server.server: expected no lines of recovery or definitions "
            f"beside it, found {len(channels[1].lines)}"
        )
    _check_units(where, wire, snapshot_server)
    if snapshot_server.enabled and payload_name(wire) not in SNAPSHOTS:
        raise ConfigError(
            f"{where}: snapshot_server.server: expected wire.payload to be one with a known "
            f"protocol ({', '.join(SNAPSHOTS)}), found {payload_name(wire)!r}"
        )
    tables = (("retransmission", retransmission), ("snapshot_server", snapshot_server))
    # If only an address's index in the list tells its stream, no request can name the stream.
    several = [
        line.name
        for line in channels[0].lines
        if len(line.every_address) > 1 and wire.framing in _TOLD_BY_PLACE
    ]
    for channel, (name, table) in zip(channels, tables, strict=True):
        if table.enabled and several:
            raise ConfigError(
                f"{where}: {name}.server: expected lines of one address, because one server is "
                f"asked for one stream, found several of line {several[0]!r}"
            )
        if table.enabled and len(channel.lines) > 7:
            raise ConfigError(
                f"{where}: {name}.server: expected at most 7 lines beside it, found "
                f"{len(channel.lines)}"
            )


def _check_units(where: str, wire: WireConfig, table: SnapshotServerConfig) -> None:
    units = [one.unit for one in table.units]
    if units and wire.framing != "cboe_pitch":
        raise ConfigError(
            f"{where}: snapshot_server.units: expected none with wire.framing = "
            f'"{wire.framing}", found {len(units)}'
        )
    twice = sorted({unit for unit in units if units.count(unit) > 1})
    if twice:
        raise ConfigError(
            f"{where}: snapshot_server.units: expected distinct units, found {twice[0]} twice"
        )


def resolve_login(table: _Table, folder: Path) -> _Table:
    """Return a table whose login file is resolved relative to the directory of the feed's file."""
    return replace(table, login=os.fspath(folder / table.login)) if table.login else table


def logins_of(
    wire: WireConfig, retransmission: RetransmissionConfig, snapshot_server: SnapshotServerConfig
) -> list[tuple[str, str, Spoken]]:
    """Return name, login file and protocol of each server that the feed asks."""
    found: list[tuple[str, str, Spoken]] = []
    if retransmission.enabled:
        spoken = REQUESTS[wire.framing]
        found.append(("retransmission", retransmission.login, spoken))
    if snapshot_server.enabled:
        spoken = SNAPSHOTS[payload_name(wire)]
        found.append(("snapshot_server", snapshot_server.login, spoken))
    return found


def read_login(path: str, spoken: Spoken) -> Login:
    """Return the values of a login file; empty without a file.

    Parameters
    ----------
    path : str
        The file; empty: there is none.
    spoken : Spoken
        The server's protocol.

    Raises
    ------
    ConfigError
        It cannot be read, can be read by others, or has other keys or longer values than the
        protocol. The message shows none of its values.
    """
    if not path:
        return Login({})
    if not spoken.login:
        raise ConfigError(f"login: expected none, as {spoken.name} has no login, found {path}")
    try:
        mode = Path(path).stat().st_mode & 0o777
    except OSError as problem:
        raise ConfigError(
            f"login: expected a file that can be read, found: {problem.strerror}: {path}"
        ) from None
    if mode & 0o077:
        raise ConfigError(
            f"login: expected a file that only its owner can read (chmod 600), found {path} with "
            f"mode {mode:o}"
        )
    tables = read_tables(path)
    if set(tables) != set(spoken.login):
        raise ConfigError(
            f"{path}: expected {' and '.join(spoken.login)}, found "
            f"{', '.join(sorted(tables)) or 'nothing'}"
        )
    for key, limit in spoken.login.items():
        text = tables[key]
        if not isinstance(text, str) or not text.isascii() or not text.isprintable():
            raise ConfigError(f"{path}: {key}: expected text of ASCII characters, found another")
        if len(text) > limit:
            raise ConfigError(
                f"{path}: {key}: expected at most {limit} characters, found {len(text)}"
            )
    return Login(tables)
