"""Servers of a venue that are asked for what the lines did not bring."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import Meta
from msgspec.structs import replace

from udpfast.config.checks import DESTINATION, INTERFACE, POWER_OF_TWO
from udpfast.config.lines import ChannelConfig, WireConfig, payload_name
from udpfast.config.settings import Check, Struct, read_tables
from udpfast.config.types import Core, FilePath, Idle
from udpfast.errors import ConfigError

__all__ = [
    "REQUESTS",
    "SERVED_LINES",
    "SNAPSHOTS",
    "Login",
    "RetransmissionConfig",
    "SnapshotServerConfig",
    "check_servers",
    "line_names",
    "read_login",
    "resolve_login",
]

#: How retransmissions are asked for, by framing; of other framings nobody is.
REQUESTS = {"moldudp64": "MoldUDP64"}
#: What a snapshot server speaks, by payload.
SNAPSHOTS = {"itch": "GLIMPSE"}
#: What servers send counts as a line of each channel; no line of a file can be called so.
SERVED_LINES = ("@retransmission", "@snapshot_server")

_SERVER = Check(
    f"{DESTINATION.expected}, or nothing", lambda value: not value or DESTINATION.holds(value)
)


class ServerConfig(Struct, frozen=True):
    """What every agent has that asks a server: it runs where there is one."""

    server: Annotated[
        str,
        Meta(
            description="ip:port of the venue's server; empty: none is asked", extra=_SERVER.extra
        ),
    ] = ""
    interface: Annotated[
        str,
        Meta(
            description="name or address of the interface to ask by; empty: the kernel decides",
            extra=INTERFACE.extra,
        ),
    ] = ""
    core: Annotated[
        Core | None, Meta(description="core to pin the agent's thread to; absent: not pinned")
    ] = None

    @property
    def enabled(self) -> bool:
        """Whether its agent runs beside the feed."""
        return bool(self.server)


class RetransmissionConfig(ServerConfig, frozen=True):
    """A server that sends messages again, by number."""

    wait_us: Annotated[
        int,
        Meta(
            ge=100,
            le=60_000_000,
            description="us; a hole is asked for once it is as old as lost_packet_wait_us, and "
            "declared lost so much later",
        ),
    ] = 2_000
    retry_us: Annotated[
        int,
        Meta(
            ge=100,
            le=60_000_000,
            description="us after which what was asked for is asked for again",
        ),
    ] = 1_000
    requests_per_s: Annotated[
        int,
        Meta(ge=1, le=1_000_000, description="limit of the venue on requests, per second"),
    ] = 320
    messages_max: Annotated[
        int,
        Meta(ge=1, le=65_534, description="limit of the venue on the messages of one request"),
    ] = 1_000
    idle: Annotated[Idle, Meta(description="what the agent does when nothing is missing")] = (
        "backoff"
    )


class SnapshotServerConfig(ServerConfig, frozen=True):
    """A server that sends all books as of one number, over TCP."""

    login: Annotated[
        FilePath,
        Meta(
            description="TOML file with user and password, readable by its owner alone; relative "
            "to this file. Empty: the server wants none"
        ),
    ] = ""
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


class Login(NamedTuple):
    """Who a server is told that asks."""

    user: str
    password: str

    def __repr__(self) -> str:
        """Show no password, wherever it is shown."""
        return f"Login(user={self.user!r})"


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
    if snapshot_server.enabled and payload_name(wire) not in SNAPSHOTS:
        raise ConfigError(
            f"{where}: snapshot_server.server: expected wire.payload to be one with a known "
            f"protocol ({', '.join(SNAPSHOTS)}), found {payload_name(wire)!r}"
        )
    tables = (("retransmission", retransmission), ("snapshot_server", snapshot_server))
    for channel, (name, table) in zip(channels, tables, strict=True):
        if table.enabled and len(channel.lines) > 7:
            raise ConfigError(
                f"{where}: {name}.server: expected at most 7 lines beside it, found "
                f"{len(channel.lines)}"
            )


def resolve_login(table: SnapshotServerConfig, folder: Path) -> SnapshotServerConfig:
    """Return the table with its login file where the feed's file says, below its folder."""
    return replace(table, login=os.fspath(folder / table.login)) if table.login else table


def read_login(path: str, *, user_bytes: int, password_bytes: int) -> Login:
    """Return what a login file says; both empty without a file.

    Raises
    ------
    ConfigError
        It cannot be read, others can read it, or it says something else. No value of it is shown.
    """
    if not path:
        return Login("", "")
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
    limits = {"user": user_bytes, "password": password_bytes}
    if set(tables) != set(limits):
        raise ConfigError(
            f"{path}: expected user and password, found {', '.join(sorted(tables)) or 'nothing'}"
        )
    for key, limit in limits.items():
        text = tables[key]
        if not isinstance(text, str) or not text.isascii() or not text.isprintable():
            raise ConfigError(f"{path}: {key}: expected text of ASCII characters, found another")
        if len(text) > limit:
            raise ConfigError(
                f"{path}: {key}: expected at most {limit} characters, found {len(text)}"
            )
    return Login(tables["user"], tables["password"])
