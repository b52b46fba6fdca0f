"""The files of /proc and /sys that say how a host is set, and the use that is made of the host."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from pathlib import Path

from udpfast.host.core_list import expand
from udpfast.host.finding import Change, Finding, absent, unjudged

__all__ = ["HostTree", "HostUse"]

_COMPARISONS = {
    "==": (operator.eq, ""),
    ">=": (operator.ge, "at least "),
    "<=": (operator.le, "at most "),
}


@dataclass(frozen=True, slots=True)
class HostUse:
    """How a feed uses the host.

    Attributes
    ----------
    cores : tuple of int
        Those that receive.
    strategy_cores : tuple of int
        Those on which strategies spin.
    interfaces : tuple of str
        Names of the network interfaces of its lines.
    rcvbuf_bytes : int
        What each socket asks for. 64 MiB hold a burst of 100,000 datagrams, kernel bookkeeping
        included.
    busy_poll : bool
        Its sockets poll the NIC themselves.
    prefer_busy_poll : bool
        They keep the NIC's interrupts off for as long as they poll.
    gro : bool
        Its sockets take trains of datagrams.
    fifo : bool
        Its loop spins with SCHED_FIFO.
    shm_path : str
        Where its shared memory lies.
    shm_bytes, memory_bytes : int
        What starting it takes there, and of the host's memory altogether; 0: nobody knows.
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

    @property
    def named(self) -> set[int]:
        """All cores that are to be left alone."""
        return {*self.cores, *self.strategy_cores}


class HostTree:
    """A root folder with `proc`, `sys` and `dev` in it, and the use that is made of the host."""

    def __init__(self, root: Path, use: HostUse) -> None:
        self.root = root
        self.use = use
        self.online = expand(self.text("sys/devices/system/cpu/online") or "")

    def text(self, name: str) -> str | None:
        """Return what a file holds, without the blanks around; None if there is no such file."""
        # The kernel leaves out the files of what it does not have, and some cannot be read now.
        try:
            return (self.root / name).read_text(errors="replace").strip()
        except OSError:
            return None

    def glob(self, pattern: str) -> list[str]:
        """Return the names of the files that match, below the root."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.glob(pattern))

    def set_file(self, name: str, new: str) -> tuple[Change, ...]:
        """Return the change that makes a file hold `new`; none if it does, or is not there."""
        old = self.text(name)
        return () if old is None or old == new else (Change("file", f"/{name}", old, new),)

    def number(
        self, name: str, file: str, comparison: str, wanted: int, effect: str, unless: str = ""
    ) -> Finding:
        """Judge a file that holds one number; `unless` says why it is not to be judged."""
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
        """Judge a sysctl that holds one number."""
        file = f"proc/sys/{name.replace('.', '/')}"
        return self.number(name, file, comparison, wanted, effect, unless)

    def capable(self, capability: int) -> bool:
        """Return whether this process has a right: capabilities(7)."""
        return bool(int(self._status("CapEff") or "0", 16) >> capability & 1)

    def uid(self) -> int | None:
        """Return which user this process acts as; None: /proc does not say so."""
        found = self._status("Uid").split()  # real, effective, saved, of files
        return int(found[1]) if len(found) > 1 else None

    def _status(self, field: str) -> str:
        for line in (self.text("proc/self/status") or "").splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return value
        return ""

    def limit(self, name: str) -> str | None:
        """Return a soft limit of this process, as `proc/self/limits` has it."""
        for line in (self.text("proc/self/limits") or "").splitlines():
            if line.startswith(f"{name} "):
                return line.removeprefix(name).split()[0]
        return None
