"""What a host is said to lack, over a made-up /proc and /sys."""

from pathlib import Path

import pytest

from udpfast.core.host import Finding, inspect_host

FILES = {
    "sys/devices/system/cpu/isolated": "2-3",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
    "proc/sys/net/core/rmem_max": "67108864",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "proc/self/status": "Name:\tpython\nCapEff:\t0000000000804000",
}


def inspect(root: Path, **changed: str) -> dict[str, Finding]:
    """Lay out a good host with some files changed, and inspect it."""
    for name, content in {**FILES, **changed}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return {finding.name: finding for finding in inspect_host(root)}


def test_inspect_host_tuned_host_has_no_fault(tmp_path: Path) -> None:
    (tmp_path / "dev/shm").mkdir(parents=True)
    found = inspect(tmp_path)
    found.pop("cores")  # of the real machine
    found.pop("free in /dev/shm")
    assert {name: finding.ok for name, finding in found.items()} == dict.fromkeys(found, True)


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("isolated cores", "sys/devices/system/cpu/isolated", ""),
        (
            "frequency governor",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "powersave",
        ),
        (
            "clock source",
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
            "hpet",
        ),
        ("net.core.rmem_max", "proc/sys/net/core/rmem_max", "212992"),
        (
            "transparent huge pages",
            "sys/kernel/mm/transparent_hugepage/enabled",
            "[always] madvise never",
        ),
    ],
)
def test_inspect_host_untuned_file_is_a_fault(
    tmp_path: Path, name: str, file: str, content: str
) -> None:
    assert inspect(tmp_path, **{file: content})[name].ok is False


def test_inspect_host_small_buffer_may_be_forced_with_the_right(tmp_path: Path) -> None:
    changed = {
        "proc/sys/net/core/rmem_max": "212992",
        "proc/self/status": "CapEff:\t0000000000001000",
    }
    finding = inspect(tmp_path, **changed)["net.core.rmem_max"]
    assert finding.ok is True
    assert finding.have == "212992 and CAP_NET_ADMIN"


def test_inspect_host_bare_machine_is_not_judged(tmp_path: Path) -> None:
    found = {finding.name: finding for finding in inspect_host(tmp_path)}
    for name in ("frequency governor", "clock source", "net.core.rmem_max", "free in /dev/shm"):
        assert (found[name].have, found[name].ok) == ("absent", None)


def test_inspect_host_here_says_what_each_does() -> None:
    for finding in inspect_host():
        assert finding.have
        assert finding.effect.endswith(".")
