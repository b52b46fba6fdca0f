"""Knobs of the kernel, of memory, and of this user's rights."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from udpfast.host.finding import Finding, absent, unjudged
from udpfast.host.tree import HostTree

__all__ = ["inspect_kernel", "inspect_memory", "inspect_rights"]

# Bits of a capability set: capabilities(7).
CAP_IPC_LOCK = 14
CAP_SYS_NICE = 23


def inspect_kernel(tree: HostTree) -> Iterator[Finding]:
    """Yield the findings about what the kernel does beside the loop."""
    yield tree.sysctl(
        "kernel.numa_balancing",
        "==",
        0,
        "The kernel unmaps pages to see which node uses them; the loop waits for each.",
    )
    yield tree.sysctl(
        "kernel.timer_migration",
        "==",
        0,
        "Timers of idle cores move to busy ones, such as the loop's.",
    )
    yield tree.sysctl(
        "kernel.nmi_watchdog",
        "==",
        0,
        "An interrupt that cannot be masked comes every few seconds, and takes a hardware counter.",
    )
    yield tree.sysctl(
        "vm.stat_interval",
        ">=",
        10,
        "Each core adds up its memory statistics at this interval, in seconds.",
    )
    yield tree.sysctl(
        "vm.swappiness",
        "<=",
        10,
        "Memory that is not locked goes to disk sooner, and has to be read back in the middle of "
        "a burst.",
    )
    yield tree.sysctl(
        "kernel.sched_rt_runtime_us",
        "==",
        -1,
        "A loop that spins with SCHED_FIFO is stopped for 50 ms in every second.",
        unless="" if tree.use.fifo else "only for loops that spin with SCHED_FIFO",
    )


def inspect_memory(tree: HostTree) -> Iterator[Finding]:
    """Yield the findings about huge pages, and about memory for the feeds."""
    name, want = "transparent huge pages", "madvise or never"
    effect = 'With "always", the kernel stops the loop now and then to assemble pages.'
    file = "sys/kernel/mm/transparent_hugepage/enabled"
    text = tree.text(file)
    chosen = re.search(r"\[([a-z]+)\]", text or "")
    if text is None:
        yield absent(name, want, effect, "this kernel has none")
    elif chosen is None:
        yield absent(name, want, effect, "this kernel does not say")
    else:
        ok = chosen[1] != "always"
        changes = () if ok else tree.set_file(file, "madvise")
        yield Finding(name, want, chosen[1], ok, effect, changes=changes)
    yield _room(
        f"free in {tree.use.shm_path}",
        _free_in(tree.root / tree.use.shm_path.lstrip("/")),
        tree.use.shm_bytes,
        "A feed's files are kept there; one that does not fit is refused when it is created.",
    )
    yield _room(
        "available memory",
        _available(tree),
        tree.use.memory_bytes,
        "The kernel kills a feed for which there is no memory, or swaps it out.",
    )


def _room(name: str, have: int | None, wanted: int, effect: str) -> Finding:
    want = f"{-(-wanted >> 20)} MiB" if wanted else "what the feeds take"
    if have is None:
        return absent(name, want, effect, "this host does not say")
    found = f"{have >> 20} MiB"
    if not wanted:
        return unjudged(name, want, found, effect, "udpfast check FILE... adds up what feeds take")
    return Finding(name, want, found, have >= wanted, effect, fault=True)


def _free_in(directory: Path) -> int | None:
    try:
        state = os.statvfs(directory)
    except OSError:
        return None
    return state.f_bavail * state.f_frsize


def _available(tree: HostTree) -> int | None:
    # Memory that is available without swapping: proc(5), MemAvailable.
    found = re.search(r"^MemAvailable:\s*(\d+) kB", tree.text("proc/meminfo") or "", re.M)
    return int(found[1]) << 10 if found else None


def inspect_rights(tree: HostTree) -> Iterator[Finding]:
    """Yield the findings about what this user may do."""
    name, want = "locked memory", "unlimited, or CAP_IPC_LOCK"
    effect = "Memory that is not locked may have to be fetched from disk in the middle of a burst."
    locked = tree.limit("Max locked memory")
    if tree.capable(CAP_IPC_LOCK):
        yield Finding(name, want, "CAP_IPC_LOCK", True, effect)
    elif locked is None:
        yield absent(name, want, effect, "no /proc/self/limits")
    else:
        have = locked if locked == "unlimited" else f"{int(locked) >> 10} KiB"
        yield Finding(name, want, have, locked == "unlimited", effect)
    name, want = "SCHED_FIFO", "RLIMIT_RTPRIO, or CAP_SYS_NICE"
    effect = "Without it any other thread of the host can take the core of the loop."
    priority = tree.limit("Max realtime priority")
    if tree.capable(CAP_SYS_NICE):
        yield Finding(name, want, "CAP_SYS_NICE", True, effect)
    elif priority is None:
        yield absent(name, want, effect, "no /proc/self/limits")
    else:
        yield Finding(name, want, f"limit {priority}", priority != "0", effect)
