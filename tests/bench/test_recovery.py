"""The benchmark of snapshots beside changes."""

import contextlib
import itertools
import os
import socket

import numpy as np
import pytest

from bench import bench_recovery
from bench.loops.beside import BesideResult, send_beside
from bench.trials import Settings
from udpfast.net.sender import DatagramSender


def test_benchmark_compares_changes_beside_snapshots_with_changes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_recovery, "RATE", 2_000)
    monkeypatch.setattr(bench_recovery, "OPENING", 200)
    monkeypatch.setattr(bench_recovery, "CHANGES", (300, 300))
    core = min(os.sched_getaffinity(0))
    failed: list[str] = []
    rows = list(
        bench_recovery.run(Settings(rounds=1, quick=True, cores=(core, core), fail=failed.append))
    )
    assert failed == []
    assert {row.variant for row in rows} == {bench_recovery.ALONE, bench_recovery.BESIDE}
    assert {row.parameters["percentile"] for row in rows} == {"p50", "p99"}
    assert {row.goal.partition(":")[0] for row in rows if row.goal} == {"P36"}
    assert all(np.isfinite(row.median) for row in rows)


class Watched:
    """What a watch counts."""

    def __init__(self, datagrams: int, unstamped: int = 0) -> None:
        self.datagrams, self.unstamped, self.left_out = datagrams, unstamped, 0


@pytest.mark.parametrize(
    ("watched", "channel", "drops", "unsent"),
    [
        (Watched(9), {}, 0, 0),
        (Watched(10, unstamped=1), {}, 0, 0),
        (Watched(10), {"gaps": 1}, 0, 0),
        (Watched(10), {"lost": 1}, 0, 0),
        (Watched(10), {}, 1, 0),
        (Watched(10), {}, 0, 1),
    ],
)
def test_trial_of_which_changes_are_missing_is_refused(
    watched: Watched, channel: dict[str, int], drops: int, unsent: int
) -> None:
    counters = {
        "incremental": {"gaps": 0, "lost": 0} | channel,
        "incremental.A": {"kernel_drops": drops},
    }
    with pytest.raises(ValueError, match="10 datagrams of changes"):
        bench_recovery.verify(counters, watched, 10, BesideResult(unsent, 0, 1))


def test_others_go_round_and_round_while_nothing_is_due() -> None:
    due, beside = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    with due, beside:
        for sock in (due, beside):
            sock.bind(("127.0.0.1", 0))
            sock.setblocking(False)
        changes = [bytes([n]) * (1 + n) for n in range(4)]
        others = [bytes([100 + n]) * (10 - n) for n in range(10)]
        with (
            DatagramSender(f"127.0.0.1:{due.getsockname()[1]}") as to_due,
            DatagramSender(f"127.0.0.1:{beside.getsockname()[1]}") as to_beside,
        ):
            sent = send_beside(
                to_due,
                *bench_recovery.packed(changes),
                200_000,
                to_beside,
                *bench_recovery.packed(others),
            )
        assert [due.recv(100) for _ in changes] == changes
        came = []
        with contextlib.suppress(BlockingIOError):
            while True:
                came.append(beside.recv(100))
    assert sent.unsent == 0
    assert sent.others >= len(came) > len(others)
    assert came == list(itertools.islice(itertools.cycle(others), len(came)))
