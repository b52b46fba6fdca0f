"""How a stopped copy, and one that catches up from far behind, slow the others down (B2).

    app --> S, the writer --> one, whose reader measures the times
                          --> two, stopped by SIGSTOP in the second part of each round
                          --> three, which begins an empty copy in the third part

The three parts of a round follow each other directly, so that the host is in the same state for all
of them. Two times are measured: from `send` until the message has its place in the order, which
matters to the producer, and from there to the reader. All daemons share the disk and the cores with
the copy that catches up. To measure the links alone:

    TMPDIR=/dev/shm nice -n -20 udpfast lab bus-faults --row B2
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from udpfast.client.app import App
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind

from .bus_trial import BusTrial, expect
from .children import in_child

__all__ = ["leave_behind"]

HOSTS = {"S": "127.0.0.1", "one": "127.0.0.2", "two": "127.0.0.3", "three": "127.0.0.4"}
#: Threads wait in the kernel, because there are more threads than cores.
SETTINGS = 'sequencer = "S"\nreplicas = ["one", "two", "three"]\n[links]\nidle = "sleep"\n'
#: Messages that each round adds to the store first: five rounds make an hour of 55 per second.
HISTORY, HISTORY_SIZE = 40_000, 1300
#: The least number of messages in a part, and the seconds between two of them.
PART, GAP_S = 2000, 0.001
SIZE = 256
#: Type of the messages in the store. Those of a part have its number; its last message is empty.
KEPT = 0
PARTS = ("alone", "beside a stopped copy", "beside one that catches up")


def leave_behind(folder: Path, times: int, seed: int) -> dict[str, Any]:
    """Stop a copy, then let one catch up from far behind, and time the other copies (B2)."""
    with BusTrial(folder, seed, SETTINGS, HOSTS) as trial:
        trial.start_all()
        with trial.app("S", "app-S", capacity_bytes=1 << 28) as app:
            for _ in range(HISTORY * times):
                app.send(bytes(HISTORY_SIZE), KEPT, timeout=60.0)
            trial.until(functools.partial(_settled, trial, app), "equal copies")
            # Each part of each round has two p99: to its place, and from there to the reader.
            number = itertools.count(KEPT + 1)
            found = [[part(trial, app, next(number)) for part in (_alone, _stopped, _behind)]
                     for _ in range(times)]  # fmt: skip
            trial.until(functools.partial(_settled, trial, app), "equal copies")
            copies = [trial.copy(host) for host in HOSTS]
            expect(len({copy.sha256 for copy in copies}) == 1, "the same SHA-256 on all hosts")
            accepted = app.counts()["accepted"]
            expect(copies[0].in_order and copies[0].messages == accepted, "all messages, once")
    told: dict[str, Any] = {"messages": accepted}
    for which, what in enumerate(("send to place", "place to reader")):
        for part, name in enumerate(PARTS):
            us = statistics.median(round_[part][which] for round_ in found) / 1e3
            told[f"us p99 {what} {name}"] = round(us)
    return told


def _settled(trial: BusTrial, app: App) -> bool:
    counts = app.counts()
    return counts["seen"] == counts["freed"] == counts["accepted"] and trial.are_equal()


def _alone(trial: BusTrial, app: App, number: int) -> tuple[float, float]:
    return _measure(trial, app, number, lambda: True)


def _stopped(trial: BusTrial, app: App, number: int) -> tuple[float, float]:
    trial.daemons["two"].send_signal(signal.SIGSTOP)
    try:
        found = _measure(trial, app, number, lambda: True)  # host one reads all of these
    finally:
        trial.daemons["two"].send_signal(signal.SIGCONT)
    trial.until(lambda: trial.follows("two") and _settled(trial, app), "it to go on")
    return found


def _behind(trial: BusTrial, app: App, number: int) -> tuple[float, float]:
    trial.kill("three")
    shutil.rmtree(trial.path("three"))
    target = trial.lives("S").end
    trial.start("three")
    trial.until(functools.partial(_has, trial, 1), "a copy that begins")
    expect(not _has(trial, target), "a copy that is behind")
    found = _measure(trial, app, number, functools.partial(_has, trial, target), least=1)
    trial.until(functools.partial(_settled, trial, app), "equal copies")
    return found


def _has(trial: BusTrial, end: int) -> bool:
    try:
        return trial.lives("three").end >= end
    except FileNotFoundError:
        return False


def _measure(
    trial: BusTrial, app: App, number: int, over: Callable[[], bool], least: int = PART
) -> tuple[float, float]:
    # Send until `over` says so; return the p99 of both times, in ns.
    times = trial.folder / "times.npy"
    ready, begun = os.pipe()
    child = in_child(functools.partial(_read, str(trial.path("one")), number, begun, times))
    os.close(begun)
    expect(os.read(ready, 1), "a reader that begins")
    os.close(ready)
    count = 0
    due = time.perf_counter()
    while count < least or not over():
        app.send(time.time_ns().to_bytes(8, "little") + bytes(SIZE - 8), number)
        count += 1
        due = max(due + GAP_S, time.perf_counter() - GAP_S)
        time.sleep(max(due - time.perf_counter(), 0))
    app.send(b"", number)
    try:
        trial.until(times.exists, "a reader that reads all")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    found = np.load(times)
    times.unlink()
    expect(len(found) == count, f"{count} messages read, found {len(found)}")
    return tuple(np.percentile(found, 99, axis=0))


def _read(store: str, number: int, begun: int, times: Path) -> None:
    found = []
    with Reader(f"store:{store}", start="tail") as reader:
        os.write(begun, b"!")
        for record in reader:
            now_ns = time.time_ns()
            if record.kind is not Kind.BUS or record.type != number:
                continue
            if not record.payload:
                break
            sent_ns = int.from_bytes(record.payload[:8], "little")
            found.append((record.published_ns - sent_ns, now_ns - record.published_ns))
    part = times.with_suffix(".part.npy")
    np.save(part, np.array(found, np.int64).reshape(-1, 2))
    part.rename(times)
