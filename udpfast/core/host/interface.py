"""Knobs of one network interface."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

from udpfast.core.host.tree import (
    Finding,
    HostTree,
    absent,
    compress,
    expand,
    mask_cores,
    unjudged,
)

__all__ = ["inspect_interface"]

UNNAMED = "no cores are named"
# Enough for a burst, and still in the cache.
RING_WANTED = 1024


def inspect_interface(tree: HostTree, interface: str) -> Iterator[Finding]:
    """Yield the findings about one network interface."""
    net = f"sys/class/net/{interface}"
    if not (tree.root / net).is_dir():
        effect = "A line on it cannot be received."
        yield Finding(interface, "an interface", "absent", False, effect)
        return
    yield _interrupts(tree, interface)
    yield _node(tree, interface)
    yield _reverse_path(tree, interface)
    yield _steering(tree, interface)
    deferral = "Waiting for company saves interrupts; without busy polling it delays datagrams."
    for knob, value in (("napi_defer_hard_irqs", 2), ("gro_flush_timeout", 200_000)):
        wanted = value if tree.use.prefer_busy_poll else 0
        yield tree.exactly(f"{interface} {knob}", f"{net}/{knob}", wanted, deferral)
    yield tree.exactly(
        f"{interface} threaded NAPI",
        f"{net}/threaded",
        0,
        "A kernel thread that is not pinned receives, where the scheduler puts it.",
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
    # A virtio device is one step below the device that has the interrupts.
    for folder in (f"{device}/msi_irqs", f"{device}/../msi_irqs"):
        if (tree.root / folder).is_dir():
            numbers = sorted((path.name for path in (tree.root / folder).iterdir()), key=int)
            break
    if not numbers:
        return absent(name, want, effect, f"{interface} has none of its own")
    lists = [tree.text(f"proc/irq/{number}/smp_affinity_list") for number in numbers]
    allowed = list(dict.fromkeys(text for text in lists if text is not None))
    if not allowed:
        return absent(name, want, effect, "no /proc/irq")
    have = f"on {' '.join(allowed)}"
    if not tree.use.named:
        return unjudged(name, want, have, effect, UNNAMED)
    return Finding(name, want, have, all(expand(text) <= home for text in allowed), effect)


def _node(tree: HostTree, interface: str) -> Finding:
    name, want = f"{interface} NUMA node", "that of the cores"
    effect = "Datagrams cross from one node's memory to the other's, 100 ns and more each."
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
    effect = "Multicast of a sender to whom the route is another interface is dropped, uncounted."
    values = [
        tree.text(f"proc/sys/net/ipv4/conf/{scope}/rp_filter") for scope in ("all", interface)
    ]
    found = [int(value) for value in values if value]
    if len(found) < 2:
        return absent(name, want, effect, "no IPv4 here")
    return Finding(name, want, str(max(found)), max(found) != 1, effect)


def _steering(tree: HostTree, interface: str) -> Finding:
    name = f"{interface} receive steering"
    effect = "Datagrams are handed to other cores in software, one more interrupt each."
    files = tree.glob(f"sys/class/net/{interface}/queues/rx-*/rps_cpus")
    masks = [tree.text(file) for file in files]
    if not any(mask is not None for mask in masks):
        return absent(name, "off", effect, f"{interface} has no queues to steer")
    on = any(mask_cores(mask) for mask in masks if mask)
    return Finding(name, "off", "on" if on else "off", not on, effect)


def _driver(tree: HostTree, interface: str) -> Iterator[Finding]:
    # What only the driver knows, by the `ethtool` command.
    late = "The NIC waits for company before it interrupts: datagrams of a pause come late."
    coalescing = _ask(interface, "-c")
    yield _switch(interface, coalescing, "adaptive-rx", "Adaptive RX", "off", late)
    yield _switch(interface, coalescing, "rx-usecs", "rx-usecs", "0", late)
    yield _ring(interface, _ask(interface, "-g"))
    features = _ask(interface, "-k")
    if tree.use.gro:
        train = "Without it no trains of datagrams come, and each costs a whole pass of the stack."
        yield _switch(interface, features, "gro", "generic-receive-offload", "on", train)
    else:
        each = "The kernel looks at each datagram for trains that the feed does not take."
        yield _switch(interface, features, "gro", "generic-receive-offload", "off", each)
    held = "The NIC holds datagrams back to make larger ones of them."
    yield _switch(interface, features, "lro", "large-receive-offload", "off", held)
    yield _switch(interface, features, "rx-gro-hw", "rx-gro-hw", "off", held)
    checksum = "The kernel reads every byte once more to check it."
    yield _switch(interface, features, "rx-checksumming", "rx-checksumming", "on", checksum)
    pause = _ask(interface, "-a")
    stop = "One slow receiver stops the switch's port, and what it drops there nobody counts."
    yield _switch(interface, pause, "rx pause", "RX", "off", stop)
    yield _switch(interface, pause, "tx pause", "TX", "off", stop)


def _ask(interface: str, flag: str) -> str:
    try:
        answer = subprocess.run(
            ["ethtool", flag, interface], capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout if answer.returncode == 0 else ""


def _field(text: str, key: str) -> str:
    for line in text.splitlines():
        if line.startswith(f"{key}:"):
            return line.partition(":")[2].strip()
    return ""


def _why_absent() -> str:
    return "the driver does not say" if shutil.which("ethtool") else "ethtool is not installed"


def _switch(interface: str, text: str, name: str, key: str, want: str, effect: str) -> Finding:
    # One value of ethtool's answer; "on [fixed]" cannot be changed.
    name = f"{interface} {name}"
    value = _field(text, key)
    if not value or value.startswith("n/a"):
        return absent(name, want, effect, _why_absent())
    have = value.split()[0]
    if have != want and "[fixed]" in value:
        return unjudged(name, want, have, effect, "fixed by the driver")
    return Finding(name, want, have, have == want, effect)


def _ring(interface: str, text: str) -> Finding:
    # Where the NIC has fewer than are wanted, all of them.
    name = f"{interface} rx ring"
    effect = "A burst that the NIC's ring cannot hold is lost before the kernel sees it."
    most, _, current = text.partition("Current")
    limit, have = _field(most, "RX"), _field(current, "RX")
    if not limit.isdigit() or not have.isdigit():
        return absent(name, f"at least {RING_WANTED}", effect, _why_absent())
    wanted = min(RING_WANTED, int(limit))
    return Finding(name, f"at least {wanted}", have, int(have) >= wanted, effect)
