"""RELIABILITY's rows at small size, engine against model and loss-free origin.

Bigger ones: `udpfast lab simulate --row T-L1 --datagrams 1000000`. A failure names
the seed; the same call with it repeats the run exactly.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.follower import Follower
from lab.frames import datagram, datagrams
from lab.model import FeedModel
from lab.object_rows import differential
from lab.origin import Origin
from lab.said import gap_of
from lab.simulate import ROWS, cases
from lab.traffic import Traffic
from udpfast.core.layout import SESSION, Kind
from udpfast.feed.pipeline import FeedPipeline
from udpfast.market.gate import ObjectGate
from udpfast.net.bad_network import Arrival

# Enough of each to show the fault: the rest of the suite wants its share of a minute.
DATAGRAMS = {
    "T-L1": 6_000,
    "T-L2": 10_000,
    "T-L3": 300,
    "T-L5": 2_000,
    "T-D1": 5_000,
    "T-O1": 2_000,
    "T-W1": 1_500,
    "T-F1": 3_000,
}
SMALLER = {"T-L4": {"objects": 100}, "T-R2": {"objects": 600}}


def all_cases() -> list[Any]:
    return [
        pytest.param(row, function, case, id=f"{row}-{number}")
        for row in ROWS
        if row != "T-R3"
        for number, (function, case) in enumerate(cases(row))
    ]


@pytest.mark.parametrize(("row", "function", "case"), all_cases())
def test_row_holds(row: str, function: Any, case: dict[str, Any]) -> None:
    found = function(17, DATAGRAMS.get(row, 3_000), **SMALLER.get(row, {}), **case)
    assert found, "a row that measures nothing proves nothing"


@pytest.mark.parametrize("seed", range(60))
def test_engine_and_model_say_the_same(seed: int) -> None:
    differential(seed, 400)


# --- small cases that the comparison found --------------------------------------------------------


def messages_of(engine: FeedPipeline, steps: list[tuple[int, int, int]]) -> list[int]:
    """Seqnos delivered of (line, session_id, seqno), in order."""
    came = []
    for now_ns, (line, session_id, seqno) in enumerate(steps):
        engine.accept(0, line, datagram(b"x", session_id=session_id, seqno=seqno), now_ns, now_ns)
        came += [message.seqno for message in engine.take() if message.kind == Kind.MESSAGE]
    return came


def test_adopted_session_keeps_what_other_lines_held() -> None:
    engine = FeedPipeline(lines_incremental=2, session_adopt_datagrams=2)
    steps = [(0, 1, 100), (0, 2, 1000), (1, 2, 1003), (1, 2, 1001), (0, 2, 1002)]
    assert messages_of(engine, steps) == [100, 1000, 1001, 1002, 1003]


def test_gap_by_count_waits_for_a_line_that_is_behind_the_base() -> None:
    engine = FeedPipeline(
        lines_incremental=2, session_adopt_datagrams=1, out_of_order_max_interval=2
    )
    start = 1 << 40  # line 1 was last heard long before
    for line in (0, 1):
        engine.accept(0, line, datagram(b"x", session_id=1, seqno=5), 0, 0)
        engine.take()
    came = []
    for at, (line, seqno) in enumerate([(0, 1003), (1, 1000), (1, 1002), (0, 1007), (0, 1008)]):
        engine.accept(0, line, datagram(b"x", session_id=2, seqno=seqno), start + at, start + at)
        came += [message.kind for message in engine.take()]
    assert Kind.GAP not in came


# --- hypothesis -----------------------------------------------------------------------------------


def outputs(messages: list[Any]) -> list[tuple[Any, ...]]:
    said: list[tuple[Any, ...]] = []
    for message in messages:
        if message.kind == Kind.MESSAGE:
            said.append((message.session_id, message.seqno, message.payload))
        elif message.kind == Kind.GAP:
            said.append(("gap", *gap_of(message)[:2]))
    return said


def told(model: FeedModel) -> list[tuple[Any, ...]]:
    said: list[tuple[Any, ...]] = []
    for output in model.take():
        if output.what == "message":
            said.append((output.session_id, output.first, output.payload))
        elif output.what == "gap":
            said.append(("gap", output.first, output.last))
    return said


PAUSES_NS = (0, 1_000_000, 12_000_000, 13_000_000, 60_000_000, 200_000_000)


@settings(max_examples=150)
@given(
    start=st.sampled_from([100, (1 << 32) - 6, (1 << 31) - 3]),
    steps=st.lists(st.tuples(st.integers(0, 24), st.integers(0, 3_000_000)), max_size=60),
    on_gap=st.sampled_from(["keep_all", "latest_run"]),
    interval=st.integers(1, 20),
)
def test_any_order_and_timing_gives_what_the_model_gives(
    start: int, steps: list[tuple[int, int]], on_gap: str, interval: int
) -> None:
    engine = FeedPipeline(on_gap=on_gap, out_of_order_max_interval=interval, restart_datagrams=0)
    model = FeedModel(on_gap=on_gap, out_of_order_max_interval=interval)
    now_ns = 0
    for offset, pause_ns in [(0, 0), *steps]:
        now_ns += pause_ns
        data = datagram(bytes([offset + 1]), seqno=start + offset, object_type=3)
        engine.accept(0, 0, data, now_ns, now_ns)
        came = engine.take()
        engine.expire(now_ns)
        model.accept(0, 0, data, now_ns)
        model.expire(now_ns)
        assert outputs(came + engine.take()) == told(model)


@settings(max_examples=80)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 40), st.sampled_from(PAUSES_NS)), max_size=60
    ),
    interval=st.integers(1, 20),
)
def test_bursts_on_two_lines_give_what_the_model_gives(
    steps: list[tuple[int, int, int]], interval: int
) -> None:
    # With pauses around the eighth of line_dead that counts as silence, and beyond.
    waits = {"lost_packet_wait_ns": 10**9, "out_of_order_max_interval": interval}
    engine = FeedPipeline(lines_incremental=2, restart_datagrams=0, **waits)
    model = FeedModel(**waits)
    now_ns = 0
    for line, offset, pause_ns in [(0, 0, 0), *steps]:
        now_ns += pause_ns
        data = datagram(bytes([offset + 1]), seqno=100 + offset, object_type=3)
        engine.accept(0, line, data, now_ns, now_ns)
        came = engine.take()
        engine.expire(now_ns)
        model.accept(0, line, data, now_ns)
        model.expire(now_ns)
        assert outputs(came + engine.take()) == told(model)


@settings(max_examples=60)
@given(sizes=st.lists(st.integers(1, 2100), min_size=1, max_size=5), data=st.data())
def test_fragments_in_any_order_make_the_messages(sizes: list[int], data: st.DataObject) -> None:
    payloads = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    parts = [
        part
        for number, payload in enumerate(payloads)
        for part in datagrams(payload, seqno=1 + number, object_type=3)
    ]
    engine = FeedPipeline(lost_packet_wait_ns=1 << 40)
    engine.accept(0, 0, datagram(b"x", seqno=0, object_type=3), 0, 0)
    engine.take()
    came = []
    for at, part in enumerate(data.draw(st.permutations(parts))):
        engine.accept(0, 0, part, at, at)
        came += [message.payload for message in engine.take() if message.kind == Kind.MESSAGE]
    assert came == payloads


@settings(max_examples=100)
@given(garbage=st.lists(st.binary(max_size=540), max_size=30))
def test_any_bytes_get_one_verdict_each(garbage: list[bytes]) -> None:
    follower = Follower([])
    accepted = 0
    engine = follower.pipeline
    for at, data in enumerate(garbage):
        engine.accept(at & 1, 0, data, at, at)
        engine.take()
        accepted += 1
    follower.datagrams = accepted
    assert sum(follower.verdicts().values()) == accepted


@settings(max_examples=40)
@given(seed=st.integers(0, 1 << 30), delay=st.integers(0, 300), loss=st.integers(0, 3))
def test_object_never_goes_backwards_and_never_lies(seed: int, delay: int, loss: int) -> None:
    # The snapshot channel lags by less than its cycle (30 snapshots); LIVE objects are complete
    # at every moment after the first complete cycle.
    origin = Origin(objects=30, seed=seed)
    traffic, follower = Traffic(origin), Follower([origin])
    follower.run(traffic.cycle())
    follower.run(traffic.cycle())
    late: list[Arrival] = []
    for arrival in traffic.updates(600, snapshot_every=2):
        while late and late[0].time_ns + delay * 1000 <= arrival.time_ns:
            follower.run([late.pop(0)._replace(time_ns=arrival.time_ns)])
        if arrival.channel == 1:
            late.append(arrival)
        elif origin.rng.randrange(100) >= loss:
            follower.run([arrival])
            follower.check_live_sound()


def test_session_clears_objects_whatever_their_number() -> None:
    objects = ObjectGate(objects_max=5000)
    for number in range(5000):
        objects.admit(object_type=3, object_id=number, seqno=number + 1, flags=1)
    objects.admit(kind=Kind.SESSION, payload=bytes(SESSION.itemsize))
    assert objects.counters()["objects"] == 0
    assert all(objects.state(3, number) is None for number in range(0, 5000, 97))
