"""What this host is, and what it lacks for the job. Looks, and changes nothing.

`scripts/tune_host.sh` has the same knobs under the same names, and can set them.
"""

from __future__ import annotations

from pathlib import Path

from udpfast.core.host.cores import inspect_cores
from udpfast.core.host.interface import inspect_interface
from udpfast.core.host.memory import inspect_kernel, inspect_memory, inspect_rights
from udpfast.core.host.network import inspect_network
from udpfast.core.host.tree import Finding, HostTree, HostUse

__all__ = ["Finding", "HostUse", "inspect_host"]


def inspect_host(root: Path = Path("/"), use: HostUse | None = None) -> list[Finding]:
    """Look at cores, kernel, memory, rights and network of this host; read-only, no root needed.

    Parameters
    ----------
    root : Path
        Where `proc`, `sys` and `dev` are; a test lays out its own.
    use : HostUse, optional
        Which cores and interfaces the feed uses, and how; without it what depends on them is not
        judged.

    Returns
    -------
    list of Finding
        In a fixed order, the same names on every host.
    """
    tree = HostTree(root, use or HostUse())
    findings = [
        *inspect_cores(tree),
        *inspect_kernel(tree),
        *inspect_memory(tree),
        *inspect_rights(tree),
        *inspect_network(tree),
    ]
    for interface in tree.use.interfaces:
        findings += inspect_interface(tree, interface)
    return findings
