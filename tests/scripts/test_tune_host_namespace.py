"""`tune_host.sh` sets and restores real knobs: those of a veth, in a network namespace."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.host_tree import FILES, spoil
from tests.shared import ROOT

# The imitated host reaches the kernel by two links only, which both end inside the namespace, so
# that nothing of this machine can be set. Interfaces of a namespace appear only in a new mount of
# sysfs.
INSIDE = r"""
set -euo pipefail
root=$1 script=$2 undo=$3
mount -t sysfs none /sys
ip link add eth1 type veth peer name eth2
ethtool -K eth1 gro on
cd /sys/class/net/eth1
echo 2 > napi_defer_hard_irqs
echo 200000 > gro_flush_timeout
echo 1 > queues/rx-0/rps_cpus
echo 1 > /proc/sys/net/ipv4/conf/eth1/rp_filter
echo 5 > /proc/sys/net/ipv4/igmp_max_memberships
state() {
    cat napi_defer_hard_irqs gro_flush_timeout queues/rx-0/rps_cpus \
        /proc/sys/net/ipv4/conf/eth1/rp_filter /proc/sys/net/ipv4/igmp_max_memberships
    ethtool -k eth1 | grep '^generic-receive-offload'
}
tune() { "$script" "$@" --json --root "$root" --undo-file "$undo" --iface eth1 || true; }
state > "$undo.before"
tune apply > "$undo.apply"
state > "$undo.after"
tune check > "$undo.check"
tune undo > "$undo.undo"
state > "$undo.restored"
"""


@pytest.fixture
def namespace(tmp_path: Path) -> Path:
    """Run all steps in a namespace; return the directory of their notes."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces with a sysfs need root")
    for tool in ("unshare", "ip", "ethtool", "mount"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    root = tmp_path / "host"
    spoil(root, [(name, text) for name, text in FILES.items() if "/ipv4/" not in name])
    (root / "proc/sys/net/ipv4").symlink_to("/proc/sys/net/ipv4")
    (root / "sys/class").mkdir()
    (root / "sys/class/net").symlink_to("/sys/class/net")
    command = ["unshare", "--net", "--mount"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let root make namespaces")
    note = tmp_path / "tune"
    result = subprocess.run(
        [*command, "bash", "-c", INSIDE, "bash", root, ROOT / "scripts/tune_host.sh", note],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return note


def test_apply_sets_a_real_interface_and_undo_restores_it(namespace: Path) -> None:
    before, after, restored = (
        namespace.with_suffix(suffix).read_text().splitlines()
        for suffix in (".before", ".after", ".restored")
    )
    assert before[:2] == ["2", "200000"]
    assert int(before[2].replace(",", ""), 16) == 1
    assert before[3:] == ["1", "5", "generic-receive-offload: on"]
    assert after[:2] == ["0", "0"]
    assert int(after[2].replace(",", ""), 16) == 0
    assert after[3:] == ["2", "20", "generic-receive-offload: off"]
    assert restored == before
    assert not namespace.exists()


def test_apply_says_each_change_and_check_is_content_after(namespace: Path) -> None:
    rows = json.loads(namespace.with_suffix(".apply").read_text())
    changed = {row["setting"] for row in rows if row["result"] == "done"}
    assert changed >= {
        "/sys/class/net/eth1/napi_defer_hard_irqs",
        "/sys/class/net/eth1/gro_flush_timeout",
        "/sys/class/net/eth1/queues/rx-0/rps_cpus",
        "/proc/sys/net/ipv4/conf/eth1/rp_filter",
        "/proc/sys/net/ipv4/igmp_max_memberships",
        "eth1 -K gro",
    }
    assert all(row["result"] == "done" for row in rows)
    checked = json.loads(namespace.with_suffix(".check").read_text())
    # The daemon of the real host does not speak for the imitated one.
    failed = {row["name"] for row in checked if row["result"] == "FAIL"} - {"clock error"}
    assert failed == {"SMT siblings"}
    reasons = {row["name"]: row["reason"] for row in checked if row["result"] == "N/A"}
    assert reasons["eth1 rx-usecs"] == "the driver does not say"
