"""Knobs of the cores: what runs on them, their frequency, their idle states."""

from __future__ import annotations

from collections.abc import Iterator

from udpfast.host.core_list import compress, cores_mask, expand, mask_cores
from udpfast.host.finding import Change, Finding, absent, unjudged
from udpfast.host.tree import HostTree

__all__ = ["inspect_cores"]

CPU = "sys/devices/system/cpu"
# C1 and C1E of x86 wake in 2 to 10 us, deeper states in 100 and more.
WAKE_US = 10
UNNAMED = "no cores were named"


def inspect_cores(tree: HostTree) -> Iterator[Finding]:
    """Yield the findings about cores."""
    isolated = expand(tree.text(f"{CPU}/isolated") or "")
    isolated |= expand(tree.text("sys/fs/cgroup/cpuset.cpus.isolated") or "")
    yield _count(tree)
    yield _isolation(tree, isolated)
    yield from _ticks(tree)
    yield _governor(tree)
    yield _idle_states(tree)
    yield _siblings(tree, isolated)
    yield _clock(tree)
    yield _work_queues(tree)


def _count(tree: HostTree) -> Finding:
    effect = "A feed that spins needs a core, and so does each strategy that spins."
    allowed: set[int] = set()
    for line in (tree.text("proc/self/status") or "").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            allowed = expand(line.partition(":")[2])
    if not allowed:
        return absent("cores", "at least 2", effect, "no /proc/self/status")
    return Finding(
        "cores",
        "at least 2",
        str(len(allowed)),
        len(allowed) >= 2,
        effect,
    )


def _isolation(tree: HostTree, isolated: set[int]) -> Finding:
    # Isolated by the boot line or by a cpuset partition.
    named = tree.use.named
    return Finding(
        "isolated cores",
        compress(named) or "one or more",
        compress(isolated) or "none",
        named <= isolated and bool(isolated),
        "On other cores the scheduler interrupts the loop for milliseconds at a time.",
    )


def _ticks(tree: HostTree) -> Iterator[Finding]:
    use = tree.use
    name = "cores without timer tick"
    effect = (
        "The tick takes some us from a spinning strategy 100 to 1000 times a second. On cores "
        "that receive, turning it off would make each system call slower."
    )
    text = tree.text(f"{CPU}/nohz_full")
    have = (text or "").removeprefix("(null)")
    tickless = expand(have)
    wanted = [compress(use.strategy_cores)] if use.strategy_cores else []
    wanted += [f"not {compress(use.cores)}"] if use.cores else []
    want = ", ".join(wanted) or "those of strategies"
    if text is None:
        yield absent(name, want, effect, "this kernel has no nohz_full")
    elif not use.named:
        yield unjudged(name, want, have or "none", effect, UNNAMED)
    else:
        wrong = set(use.strategy_cores) - tickless
        wrong |= (tickless - set(use.strategy_cores)) & set(use.cores)
        yield Finding(name, want, have or "none", not wrong, effect)
    yield _callbacks(tree, tickless)


def _callbacks(tree: HostTree, tickless: set[int]) -> Finding:
    name = "cores without RCU callbacks"
    effect = "The kernel frees other programs' memory in the middle of the loop."
    line = tree.text("proc/cmdline")
    want = compress(tree.use.named) or "those named"
    if line is None:
        return absent(name, want, effect, "no /proc/cmdline")
    covered = set(tickless)
    for word in line.split():
        key, _, value = word.partition("=")
        if key == "rcu_nocbs":
            covered |= tree.online if value in {"", "all"} else expand(value)
    have = compress(covered) or "none"
    if not tree.use.named:
        return unjudged(name, want, have, effect, UNNAMED)
    return Finding(name, want, have, tree.use.named <= covered, effect)


def _governor(tree: HostTree) -> Finding:
    name, want = "frequency governor", "performance"
    effect = "With another governor, the first datagrams after a pause meet a slow core."
    cores = sorted(tree.use.named or tree.online)
    files = [f"{CPU}/cpu{core}/cpufreq/scaling_governor" for core in cores]
    have = list(dict.fromkeys(text for file in files if (text := tree.text(file))))
    if not have:
        return absent(name, want, effect, "no frequency scaling here")
    changes = tuple(change for file in files for change in tree.set_file(file, want))
    return Finding(name, want, " ".join(have), have == [want], effect, changes=changes)


def _idle_states(tree: HostTree) -> Finding:
    name, want = "idle states", f"wake in {WAKE_US} us or less"
    effect = "A core in a deep sleep wakes 100 us late or later; a core that spins never sleeps."
    deepest = -1
    changes: list[Change] = []
    for core in sorted(tree.use.named or tree.online):
        for file in tree.glob(f"{CPU}/cpu{core}/cpuidle/state*/latency"):
            latency, disable = int(tree.text(file) or "0"), file.replace("/latency", "/disable")
            if tree.text(disable) in {None, "0"}:
                deepest = max(deepest, latency)
            if latency > WAKE_US:
                changes += tree.set_file(disable, "1")
    if deepest < 0:
        return absent(name, want, effect, "no idle states to choose from here")
    if deepest <= WAKE_US:
        return Finding(name, want, f"{deepest} us", True, effect)
    held = _held_us(tree)
    if held is not None and held <= WAKE_US:
        return Finding(name, want, f"held to {held} us", True, effect)
    return Finding(name, want, f"{deepest} us", False, effect, changes=tuple(changes))


def _held_us(tree: HostTree) -> int | None:
    # A process that holds /dev/cpu_dma_latency open bounds how deep all cores may sleep.
    try:
        with (tree.root / "dev/cpu_dma_latency").open("rb", buffering=0) as file:
            held = file.read(4)
    except OSError:
        return None
    return int.from_bytes(held, "little", signed=True) if held else None


def _siblings(tree: HostTree, isolated: set[int]) -> Finding:
    # A sibling that is isolated and not named is idle.
    name, want = "SMT siblings", "off or idle"
    effect = (
        "Anything that runs on the other half of the core takes a third of its speed and "
        "of its caches."
    )
    active = tree.text(f"{CPU}/smt/active")
    if active is None:
        return absent(name, want, effect, "no such cores here")
    if active == "0":
        return Finding(name, want, "off", True, effect)
    named = tree.use.named
    if not named:
        return Finding(name, want, "on", False, effect)
    busy: set[int] = set()
    for core in named:
        siblings = expand(tree.text(f"{CPU}/cpu{core}/topology/thread_siblings_list") or "")
        busy |= (siblings - {core}) - (isolated - named)
    return Finding(name, want, f"{compress(busy) or 'none'} busy", not busy, effect)


def _clock(tree: HostTree) -> Finding:
    name, want = "clock source", "tsc"
    effect = "Other clocks cost a system call or more at each turn of the loop, instead of 24 ns."
    directory = "sys/devices/system/clocksource/clocksource0"
    source = tree.text(f"{directory}/current_clocksource")
    if source is None:
        return absent(name, want, effect, "this kernel does not say")
    if source in {"tsc", "arch_sys_counter"}:
        return Finding(name, want, source, True, effect)
    others = (tree.text(f"{directory}/available_clocksource") or "").split()
    changes = tree.set_file(f"{directory}/current_clocksource", want) if want in others else ()
    return Finding(name, want, source, False, effect, changes=changes)


def _work_queues(tree: HostTree) -> Finding:
    name, want = "kernel work queues", "not on the named cores"
    effect = "Deferred work of the kernel interrupts the loop."
    file = "sys/devices/virtual/workqueue/cpumask"
    mask = tree.text(file)
    if mask is None:
        return absent(name, want, effect, "this kernel does not say")
    cores, named = mask_cores(mask), tree.use.named
    if not named:
        return unjudged(name, want, compress(cores), effect, UNNAMED)
    ok, home = not cores & named, cores - named
    changes = () if ok or not home else tree.set_file(file, cores_mask(home))
    return Finding(name, f"not on {compress(named)}", compress(cores), ok, effect, changes=changes)
