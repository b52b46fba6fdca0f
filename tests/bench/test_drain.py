"""The queue-and-drain benchmark at a tiny size: what it says it checks, it checks."""

import os
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from bench import bench_drain
from bench.drain_trains import Train, books, fragments, in_order, swapped
from bench.drain_ways import FeedWay, FloorWay, ReceiverWay, WrongCountError
from bench.framing_trains import UnitTrain
from bench.loops.drainload import BurstSender
from bench.peers.floor import MODES, Floor, FloorError, load_floor
from bench.trials import Settings

COUNT = 256


@pytest.fixture
def bursts() -> Iterator[BurstSender]:
    sender = BurstSender()
    yield sender
    sender.close()


@pytest.fixture(scope="session")
def floor() -> Floor:
    try:
        return load_floor()
    except FloorError as reason:
        pytest.skip(str(reason))


def test_train_advance_numbers_go_on() -> None:
    train = in_order(80, 4)
    assert train.frames["seqno"].tolist() == [1, 2, 3, 4]
    assert train.checksum == 10
    train.advance()
    assert train.frames["seqno"].tolist() == [5, 6, 7, 8]


def test_train_swapped_one_in_a_hundred_less_than_64_apart() -> None:
    moved = swapped(80, 500).frames["seqno"].astype(int) - np.arange(1, 501)
    assert np.count_nonzero(moved) == 10
    assert 0 < np.abs(moved).max() < 64


def test_train_books_every_update_continues_its_object() -> None:
    train = books(128)
    assert train.opening is not None
    frames = train.frames
    assert (frames["seqno"] - frames["last_seqno"] == 64).all()
    assert len(train.opening) == 64
    train.advance()
    assert (frames["seqno"] - frames["last_seqno"] == 64).all()


def test_train_fragments_of_half_a_message_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 256"):
        fragments(255)


@pytest.mark.parametrize("mode", sorted(MODES.keys() - {"records", "promised"}))
def test_floor_way_takes_all(bursts: BurstSender, floor: Floor, mode: str) -> None:
    way = FloorWay(floor, mode, bursts, in_order(80, COUNT), 2)
    assert way.trial() > 0
    assert way.train.frames["seqno"][0] == 1 + 2 * COUNT
    way.close()


@pytest.mark.parametrize(("mode", "left"), [("records", 30 * COUNT - 30), ("promised", 30 * 7)])
def test_floor_way_records_every_message(
    bursts: BurstSender, floor: Floor, mode: str, left: int
) -> None:
    way = FloorWay(floor, mode, bursts, UnitTrain("moldudp64", 30, 40, 1, COUNT), 2)
    assert way.trial() > 0
    way.train.rows[7, 20] = 255  # a length far beyond the datagram
    with pytest.raises(WrongCountError, match=rf"{30 * COUNT}.* {left}$"):
        way.trial()
    way.close()


def test_floor_way_other_seqnos_than_sent_are_found(bursts: BurstSender, floor: Floor) -> None:
    way = FloorWay(floor, "recvmmsg", bursts, in_order(80, COUNT), 1)
    bursts.awake()
    way.fill()
    way.train.frames["seqno"][7] += 1
    with pytest.raises(WrongCountError, match="sum of seqnos"):
        way.drain(COUNT)
    way.close()


def test_receiver_way_takes_all(bursts: BurstSender) -> None:
    way = ReceiverWay(bursts, in_order(80, COUNT), 2)
    assert way.trial() > 0
    way.close()


@pytest.mark.parametrize(
    ("train", "settings"),
    [
        (lambda: in_order(80, COUNT), {}),
        (lambda: in_order(80, COUNT), {"lines": 2}),
        (lambda: in_order(80, COUNT), {"receive": {"timestamps": "kernel"}}),
        (lambda: in_order(80, COUNT), {"receive": {"gro": True}}),
        (lambda: swapped(80, COUNT), {}),
        (lambda: fragments(COUNT), {}),
        (lambda: books(COUNT), {}),
    ],
    ids=["in order", "two lines", "stamps", "gro", "swapped", "fragments", "books"],
)
def test_feed_way_delivers_all(
    bursts: BurstSender, train: Callable[[], Train], settings: dict[str, object]
) -> None:
    way = FeedWay(bursts, train(), 2, **settings)
    assert way.trial() > 0
    assert way.trial() > 0
    counters = way.engine.read_counters()
    if settings.get("lines") == 2:
        assert counters["incremental.B"]["duplicate"] == 4 * COUNT
    if way.train.opening is not None:
        assert counters["feed"]["applied"] == counters["feed"]["updates"] == 64 + 4 * COUNT
    way.close()


def test_feed_way_missing_datagram_is_found(bursts: BurstSender) -> None:
    way = FeedWay(bursts, in_order(80, COUNT), 1)
    way.trial()
    way.train.frames["seqno"][100:] += 1
    with pytest.raises(WrongCountError, match="messages"):
        way.trial()
    way.close()


def test_drain_every_variant_has_a_verified_row(bursts: BurstSender, floor: Floor) -> None:
    # One core twice: nothing waits for a placement, and all trials are kept.
    core = min(os.sched_getaffinity(0))
    failures: list[str] = []
    settings = Settings(rounds=1, cores=(core, core), fail=failures.append)
    rows = [
        *bench_drain.drain_bursts(settings, bursts, 528, 1, burst=COUNT),
        *bench_drain.drain_books(settings, bursts, 1, burst=COUNT),
        *bench_drain.drain_long_queue(settings, bursts, 80, queued=COUNT),
    ]
    assert not failures
    for row in rows:
        row.check()
    # P1 differs by placement, and here there is none.
    goals = {row.goal.partition(":")[0] for row in rows}
    assert goals >= {"P2", "P3", "P4", "P5", "P6", "P7"}
    assert {row.base for row in rows} == {bench_drain.BASE, bench_drain.OURS}
    peers = {row.variant: row for row in rows if row.version}
    assert {"recv_into + struct", "asyncio"} <= set(peers)
    assert all(row.less for row in peers.values())


def test_drain_without_a_compiler_the_floor_is_left_out(
    bursts: BurstSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_compiler() -> Floor:
        raise FloorError("no C compiler: apt-get install gcc")

    monkeypatch.setattr(bench_drain, "load_floor", no_compiler)
    core = min(os.sched_getaffinity(0))
    notes: list[str] = []
    settings = Settings(rounds=1, cores=(core, core), note=notes.append)
    rows = list(bench_drain.drain_books(settings, bursts, 1, burst=COUNT))
    assert notes == [f"{bench_drain.BASE} left out: no C compiler: apt-get install gcc"]
    assert {row.variant for row in rows} == {"udpfast", "udpfast, books decoded"}
    assert all(row.ratio is None for row in rows)
