"""Which cores a thread can be pinned to."""

from __future__ import annotations

import os

from udpfast.errors import ConfigError

__all__ = ["check_core", "core_count"]


def core_count() -> int:
    """Return how many cores this host has, whoever may use them."""
    return os.sysconf("SC_NPROCESSORS_CONF")


def check_core(key: str, core: int | None) -> None:
    """Refuse a core that this host does not have.

    Raises
    ------
    ConfigError
    """
    if core is not None and not 0 <= core < core_count():
        raise ConfigError(
            f"{key}: expected a core of this host, 0 to {core_count() - 1}, found {core}"
        )
