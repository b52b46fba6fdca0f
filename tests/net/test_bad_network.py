"""The bad network follows its settings, and repeats itself with the same seed."""

import numpy as np
import pytest

from udpfast.net.bad_network import Arrival, BadNetwork, LineFaults, network

SENT = [
    Arrival(number * 1000, 0, number & 1, number.to_bytes(4, "little") * 5)
    for number in range(20_000)
]


def test_perfect_network_changes_nothing() -> None:
    assert network(SENT, LineFaults(), 1) == SENT


def test_same_seed_gives_the_same_datagrams() -> None:
    faults = LineFaults(
        loss=0.1,
        burst_mean=7,
        duplicate=0.1,
        duplicate_delay_ns=9_000,
        reorder=0.3,
        reorder_depth=12,
        jitter_ns=300,
        corrupt=0.05,
    )
    assert network(SENT, faults, 7) == network(SENT, faults, 7)
    assert network(SENT, faults, 7) != network(SENT, faults, 8)


@pytest.mark.parametrize("burst_mean", [0, 5, 20])
def test_loss_has_the_average_and_the_bursts_asked_for(burst_mean: float) -> None:
    arrived = network(SENT, {(0, 0): LineFaults(loss=0.1, burst_mean=burst_mean)}, 3)
    came = {int.from_bytes(arrival.datagram[:4], "little") for arrival in arrived}
    lost = np.array([number not in came for number in range(0, 20_000, 2)])
    assert lost.mean() == pytest.approx(0.1, rel=0.5)
    runs = np.flatnonzero(np.diff(np.concatenate([[0], lost.astype(int), [0]])) == 1).size
    assert lost.sum() / runs == pytest.approx(max(1.1, burst_mean), rel=0.5)
    assert all(number in came for number in range(1, 20_000, 2)), "line 1 is perfect"


def test_reordering_moves_no_datagram_back_further_than_its_depth() -> None:
    one = [arrival._replace(line=0) for arrival in SENT]
    arrived = network(one, LineFaults(reorder=0.5, reorder_depth=9), 5)
    order = [int.from_bytes(arrival.datagram[:4], "little") for arrival in arrived]
    assert sorted(order) == list(range(20_000))
    assert order != sorted(order)
    highest = np.maximum.accumulate(order)
    assert (highest - order).max() <= 9
    assert [arrival.time_ns for arrival in arrived] == [arrival.time_ns for arrival in one]


def test_duplicates_come_later_by_their_delay() -> None:
    arrived = network(SENT, LineFaults(duplicate=0.2, duplicate_delay_ns=5_000), 5)
    times: dict[bytes, list[int]] = {}
    for arrival in arrived:
        times.setdefault(arrival.datagram, []).append(arrival.time_ns)
    twice = [both for both in times.values() if len(both) == 2]
    assert len(twice) == pytest.approx(4_000, rel=0.1)
    assert {later - first for first, later in twice} == {5_000}


def test_damage_changes_one_byte() -> None:
    arrived = network(SENT, LineFaults(corrupt=1.0), 5)
    for sent, came in zip(SENT, arrived, strict=True):
        assert sum(a != b for a, b in zip(sent.datagram, came.datagram, strict=True)) == 1


def test_transmitter_face_gives_due_times() -> None:
    bad = BadNetwork({(0, 1): LineFaults(delay_ns=50)}, 1)
    assert bad.pass_through(0, 1, [b"a", b"b"], 1000) == [(1050, b"a"), (1050, b"b")]
    assert bad.pass_through(0, 0, [b"a"], 1000) == [(1000, b"a")]
