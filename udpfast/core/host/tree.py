"""The files of /proc and /sys that say how a host is set, and what is found in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "Finding",
    "HostTree",
    "HostUse",
    "absent",
    "compress",
    "expand",
    "mask_cores",
    "unjudged",
]


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
        Whether that will do; None if it cannot be judged here.
    effect : str
        What it does to a feed, a sentence.
    reason : str
        Why it cannot be judged; empty if it is.
    """

    name: str
    want: str
    have: str
    ok: bool | None
    effect: str
    reason: str = ""


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
    """

    cores: tuple[int, ...] = ()
    strategy_cores: tuple[int, ...] = ()
    interfaces: tuple[str, ...] = ()
    rcvbuf_bytes: int = 64 << 20
    busy_poll: bool = False
    prefer_busy_poll: bool = False
    gro: bool = False
    fifo: bool = False

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

    def number(
        self, name: str, file: str, effect: str, *, least: int | None = None, most: int = 0
    ) -> Finding:
        """Judge a file that holds one number: `least` or more, else `most` or fewer."""
        want = f"at most {most}" if least is None else f"at least {least}"
        value = self._integer(file)
        if value is None:
            return absent(name, want, effect, "this kernel has no such setting here")
        ok = value <= most if least is None else value >= least
        return Finding(name, want, str(value), ok, effect)

    def exactly(self, name: str, file: str, wanted: int, effect: str) -> Finding:
        """Judge a file that should hold one number."""
        value = self._integer(file)
        if value is None:
            reason = "this kernel has no such setting here"
            return absent(name, str(wanted), effect, reason)
        return Finding(name, str(wanted), str(value), value == wanted, effect)

    def _integer(self, file: str) -> int | None:
        try:
            return int(self.text(file) or "")
        except ValueError:
            return None

    def capable(self, capability: int) -> bool:
        """Return whether this process has a right: capabilities(7)."""
        for line in (self.text("proc/self/status") or "").splitlines():
            name, _, value = line.partition(":")
            if name == "CapEff":
                return bool(int(value, 16) >> capability & 1)
        return False

    def limit(self, name: str) -> str | None:
        """Return a soft limit of this process, as `proc/self/limits` has it."""
        for line in (self.text("proc/self/limits") or "").splitlines():
            if line.startswith(f"{name} "):
                return line.removeprefix(name).split()[0]
        return None


def absent(name: str, want: str, effect: str, reason: str) -> Finding:
    """Return the finding about something that is not there."""
    return Finding(name, want, "absent", None, effect, reason)


def unjudged(name: str, want: str, have: str, effect: str, reason: str) -> Finding:
    """Return the finding about something that is there, and cannot be judged."""
    return Finding(name, want, have, None, effect, reason)


def expand(text: str) -> set[int]:
    """Return the cores of a list as the kernel writes it: "0-2,5"."""
    cores: set[int] = set()
    for part in text.replace(",", " ").split():
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return cores


def compress(cores: Iterable[int]) -> str:
    """Write cores as the kernel does: "0-2,5"; the reverse of `expand`."""
    runs: list[list[int]] = []
    for core in sorted(set(cores)):
        if runs and runs[-1][1] == core - 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def mask_cores(mask: str) -> set[int]:
    """Return the cores of a kernel mask: words of 32 bits, the highest first."""
    bits = int(mask.replace(",", "") or "0", 16)
    return {core for core in range(bits.bit_length()) if bits >> core & 1}
