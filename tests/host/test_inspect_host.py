"""Findings about a host; `tests/scripts/test_tune_host.py` tests every fault of every knob."""

from pathlib import Path

import pytest

from tests.host_tree import lay_out, spoil
from udpfast.host import Finding, HostUse, inspect_host
from udpfast.host.core_list import compress, cores_mask, expand, mask_cores


def inspect(root: Path, use: HostUse | None = None) -> dict[str, Finding]:
    """Return the findings about an imitated host by name."""
    return {finding.name: finding for finding in inspect_host(root, use)}


def test_inspect_host_small_buffer_may_be_forced_with_the_right(tmp_path: Path) -> None:
    root = lay_out(tmp_path)
    spoil(root, [("proc/sys/net/core/rmem_max", "212992")])
    assert inspect(root)["net.core.rmem_max"].ok is False
    spoil(root, [("proc/self/status", "CapEff:\t0000000000001000")])
    finding = inspect(root)["net.core.rmem_max"]
    assert finding.ok is True
    assert finding.have == "212992 and CAP_NET_ADMIN"


def test_inspect_host_buffer_is_measured_by_what_the_feed_asks(tmp_path: Path) -> None:
    root = lay_out(tmp_path)
    assert inspect(root, HostUse(rcvbuf_bytes=1 << 28))["net.core.rmem_max"].ok is False
    spoil(root, [("proc/sys/net/core/rmem_max", "212992")])
    assert inspect(root, HostUse(rcvbuf_bytes=1 << 16))["net.core.rmem_max"].ok is True


def test_inspect_host_same_names_on_every_host(tmp_path: Path) -> None:
    bare = [finding.name for finding in inspect_host(tmp_path / "bare")]
    assert bare == [finding.name for finding in inspect_host(lay_out(tmp_path / "host"))]


@pytest.mark.parametrize("use", [HostUse(), HostUse(cores=(1,), strategy_cores=(2,))])
@pytest.mark.parametrize("bare", [False, True])
def test_finding_says_what_is_wanted_as_a_value_and_what_it_does_as_a_sentence(
    tmp_path: Path, use: HostUse, bare: bool
) -> None:
    """No text of a knob is in the place of another, nor an effect in the place of a wish."""
    found = list(inspect_host(tmp_path if bare else lay_out(tmp_path), use))
    effects: dict[str, set[str]] = {}
    for finding in found:
        assert 0 < len(finding.want) <= 45, finding
        assert not finding.want.endswith("."), finding
        assert finding.effect.endswith("."), finding
        effects.setdefault(finding.effect, set()).add(finding.name)
    twice = sorted(sorted(names) for names in effects.values() if len(names) > 1)
    assert twice == [
        ["net.core.busy_poll", "net.core.busy_read"],
        ["net.core.netdev_budget", "net.core.netdev_budget_usecs"],
    ]


def test_inspect_host_interface_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    finding = inspect(lay_out(tmp_path), HostUse(interfaces=("eth9",)))["eth9"]
    assert (finding.have, finding.ok) == ("absent", False)


@pytest.mark.parametrize(
    ("text", "cores"),
    [("", set()), ("0", {0}), ("0-2,5", {0, 1, 2, 5}), ("3,8-9", {3, 8, 9})],
)
def test_expand_is_the_reverse_of_compress(text: str, cores: set[int]) -> None:
    assert expand(text) == cores
    assert compress(cores) == text


@pytest.mark.parametrize(
    ("mask", "cores"),
    [("00000000", set()), ("00000033", {0, 1, 4, 5}), ("00000001,80000002", {1, 31, 32})],
)
def test_mask_cores_is_the_reverse_of_cores_mask(mask: str, cores: set[int]) -> None:
    assert mask_cores(mask) == cores
    assert cores_mask(cores) == mask


def test_every_finding_says_its_effect(tmp_path: Path) -> None:
    use = HostUse(cores=(2,), strategy_cores=(3,), interfaces=("eth1",))
    for finding in inspect_host(lay_out(tmp_path), use) + inspect_host():
        assert finding.have
        assert finding.effect.endswith(".")
        assert bool(finding.reason) == (finding.ok is None)


def test_inspect_host_memory_is_judged_by_what_the_feeds_take(tmp_path: Path) -> None:
    root = lay_out(tmp_path)
    (root / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    4096 kB\n")
    enough = inspect(root, HostUse(shm_bytes=1, memory_bytes=4 << 20))
    assert enough["free in /dev/shm"].ok is True
    assert (enough["available memory"].have, enough["available memory"].ok) == ("4 MiB", True)
    short = inspect(root, HostUse(shm_bytes=1 << 60, memory_bytes=(4 << 20) + 1))
    for name in ("free in /dev/shm", "available memory"):
        assert (short[name].ok, short[name].fault) == (False, True)
    assert short["available memory"].want == "5 MiB"
