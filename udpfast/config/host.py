"""host.toml: what the feeds of one directory share, and the core of each feed's loop."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from udpfast.config.checks import NAME, check_restarts
from udpfast.config.settings import Check, Struct, convert, read_tables
from udpfast.config.types import CORE_MAX, RestartFirst, RestartLongest, RestartSteady
from udpfast.errors import ConfigError
from udpfast.host.core_list import expand

__all__ = ["HostConfig", "core_list", "load_host", "parse_host", "plan_cores"]

_NUMBER = re.compile("[0-9]{1,4}")


def core_list(text: str) -> list[int]:
    """Return the cores of a list in the format of taskset(1), such as "2-7,10", in order.

    Raises
    ------
    ValueError
        The text is not such a list, or a number is above 8191.
    """
    for part in text.split(",") if text else ():
        numbers = part.split("-")
        if len(numbers) > 2 or not all(_NUMBER.fullmatch(each) for each in numbers):
            raise ValueError(f"expected cores such as 2-7,10, found {text!r}")
        if not int(numbers[0]) <= int(numbers[-1]) <= CORE_MAX:
            raise ValueError(f"expected cores from 0 to {CORE_MAX}, found {part!r}")
    return sorted(expand(text))


def _is_core_list(text: str) -> bool:
    with suppress(ValueError):
        core_list(text)
        return True
    return False


_CORES = Check('cores such as "2-7,10"', _is_core_list)
_GROUP_NAME = Check(NAME.expected, lambda text: not text or NAME.holds(text))


class HostConfig(Struct, frozen=True):
    """How `udpfast run DIRECTORY` runs the feeds of a directory."""

    group: Annotated[
        str,
        Meta(
            description="the group's name: Reader(\"group:NAME\"); empty: the directory's",
            extra=_GROUP_NAME.extra,
        ),
    ] = ""
    cores: Annotated[
        str,
        Meta(
            description='cores for the feeds\' loops, as taskset writes them ("2-7,10"): feeds '
            "without agent.core get them in the order of their files; empty: they are not pinned",
            extra=_CORES.extra,
        ),
    ] = ""
    feeds_per_core: Annotated[
        int,
        Meta(
            ge=1,
            le=1024,
            description="feeds that may share a core; more than 1 only if none of them spins",
        ),
    ] = 1
    restart_first_ms: RestartFirst = 100
    restart_longest_ms: RestartLongest = 10_000
    restart_steady_ms: RestartSteady = 60_000
    watchdog_s: Annotated[
        float,
        Meta(
            ge=1.0,
            le=3600.0,
            description="s without a turn of its loop after which a feed is killed and started "
            "again",
        ),
    ] = 10.0


def load_host(path: str | Path) -> HostConfig:
    """Read a host.toml.

    Raises
    ------
    ConfigError
        The file is missing, is not TOML, or a key, type or value is wrong.
    """
    return parse_host(read_tables(path), where=str(path))


def parse_host(tables: Mapping[str, Any], where: str = "settings") -> HostConfig:
    """Check the tables of a host.toml, from TOML or from a program."""
    config: HostConfig = convert(tables, HostConfig, where)
    check_restarts(config.restart_first_ms, config.restart_longest_ms, where)
    return config


def plan_cores(feeds: Mapping[str, int | None], host: HostConfig, where: str) -> dict[str, int]:
    """Return the core of each feed's loop. Feeds that are not pinned are left out.

    Parameters
    ----------
    feeds : mapping
        Name -> `agent.core` in the feed's own file, which the plan keeps, or None.
    host : HostConfig
    where : str
        Name of the file, for error messages.

    Raises
    ------
    ConfigError
        There are too few cores, or more feeds ask for a core than may share it.
    """
    planned = {name: core for name, core in feeds.items() if core is not None}
    used = Counter(planned.values())
    for core, count in used.items():
        if count > host.feeds_per_core:
            names = [name for name, own in planned.items() if own == core]
            raise ConfigError(
                f"{where}: expected at most {host.feeds_per_core} feeds on core {core} "
                f"(feeds_per_core), found {', '.join(names)}"
            )
    rest = [name for name, core in feeds.items() if core is None]
    cores = core_list(host.cores)
    if not cores:
        return planned
    # Each round gives every core one more feed, so that feeds share a core only if they must.
    places = [
        core for turn in range(1, host.feeds_per_core + 1) for core in cores if used[core] < turn
    ]
    if len(places) < len(rest):
        raise ConfigError(
            f"{where}: cores: expected room for {len(rest)} feeds, found room for {len(places)} "
            f'in "{host.cores}" with feeds_per_core = {host.feeds_per_core}'
        )
    return planned | dict(zip(rest, places, strict=False))
