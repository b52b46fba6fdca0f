"""Knobs between NIC and sockets: those of the whole host."""

from __future__ import annotations

from collections.abc import Iterator

from udpfast.core.host.tree import Finding, HostTree, absent, unjudged

__all__ = ["inspect_network"]

# Bit of a capability set: capabilities(7).
CAP_NET_ADMIN = 12


def inspect_network(tree: HostTree) -> Iterator[Finding]:
    """Yield the findings about sockets, the kernel's queues and multicast."""
    yield _receive_memory(tree)
    yield tree.number(
        "net.core.netdev_max_backlog",
        "proc/sys/net/core/netdev_max_backlog",
        "A burst from a virtual or steered interface overflows the kernel's queue, unseen by "
        "the socket's drop count.",
        least=10_000,
    )
    yield from _backlog(tree)
    for knob in ("busy_poll", "busy_read"):
        name, file = f"net.core.{knob}", f"proc/sys/net/core/{knob}"
        effect = "Every datagram waits for an interrupt and its soft half instead of being fetched."
        if tree.use.busy_poll:
            have = tree.text(file) or "absent"
            reason = "the feed's sockets ask for it themselves"
            yield unjudged(name, "at least 50", have, effect, reason)
        else:
            yield tree.number(name, file, effect, least=50)
    yield tree.number(
        "net.ipv4.igmp_max_memberships",
        "proc/sys/net/ipv4/igmp_max_memberships",
        "A socket that joins more groups than this is refused; that of a line joins one.",
        least=20,
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
    text = tree.text("proc/sys/net/core/rmem_max")
    if not text:
        return absent(name, want, effect, "this kernel has no such setting here")
    if int(text) >= wanted:
        return Finding(name, want, text, True, effect)
    forced = tree.capable(CAP_NET_ADMIN)
    return Finding(name, want, f"{text}{' and CAP_NET_ADMIN' if forced else ''}", forced, effect)


def _backlog(tree: HostTree) -> Iterator[Finding]:
    # The kernel's queue between NIC and sockets: what it dropped, how often its turn was cut short.
    effect = "Since boot the kernel dropped that many before any socket saw them."
    text = tree.text("proc/net/softnet_stat")
    rows = [line.split() for line in (text or "").splitlines()]
    if text is None:
        yield absent("backlog drops", "0", effect, "no /proc/net/softnet_stat")
    else:
        drops = sum(int(row[1], 16) for row in rows)
        yield Finding("backlog drops", "0", str(drops), drops == 0, effect)
    squeezes = sum(int(row[2], 16) for row in rows)
    for knob, least in (("netdev_budget", 600), ("netdev_budget_usecs", 8000)):
        name, file = f"net.core.{knob}", f"proc/sys/net/core/{knob}"
        effect = "The kernel's receive loop was cut short with work left, which then waits a turn."
        if squeezes:
            yield tree.number(name, file, effect, least=least)
        else:
            have = tree.text(file) or "absent"
            reason = "no turn of the receive loop was cut short"
            yield unjudged(name, f"at least {least}", have, effect, reason)
