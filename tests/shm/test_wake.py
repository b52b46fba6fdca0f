"""A sleeper that said so is woken once there is something new, and no other."""

import select
from pathlib import Path

import pytest

from udpfast.errors import WriterExistsError
from udpfast.shm.wake import Sleeper, WakeRegion

PAUSE_NS = 50_000


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def rung(sleeper: Sleeper) -> bool:
    """Return whether the descriptor is readable, and read what made it so."""
    readable = bool(select.select([sleeper.fileno()], [], [], 0)[0])
    sleeper.drain()
    return readable


def test_armed_sleeper_is_woken_once_when_the_position_moved(directory: Path) -> None:
    wake, sleeper = WakeRegion.create(directory), Sleeper.attach(directory)
    wake.turn(64, 1_000_000)
    assert not rung(sleeper)  # it did not say that it sleeps
    sleeper.arm()
    assert not rung(sleeper)
    wake.turn(64, 2_000_000)
    assert rung(sleeper)
    wake.turn(128, 3_000_000)
    assert not rung(sleeper)  # not armed again
    sleeper.arm()
    wake.turn(64, 4_000_000)  # nothing new since it was woken
    assert not rung(sleeper)
    wake.turn(128, 5_000_000)
    assert rung(sleeper)
    sleeper.close()
    wake.close()


def test_one_word_wakes_everybody_who_watches(directory: Path) -> None:
    wake = WakeRegion.create(directory)
    sleepers = [Sleeper.attach(directory) for _ in range(3)]
    sleepers[1].arm()
    wake.turn(64, 1_000_000)
    assert all(rung(sleeper) for sleeper in sleepers)
    wake.close()


def test_reader_that_lies_costs_one_wake_per_pause(directory: Path) -> None:
    wake, sleeper = WakeRegion.create(directory), Sleeper.attach(directory)
    woken = 0
    for turn in range(1, 1001):
        sleeper.arm()
        wake.turn(64 * turn, 1_000_000 + turn * PAUSE_NS // 10)
        woken += rung(sleeper)
    assert woken == 100
    wake.close()


def test_word_set_within_the_pause_is_answered_behind_it(directory: Path) -> None:
    wake, sleeper = WakeRegion.create(directory), Sleeper.attach(directory)
    sleeper.arm()
    wake.turn(64, 1_000_000)
    assert rung(sleeper)
    sleeper.arm()
    wake.turn(128, 1_000_000 + PAUSE_NS - 1)
    assert not rung(sleeper)
    wake.turn(128, 1_000_000 + PAUSE_NS)
    assert rung(sleeper)
    wake.close()


def test_end_of_the_writer_wakes_everybody(directory: Path) -> None:
    wake, sleeper = WakeRegion.create(directory), Sleeper.attach(directory)
    wake.close()
    wake.close()
    assert rung(sleeper)


def test_next_writer_keeps_the_file_and_its_sleepers(directory: Path) -> None:
    first = WakeRegion.create(directory)
    sleeper = Sleeper.attach(directory)
    with pytest.raises(WriterExistsError):
        WakeRegion.create(directory)
    first.close()
    rung(sleeper)
    second = WakeRegion.create(directory)
    assert not sleeper.replaced()
    sleeper.arm()
    second.turn(64, 1_000_000)
    assert rung(sleeper)
    second.close()


def test_attach_without_a_writer_says_so(directory: Path) -> None:
    with pytest.raises(FileNotFoundError, match="watch for records"):
        Sleeper.attach(directory)
