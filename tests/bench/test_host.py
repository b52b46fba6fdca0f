"""The fingerprint of a host laid out in files, and of this one."""

from dataclasses import asdict
from pathlib import Path

import pytest

from bench.host import jitter, placement, take_fingerprint
from bench.loops import hostprobe

FILES = {
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: EPYC 9\nflags\t\t: fpu hypervisor tsc\n",
    "proc/meminfo": "MemTotal:        8000 kB\n",
    "proc/sys/kernel/osrelease": "6.1.0-test\n",
    "proc/sys/net/core/rmem_max": "212992\n",
    "etc/os-release": 'NAME="x"\nPRETTY_NAME="Debian 12"\n',
    "sys/devices/system/cpu/isolated": "2-3\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
}


def test_fingerprint_reads_the_files_of_the_kernel(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    found = asdict(take_fingerprint(tmp_path))
    wanted = {
        "kernel": "6.1.0-test",
        "distribution": "Debian 12",
        "cpu": "EPYC 9",
        "virtual": "yes",
        "governor": "performance",
        "isolated": "2-3",
        "clocksource": "tsc",
        "memory_bytes": 8000 << 10,
        "rmem_max": 212_992,
    }
    assert {name: found[name] for name in wanted} == wanted


def test_fingerprint_without_files_says_absent(tmp_path: Path) -> None:
    found = take_fingerprint(tmp_path)
    assert (found.kernel, found.cpu, found.governor) == ("absent", "absent", "absent")
    assert found.isolated == "none" and found.memory_bytes == 0 and found.virtual == "no"


def test_fingerprint_says_what_compiled_the_modules() -> None:
    found = take_fingerprint()
    assert found.compiler.split()[0] in {"gcc", "clang"}
    assert "-O" in found.flags


def test_placement_has_its_limit_at_60_ns() -> None:
    assert [placement(ns) for ns in (59.9, 60.0, float("nan"))] == ["NEAR", "FAR", ""]


def test_jitter_says_for_each_core_what_was_lost() -> None:
    first, *others = sorted(hostprobe.os.sched_getaffinity(0))
    cores = (first, *others[:1])
    seen = jitter(cores, 0.02)
    assert [gaps["core"] for gaps in seen["cores"]] == list(cores)
    for gaps in seen["cores"]:
        assert gaps["elapsed_ns"] >= 20_000_000
        assert gaps["longest_ns"] <= gaps["lost_ns"] <= gaps["elapsed_ns"]
        assert gaps["over_1ms"] <= gaps["over_10us"]
    assert 0 <= seen["lost_share"] < 1


def test_spin_puts_the_thread_back_on_all_its_cores() -> None:
    allowed = hostprobe.os.sched_getaffinity(0)
    hostprobe.spin(min(allowed), 1000)
    assert hostprobe.os.sched_getaffinity(0) == allowed


def test_core_to_core_between_two_cores_takes_time() -> None:
    allowed = sorted(hostprobe.os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("this machine lets us use one core")
    found = hostprobe.core_to_core_ns(*allowed[:2], round_trips=50, timeout_ns=20_000_000_000)
    assert 1 < found < 1e8
    assert sorted(hostprobe.os.sched_getaffinity(0)) == allowed


def test_core_to_core_that_takes_too_long_is_nan() -> None:
    allowed = sorted(hostprobe.os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("this machine lets us use one core")
    found = hostprobe.core_to_core_ns(*allowed[:2], round_trips=1 << 40, timeout_ns=1_000_000)
    assert found != found  # noqa: PLR0124


def test_core_to_core_wrong_cores_are_refused() -> None:
    with pytest.raises(ValueError, match="two cores, found 0 twice"):
        hostprobe.core_to_core_ns(0, 0)
    with pytest.raises(OSError):
        hostprobe.core_to_core_ns(0, 1023, timeout_ns=1_000_000)
    with pytest.raises(ValueError, match="must be positive"):
        hostprobe.spin(0, 0)
