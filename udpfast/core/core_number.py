"""Which cores a thread can be pinned to."""

from __future__ import annotations

import os

from udpfast.core.worker import shielded
from udpfast.errors import ConfigError

__all__ = ["check_allowed", "check_core", "core_count", "cores_allowed"]


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


def cores_allowed() -> list[int]:
    """Return the cores that a thread of this process can be pinned to: online, of its cpuset.

    These are all that the kernel grants to one who asks for all. `os.sched_getaffinity` has fewer
    where a process began with fewer (isolcpus=, CPUAffinity= of systemd), and a thread may leave
    those.
    """
    allowed: list[int] = shielded(_all_granted)
    return allowed


def _all_granted() -> list[int]:
    # On a thread that ends: its affinity is not this one's to keep.
    os.sched_setaffinity(0, range(core_count()))
    return sorted(os.sched_getaffinity(0))


def check_allowed(key: str, core: int | None) -> None:
    """Refuse a core that this host does not have, or that this process may not use.

    Raises
    ------
    ConfigError
    """
    check_core(key, core)
    if core is not None and core not in (allowed := cores_allowed()):
        raise ConfigError(
            f"{key}: expected a core that is online and that this process's cpuset has: "
            f"{', '.join(map(str, allowed))}; found {core}"
        )
