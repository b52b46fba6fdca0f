"""A made-up host: /proc, /sys and /dev of a well-tuned machine, its faults, and its driver."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

__all__ = ["CHRONY", "FAULTS", "SETTABLE", "Driver", "lay_out", "snapshot", "spoil"]

CPU = "sys/devices/system/cpu"
NIC = "sys/devices/pci0/virtio0/net/eth1"
SYSCTL = "proc/sys"

#: Cores 0 to 3 on node 0 with the NIC, 4 to 7 are their siblings. 2 receives, 3 has a strategy.
FILES = {
    f"{CPU}/online": "0-7",
    f"{CPU}/isolated": "2-3,6-7",
    f"{CPU}/nohz_full": "3",
    f"{CPU}/smt/active": "1",
    f"{CPU}/cpuidle/current_driver": "intel_idle",
    "sys/devices/system/node/node0/cpulist": "0-3",
    "sys/devices/system/node/node1/cpulist": "4-7",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
    "sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet acpi_pm",
    "sys/devices/virtual/workqueue/cpumask": "33",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "proc/cmdline": "quiet rcu_nocbs=2-3 isolcpus=managed_irq,domain,2-3,6-7",
    "proc/self/status": (
        "Name:\tpython\nUid:\t1001\t1001\t1001\t1001\nCapEff:\t0000000000000000\n"
        "Cpus_allowed_list:\t0-7"
    ),
    "proc/self/limits": (
        "Limit                     Soft Limit           Hard Limit           Units\n"
        "Max locked memory         unlimited            unlimited            bytes\n"
        "Max realtime priority     99                   99"
    ),
    "proc/1/comm": "systemd",
    "proc/88/comm": "chronyd",
    "etc/passwd": "root:x:0:0\nfeed:x:1001:1001",
    "etc/systemd/logind.conf": "[Login]\n#RemoveIPC=yes\nRemoveIPC=no",
    "proc/net/softnet_stat": "0110445f 00000000 00000000\n00d6463d 00000000 00000000",
    "proc/irq/40/smp_affinity_list": "0-1",
    "proc/irq/41/smp_affinity_list": "1",
    f"{SYSCTL}/kernel/random/boot_id": "5e2a6b1c-0000-4000-8000-000000000001",
    f"{SYSCTL}/kernel/numa_balancing": "0",
    f"{SYSCTL}/kernel/timer_migration": "0",
    f"{SYSCTL}/kernel/nmi_watchdog": "0",
    f"{SYSCTL}/kernel/sched_rt_runtime_us": "950000",
    f"{SYSCTL}/vm/stat_interval": "10",
    f"{SYSCTL}/vm/swappiness": "10",
    f"{SYSCTL}/net/core/rmem_max": "67108864",
    f"{SYSCTL}/net/core/netdev_max_backlog": "10000",
    f"{SYSCTL}/net/core/netdev_budget": "300",
    f"{SYSCTL}/net/core/netdev_budget_usecs": "2000",
    f"{SYSCTL}/net/core/busy_poll": "50",
    f"{SYSCTL}/net/core/busy_read": "50",
    f"{SYSCTL}/net/ipv4/igmp_max_memberships": "20",
    f"{SYSCTL}/net/ipv4/conf/all/rp_filter": "0",
    f"{SYSCTL}/net/ipv4/conf/eth1/rp_filter": "2",
    f"{NIC}/napi_defer_hard_irqs": "0",
    f"{NIC}/gro_flush_timeout": "0",
    f"{NIC}/threaded": "0",
    f"{NIC}/queues/rx-0/rps_cpus": "00000000,00000000",
    f"{NIC}/queues/rx-1/rps_cpus": "0",
    "sys/devices/pci0/virtio0/numa_node": "0",
    "sys/devices/pci0/msi_irqs/40": "msix",
    "sys/devices/pci0/msi_irqs/41": "msix",
}
for core in range(8):
    FILES[f"{CPU}/cpu{core}/topology/thread_siblings_list"] = f"{core % 4},{core % 4 + 4}"
    FILES[f"{CPU}/cpu{core}/cpufreq/scaling_governor"] = "performance"
    for state, (latency, disable) in enumerate([(0, 0), (2, 0), (133, 1)]):
        FILES[f"{CPU}/cpu{core}/cpuidle/state{state}/latency"] = str(latency)
        FILES[f"{CPU}/cpu{core}/cpuidle/state{state}/disable"] = str(disable)

#: What `ethtool FLAG eth1` prints, in the file of that name.
ETHTOOL_FILES = {
    "ethtool/eth1-c": "Coalesce parameters for eth1:\nAdaptive RX: off  TX: n/a\n"
    "stats-block-usecs: n/a\n\nrx-usecs: 0\nrx-frames: 1\nrx-usecs-irq: n/a",
    "ethtool/eth1-g": "Ring parameters for eth1:\nPre-set maximums:\nRX:\t\t4096\n"
    "RX Mini:\tn/a\nTX:\t\t4096\n"
    "Current hardware settings:\nRX:\t\t1024\nRX Mini:\tn/a\nTX:\t\t512",
    "ethtool/eth1-k": "Features for eth1:\nrx-checksumming: on\ngeneric-receive-offload: off\n"
    "large-receive-offload: off [fixed]\nrx-gro-hw: on [fixed]\nntuple-filters: off [fixed]",
    "ethtool/eth1-a": "Pause parameters for eth1:\nAutonegotiate:\toff\nRX:\t\toff\nTX:\t\toff",
}

#: What `chronyc -n -c tracking` prints, in the file of that name.
CHRONY = (
    "C0A80101,192.168.1.1,2,1763000000.5,-0.000012345,0.000001,0.00002,-10.1,0.01,0.05,"
    "0.000400000,0.000100000,64.1,Normal"
)

#: What `ethtool` calls by one name when it sets it, and by another one when it shows it.
SHOWN = {
    "-C adaptive-rx": "Adaptive RX",
    "-G rx": "RX",
    "-K gro": "generic-receive-offload",
    "-K lro": "large-receive-offload",
    "-K rx": "rx-checksumming",
    "-A autoneg": "Autonegotiate",
    "-A rx": "RX",
    "-A tx": "TX",
}

#: One fault each: the knob that it shows in, a file, and what the file holds then.
FAULTS = [
    ("cores", "proc/self/status", "CapEff:\t0000000000000000\nCpus_allowed_list:\t2"),
    ("isolated cores", f"{CPU}/isolated", "6-7,3"),
    ("cores without timer tick", f"{CPU}/nohz_full", "(null)"),
    ("cores without timer tick", f"{CPU}/nohz_full", "2-3"),
    ("cores without RCU callbacks", "proc/cmdline", "quiet rcu_nocbs=3"),
    ("frequency governor", f"{CPU}/cpu3/cpufreq/scaling_governor", "powersave"),
    ("idle states", f"{CPU}/cpu2/cpuidle/state2/disable", "0"),
    ("SMT siblings", f"{CPU}/isolated", "2-3,7"),
    (
        "clock source",
        "sys/devices/system/clocksource/clocksource0/current_clocksource",
        "hpet",
    ),
    ("clock daemon", "proc/88/comm", "bash"),
    ("clock error", "chronyc", CHRONY.replace("Normal", "Not synchronised")),
    ("clock error", "chronyc", CHRONY.replace("0.000400000", "0.9")),
    ("kernel work queues", "sys/devices/virtual/workqueue/cpumask", "00000000,000000ff"),
    ("kernel.numa_balancing", f"{SYSCTL}/kernel/numa_balancing", "1"),
    ("kernel.timer_migration", f"{SYSCTL}/kernel/timer_migration", "1"),
    ("kernel.nmi_watchdog", f"{SYSCTL}/kernel/nmi_watchdog", "1"),
    ("vm.stat_interval", f"{SYSCTL}/vm/stat_interval", "1"),
    ("vm.swappiness", f"{SYSCTL}/vm/swappiness", "60"),
    (
        "transparent huge pages",
        "sys/kernel/mm/transparent_hugepage/enabled",
        "[always] madvise never",
    ),
    ("RemoveIPC", "etc/systemd/logind.conf", "[Login]\n#RemoveIPC=no"),
    ("locked memory", "proc/self/limits", "Max locked memory  8388608  8388608  bytes"),
    (
        "SCHED_FIFO",
        "proc/self/limits",
        "Max locked memory  unlimited  x\nMax realtime priority 0 0",
    ),
    ("net.core.rmem_max", f"{SYSCTL}/net/core/rmem_max", "212992"),
    ("net.core.netdev_max_backlog", f"{SYSCTL}/net/core/netdev_max_backlog", "1000"),
    ("backlog drops", "proc/net/softnet_stat", "01 00 00\n02 1f 00"),
    ("net.core.netdev_budget", "proc/net/softnet_stat", "01 00 0a\n02 00 00"),
    ("net.core.busy_poll", f"{SYSCTL}/net/core/busy_poll", "0"),
    ("net.core.busy_read", f"{SYSCTL}/net/core/busy_read", "0"),
    ("net.ipv4.igmp_max_memberships", f"{SYSCTL}/net/ipv4/igmp_max_memberships", "5"),
    ("irqbalance", "proc/77/comm", "irqbalance"),
    ("eth1 interrupts", "proc/irq/41/smp_affinity_list", "0-3"),
    ("eth1 interrupts", "proc/irq/40/smp_affinity_list", "5"),
    ("eth1 NUMA node", "sys/devices/system/node/node0/cpulist", "0-1"),
    ("eth1 rp_filter", f"{SYSCTL}/net/ipv4/conf/eth1/rp_filter", "1"),
    ("eth1 receive steering", f"{NIC}/queues/rx-0/rps_cpus", "00000001,00000000"),
    ("eth1 napi_defer_hard_irqs", f"{NIC}/napi_defer_hard_irqs", "2"),
    ("eth1 gro_flush_timeout", f"{NIC}/gro_flush_timeout", "200000"),
    ("eth1 threaded NAPI", f"{NIC}/threaded", "1"),
    ("eth1 adaptive-rx", "ethtool/eth1-c", "Adaptive RX: on  TX: n/a\nrx-usecs: 0"),
    ("eth1 rx-usecs", "ethtool/eth1-c", "Adaptive RX: off  TX: n/a\nrx-usecs: 50"),
    ("eth1 rx ring", "ethtool/eth1-g", "RX:\t4096\nCurrent hardware settings:\nRX:\t512"),
]
for knob, key, value in [
    ("gro", "generic-receive-offload: off", "generic-receive-offload: on"),
    ("lro", "large-receive-offload: off [fixed]", "large-receive-offload: on"),
    ("rx-gro-hw", "rx-gro-hw: on [fixed]", "rx-gro-hw: on"),
    ("rx-checksumming", "rx-checksumming: on", "rx-checksumming: off"),
]:
    text = ETHTOOL_FILES["ethtool/eth1-k"].replace(key, value)
    FAULTS.append((f"eth1 {knob}", "ethtool/eth1-k", text))
for knob, key in [("rx pause", "RX"), ("tx pause", "TX")]:
    text = ETHTOOL_FILES["ethtool/eth1-a"].replace(f"{key}:\t\toff", f"{key}:\t\ton")
    text = text.replace("Autonegotiate:\toff", "Autonegotiate:\ton")
    FAULTS.append((f"eth1 {knob}", "ethtool/eth1-a", text))

#: Faults that `apply` cannot mend: they are of the boot line, of a user's rights, or of the past.
UNSETTABLE = {
    "cores",
    "isolated cores",
    "cores without timer tick",
    "cores without RCU callbacks",
    "SMT siblings",
    "clock daemon",
    "clock error",
    "locked memory",
    "SCHED_FIFO",
    "backlog drops",
    "RemoveIPC",
    "irqbalance",
    "eth1 NUMA node",
}
SETTABLE = [fault for fault in FAULTS if fault[0] not in UNSETTABLE]


@dataclass(frozen=True, slots=True)
class Driver:
    """An `ethtool` that answers from the files of a made-up host and changes them.

    It refuses at the flag `fail`, does nothing at `ignore`, and at `kill` nobody goes on.
    """

    root: Path
    fail: str = ""
    ignore: str = ""
    kill: str = ""

    def __call__(self, flag: str, interface: str, *words: str) -> CompletedProcess[str]:
        """Answer as `run_ethtool` does."""
        if flag == self.kill:
            raise KeyboardInterrupt
        if flag == self.fail:
            return CompletedProcess([], 1, "", "netlink error: Device or resource busy\n")
        file = self.root / "ethtool" / f"{interface}{flag.lower()}"
        if not file.exists():
            return CompletedProcess([], 1, "", "Operation not supported\n")
        text = file.read_text()
        if words and flag != self.ignore:
            parameter, value = words
            key = SHOWN.get(f"{flag} {parameter}", parameter)
            before, current, after = text.rpartition("Current")
            after = re.sub(rf"^({key}:\s*)\S+", rf"\g<1>{value}", after, flags=re.M)
            file.write_text(f"{before}{current}{after}")
        return CompletedProcess([], 0, text, "")


def lay_out(root: Path) -> Path:
    """Lay out the well-tuned host; return its root."""
    spoil(root, {**FILES, **ETHTOOL_FILES, "chronyc": CHRONY}.items())
    (root / "sys/class/net").mkdir(parents=True)
    (root / "sys/class/net/eth1").symlink_to("../../devices/pci0/virtio0/net/eth1")
    (root / NIC / "device").symlink_to("../..")
    (root / "dev/shm").mkdir(parents=True)
    (root / "dev/cpu_dma_latency").write_bytes(struct.pack("<i", 2_000_000_000))
    return root


def spoil(root: Path, files: Iterable[tuple[str, str]]) -> None:
    """Write files below the root, each with an end of line as the kernel's have."""
    for name, content in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")


def snapshot(root: Path) -> dict[str, bytes]:
    """Return every byte of every file below the root."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
