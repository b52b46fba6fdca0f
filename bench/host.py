"""The fingerprint of a host: all that a figure depends on, and that may differ elsewhere."""

from __future__ import annotations

import datetime
import math
import os
import platform
import subprocess
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import udpfast

from .loops import hostprobe

__all__ = ["NEAR_NS", "Fingerprint", "jitter", "placement", "take_fingerprint"]

#: Cores whose cache lines travel faster share a last-level cache.
NEAR_NS = 60.0


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A host and a build.

    Attributes
    ----------
    kernel, distribution, cpu, virtual, governor, isolated, clocksource : str
        "absent" or "none" where this machine has no such thing.
    cores, memory_bytes, rmem_max : int
        Cores that this process may use; memory; the largest socket buffer that is granted to all.
    python, compiler, flags, commit, version : str
        Of the build that is measured; `commit` is "" where there is no repository.
    dirty : bool
        The tree differs from its commit.
    date : str
        UTC, ISO 8601.
    """

    kernel: str
    distribution: str
    cpu: str
    virtual: str
    cores: int
    governor: str
    isolated: str
    clocksource: str
    memory_bytes: int
    rmem_max: int
    python: str
    compiler: str
    flags: str
    commit: str
    dirty: bool
    version: str
    date: str


def take_fingerprint(root: Path = Path("/")) -> Fingerprint:
    """Look at this host and this build; `root` is where a test lays out its `proc` and `sys`."""
    tree = Path(__file__).resolve().parent.parent
    processors = _read(root, "proc/cpuinfo")
    commit = _git(tree, "rev-parse", "--short=12", "HEAD")
    return Fingerprint(
        kernel=_read(root, "proc/sys/kernel/osrelease") or "absent",
        distribution=_field(_read(root, "etc/os-release"), "PRETTY_NAME", "=").strip('"'),
        cpu=_field(processors, "model name", ":"),
        virtual="yes" if " hypervisor" in _field(processors, "flags", ":") else "no",
        cores=len(os.sched_getaffinity(0)),
        governor=_read(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "absent",
        isolated=_read(root, "sys/devices/system/cpu/isolated") or "none",
        clocksource=_read(root, "sys/devices/system/clocksource/clocksource0/current_clocksource")
        or "absent",
        memory_bytes=int(_field(_read(root, "proc/meminfo"), "MemTotal", ":", "0").split()[0])
        << 10,
        rmem_max=int(_read(root, "proc/sys/net/core/rmem_max") or 0),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        compiler=hostprobe.COMPILER,
        flags=hostprobe.FLAGS,
        commit=commit,
        dirty=bool(commit and _git(tree, "status", "--porcelain", "--untracked-files=no")),
        version=udpfast.__version__,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def jitter(cores: tuple[int, ...], seconds: float) -> dict[str, Any]:
    """Spin on all cores at once, and say per core how often and how long the machine stopped it."""
    found: list[hostprobe.Gaps] = []
    threads = [
        threading.Thread(
            target=lambda core=core: found.append(hostprobe.spin(core, int(seconds * 1e9)))
        )
        for core in cores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.sort(key=lambda gaps: gaps.core)
    return {
        "lost_share": round(max(gaps.lost_ns / gaps.elapsed_ns for gaps in found), 5),
        "cores": [
            asdict(gaps)
            | {
                "over_10us_per_s": round(gaps.over_10us * 1e9 / gaps.elapsed_ns, 1),
                "over_1ms_per_s": round(gaps.over_1ms * 1e9 / gaps.elapsed_ns, 1),
            }
            for gaps in found
        ],
    }


def placement(ping_ns: float) -> str:
    """Return the class of a core-to-core time; "" if it could not be measured."""
    if math.isnan(ping_ns):
        return ""
    return "NEAR" if ping_ns < NEAR_NS else "FAR"


def _read(root: Path, name: str) -> str:
    # The kernel leaves out the files of what it does not have.
    try:
        return (root / name).read_text().strip()
    except OSError:
        return ""


def _field(content: str, name: str, separator: str, absent: str = "absent") -> str:
    for line in content.splitlines():
        key, found, value = line.partition(separator)
        if found and key.strip() == name:
            return value.strip()
    return absent


def _git(tree: Path, *arguments: str) -> str:
    try:
        result = subprocess.run(
            ["git", "-C", str(tree), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""
