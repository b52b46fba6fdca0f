"""The files of /proc and /sys that describe a host, and how a feed uses the host."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import NamedTuple

from udpfast.host.core_list import expand
from udpfast.host.finding import Change, Finding, absent, unjudged

__all__ = ["HostTree", "HostUse"]

_COMPARISONS = {
    "==": (operator.eq, ""),
    ">=": (operator.ge, "at least "),
    "<=": (operator.le, "at most "),
}


class HostUse(NamedTuple):
    """How a feed uses the host.

    Attributes
    ----------
    cores : tuple of int
        Cores that receive.
    strategy_cores : tuple of int
        Cores on which strategies spin.
    interfaces : tuple of str
        Names of the network interfaces of its lines.
    rcvbuf_bytes : int
        Receive buffer that each socket asks for. 64 MiB hold a burst of 100,000 datagrams,
        including the kernel's bookkeeping.
    busy_poll : bool
        Its sockets poll the NIC themselves.
    prefer_busy_poll : bool
        They keep the NIC's interrupts off while they poll.
    gro : bool
        Its sockets receive runs of datagrams.
    fifo : bool
        Its loop spins with SCHED_FIFO.
    shm_path : str
        Directory of its shared memory.
    shm_bytes, memory_bytes : int
        Shared memory, and total memory, that starting it takes; 0: unknown.
    processes : tuple of str
        By whose rights the host is judged: names in /proc of processes that run, or `self`.
    """

    cores: tuple[int, ...] = ()
    strategy_cores: tuple[int, ...] = ()
    interfaces: tuple[str, ...] = ()
    rcvbuf_bytes: int = 64 << 20
    busy_poll: bool = False
    prefer_busy_poll: bool = False
    gro: bool = False
    fifo: bool = False
    shm_path: str = "/dev/shm"
    shm_bytes: int = 0
    memory_bytes: int = 0
    processes: tuple[str, ...] = ("self",)

    @property
    def named(self) -> set[int]:
        """All cores that nothing else should use."""
        return {*self.cores, *self.strategy_cores}


class HostTree:
    """A root directory with `proc`, `sys` and `dev`, and how a feed uses the host."""

    def __init__(self, root: Path, use: HostUse) -> None:
        self.root = root
        self.use = use
        self.online = expand(self.text("sys/devices/system/cpu/online") or "")

    def text(self, name: str) -> str | None:
        """Return the contents of a file without surrounding blanks; None if it cannot be read."""
        # The kernel omits files of what it does not have, and some files are unreadable at times.
        try:
            return (self.root / name).read_text(errors="replace").strip()
        except OSError:
            return None

    def glob(self, pattern: str) -> list[str]:
        """Return the names of the matching files, relative to the root."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.glob(pattern))

    def set_file(self, name: str, new: str) -> tuple[Change, ...]:
        """Return the change that writes `new` to a file; none if it has that, or does not exist."""
        old = self.text(name)
        return () if old is None or old == new else (Change("file", f"/{name}", old, new),)

    def number(
        self, name: str, file: str, comparison: str, wanted: int, effect: str, unless: str = ""
    ) -> Finding:
        """Judge a file with one number. `unless`: why it is not to be judged."""
        holds, words = _COMPARISONS[comparison]
        want = f"{words}{wanted}"
        text = self.text(file)
        if unless:
            return unjudged(name, want, text or "absent", effect, unless)
        try:
            value = int(text or "")
        except ValueError:
            return absent(name, want, effect, "this kernel has no such setting here")
        ok = holds(value, wanted)
        changes = () if ok else self.set_file(file, str(wanted))
        return Finding(name, want, str(value), ok, effect, changes=changes)

    def sysctl(
        self, name: str, comparison: str, wanted: int, effect: str, unless: str = ""
    ) -> Finding:
        """Judge a sysctl with one number."""
        file = f"proc/sys/{name.replace('.', '/')}"
        return self.number(name, file, comparison, wanted, effect, unless)

    def capable(self, capability: int) -> bool:
        """Return whether each of the processes has a capability: capabilities(7)."""
        return all(
            int(self._status(process, "CapEff") or "0", 16) >> capability & 1
            for process in self.use.processes
        )

    def uid(self) -> int | None:
        """Return the effective user of the first process; None: /proc does not say."""
        found = self._status(self.use.processes[0], "Uid").split()
        # Real, effective, saved, of files.
        return int(found[1]) if len(found) > 1 else None

    def _status(self, process: str, field: str) -> str:
        for line in (self.text(f"proc/{process}/status") or "").splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return value
        return ""

    def limit(self, name: str) -> str | None:
        """Return a soft limit of the first process, from its `limits`."""
        file = f"proc/{self.use.processes[0]}/limits"
        for line in (self.text(file) or "").splitlines():
            if line.startswith(f"{name} "):
                return line.removeprefix(name).split()[0]
        return None
