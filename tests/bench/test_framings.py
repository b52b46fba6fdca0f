"""Bursts of other framings, and the benchmark that sends them."""

import os

import numpy as np
import pytest

from bench import bench_framings
from bench.framing_trains import PLACES, UnitTrain
from bench.trials import Settings
from udpfast.wire.framing import Framing


@pytest.mark.parametrize("name", PLACES)
def test_train_of_a_framing_is_sound_and_its_numbers_go_on(name: str) -> None:
    framing = Framing(name)
    streams = 4 if name == "cboe_pitch" else 1
    messages = 3 if name == "moldudp64" else 1
    train = UnitTrain(name, messages, 40, streams, 16)
    expected: dict[int, int] = {}
    for _ in range(3):
        for row in train.rows:
            (unit,) = framing.units(row.tobytes())
            assert unit.number == expected.get(unit.stream, 1)
            expected[unit.stream] = unit.number + unit.count
        train.advance()
    assert len(expected) == streams
    assert train.messages == 16 * messages


def test_train_whose_streams_do_not_take_turns_evenly_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 29"):
        UnitTrain("cboe_pitch", 1, 40, 29, 512)


def test_benchmark_gives_a_row_for_every_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_framings, "unit_cost_ns", lambda *_, **__: 1.0)
    core = min(os.sched_getaffinity(0))
    rows = list(bench_framings.run(Settings(rounds=1, quick=True, cores=(core, core))))
    goals = {row.goal.partition(":")[0] for row in rows if row.goal}
    assert goals == {"V1", "V2", "V3", "V4"}
    assert all(np.isfinite(row.median) for row in rows)
