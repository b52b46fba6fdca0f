"""Damage files of a store while its daemon does not run, and check what the daemon does then.

Whatever happens to one file, the host copies the lost records again, or says in one sentence what
the operator must do. It neither crashes nor spins, and it never continues silently with records
that differ from those of the writer.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from udpfast.client.app import App
from udpfast.log.segment import list_segments, segment_path

from .bus_trial import BusTrial, expect

__all__ = ["HOWS", "damage_file", "damage_files", "store_files"]

HOWS = ("missing", "cut", "empty", "zeroed", "flipped")
#: Number and size of the messages between two damages: slightly more than a segment of `SETTINGS`.
MESSAGES, SIZE = 250, 1200
#: An idle daemon uses a smaller share of a core than this; a daemon that spins uses all of it.
IDLE_SHARE = 0.5
WATCHED_S = 1.0


def store_files(folder: Path) -> dict[str, Path]:
    """Return the files of a store by their role; the store has at least two segments."""
    numbers = list_segments(folder)
    found = {
        "journal": folder / "journal",
        "state": folder / "bus.state",
        "live": folder / "bus.live",
        "description": folder / "bus.json",
        "boot": folder / "bus.boot",
        "layouts": next(iter(folder.glob("layouts-*.json")), folder / "layouts.json"),
        "names": next(iter(folder.glob("*.names")), folder / "00000001.names"),
        "first": segment_path(folder, numbers[0]),
        "middle": segment_path(folder, numbers[len(numbers) // 2]),
        "last but one": segment_path(folder, numbers[-2]),
        "last": segment_path(folder, numbers[-1]),
    }
    return {what: path for what, path in found.items() if path.exists()}


def damage_file(path: Path, how: str, rng: random.Random) -> None:
    """Damage a file in one of the ways of `HOWS`."""
    if how == "missing":
        path.unlink()
        return
    size = path.stat().st_size
    with path.open("r+b") as file:
        # Often near the beginning, where the header is.
        at = rng.randrange(min(size, rng.choice([200, 4096, size])))
        if how == "cut":
            file.truncate(at)
        elif how == "empty":
            file.truncate(0)
        elif how == "zeroed":
            file.seek(at)
            file.write(bytes(min(size - at, rng.choice([8, 512, size]))))
        else:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << rng.randrange(8)]))


def damage_files(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Stop a daemon, damage one file and start it again: it copies again, or says why not."""
    found = dict.fromkeys(("copied again", "promoted", "refused", "removed by hand"), 0)
    with BusTrial(folder, seed) as trial:
        trial.start_all()
        with trial.app("S", "app", slots=1 << 12, capacity_bytes=1 << 23) as app:
            for _ in range(3):
                _send(trial, app)
            for _ in range(times):
                found[_damage_once(trial, app)] += 1
                _send(trial, app)
            sent = app.counts()["accepted"]
        expect(_same(trial), "the same SHA-256 on all hosts")
        longest = trial.copy(min(trial.hosts, key=trial.first))
        expect(longest.twice == 0 and longest.messages <= sent, "each message once")
        expect(longest.messages == sent or all(trial.first(host) for host in trial.hosts),
               f"{sent} messages, found {longest.messages}")  # fmt: skip
        return {"messages": longest.messages, **found}


def _same(trial: BusTrial) -> bool:
    # Whether all copies have the same records from the first position that all of them have. A copy
    # that lost its first segment continues without it.
    first = max(trial.first(host) for host in trial.hosts)
    return len({trial.copy(host, first).sha256 for host in trial.hosts}) == 1


def _send(trial: BusTrial, app: App) -> None:
    for _ in range(MESSAGES):
        app.send(trial.rng.randbytes(SIZE), 7, timeout=60.0)
    trial.until(lambda: app.counts()["seen"] == app.counts()["accepted"], "all messages")
    trial.until(trial.are_equal, "equal copies")


def _damage_once(trial: BusTrial, app: App) -> str:
    rng, host = trial.rng, trial.rng.choice(list(trial.hosts))
    path = trial.path(host)
    stop = rng.choice([signal.SIGKILL, signal.SIGTERM])
    what, file = rng.choice(list(store_files(path).items()))
    how = rng.choice(HOWS)
    trial.kill(host, stop)
    damage_file(file, how, rng)
    case = f"{what} of {host} {how} after {stop.name}: {file}"
    log = trial.folder / f"{host}.log"
    read = log.stat().st_size
    trial.start(host)
    trial.until(_decided(trial, host), f"a decision: {case}")
    if trial.daemons[host].poll() is not None:
        said = log.read_bytes()[read:].decode()
        expect(trial.daemons[host].returncode == 1 and "Traceback" not in said,
               f"a sentence: {case}, found {trial.daemons[host].returncode}: {said}")  # fmt: skip
        expect(str(path) in said, f"the directory in what is said: {case}, found {said}")
        path.rename(path.with_name(f"refused-{time.monotonic_ns()}"))
        return _copy_anew(trial, host, "refused", case)
    _expect_idle(trial, host, case)
    if trial.state(host)["waits"]:
        trial.promote("S")
        return _whole(trial, host, "promoted", case)
    return _whole(trial, host, "copied again", case)


def _decided(trial: BusTrial, host: str) -> Callable[[], bool]:
    # Whether a started daemon has decided: it follows, writes, waits, or has ended.
    def decided() -> bool:
        if trial.daemons[host].poll() is not None:
            return True
        try:
            state = trial.state(host)
        except (FileNotFoundError, ValueError):
            return False
        return bool(
            state["pid"] == trial.daemons[host].pid
            and (state["following"] or state["waits"] or state["stopped"])
        )

    return decided


def _copy_anew(trial: BusTrial, host: str, how: str, case: str) -> str:
    trial.start(host)
    trial.until(_decided(trial, host), f"a decision without the directory: {case}")
    if host == "S":
        trial.promote("S")
    return _whole(trial, host, how, case)


def _whole(trial: BusTrial, host: str, how: str, case: str) -> str:
    # Wait for the copy. What is damaged behind a seal, `udpfast verify` finds, and it is copied
    # again once its file is gone.
    trial.until(trial.are_equal, f"equal copies: {case}", patience_s=30.0)
    if _same(trial):
        return how
    damaged = _damaged(trial.path(host))
    expect(damaged is not None, f"`udpfast verify` to find it: {case}")
    assert damaged is not None
    trial.kill(host)
    damaged.unlink()
    trial.start(host)
    trial.until(_decided(trial, host), f"a decision without the segment: {case}")
    if host == "S":
        trial.promote("S")
    trial.until(trial.are_equal, f"equal copies: {case}", patience_s=30.0)
    expect(_same(trial), f"the same SHA-256: {case}")
    return "removed by hand"


def _damaged(path: Path) -> Path | None:
    # The first segment that `udpfast verify` names.
    done = subprocess.run(
        [sys.executable, "-m", "udpfast", "verify", f"store:{path}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not done.returncode:
        return None
    said = done.stdout + done.stderr
    for number in list_segments(path):
        segment = segment_path(path, number)
        if f"{segment.name}: damaged" in said:
            return segment
    return None


def _expect_idle(trial: BusTrial, host: str, case: str) -> None:
    before, began = _cpu_s(trial.daemons[host].pid), time.monotonic()
    time.sleep(WATCHED_S)
    share = (_cpu_s(trial.daemons[host].pid) - before) / (time.monotonic() - began)
    expect(share < IDLE_SHARE, f"a daemon that does not spin: {case}, found {share:.0%} of a core")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
