"""The kernel arguments to set at boot for the named cores."""

from __future__ import annotations

from udpfast.host.core_list import compress
from udpfast.host.tree import HostTree

__all__ = ["boot_line"]

_DRIVERS = {
    "intel_idle": ["intel_idle.max_cstate=1", "processor.max_cstate=1"],
    "acpi_idle": ["processor.max_cstate=1"],
}


def boot_line(tree: HostTree) -> str:
    """Return kernel arguments for the boot loader: cores are named, and one or more are not."""
    named, strategy = tree.use.named, tree.use.strategy_cores
    home = tree.online - named
    words = [
        f"isolcpus=managed_irq,domain,{compress(named)}",
        f"irqaffinity={compress(home)}",
        f"rcu_nocbs={compress(named)}",
        *([f"nohz_full={compress(strategy)}"] if strategy else []),
        *("skew_tick=1", "nosoftlockup", "nowatchdog", "transparent_hugepage=madvise"),
    ]
    if tree.text("sys/devices/system/clocksource/clocksource0/current_clocksource") == "tsc":
        words.append("tsc=reliable")
    driver = tree.text("sys/devices/system/cpu/cpuidle/current_driver") or ""
    return " ".join(words + _DRIVERS.get(driver, []))
