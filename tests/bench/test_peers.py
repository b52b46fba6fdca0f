"""The peers at a tiny size: what came is counted, and what is not installed is said."""

import dataclasses
import os
from collections.abc import Iterator

import pytest

from bench import bench_peers
from bench.bench_peers import PEERS, compare
from bench.peer_chain import ChainEnds
from bench.peer_trial import HEAD, Arrivals, PeerEnds, PeerSilentError, account, verify
from bench.peers import lcm_udpm, pyzmq_ipc, sockperf
from bench.peers.face import Peer, installed
from bench.trials import Outcome, Settings, Trial, Trials

CORES = (min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0)))

SHOWN = """
sockperf: # dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0
sockperf: Total 4444 observations; each percentile contains 44.44 observations
sockperf: ---> <MAX> observation = 18012.659
sockperf: ---> percentile 99.990 = 18012.659
sockperf: ---> percentile 99.900 = 14003.589
sockperf: ---> percentile 99.000 =   16.063
sockperf: ---> percentile 90.000 =    3.430
sockperf: ---> percentile 50.000 =    3.229
"""


@pytest.fixture(params=[pyzmq_ipc.PEER, lcm_udpm.PEER], ids=lambda peer: peer.variant)
def ends(request: pytest.FixtureRequest) -> Iterator[PeerEnds]:
    if not installed(request.param):
        pytest.skip(f"{request.param.package} is not installed")
    ends = PeerEnds(request.param, CORES, 64)
    yield ends
    ends.close()


def test_peer_ends_carry_messages(ends: PeerEnds) -> None:
    fast = ends.throughput(200)
    assert fast.value > 0
    assert "200 sent, 200 taken: all, in order" in fast.verified
    paced = ends.latency(100, 10_000)
    assert paced.histogram is not None
    assert paced.histogram.total == 95
    assert paced.histogram.minimum > 0


@pytest.mark.parametrize("trains", [False, True])
def test_chain_ends_carry_messages(trains: bool) -> None:
    ends = ChainEnds(CORES, 64, trains=trains)
    try:
        assert "500 sent, 500 taken: all, in order" in ends.throughput(500).verified
        paced = ends.latency(100, 10_000)
        assert paced.histogram is not None
        assert paced.histogram.total == 95
    finally:
        ends.close()


def test_account_counts_what_is_out_of_order_and_no_hello() -> None:
    came = [HEAD.pack(number, 100) for number in (-1, 0, 2, 1, 3)]
    found = account(came, [1_000, 150, 160, 170, 180], 7)
    assert found == Arrivals(4, 1, 7, [50, 60, 70, 80])


def test_verify_says_what_was_lost_and_refuses_another_order() -> None:
    assert verify(5, Arrivals(3, 0, 0, [])) == ("5 sent, 3 taken: 2 lost, the others in order")
    with pytest.raises(PeerSilentError, match="expected 5 messages in order, found 5, 1 not"):
        verify(5, Arrivals(5, 1, 0, []))
    with pytest.raises(PeerSilentError, match="found 0"):
        verify(5, Arrivals(0, 0, 0, []))


def test_peer_that_is_not_installed_is_said_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = dataclasses.replace(pyzmq_ipc.PEER, module="no_such_module", package="no-such")
    monkeypatch.setattr(bench_peers, "PEERS", (absent,))
    monkeypatch.setattr(bench_peers, "WAYS", {})
    monkeypatch.setattr(bench_peers, "ChainEnds", lambda *_, **__: NoEnds())
    notes: list[str] = []
    with bench_peers.ExitStack() as stack:
        found = bench_peers.open_all(Settings(note=notes.append), 64, stack)
    assert list(found) == [bench_peers.CHAIN, bench_peers.TRAINS]
    assert notes == ["pyzmq ipc skipped: not installed (pip install no-such)"]


class NoEnds:
    """Nothing to close."""

    def close(self) -> None:
        """Close nothing."""


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.variant)
def test_peer_says_its_version_and_what_it_does_less(peer: Peer) -> None:
    assert peer.less
    assert peer.version.startswith(peer.package)


def test_compare_each_goal_against_its_own_base() -> None:
    figures = {"pyzmq ipc": 1.0, "udpfast ring, poll": 40.0, "iceoryx2": 4.0, "other": 9.0}
    trials = Trials(
        tuple(figures),
        [Trial(name, 0, "", Outcome(x, verified="ok")) for name, x in figures.items()],
    )
    rows = list(compare(trials, "messages/s", {}, bench_peers.GOALS_THROUGHPUT, False))
    found = [(row.variant, row.base, row.ratio, row.goal, row.met()) for row in rows]
    assert found == [
        ("pyzmq ipc", "pyzmq ipc", 1.0, "", None),
        ("udpfast ring, poll", "pyzmq ipc", 40.0, "P13: >= 30", True),
        ("iceoryx2", "iceoryx2", 1.0, "", None),
        ("udpfast ring, poll", "iceoryx2", 10.0, "P14: >= 8", True),
        ("udpfast ring, poll", "zenoh tcp", None, "P14: >= 3", None),
        ("udpfast ring, poll", "Cyclone DDS", None, "P14: >= 30", None),
        ("other", "other", 1.0, "", None),
    ]


def test_sockperf_what_it_prints_is_read_in_ns() -> None:
    found = sockperf.parse(SHOWN)
    assert found.round_trips == 4444
    assert found.latency == {
        "p50": 3229.0,
        "p90": 3430.0,
        "p99": 16063.0,
        "p99.9": 14003589.0,
        "max": 18012659.0,
        "count": 4444.0,
    }


def test_sockperf_losses_are_refused() -> None:
    with pytest.raises(RuntimeError, match="nothing dropped"):
        sockperf.parse(SHOWN.replace("dropped messages = 0", "dropped messages = 3"))
