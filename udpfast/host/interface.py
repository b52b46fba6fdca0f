"""Knobs of one network interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from udpfast.host.core_list import compress, expand, mask_cores
from udpfast.host.ethtool import ask_driver, why_silent
from udpfast.host.finding import Change, Finding, absent, unjudged
from udpfast.host.tree import HostTree

__all__ = ["inspect_interface"]

UNNAMED = "no cores were named"
# Enough for a burst, and small enough to stay in the cache.
RING_WANTED = 1024


def inspect_interface(tree: HostTree, interface: str) -> Iterator[Finding]:
    """Yield the findings about one network interface."""
    net = f"sys/class/net/{interface}"
    if not (tree.root / net).is_dir():
        effect = "No line can be received on it."
        yield Finding(interface, "an interface", "absent", False, effect, fault=True)
        return
    yield _interrupts(tree, interface)
    yield _node(tree, interface)
    yield _reverse_path(tree, interface)
    yield _steering(tree, interface)
    yield _queues(tree, interface)
    deferral = (
        "Collecting datagrams before an interrupt saves interrupts; without busy polling "
        "it delays datagrams."
    )
    for knob, value in (("napi_defer_hard_irqs", 2), ("gro_flush_timeout", 200_000)):
        wanted = value if tree.use.prefer_busy_poll else 0
        yield tree.number(f"{interface} {knob}", f"{net}/{knob}", "==", wanted, deferral)
    yield tree.number(
        f"{interface} threaded NAPI",
        f"{net}/threaded",
        "==",
        0,
        "A kernel thread that is not pinned receives, on whatever core the scheduler chooses.",
    )
    yield from _driver(tree, interface)


def _interrupts(tree: HostTree, interface: str) -> Finding:
    name = f"{interface} interrupts"
    effect = "An interrupt on the loop's core stops the loop; on a far node it costs a cache miss."
    device = f"sys/class/net/{interface}/device"
    node = tree.text(f"{device}/numa_node")
    near = tree.text(f"sys/devices/system/node/node{node}/cpulist")
    home = (expand(near) if near else tree.online) - tree.use.named
    want = f"on {compress(home) or 'other cores'}"
    numbers: list[str] = []
    # The interrupts of a virtio device belong to its parent device.
    for folder in (f"{device}/msi_irqs", f"{device}/../msi_irqs"):
        if (tree.root / folder).is_dir():
            numbers = sorted((path.name for path in (tree.root / folder).iterdir()), key=int)
            break
    if not numbers:
        return absent(name, want, effect, f"{interface} has no interrupts of its own")
    files = [f"proc/irq/{number}/smp_affinity_list" for number in numbers]
    allowed = {file: text for file in files if (text := tree.text(file)) is not None}
    if not allowed:
        return absent(name, want, effect, "no /proc/irq")
    have = f"on {' '.join(dict.fromkeys(allowed.values()))}"
    if not tree.use.named:
        return unjudged(name, want, have, effect, UNNAMED)
    bad = [file for file, text in allowed.items() if not expand(text) <= home]
    changes = [change for file in bad if home for change in tree.set_file(file, compress(home))]
    return Finding(name, want, have, not bad, effect, changes=tuple(changes))


def _node(tree: HostTree, interface: str) -> Finding:
    name, want = f"{interface} NUMA node", "that of the cores"
    effect = (
        "Datagrams cross from one node's memory to the other's, which takes at least 100 ns each."
    )
    node = tree.text(f"sys/class/net/{interface}/device/numa_node")
    near = tree.text(f"sys/devices/system/node/node{node}/cpulist")
    if node is None:
        return absent(name, want, effect, "the machine does not say")
    if node == "-1" or near is None:
        return unjudged(name, want, node, effect, "the machine does not say")
    if not tree.use.cores:
        return unjudged(name, want, node, effect, UNNAMED)
    ok = set(tree.use.cores) <= expand(near)
    return Finding(name, f"that of {compress(tree.use.cores)}", f"{node} ({near})", ok, effect)


def _reverse_path(tree: HostTree, interface: str) -> Finding:
    # The kernel uses the larger of the two: 0 off, 1 strict, 2 loose.
    name, want = f"{interface} rp_filter", "0 or 2"
    effect = (
        "Multicast is dropped, uncounted, if the route to its sender leads to another interface."
    )
    values = [
        tree.text(f"proc/sys/net/ipv4/conf/{scope}/rp_filter") for scope in ("all", interface)
    ]
    found = [int(value) for value in values if value]
    if len(found) < 2:
        return absent(name, want, effect, "no IPv4 here")
    ok = max(found) != 1
    changes = () if ok else tree.set_file(f"proc/sys/net/ipv4/conf/{interface}/rp_filter", "2")
    return Finding(name, want, str(max(found)), ok, effect, changes=changes)


def _steering(tree: HostTree, interface: str) -> Finding:
    name = f"{interface} receive steering"
    effect = "Software hands datagrams to other cores, at the cost of another interrupt each."
    files = tree.glob(f"sys/class/net/{interface}/queues/rx-*/rps_cpus")
    masks = {file: mask for file in files if (mask := tree.text(file)) is not None}
    if not masks:
        return absent(name, "off", effect, f"{interface} has no queues to steer")
    on = [file for file, mask in masks.items() if mask_cores(mask)]
    changes = tuple(change for file in on for change in tree.set_file(file, "0"))
    return Finding(name, "off", "on" if on else "off", not on, effect, changes=changes)


def _queues(tree: HostTree, interface: str) -> Finding:
    name = f"{interface} rx queues"
    effect = "Lines that share a queue wait for each other, whatever cores receive them."
    count = len(tree.glob(f"sys/class/net/{interface}/queues/rx-*"))
    wanted = max(1, len(tree.use.cores))
    want = f"at least {wanted}, one for each core that receives"
    if not count:
        return absent(name, want, effect, f"{interface} shows no queues")
    if not tree.use.cores:
        return unjudged(name, want, str(count), effect, UNNAMED)
    return Finding(name, want, str(count), count >= wanted, effect)


class _Switch(NamedTuple):
    # A setting that only the driver knows: ethtool shows it with a flag, and sets it with the same
    # flag in capitals.
    name: str
    shown: str
    key: str
    want: str
    effect: str
    parameter: str


def _switches(*, gro: bool) -> Iterator[_Switch]:
    late = "The NIC delays its interrupt to collect datagrams: those after a pause come late."
    yield _Switch("adaptive-rx", "-c", "Adaptive RX", "off", late, "adaptive-rx")
    yield _Switch("rx-usecs", "-c", "rx-usecs", "0", late, "rx-usecs")
    if gro:
        train = (
            "Without it datagrams never arrive in runs, and each one costs a whole pass of "
            "the stack."
        )
        yield _Switch("gro", "-k", "generic-receive-offload", "on", train, "gro")
    else:
        each = "The kernel searches for runs of datagrams that the feed does not use."
        yield _Switch("gro", "-k", "generic-receive-offload", "off", each, "gro")
    held = "The NIC holds datagrams back to merge them."
    yield _Switch("lro", "-k", "large-receive-offload", "off", held, "lro")
    yield _Switch("rx-gro-hw", "-k", "rx-gro-hw", "off", held, "rx-gro-hw")
    checksum = "The kernel reads every byte again to check it."
    yield _Switch("rx-checksumming", "-k", "rx-checksumming", "on", checksum, "rx")
    stop = (
        "One slow receiver stops the switch's port, and nothing counts the datagrams that "
        "are dropped there."
    )
    yield _Switch("rx pause", "-a", "RX", "off", stop, "rx")
    yield _Switch("tx pause", "-a", "TX", "off", stop, "tx")


def _driver(tree: HostTree, interface: str) -> Iterator[Finding]:
    shown = {flag: ask_driver(interface, flag) for flag in ("-c", "-g", "-k", "-a")}
    for switch in _switches(gro=tree.use.gro):
        if switch.name == "gro":
            yield _ring(interface, shown["-g"])
        yield _judge(interface, shown[switch.shown], switch)


def _field(text: str, key: str) -> str:
    for line in text.splitlines():
        if line.startswith(f"{key}:"):
            return line.partition(":")[2].strip()
    return ""


def _judge(interface: str, text: str, switch: _Switch) -> Finding:
    name, want, effect = f"{interface} {switch.name}", switch.want, switch.effect
    value = _field(text, switch.key)
    if not value or value.startswith("n/a"):
        return absent(name, want, effect, why_silent())
    have = value.split()[0]
    if have == want:
        return Finding(name, want, have, True, effect)
    if "[fixed]" in value:
        return unjudged(name, want, have, effect, "fixed by the driver")
    flag = f"{interface} {switch.shown.upper()}"
    changes = [Change("ethtool", f"{flag} {switch.parameter}", have, want)]
    # A negotiated pause can only be set once the negotiation is off.
    if _field(text, "Autonegotiate").startswith("on"):
        changes.insert(0, Change("ethtool", f"{flag} autoneg", "on", "off"))
    return Finding(name, want, have, False, effect, changes=tuple(changes))


def _ring(interface: str, text: str) -> Finding:
    # If the NIC has fewer entries than wanted, use all of them.
    name = f"{interface} rx ring"
    effect = "A burst that the NIC's ring cannot hold is lost before the kernel sees it."
    most, _, current = text.partition("Current")
    limit, have = _field(most, "RX"), _field(current, "RX")
    if not limit.isdigit() or not have.isdigit():
        return absent(name, f"at least {RING_WANTED}", effect, why_silent())
    wanted = min(RING_WANTED, int(limit))
    ok = int(have) >= wanted
    changes = () if ok else (Change("ethtool", f"{interface} -G rx", have, str(wanted)),)
    return Finding(name, f"at least {wanted}", have, ok, effect, changes=changes)
