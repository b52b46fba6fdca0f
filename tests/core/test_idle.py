"""Idle strategies step by step."""

import pytest

from udpfast.core.idle import Idler, IdleStrategy, idle_strategy
from udpfast.errors import ConfigError

SPINS = 1_000
YIELDS = 100


def test_spin_never_parks() -> None:
    idler = Idler("spin")
    for _ in range(SPINS + YIELDS + 10):
        idler.step(0)
        assert not idler.parked


@pytest.mark.parametrize("strategy", ["yield", "sleep"])
def test_yield_and_sleep_park_at_the_first_empty_turn(strategy: str) -> None:
    idler = Idler(strategy, sleep_max_ns=1_000)
    idler.step(0)
    assert idler.parked


def test_backoff_spins_then_yields_then_sleeps_twice_as_long_up_to_the_maximum() -> None:
    idler = Idler("backoff", sleep_max_ns=5_000)
    for _ in range(SPINS):
        idler.step(0)
        assert not idler.parked
    for _ in range(YIELDS):
        idler.step(0)
        assert idler.parked
    sleeps_ns = []
    for _ in range(5):
        sleeps_ns.append(idler.next_sleep_ns)
        idler.step(0)
    assert sleeps_ns == [1_000, 2_000, 4_000, 5_000, 5_000]


def test_work_starts_the_backoff_anew() -> None:
    idler = Idler("backoff", sleep_max_ns=5_000)
    for _ in range(SPINS + YIELDS + 3):
        idler.step(0)
    idler.step(1)
    assert (idler.empty_turns, idler.next_sleep_ns, idler.parked) == (0, 1_000, False)


def test_negative_work_count_is_no_work() -> None:
    idler = Idler("spin")
    idler.step(-1)
    assert idler.empty_turns == 1


@pytest.mark.parametrize("strategy", list(IdleStrategy))
def test_idle_strategy_name_is_parsed(strategy: IdleStrategy) -> None:
    assert idle_strategy(strategy.name.lower()) is strategy
    assert idle_strategy(strategy) is strategy


@pytest.mark.parametrize("name", ["SPIN", "", "busy"])
def test_idle_strategy_unknown_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"spin, yield, backoff, sleep, was '{name}'"):
        idle_strategy(name)


def test_sleep_max_below_the_first_sleep_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1000, was 999"):
        Idler("sleep", sleep_max_ns=999)
