"""The program that compares both ends of a relay, in small."""

import pytest

from lab.relaycheck import Faults, run
from tests.cases import nightly
from tests.shared import shared


@pytest.mark.parametrize(
    ("name", "capture", "faults"),
    [
        ("itch_small", "feed", Faults(loss=0.2, burst=8.0)),
        ("pitch_2", "feed", Faults(loss=0.05, kills=2, image=True)),
        *nightly(
            ("itch_small", "clean", Faults(loss=0.01)),
            ("cme_2_reset", "feed", Faults(loss=0.01, restarts=1)),
            ("cme_1", "clean", Faults(loss=0.01, stalls=1, image=True)),
        ),
        ("itch_small", "clean", Faults(loss=0.1, parity=4)),
        ("itch_small", "clean", Faults(loss=0.01, bits_per_s=200_000)),
    ],
)
def test_both_ends_know_the_same(name: str, capture: str, faults: Faults) -> None:
    found = run(shared("venues", "books", name), capture, faults, 1)
    assert found["compared"] > 100
    assert found["sound"] or capture == "feed"
    if capture == "feed" and not faults.restarts:
        assert found["near GAP"] and found["doubted"]
    assert bool(found["repaired"]) == bool(faults.parity)
    if faults.bits_per_s:
        assert found["conflated"] and found["delayed"]
