"""A whole bus on one seed holds, and mistakes in it are found."""

import pytest

from lab.bus import check_seed, run
from lab.bus_mutants import mutant
from lab.bus_oracle import Wrong
from tests.bus.test_promotion import calm, writers
from tests.bus.test_promotion import run as elapse
from tests.cases import nightly


@pytest.mark.parametrize("seed", [1, 2, *nightly(*range(3, 7))])
def test_bus_holds_whatever_happens_to_it(seed: int) -> None:
    assert check_seed(seed)["records checked"] > 0


def test_standby_that_catches_up_is_away_until_its_writer_hears_of_it() -> None:
    # What it lacks then is 24 ms old, and no older while its ACK is on its way.
    assert check_seed(200_009_520)["records checked"] > 0


def test_hosts_are_stopped_in_good_order_as_often_as_killed() -> None:
    found = check_seed(12)
    assert found["stops"] > 5
    assert found["kills"] > 5


@pytest.mark.parametrize(
    ("row", "seed", "what"),
    [
        ("B10", 1, "duplicates refused"),
        ("B11", 1, "kills"),
        ("B16", 1, "promotions"),
        ("B17", 1, "promotions"),
        ("B18", 2, "promotions"),
        *nightly(("B15", 1, "messages sent again")),
    ],
)
def test_bus_holds_under_each_row_of_faults(row: str, seed: int, what: str) -> None:
    found = check_seed(seed, row)
    assert found["messages accepted"] > 1000
    assert found[what] > 0


@pytest.mark.nightly  # the history of a composite, below a second, is tested always
def test_bus_of_one_seed_is_one_history() -> None:
    one, two = run(11), run(11)
    assert one.oracle.truth == two.oracle.truth
    assert one.now_ns == two.now_ns


@pytest.mark.parametrize(
    ("name", "seed", "what"),
    [
        ("takes-the-last-twice", 3, "I6 .* is not what was accepted"),
        ("believes-records", 8, "I1 .*two records at"),
        ("serves-any-copy", 129, "I6 .* is let go, and not safe"),
        ("lets-go-too-early", 1, "I6 message 1 of .* is let go, and not safe"),
        ("takes-for-away-too-soon", 23, "I6 .* is let go, and not safe"),
        ("waits-for-nobody-again", 4, "I6 one takes .*'S'.* for away: no copy lacks"),
        ("shows-too-early", 9, "I4 .*, which 0 copies have, not 1"),
        ("copies-nothing", 17, "B16 .* without the record at"),
        ("begins-at-once", 8, "a second store was begun"),
        ("looks-at-the-end-alone", 81, "I2 .* ends at"),
        ("stays-sealed", 6, "I2 .* ends at"),
    ],
)
@pytest.mark.nightly  # that the campaign finds what it is for
def test_mistake_is_found(name: str, seed: int, what: str) -> None:
    with mutant(name), pytest.raises(AssertionError, match=what):
        run(seed)


def test_host_that_writes_on_unasked_is_found() -> None:
    world = calm("S", "one")
    world.hosts["S"].stop()
    world.promote(world.hosts["one"])
    elapse(world, 4)
    assert writers(world) == ["one"]
    with (
        mutant("writes-on-unasked"),
        pytest.raises(Wrong, match=r"S: writes epoch .*, although one had promised"),
    ):
        world.hosts["S"].start()


def test_host_that_forgets_its_promise_is_found() -> None:
    world = calm("S", "one")
    with mutant("forgets-its-promise"):
        world.hosts["S"].kill()
        world.hosts["S"].start()
        elapse(world, 1)
        world.promote(world.hosts["one"])
        while writers(world) == ["S"]:
            elapse(world, 0.001)
        world.apart.add(frozenset(("S", "one")))
        world.hosts["S"].kill()
        with pytest.raises(Wrong, match=r"writes epoch .* and promised"):
            world.hosts["S"].start()
            elapse(world, 4)
