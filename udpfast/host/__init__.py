"""What this host has and lacks for low-latency reception, and how to set what can be set.

Each knob is described once: its finding says what is wanted, what was found, how that affects a
feed, and the changes that improve it. `udpfast check` and `scripts/tune_host.sh` show the findings;
the latter makes the changes. Only the standard library is imported here, so that a clone that was
never compiled can tune a host.
"""

from __future__ import annotations

from pathlib import Path

from udpfast.host.clocks import ClockState, inspect_clocks, read_clock
from udpfast.host.cores import inspect_cores
from udpfast.host.finding import Change, Finding
from udpfast.host.interface import inspect_interface
from udpfast.host.login import inspect_login, shared_memory_removal
from udpfast.host.memory import inspect_kernel, inspect_memory, inspect_rights
from udpfast.host.network import inspect_network
from udpfast.host.tree import HostTree, HostUse

__all__ = ["Change", "ClockState", "Finding", "HostUse", "inspect_host", "read_clock",
           "shared_memory_removal"]  # fmt: skip


def inspect_host(root: Path = Path("/"), use: HostUse | None = None) -> list[Finding]:
    """Inspect cores, kernel, memory, rights, network and clock. Read-only; needs no root.

    Parameters
    ----------
    root : Path
        Directory with `proc`, `sys` and `dev`; a test makes its own.
    use : HostUse, optional
        The cores and interfaces that the feed uses, and how. Without it, findings that depend on
        them are not judged.

    Returns
    -------
    list of Finding
        In a fixed order, with the same names on every host.
    """
    tree = HostTree(root, use or HostUse())
    findings = [
        *inspect_cores(tree),
        *inspect_kernel(tree),
        *inspect_memory(tree),
        *inspect_rights(tree),
        *inspect_login(tree),
        *inspect_network(tree),
        *inspect_clocks(tree),
    ]
    for interface in tree.use.interfaces:
        findings += inspect_interface(tree, interface)
    return findings
