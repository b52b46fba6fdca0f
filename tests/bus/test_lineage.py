"""The position at which two copies of a store begin to differ."""

import pytest

from udpfast.bus.lineage import Lineage, divergence


@pytest.mark.parametrize(
    ("own", "end", "other", "other_end", "at"),
    [
        ([(1, 0)], 100, [(1, 0)], 60, 60),  # behind: a prefix
        ([(1, 0)], 100, [(1, 0)], 160, 100),  # longer
        ([(1, 0), (2, 80)], 100, [(1, 0)], 80, 80),  # it has all of epoch 1
        ([(1, 0), (2, 80)], 100, [(1, 0)], 96, 80),  # records of epoch 1 that were lost
        ([(1, 0), (2, 80)], 200, [(1, 0), (3, 64)], 96, 64),  # two were promoted
        ([(1, 0), (3, 64)], 200, [(1, 0), (2, 80)], 96, 64),
        ([(1, 0), (2, 64), (4, 96)], 200, [(1, 0), (2, 64), (3, 80)], 160, 80),  # three lineages
        ([(1, 0), (2, 64)], 200, [(7, 64)], 96, 64),  # nothing in common
        ([(1, 0)], 100, [], 0, 0),  # nothing yet
    ],
)
def test_divergence_is_the_first_position_that_differs(own, end, other, other_end, at) -> None:
    assert divergence(own, end, other, other_end) == at


def test_lineage_of_a_record_is_the_latest_that_began_before_it() -> None:
    lineage = Lineage([(1, 0), (2, 80), (5, 160)])
    assert lineage.at(0) == (1, 80)
    assert lineage.at(79) == (1, 80)
    assert lineage.at(80) == (2, 160)
    assert lineage.at(999) == (5, None)
    assert lineage.before(160) == [(1, 0), (2, 80)]


def test_lineage_epoch_that_wrote_nothing_is_forgotten() -> None:
    lineage = Lineage([(1, 0), (2, 80)])
    lineage.begin(3, 80)
    assert lineage.pairs == [(1, 0), (3, 80)]
    assert Lineage.unpack(lineage.pack()).pairs == lineage.pairs
