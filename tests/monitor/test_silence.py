"""Lines that bring nothing, by their counters and at given times."""

import random

import pytest

from udpfast.monitor.silence import SilentLines, describe_addresses, describe_silence

S = 1_000_000_000
BEGAN = 1_800_000_000 * S

Counters = dict[str, dict[str, int]]


def line(datagrams: int = 1, heard_s: float = 0.0, disconnected: int = 0, ready: int = 0) -> dict:
    """Counters of a line that was heard so many seconds after the feed began; 0: never."""
    return {
        "datagrams": datagrams,
        "disconnected": disconnected,
        "ready": ready,
        "heard_ns": BEGAN + int(heard_s * S) if heard_s else 0,
    }


def values(**lines: dict[str, int]) -> Counters:
    named = {name.replace("_", "."): counters for name, counters in lines.items()}
    return {"feed": {"objects": 1}, "incremental": {"messages": 1}, **named}


def described(at_s: int, **lines: dict[str, int]) -> list[str]:
    return [*describe_silence(values(**lines), BEGAN, BEGAN + at_s * S).values()]


def test_line_that_fell_silent_is_described_as_long_as_it_is() -> None:
    assert described(40, incremental_A=line(5, 39.9), incremental_B=line(5, 26, 1)) == [
        "incremental.B: nothing for 14 s"
    ]
    assert described(40, incremental_B=line(6, 39, 1, 1)) == []


def test_line_that_never_brought_anything_is_silent_once_the_feed_says_so() -> None:
    # Not a second after the start: the feed waits for session.inactivity_timeout_ms.
    text = "incremental.A: nothing for 14 s, and never anything"
    assert described(14, incremental_A=line(0)) == []
    assert described(14, incremental_A=line(0, disconnected=1)) == [text]
    assert described(14, incremental_A=line(9, disconnected=1)) == [
        "incremental.A: nothing of this feed for 14 s, and never anything"
    ]


def test_snapshot_channel_without_a_line_that_speaks_says_what_it_means() -> None:
    effect = "; objects that wait for a snapshot wait on"
    assert described(14, snapshot_A=line(0, disconnected=1), snapshot_B=line(3, 4, 1)) == [
        f"snapshot.A: nothing for 14 s, and never anything{effect}",
        f"snapshot.B: nothing for 10 s{effect}",
    ]
    assert described(14, snapshot_A=line(3, 4, 1), snapshot_B=line(1, 14)) == [
        "snapshot.A: nothing for 10 s"
    ]


def test_clock_that_was_set_back_gives_no_line_a_negative_silence() -> None:
    assert described(5, incremental_A=line(5, 26, 1)) == ["incremental.A: nothing for 0 s"]


@pytest.mark.parametrize("seed", range(20))
def test_each_silence_is_said_once_and_ended_once(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"incremental_{index}" for index in range(chance.randint(1, 8))]
    lines, counters = SilentLines(BEGAN), {name: line(1, 1) for name in names}
    at_s, said = 1, []
    for _ in range(200):
        at_s += chance.choice((1, 2, 9))
        changed = []
        for name, counted in counters.items():
            if chance.random() < 0.2:
                changed.append(name.replace("_", "."))
                what = "ready" if counted["disconnected"] > counted["ready"] else "disconnected"
                counted[what] += 1
            if chance.random() < 0.2:  # and back again, unseen
                counted["disconnected"] += 1
                counted["ready"] += 1
        unix_ns = BEGAN + at_s * S
        said = [text.partition(":")[0] for text in lines.look(values(**counters), unix_ns, {})]
        assert set(changed) <= set(said), f"seed {seed}"
        silent = {
            name.replace("_", ".")
            for name, counted in counters.items()
            if counted["disconnected"] > counted["ready"]
        }
        described = lines.describe(values(**counters), unix_ns)
        assert {text.partition(":")[0] for text in described} == silent, f"seed {seed}"
    assert list(lines.look(values(**counters), BEGAN + at_s * S, {})) == []


def address(datagrams: int = 1, heard_s: float = 0.0, silent: int = 0) -> dict[str, int]:
    """Counters of one address of a line that has several."""
    heard_ns = BEGAN + int(heard_s * S) if heard_s else 0
    return {"datagrams": datagrams, "heard_ns": heard_ns, "silent": silent}


def test_silent_addresses_of_a_line_are_named_and_those_of_a_silent_line_are_not() -> None:
    speaking = {f"239.1.1.{n}:5000": address(9, 39) for n in range(1, 9)}
    line_a = speaking | {"239.1.1.4:5000": address(9, 26, 1), "239.1.1.7:5000": address(0, 0, 1)}
    line_b = {name: address(3, 5, 1) for name in speaking}
    described_now = describe_addresses(
        {"incremental.A": line_a, "incremental.B": line_b}, BEGAN, BEGAN + 40 * S
    )
    assert described_now == {
        "incremental.A": "incremental.A: 2 of 8 addresses bring nothing: 239.1.1.4:5000 for 14 s, "
        "239.1.1.7:5000 for 40 s, and never anything"
    }


def test_many_silent_addresses_are_counted_behind_the_first_ones() -> None:
    line_a = {f"239.1.1.{n}:5000": address(9, 30, int(n < 8)) for n in range(1, 11)}
    text = describe_addresses({"incremental.A": line_a}, BEGAN, BEGAN + 40 * S)["incremental.A"]
    assert text.startswith("incremental.A: 7 of 10 addresses bring nothing: 239.1.1.1:5000 for 10")
    assert text.endswith("239.1.1.4:5000 for 10 s, and 3 more")


def test_address_is_said_once_when_it_falls_silent_and_once_when_it_speaks_again() -> None:
    lines = SilentLines(BEGAN)
    speaking = {f"239.1.1.{n}:5000": address(9, 30) for n in (1, 2, 3)}

    def said(**silent: int) -> list[str]:
        found = {
            name: one | {"silent": silent.get(f"a{name[8]}", 0)} for name, one in speaking.items()
        }
        return [*lines.look(values(), BEGAN + 40 * S, {"incremental.A": found})]

    assert said() == []
    assert said(a2=1) == ["incremental.A: 1 of 3 addresses bring nothing: 239.1.1.2:5000 for 10 s"]
    assert said(a2=1) == []
    assert said() == ["incremental.A: 239.1.1.2:5000 brings something again"]
    # All of them: it is the line that is silent, and said so.
    assert said(a1=1, a2=1, a3=1) == []
    assert said() == []
