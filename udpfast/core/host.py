"""What this host is, and what it lacks for the job. Looks, and changes nothing."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Finding", "inspect_host"]

# A burst of 100,000 datagrams takes about 64 MiB of socket buffer (kernel bookkeeping included).
RMEM_MAX_WANTED = 64 << 20
# One instance with default settings takes 162 MiB: ring 64, slab 88, names 9.
SHM_FREE_WANTED = 192 << 20
# Bits of a capability set: capabilities(7).
CAP_NET_ADMIN = 12
CAP_IPC_LOCK = 14
CAP_SYS_NICE = 23


@dataclass(frozen=True, slots=True)
class Finding:
    """One property of the host.

    Attributes
    ----------
    name : str
        What was looked at.
    want : str
        What a low-latency receiver wants.
    have : str
        What was found.
    ok : bool or None
        Whether that will do; None if this kernel or machine does not have it.
    effect : str
        What it does to a feed, a sentence.
    """

    name: str
    want: str
    have: str
    ok: bool | None
    effect: str


def inspect_host(root: Path = Path("/")) -> list[Finding]:
    """Look at cores, clocks, memory and rights of this host; read-only, no root needed.

    Parameters
    ----------
    root : Path
        Where `proc`, `sys` and `dev` are; a test lays out its own.

    Returns
    -------
    list of Finding
        In a fixed order, the same names on every host.
    """
    return [*_cores(root), *_clocks(root), *_memory(root), *_rights(root)]


def _cores(root: Path) -> Iterator[Finding]:
    count = len(os.sched_getaffinity(0))
    yield Finding(
        "cores",
        "at least 2",
        str(count),
        count >= 2,
        "A feed that spins needs a core, and so does each strategy that spins.",
    )
    isolated = _read(root, "sys/devices/system/cpu/isolated")
    yield Finding(
        "isolated cores",
        "one per feed",
        isolated or "none",
        bool(isolated),
        "On other cores the scheduler interrupts the loop for milliseconds at a time.",
    )
    governor = _read(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    yield Finding(
        "frequency governor",
        "performance",
        governor or "absent",
        governor == "performance" if governor else None,
        "With another one the first datagrams after a pause meet a slow core.",
    )


def _clocks(root: Path) -> Iterator[Finding]:
    source = _read(root, "sys/devices/system/clocksource/clocksource0/current_clocksource")
    yield Finding(
        "clock source",
        "tsc",
        source or "absent",
        source in {"tsc", "arch_sys_counter"} if source else None,
        "Others cost a system call or more at each turn of the loop, instead of 24 ns.",
    )


def _memory(root: Path) -> Iterator[Finding]:
    limit = _read(root, "proc/sys/net/core/rmem_max")
    forced = _capable(root, CAP_NET_ADMIN)
    yield Finding(
        "net.core.rmem_max",
        f"{RMEM_MAX_WANTED} or more, or CAP_NET_ADMIN",
        f"{limit or 'absent'}{' and CAP_NET_ADMIN' if forced else ''}",
        forced or int(limit) >= RMEM_MAX_WANTED if limit else None,
        "A burst that the socket's buffer cannot hold is lost in the kernel (and counted).",
    )
    pages = _read(root, "sys/kernel/mm/transparent_hugepage/enabled")
    yield Finding(
        "transparent huge pages",
        "madvise or never",
        pages or "absent",
        "[always]" not in pages if pages else None,
        "With always the kernel stops the loop now and then to gather pages.",
    )
    free = _free_bytes(root / "dev/shm")
    yield Finding(
        "free in /dev/shm",
        f"{SHM_FREE_WANTED >> 20} MiB",
        "absent" if free is None else f"{free >> 20} MiB",
        None if free is None else free >= SHM_FREE_WANTED,
        "Rings live there; one that does not fit is refused when it is made.",
    )


def _rights(root: Path) -> Iterator[Finding]:
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unlimited = locked == resource.RLIM_INFINITY or _capable(root, CAP_IPC_LOCK)
    yield Finding(
        "locked memory",
        "unlimited, or CAP_IPC_LOCK",
        "unlimited" if unlimited else f"{locked >> 10} KiB",
        unlimited,
        "Memory that is not locked may have to be fetched from disk in the middle of a burst.",
    )
    priority, _ = resource.getrlimit(resource.RLIMIT_RTPRIO)
    real_time = priority != 0 or _capable(root, CAP_SYS_NICE)
    yield Finding(
        "SCHED_FIFO",
        "a limit on rtprio above 0, or CAP_SYS_NICE",
        "allowed" if real_time else "denied",
        real_time,
        "Without it any other thread of the host can take the core of the loop.",
    )


def _read(root: Path, name: str) -> str:
    # The kernel leaves out the files of what it does not have.
    try:
        return (root / name).read_text().strip()
    except OSError:
        return ""


def _free_bytes(path: Path) -> int | None:
    try:
        state = os.statvfs(path)
    except OSError:
        return None
    return state.f_bavail * state.f_frsize


def _capable(root: Path, capability: int) -> bool:
    for line in _read(root, "proc/self/status").splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return bool(int(value, 16) >> capability & 1)
    return False
