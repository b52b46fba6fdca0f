"""`tune_host.sh` on imitated hosts: it finds exactly the faults, mends them and restores all."""

import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.host_tree import ETHTOOL_FILES, FAULTS, FILES, SETTABLE, Driver, lay_out, snapshot, spoil
from tests.shared import ROOT
from udpfast.host import HostUse, clocks, ethtool, inspect_host
from udpfast.host.command import UNDO_FILE, main

USE = HostUse(cores=(2,), strategy_cores=(3,), interfaces=("eth1",))
OPTIONS = ("--rx-cpus", "2", "--strategy-cpus", "3", "--iface", "eth1")
SCRIPT = ROOT / "scripts/tune_host.sh"

Row = tuple[str, ...]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a well-tuned host, whose driver is the only one that is asked."""
    root = lay_out(tmp_path / "host")
    monkeypatch.setattr(ethtool, "run_ethtool", Driver(root))
    monkeypatch.setattr(clocks, "_ask", lambda command: answer(root / command[0]))
    return root


def answer(file: Path) -> str:
    """Return what a program of the imitated host prints, which is the text of its file."""
    return file.read_text() if file.exists() else ""


def words(root: Path, *arguments: str) -> list[str]:
    """Return the words of the command on an imitated host."""
    return ["--root", str(root), "--undo-file", str(root.parent / "tune.undo"), *arguments]


def run(root: Path, *arguments: str, **driver: str) -> subprocess.CompletedProcess[str]:
    """Run the command on an imitated host in this process, with this `Driver`."""
    out, error = io.StringIO(), io.StringIO()
    with (
        redirect_stdout(out),
        redirect_stderr(error),
        patch.object(ethtool, "run_ethtool", Driver(root, **driver)),
        pytest.raises(SystemExit) as end,
    ):
        main(words(root, *arguments))
    code = int(end.value.code or 0)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), error.getvalue())


def check(root: Path, *options: str) -> list[Row]:
    """Return the rows of `check`."""
    result = run(root, "check", "--json", *(options or OPTIONS))
    assert not result.stderr
    rows = [tuple(row.values()) for row in json.loads(result.stdout)]
    assert result.returncode == any(row[3] == "FAIL" for row in rows)
    return rows


def failed(rows: list[Row]) -> list[str]:
    """Return the names of the rows that failed."""
    return [row[0] for row in rows if row[3] == "FAIL"]


def test_check_tuned_host_has_no_fault(host: Path) -> None:
    rows = check(host)
    assert failed(rows) == []
    assert {row[0] for row in rows if row[3] == "N/A"} == {
        "kernel.sched_rt_runtime_us",
        "net.core.netdev_budget",
        "net.core.netdev_budget_usecs",
        "eth1 rx-gro-hw",
        "free in /dev/shm",  # only the files of feeds say how much is needed
        "available memory",
    }
    # Every knob that can be judged has a fault below.
    assert {row[0] for row in rows if row[3] == "PASS"} | {"eth1 rx-gro-hw"} | {
        "net.core.netdev_budget"
    } == {name for name, _, _ in FAULTS} | {"eth1 rx queues"}


@pytest.mark.parametrize(("name", "file", "content"), FAULTS)
def test_check_one_fault_is_found_and_no_other(
    host: Path, name: str, file: str, content: str
) -> None:
    spoil(host, [(file, content)])
    # A receive loop that stops early shows in both limits. No daemon answers for the clock.
    also = {
        "net.core.netdev_budget": ["net.core.netdev_budget_usecs"],
        "clock daemon": ["clock error"],
    }
    assert failed(check(host)) == [name, *also.get(name, [])]


def test_check_more_receiving_cores_than_queues_is_found(host: Path) -> None:
    assert "eth1 rx queues" in failed(check(host, "--rx-cpus", "1-3", "--iface", "eth1"))


@pytest.mark.parametrize("seed", range(8))
def test_apply_any_host_mends_what_it_planned_and_undo_restores_it(host: Path, seed: int) -> None:
    chance = random.Random(seed)
    spoil(host, [fault[1:] for fault in chance.sample(FAULTS, 12)])
    for name in chance.sample(sorted({**FILES, **ETHTOOL_FILES}), 12):
        if name != "sys/devices/system/cpu/online":
            (host / name).unlink(missing_ok=True)
    before = snapshot(host)
    assert run(host, "apply", *OPTIONS).returncode == 0
    assert [finding.name for finding in inspect_host(host, USE) if finding.changes] == []
    if (host.parent / "tune.undo").exists():
        assert run(host, "undo").returncode == 0
    assert snapshot(host) == before


def test_check_ways_of_receiving_change_what_is_wanted(host: Path) -> None:
    plain = {row[0]: row[1:] for row in check(host)}
    flags = ("--busy-poll", "--prefer-busy-poll", "--gro", "--fifo")
    used = {row[0]: row[1:] for row in check(host, *OPTIONS, *flags)}
    changed = {name: row[0] for name, row in used.items() if row != plain[name]}
    changed.pop("free in /dev/shm", None)  # differs from call to call
    assert changed == {
        "kernel.sched_rt_runtime_us": "-1",
        "net.core.busy_poll": "at least 50",
        "net.core.busy_read": "at least 50",
        "eth1 napi_defer_hard_irqs": "2",
        "eth1 gro_flush_timeout": "200000",
        "eth1 gro": "on",
    }


def test_check_bare_machine_is_not_judged(tmp_path: Path) -> None:
    assert failed(check(tmp_path, "--iface", "eth9")) == ["isolated cores", "eth9"]


def test_check_held_latency_makes_deep_states_harmless(host: Path) -> None:
    spoil(host, [("sys/devices/system/cpu/cpu2/cpuidle/state2/disable", "0")])
    (host / "dev/cpu_dma_latency").write_bytes(bytes(4))
    assert failed(check(host)) == []


def test_check_isolated_partition_counts(host: Path) -> None:
    spoil(host, [("sys/devices/system/cpu/isolated", "")])
    spoil(host, [("sys/fs/cgroup/cpuset.cpus.isolated", "2-3,6-7")])
    assert failed(check(host)) == []


def test_check_without_ethtool_says_so(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (host / "ethtool/eth1-c").unlink()
    monkeypatch.setenv("PATH", str(host))
    reasons = {row[0]: row[4] for row in check(host)}
    assert reasons["eth1 rx-usecs"] == "ethtool is not installed"


def test_check_changes_nothing(host: Path) -> None:
    spoil(host, [fault[1:] for fault in FAULTS])
    before = snapshot(host)
    check(host)
    assert snapshot(host) == before


def spoiled(host: Path) -> dict[str, bytes]:
    """Give the host every fault that can be mended; return its bytes."""
    spoil(host, [fault[1:] for fault in SETTABLE])
    text = ETHTOOL_FILES["ethtool/eth1-k"].replace(" off", " on").replace(" [fixed]", "")
    spoil(
        host,
        [("ethtool/eth1-k", text), ("ethtool/eth1-c", "Adaptive RX: on  TX: n/a\nrx-usecs: 9")],
    )
    spoil(host, [("ethtool/eth1-a", "Autonegotiate:\ton\nRX:\ton\nTX:\ton")])
    return snapshot(host)


def test_apply_mends_what_can_be_and_undo_restores_every_byte(host: Path) -> None:
    before = spoiled(host)
    assert failed(check(host))
    applied = run(host, "apply", "--json", *OPTIONS)
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert all(row["result"] == "done" for row in json.loads(applied.stdout))
    assert failed(check(host)) == []
    undone = run(host, "undo")
    assert undone.returncode == 0, undone.stdout
    assert snapshot(host) == before
    assert not (host.parent / "tune.undo").exists()


def test_apply_twice_keeps_the_first_values(host: Path) -> None:
    before = spoiled(host)
    run(host, "apply", *OPTIONS)
    spoil(host, [("proc/sys/vm/swappiness", "33"), ("proc/sys/kernel/numa_balancing", "1")])
    run(host, "apply", *OPTIONS)
    assert (host / "proc/sys/vm/swappiness").read_text() == "10\n"
    assert run(host, "undo").returncode == 0
    assert snapshot(host) == before


def test_apply_prints_old_and_new(host: Path) -> None:
    spoil(host, [("proc/sys/vm/swappiness", "60")])
    result = run(host, "apply", "--json", *OPTIONS)
    assert json.loads(result.stdout) == [
        {"setting": "/proc/sys/vm/swappiness", "old": "60", "new": "10", "result": "done",
         "reason": ""}
    ]  # fmt: skip


def test_apply_refused_in_the_middle_goes_on_and_is_undone(host: Path) -> None:
    before = spoiled(host)
    result = run(host, "apply", "--json", *OPTIONS, fail="-G")
    assert result.returncode == 1
    refused = [row for row in json.loads(result.stdout) if row["result"] != "done"]
    assert [row["setting"] for row in refused] == ["eth1 -G rx"]
    assert refused[0]["reason"] == "Device or resource busy"
    assert failed(check(host)) == ["eth1 rx ring"]
    assert run(host, "undo").returncode == 0
    assert snapshot(host) == before


def test_apply_that_the_driver_does_not_take_says_so(host: Path) -> None:
    before = spoiled(host)
    result = run(host, "apply", "--json", *OPTIONS, ignore="-C")
    assert result.returncode == 1
    refused = {row["setting"]: row for row in json.loads(result.stdout) if row["result"] != "done"}
    assert {name: row["reason"] for name, row in refused.items()} == {
        "eth1 -C adaptive-rx": "reads on now",
        "eth1 -C rx-usecs": "reads 9 now",
    }
    assert run(host, "undo").returncode == 0
    assert snapshot(host) == before


def test_apply_killed_in_the_middle_is_undone(host: Path) -> None:
    before = spoiled(host)
    with pytest.raises(KeyboardInterrupt):
        run(host, "apply", *OPTIONS, kill="-K")
    assert snapshot(host) != before
    assert run(host, "undo").returncode == 0
    assert snapshot(host) == before


def test_undo_that_fails_can_be_repeated(host: Path) -> None:
    before = spoiled(host)
    run(host, "apply", *OPTIONS)
    assert run(host, "undo", fail="-C").returncode == 1
    assert snapshot(host) != before
    again = run(host, "undo", "--json")
    assert again.returncode == 0
    assert {row["setting"] for row in json.loads(again.stdout)} == {
        "eth1 -C adaptive-rx",
        "eth1 -C rx-usecs",
    }
    assert snapshot(host) == before


def test_undo_that_fails_replaces_the_undo_file_as_a_whole(host: Path) -> None:
    spoiled(host)
    run(host, "apply", *OPTIONS)
    undo_file, same = host.parent / "tune.undo", host.parent / "same"
    same.hardlink_to(undo_file)
    values = same.read_text()
    assert run(host, "undo", fail="-C").returncode == 1
    # A full disk or a kill in the middle of writing must not lose values.
    assert same.read_text() == values
    left = undo_file.read_text().splitlines()
    assert left == [line for line in values.splitlines() if line[:4] == "boot" or " -C " in line]


def test_undo_of_an_earlier_boot_changes_nothing(host: Path) -> None:
    spoiled(host)
    run(host, "apply", *OPTIONS)
    spoil(host, [("proc/sys/kernel/random/boot_id", "another")])
    before = snapshot(host)
    result = run(host, "undo")
    assert (result.returncode, snapshot(host)) == (0, before)
    assert "the last reboot" in result.stderr


def test_undo_with_nothing_to_do_is_json(host: Path) -> None:
    spoiled(host)
    run(host, "apply", *OPTIONS)
    spoil(host, [("proc/sys/kernel/random/boot_id", "another")])
    assert json.loads(run(host, "undo", "--json").stdout) == []


def test_undo_without_file_says_so(host: Path) -> None:
    result = run(host, "undo")
    assert result.returncode == 1
    assert "nothing to undo: there is no" in result.stderr


SWAPPINESS = "file\t/proc/sys/vm/swappiness\tNjAK"  # 60


def undo_lines(host: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    """Run `undo` with a file of these lines."""
    boot = (host / "proc/sys/kernel/random/boot_id").read_text()
    (host.parent / "tune.undo").write_text(f"boot {boot}" + "".join(f"{line}\n" for line in lines))
    return run(host, "undo", "--json")


def hand_to_another(path: Path) -> None:
    """Give a path to a user who is neither root nor the one who runs this."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 65534, 65534, follow_symlinks=False)


@pytest.mark.parametrize(
    "target",
    [
        "/proc/sys/../../../victim",
        "/proc/sys/vm/..",
        "/sys/../victim",
        "/victim",
        "victim",
        "",
        "/proc/self/status",
        "/proc/sysx/victim",
        "/proc/sys/vm/link",
        "/proc/sys/outside/victim",
        "/proc/sys/vm/fifo",
        "/proc/sys/vm",
        "/proc/sys/vm/absent",
    ],
)
def test_undo_writes_nothing_but_settings_of_the_kernel(host: Path, target: str) -> None:
    for place in (host / "victim", host.parent / "victim", host / "proc/sysx/victim"):
        place.parent.mkdir(exist_ok=True)
        place.write_text("whole\n")
    (host / "proc/sys/vm/link").symlink_to(host.parent / "victim")
    (host / "proc/sys/outside").symlink_to(host.parent)
    os.mkfifo(host / "proc/sys/vm/fifo")
    before = snapshot(host.parent)
    result = undo_lines(host, f"file\t{target}\tYm9v", SWAPPINESS)
    after = snapshot(host.parent)
    assert after.pop("tune.undo").endswith(f"\t{target}\tYm9v\n".encode())
    # The rest is restored.
    assert after == before | {"host/proc/sys/vm/swappiness": b"60\n"}
    assert result.returncode == 1
    (refused,) = [row for row in json.loads(result.stdout) if row["result"] != "done"]
    assert refused["reason"].startswith("expected an existing file below /proc/sys")


@pytest.mark.parametrize(
    "line",
    [
        "ethtool\teth1 -f rx\tb24=",
        "ethtool\teth1 --flash /etc/passwd\tb24=",
        "ethtool\t-h -K gro\tb24=",
        "ethtool\teth1 -K gro more\tb24=",
        "ethtool\teth1 -K gro\tLW4gbw==",
        "file\t/proc/sys/vm/swappiness\t***",
        "other\t/proc/sys/vm/swappiness\tNjAK",
        "",
        "\t\t",
    ],
)
def test_undo_refuses_a_line_that_apply_does_not_write(host: Path, line: str) -> None:
    before = snapshot(host)
    result = undo_lines(host, line)
    assert (result.returncode, snapshot(host)) == (1, before)
    assert json.loads(result.stdout)[0]["reason"] == "expected a line that apply wrote"


@pytest.mark.parametrize("verb", ["apply", "undo"])
@pytest.mark.parametrize(
    "fault", ["owner", "mode", "link", "directory", "owner above", "mode above", "link above"]
)
def test_undo_file_that_another_can_write_is_refused(host: Path, verb: str, fault: str) -> None:
    spoil(host, [("proc/sys/vm/swappiness", "10")])
    undo_lines(host, SWAPPINESS)  # leaves 60, which apply would change
    place = host.parent / "place"
    (place / "inner").mkdir(parents=True)
    (place / "other").mkdir()
    place.chmod(0o755)
    file = place / "inner/tune.undo"
    boot = (host / "proc/sys/kernel/random/boot_id").read_text()
    file.write_text(f"boot {boot}file\t/proc/sys/vm/swappiness\tNDAK\n")
    if fault == "owner":
        hand_to_another(file)
    elif fault == "mode":
        file.chmod(0o666)
    elif fault == "link":
        file.rename(place / "real")
        file.symlink_to(place / "real")
    elif fault == "directory":
        file.unlink()
        file.mkdir()
    elif fault == "owner above":
        hand_to_another(place)
    elif fault == "mode above":
        file.parent.chmod(0o1777)
    else:
        (place / "inner").rename(place / "moved")
        (place / "inner").symlink_to(place / "moved")
        hand_to_another(place / "inner")
    before = snapshot(host.parent)
    result = run(host, verb, *OPTIONS, "--undo-file", str(file))
    assert (result.returncode, snapshot(host.parent)) == (1, before)
    (line,) = result.stderr.splitlines()
    assert "expected an undo file that only root can write, found that" in line


def test_apply_makes_the_undo_file_for_its_user_alone(host: Path) -> None:
    spoiled(host)
    file = host.parent / "far/away/undo"
    old = os.umask(0)
    try:
        assert run(host, "apply", *OPTIONS, "--undo-file", str(file)).returncode == 0
    finally:
        os.umask(old)
    modes = [oct(path.stat().st_mode & 0o777) for path in (file, file.parent, file.parent.parent)]
    assert modes == ["0o600", "0o700", "0o700"]
    assert run(host, "undo", "--undo-file", str(file)).returncode == 0


def test_undo_file_is_not_where_a_service_may_write() -> None:
    units = [path.read_text() for path in (ROOT / "packaging").glob("*.service")]
    for states in re.findall(r"^(?:State|Cache|Logs)Directory=(.+)$", "\n".join(units), re.M):
        for state in states.split():
            assert not UNDO_FILE.is_relative_to(Path("/var/lib") / state)


def test_apply_tuned_host_changes_nothing(host: Path) -> None:
    before = snapshot(host)
    assert run(host, "apply", *OPTIONS).returncode == 0
    assert snapshot(host) == before
    assert not (host.parent / "tune.undo").exists()


def test_boot_line_names_the_cores_and_writes_nothing(host: Path) -> None:
    before = snapshot(host)
    result = run(host, "boot-line", "--rx-cpus", "2", "--strategy-cpus", "3")
    assert result.returncode == 0
    assert result.stdout.split() == [
        "isolcpus=managed_irq,domain,2-3",
        "irqaffinity=0-1,4-7",
        "rcu_nocbs=2-3",
        "nohz_full=3",
        "skew_tick=1",
        "nosoftlockup",
        "nowatchdog",
        "transparent_hugepage=madvise",
        "tsc=reliable",
        "intel_idle.max_cstate=1",
        "processor.max_cstate=1",
    ]
    assert snapshot(host) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tune"], "found 'tune'"),
        (["check", "apply"], "unrecognized arguments: apply"),
        (["check", "--rx"], "unrecognized arguments: --rx"),
        (["--rx-cpus"], "--rx-cpus: expected one argument"),
        (["--rx-cpus", "two"], "expected cores such as 2 or 2,4-5, found 'two'"),
        (["--rx-cpus", "3-2"], "expected cores such as 2 or 2,4-5, found '3-2'"),
        (["--strategy-cpus", "2,08"], "expected cores such as 2 or 2,4-5, found '2,08'"),
        (["--rx-cpus", "9"], "expected cores of this host (0-7), found '9'"),
        (
            ["--iface", "eth1,"],
            "--iface: expected interfaces such as eth1 or eth1,eth2, found 'eth1,'",
        ),
        (["apply", "--iface", "eth9"], "--iface: expected interfaces of this host, found 'eth9'"),
        (
            ["apply", "--undo-file", "/srv/../x"],
            "--undo-file: expected a file's path without '..'",
        ),
        (["boot-line"], "boot-line needs --rx-cpus or --strategy-cpus"),
        *[
            ([*verb, *cores], "expected at least one core for the rest of the host, found none")
            for verb in ([], ["check"], ["apply"], ["boot-line"])
            for cores in (["--rx-cpus", "0-7"], ["--rx-cpus", "4-7", "--strategy-cpus", "0-3"])
        ],
        *[
            (
                [*verb, "--rx-cpus", "1-3", "--strategy-cpus", "2,3,5"],
                "expected each core in one of --rx-cpus and --strategy-cpus, found '2-3' in both",
            )
            for verb in ([], ["check"], ["apply"], ["boot-line"])
        ],
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    host: Path, arguments: list[str], message: str
) -> None:
    result = run(host, *arguments)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert message in line


def test_table_and_json_agree(host: Path) -> None:
    rows = check(host)
    lines = run(host, *OPTIONS).stdout.splitlines()[1:]
    for row, line in zip(rows, lines, strict=True):
        words = " ".join([*row[:4], f"({row[4]})" if row[4] else ""]).split()
        if row[0] == "free in /dev/shm":  # differs from call to call
            (place,) = (i for i, word in enumerate(words) if word == row[2].split()[0])
            words[place] = line.split()[place]
            assert words[place].isdecimal()
        assert line.split() == words


@pytest.fixture
def clone() -> Iterator[Path]:
    """Return the script in a clone that is not compiled, and which every user may read."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        place = Path(folder)
        place.chmod(0o755)
        (place / "scripts").mkdir()
        shutil.copy(SCRIPT, place / "scripts")
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "udpfast/host", place / "udpfast/host", ignore=ignored)
        (place / "udpfast/core").mkdir()
        for name in ("__init__.py", "core/__init__.py", "core/version.py"):
            shutil.copy(ROOT / "udpfast" / name, place / "udpfast" / name)
        yield place / "scripts/tune_host.sh"


def test_script_needs_no_install_and_writes_nothing_into_its_clone(host: Path, clone: Path) -> None:
    before = snapshot(clone.parent.parent)
    link = host.parent / "tune"
    link.symlink_to(clone)
    result = subprocess.run(
        [link, *words(host, "boot-line", "--rx-cpus", "2")],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == run(host, "boot-line", "--rx-cpus", "2").stdout
    assert snapshot(clone.parent.parent) == before


@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_apply_without_root_refuses_in_one_line(clone: Path, verb: str) -> None:
    other = {"user": 65534, "group": 65534} if os.geteuid() == 0 else {}
    result = subprocess.run(
        [clone, verb], capture_output=True, text=True, check=False, cwd="/", **other
    )
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.endswith("changes kernel settings: run it as root")
    assert not result.stdout


def test_script_is_clean_by_shellcheck() -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    result = subprocess.run(["shellcheck", SCRIPT], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
