"""Servers of a venue that are asked for what the lines did not bring."""

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
    """What a server speaks.

    Attributes
    ----------
    name : str
    login : dict
        What its login file has to say: key -> characters that there is room for. Empty: it wants
        no login.
    """

    name: str
    login: dict[str, int]


_CBOE_LOGIN = {"session": 4, "user": 4, "password": 10}
#: How retransmissions are asked for, by framing; for other framings there is no server to ask.
REQUESTS = {
    "moldudp64": Spoken("MoldUDP64", {}),
    "cboe_pitch": Spoken("GRP", _CBOE_LOGIN),
    "iex_tp": Spoken("IEX-TP", {}),
}
_TOLD_BY_PLACE = {facts.name for facts in FACTS if facts.address_shift >= 0}
#: What a snapshot server speaks, by payload.
SNAPSHOTS = {
    "itch": Spoken("GLIMPSE", {"user": 6, "password": 10}),
    "pitch": Spoken("spin", _CBOE_LOGIN),
    "iex_deep_plus": Spoken("SNAP", {"token": 40}),
}
#: What servers send counts as a line of each channel; no line of a file can be called so.
SERVED_LINES = ("@retransmission", "@snapshot_server")


class ServerConfig(Struct, frozen=True):
    """What every agent has that asks a server: it runs where there is one."""

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
            description="TOML file with the login (docs/venues.md says its keys), readable by its "
            "owner alone; relative to this file. Empty: the server wants none"
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
        """Whether its agent runs beside the feed."""
        return bool(self.server)


_Table = TypeVar("_Table", "RetransmissionConfig", "SnapshotServerConfig")


class RetransmissionConfig(ServerConfig, frozen=True):
    """A server that sends messages again, by number."""

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
    """The server of one unit, where each has its own."""

    unit: Annotated[int, Meta(ge=0, le=255, description="number of the unit")]
    server: Annotated[str, Meta(description="ip:port of its server", extra=DESTINATION.extra)]


class SnapshotServerConfig(ServerConfig, frozen=True):
    """A server that sends all books as of one number, over TCP."""

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
        """Whether its agent runs beside the feed."""
        return bool(self.server or self.units)

    def server_of(self, unit: int) -> str:
        """Return the address of the server of a unit; empty: nobody is asked for it."""
        return next((one.server for one in self.units if one.unit == unit), self.server)


class Login:
    """Who a server is told that asks: what the login file says, by its keys."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def field(self, key: str, size: int) -> bytes:
        """Return a value in so many bytes, blanks behind it; all blank: there is no login."""
        return self._values.get(key, "").encode("ascii").ljust(size)

    def __repr__(self) -> str:
        """Show no value, wherever it is shown."""
        return f"Login({', '.join(self._values)})"


def line_names(
    incremental: ChannelConfig,
    snapshot: ChannelConfig,
    retransmission: RetransmissionConfig,
    snapshot_server: SnapshotServerConfig,
) -> tuple[list[str], list[str]]:
    """Return the names of both channels' lines, what servers send included: that comes last."""
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
    """Refuse servers whose protocol is not known, and more lines than there is room for."""
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
    # Where only its place in the list says which stream an address brings, no request can name it.
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
    """Return a table with its login file where the feed's file says, below its folder."""
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
    """Return what a login file says; without a file it says nothing.

    Raises
    ------
    ConfigError
        It cannot be read, others can read it, or it says something else than the server's protocol
        has room for. No value of it is shown.
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
