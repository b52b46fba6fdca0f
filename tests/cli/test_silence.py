"""Lines that bring nothing, by their counters and at given times."""

import random

import pytest

from udpfast.cli.silence import SilentLines, never_spoke

S = 1_000_000_000


def values(**lines: int) -> dict[str, dict[str, int]]:
    named = {name.replace("_", "."): {"datagrams": count} for name, count in lines.items()}
    return {"feed": {"objects": 1}, "incremental": {"messages": 1}, **named}


def test_line_that_falls_silent_is_said_once_and_once_when_it_speaks_again():
    lines = SilentLines(10 * S)
    said = [
        list(lines.look(values(incremental_A=second, incremental_B=min(second, 5)), second * S))
        for second in range(30)
    ]
    assert [(second, each) for second, each in enumerate(said) if each] == [
        (15, ["incremental.B: nothing for 10 s"])
    ]
    assert lines.describe(40 * S) == ["incremental.B: nothing for 35 s"]
    assert list(lines.look(values(incremental_A=31, incremental_B=6), 41 * S)) == [
        "incremental.B: speaks again"
    ]
    assert lines.describe(42 * S) == []


def test_line_that_never_spoke_is_said_so():
    lines = SilentLines(10 * S)
    assert list(lines.look(values(incremental_A=0), 0)) == []
    assert list(lines.look(values(incremental_A=0), 14 * S)) == [
        "incremental.A: nothing for 14 s, and never anything"
    ]
    assert never_spoke(values(incremental_A=3, incremental_B=0)) == [
        "incremental.B: brought nothing so far"
    ]


def test_snapshot_channel_without_a_line_that_speaks_says_what_it_means():
    effect = "; objects that wait for a snapshot wait on"
    assert never_spoke(values(snapshot_A=0, snapshot_B=0)) == [
        f"snapshot.{name}: brought nothing so far{effect}" for name in "AB"
    ]
    assert never_spoke(values(snapshot_A=0, snapshot_B=1)) == ["snapshot.A: brought nothing so far"]


def test_no_limit_means_that_nothing_is_said():
    lines = SilentLines(0)
    assert not [*lines.look(values(snapshot_A=0), 0), *lines.look(values(snapshot_A=0), 900 * S)]


@pytest.mark.parametrize("seed", range(20))
def test_each_silence_is_said_once_and_ended_once(seed):
    chance = random.Random(seed)
    names = [f"incremental_{index}" for index in range(chance.randint(1, 8))]
    lines, counts, heard = SilentLines(5 * S), dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    silent, now_ns = set(), 0
    list(lines.look(values(**counts), now_ns))
    for _ in range(200):
        now_ns += chance.choice((1, 2, 9)) * S
        for name in names:
            if chance.random() < 0.3:
                counts[name] += 1
                heard[name] = now_ns
        before = silent
        silent = {name.replace("_", ".") for name in names if now_ns - heard[name] >= 5 * S}
        said = [sentence.partition(":")[0] for sentence in lines.look(values(**counts), now_ns)]
        assert sorted(said) == sorted(before ^ silent), f"seed {seed}"
