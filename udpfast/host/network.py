"""Knobs between NIC and sockets that apply to the whole host."""

from __future__ import annotations

from collections.abc import Iterator

from udpfast.host.finding import Finding, absent
from udpfast.host.tree import HostTree

__all__ = ["inspect_network"]

# Bit of a capability set: capabilities(7).
CAP_NET_ADMIN = 12


def inspect_network(tree: HostTree) -> Iterator[Finding]:
    """Yield the findings about sockets, the kernel's queues and multicast."""
    yield _receive_memory(tree)
    yield tree.sysctl(
        "net.core.netdev_max_backlog",
        ">=",
        10_000,
        "A burst from a virtual or steered interface overflows the kernel's queue, and the "
        "socket's drop count does not show it.",
    )
    yield from _backlog(tree)
    for name in ("net.core.busy_poll", "net.core.busy_read"):
        yield tree.sysctl(
            name,
            ">=",
            50,
            "Every datagram waits for an interrupt and its second half, instead of being fetched.",
            unless="the feeds' sockets ask for it themselves" if tree.use.busy_poll else "",
        )
    yield tree.sysctl(
        "net.ipv4.igmp_max_memberships",
        ">=",
        20,
        "A socket may join at most this many groups; a line's socket joins one.",
    )
    effect = "It moves the NIC's interrupts back to the loop's core."
    if not (tree.root / "proc/self").is_dir():
        yield absent("irqbalance", "not running", effect, "no /proc")
    else:
        names = {tree.text(file) for file in tree.glob("proc/[0-9]*/comm")}
        running = "irqbalance" in names
        have = "running" if running else "not running"
        yield Finding("irqbalance", "not running", have, not running, effect)


def _receive_memory(tree: HostTree) -> Finding:
    name = "net.core.rmem_max"
    wanted = tree.use.rcvbuf_bytes
    want = f"at least {wanted}, or CAP_NET_ADMIN"
    effect = "A burst that the socket's buffer cannot hold is lost in the kernel (and counted)."
    file = "proc/sys/net/core/rmem_max"
    text = tree.text(file)
    if not text:
        return absent(name, want, effect, "this kernel has no such setting here")
    if int(text) >= wanted:
        return Finding(name, want, text, True, effect)
    # Root's sockets may exceed the limit; those of another user may not, so raise it.
    forced = tree.capable(CAP_NET_ADMIN)
    have = f"{text}{' and CAP_NET_ADMIN' if forced else ''}"
    return Finding(name, want, have, forced, effect, changes=tree.set_file(file, str(wanted)))


def _backlog(tree: HostTree) -> Iterator[Finding]:
    # The kernel's queue between NIC and sockets: how much it dropped, and how often its turn was
    # cut short.
    effect = "The kernel has dropped this many since boot, before any socket saw them."
    text = tree.text("proc/net/softnet_stat")
    rows = [line.split() for line in (text or "").splitlines()]
    if text is None:
        yield absent("backlog drops", "0", effect, "no /proc/net/softnet_stat")
    else:
        drops = sum(int(row[1], 16) for row in rows)
        yield Finding("backlog drops", "0", str(drops), drops == 0, effect)
    squeezes = sum(int(row[2], 16) for row in rows)
    for name, least in (("net.core.netdev_budget", 600), ("net.core.netdev_budget_usecs", 8000)):
        yield tree.sysctl(
            name,
            ">=",
            least,
            "The kernel's receive loop was cut short with datagrams left, which then wait for "
            "its next turn.",
            unless="" if squeezes else "the receive loop was never cut short",
        )
